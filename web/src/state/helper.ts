// helper.ts - asks the core what would help, off the main thread, one thing after the other. A newer question drops what
// is left of the older one. Where there are no workers (a page opened as a file) the page's own core is asked, in slices.

import { ABOUT, type About, type Advice } from '../core/advice.js';
import { SINGLE } from '../core/site.js';
import type { Outcome, Problem, Recipe } from '../core/types.js';

export interface Question {
  readonly config: string;
  readonly recipe: Recipe;
  readonly about: readonly About[];
}

// How a question is put. A problem: the core refuses the recipe.
export type Ask = (request: string) => Promise<Outcome<Advice>>;

export class Helper {
  private serial = 0;

  constructor(private readonly ask: Ask, private readonly told: (advice: Advice) => void, private readonly done: () => void) {}

  async put({ config, recipe, about }: Question): Promise<void> {
    const serial = ++this.serial;
    for (const one of ABOUT.filter((name) => about.includes(name))) {
      const advice = await this.ask(JSON.stringify({ config, recipe, about: one }));
      if (serial !== this.serial) return;
      if (advice.ok) this.told(advice.value);
    }
    this.done();
  }

  drop(): void {
    this.serial += 1;
  }
}

export function read(answer: string): Outcome<Advice> {
  const { advice, problem } = JSON.parse(answer) as { advice?: Advice; problem?: Problem };
  return advice ? { ok: true, value: advice } : { ok: false, problem: problem as Problem };
}

interface Answered { readonly serial: number; readonly answer?: string; readonly failure?: string }

// Answers come in the order of the questions. A worker that cannot start hands over to `slower` for good.
export function inWorker(script: URL, slower: Ask): Ask {
  let worker: Worker | undefined;
  let serial = 0;
  const waiting = new Map<number, { request: string; settle: (advice: Outcome<Advice> | Promise<Outcome<Advice>>) => void }>();
  const giveUp = (): void => {
    worker?.terminate();
    worker = undefined;
    broken = true;
    for (const { request, settle } of waiting.values()) settle(slower(request));
    waiting.clear();
  };
  let broken = SINGLE || typeof Worker !== 'function';
  const start = (): void => {
    try {
      worker = new Worker(script, { type: 'module' });
    } catch {
      return giveUp(); // e.g. a file: page
    }
    worker.onerror = giveUp;
    worker.onmessage = ({ data }: MessageEvent<Answered>) => {
      if (data.answer === undefined) return giveUp();
      waiting.get(data.serial)?.settle(read(data.answer));
      waiting.delete(data.serial);
    };
  };
  return (request) => {
    if (!broken && !worker) start();
    if (broken) return slower(request);
    return new Promise((settle) => {
      waiting.set(++serial, { request, settle });
      worker?.postMessage({ serial, request });
    });
  };
}

// On the main thread, each in a turn of its own.
export function inSlices(advise: (request: string) => string): Ask {
  return (request) => new Promise((settle) => {
    setTimeout(() => settle(read(advise(request))), 30);
  });
}
