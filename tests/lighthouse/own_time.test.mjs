// A trace in the time of the main thread's own work: what waited shrinks, what nests stays nested, other threads stay as they are.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inOwnTime } from './own_time.mjs';

const [pid, tid] = [7, 1];
const event = (name, ts, more = {}) => ({ pid, tid, name, ts, ...more });
const span = (name, ts, dur, more = {}) => event(name, ts, { ph: 'X', dur, ...more });
const start = event('navigationStart', 0, { ph: 'R', args: { data: { isOutermostMainFrame: true, documentLoaderURL: 'http://127.0.0.1/' } } });

test('a task takes the time that it had the processor, and all in it with it', () => {
  const events = [start, span('RunTask', 1000, 400, { tdur: 100 }), span('ThreadControllerImpl::RunTask', 1000, 300, { tdur: 90 }), span('Layout', 1200, 200), event('firstPaint', 1400, { ph: 'I' }),
    event('between', 1500, { ph: 'I' }), span('RunTask', 2000, 100, { tdur: 120 }), { ...span('RunTask', 1000, 400, { tdur: 1 }), tid: 2 }];
  const { traceEvents, metadata } = inOwnTime({ traceEvents: events, metadata: 'kept' });
  const of = (i) => [traceEvents[i].ts, traceEvents[i].dur];
  assert.equal(metadata, 'kept');
  assert.deepEqual([1, 2, 3, 4, 5].map(of), [[1000, 100], [1000, 75], [1050, 50], [1100, undefined], [1500, undefined]]);
  assert.deepEqual(of(6), [2000, 100], 'clocks differ by some microseconds: never longer than by the clock');
  assert.deepEqual(traceEvents[7], events[7], 'another thread');
});
