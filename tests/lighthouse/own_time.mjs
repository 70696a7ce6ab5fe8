// own_time.mjs - a trace as it would be on a machine that does nothing else: each task of the page's main thread takes the time that it
// had the processor (tdur), not the time by the clock (dur), which is other work's too.
//
// What lies within a task moves with it in proportion, so that nesting stays. Between tasks time passes as it did.

const isTask = ({ ph, name, tdur }) => ph === 'X' && tdur !== undefined && /(^|::)RunTask$/.test(name);

// The thread that Lighthouse reads: that of the last navigation of a main frame.
function mainThread(events) {
  const { pid, tid } = events.filter(({ name, args }) => name === 'navigationStart' && args?.data?.isOutermostMainFrame && /^https?:/.test(args.data.documentLoaderURL)).at(-1);
  return (event) => event.pid === pid && event.tid === tid;
}

export function inOwnTime({ traceEvents, ...rest }) {
  const ofMain = mainThread(traceEvents);
  const tasks = traceEvents.filter((event) => ofMain(event) && isTask(event)).sort((a, b) => a.ts - b.ts || b.dur - a.dur);
  const outer = [];
  for (const task of tasks) if (task.ts >= (outer.at(-1)?.end ?? 0)) outer.push({ start: task.ts, end: task.ts + task.dur, share: Math.min(1, task.tdur / Math.max(task.dur, 1)) });
  const moved = (ts) => {
    const task = taskAt(outer, ts);
    return task === undefined || ts > task.end ? ts : Math.round(task.start + (ts - task.start) * task.share);
  };
  return { ...rest, traceEvents: traceEvents.map((event) => {
    if (!ofMain(event) || event.ts === undefined) return event;
    const ts = moved(event.ts);
    return event.ph === 'X' ? { ...event, ts, dur: moved(event.ts + event.dur) - ts } : { ...event, ts };
  }) };
}

// The last that began at `ts` or before.
function taskAt(tasks, ts) {
  let [low, high] = [0, tasks.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tasks[middle].start <= ts) low = middle + 1;
    else high = middle;
  }
  return tasks[low - 1];
}
