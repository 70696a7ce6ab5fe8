// apart.ts - questions to the core in a thread of its own, while the page goes on. Where there are no workers (a page opened as a
// file) the page's own core is asked, in slices. One thread a page, started with its first question.

import type { Advice } from './advice.js';
import { outcomeOf, type Core } from './loader.js';
import { questionOf } from './question.js';
import { SINGLE, SITE } from './site.js';
import type { Outcome, Recipe, Report } from './types.js';

export type Call = 'advise' | 'predict';
type Ask = (call: Call, request: string) => Promise<string>; // the answer as the core gives it

interface Answered { readonly serial: number; readonly answer?: string; readonly failure?: string }
interface Waiting { readonly call: Call; readonly request: string; readonly settle: (answer: string | Promise<string>) => void }

// Answers come in the order of the questions. A worker that cannot start hands over to `slower` for good.
function inWorker(script: URL, slower: Ask): Ask {
  let worker: Worker | undefined;
  let serial = 0;
  let broken = SINGLE || typeof Worker !== 'function';
  const waiting = new Map<number, Waiting>();
  const giveUp = (): void => {
    worker?.terminate();
    worker = undefined;
    broken = true;
    for (const { call, request, settle } of waiting.values()) settle(slower(call, request));
    waiting.clear();
  };
  const start = (): void => {
    try {
      worker = new Worker(script, { type: 'module' });
    } catch {
      return giveUp(); // e.g. a file: page
    }
    worker.onerror = giveUp;
    worker.onmessage = ({ data }: MessageEvent<Answered>) => {
      if (data.answer === undefined) return giveUp();
      waiting.get(data.serial)?.settle(data.answer);
      waiting.delete(data.serial);
    };
  };
  if (!broken) start();
  return (call, request) => {
    if (broken) return slower(call, request);
    return new Promise((settle) => {
      waiting.set(++serial, { call, request, settle });
      worker?.postMessage({ serial, call, request });
    });
  };
}

const PAUSE_MS: Readonly<Record<Call, number>> = { advise: 30, predict: 0 };

// On the main thread, each in a turn of its own.
function inSlices(core: Core): Ask {
  return async (call, request) => {
    await core.complete();
    await new Promise((next) => setTimeout(next, PAUSE_MS[call]));
    return core.raw(call, request);
  };
}

let ask: Ask | undefined;

// Starts the thread, for questions that are sure to come.
export function prepareApart(core: Core): Ask {
  return (ask ??= inWorker(new URL('worker.js', SITE), inSlices(core)));
}

function put(core: Core, call: Call, request: string): Promise<string> {
  return prepareApart(core)(call, request);
}

// A problem: the core refuses the recipe.
export async function adviceApart(core: Core, request: object): Promise<Outcome<Advice>> {
  return outcomeOf(await put(core, 'advise', JSON.stringify(request)), 'advice');
}

export async function predictApart(core: Core, config: string, recipe: Recipe, points?: number): Promise<Outcome<Report>> {
  return outcomeOf(await put(core, 'predict', questionOf(config, recipe, points)), 'report');
}
