// loader.ts - loads the core once, as much of it as is needed first, and wraps its string-in, string-out functions.
//
// Whatever goes wrong ends as a Problem that the page can put into words; there is no state "still loading" for ever.

import { createModule, PartMissing, type Extent, type Module } from './module.js';
import { questionOf } from './question.js';
import { SINGLE } from './site.js';
import { storedModule } from './stored.js';
import { problem, type Catalogue, type Comparison, type Outcome, type Problem, type Recipe, type Report } from './types.js';

const START_LIMIT_MS = 15_000;

export class CoreFailure extends Error {
  constructor(readonly problem: Problem) {
    super(problem.code);
  }
}

export class Core {
  readonly catalogue: Catalogue;
  private completing: Promise<void> | undefined;
  private stopped = false; // half-way through an answer

  // missing: what is to be loaded before this knows all answers; until then, what `module` cannot answer comes back as `core_incomplete`.
  constructor(private module: Module, private missing: Extent | undefined) {
    this.catalogue = JSON.parse(module.catalogue()) as Catalogue;
  }

  get whole(): boolean {
    return this.missing === undefined;
  }

  // Loads the rest, once.
  complete(): Promise<void> {
    if (this.missing === undefined) return Promise.resolve();
    this.completing ??= startModule(this.missing).then((module) => {
      this.module = module;
      this.missing = undefined;
      this.stopped = false;
    });
    return this.completing;
  }

  predict(config: string, recipe: Recipe, points?: number): Outcome<Report> {
    return this.call('report', () => this.module.predict(questionOf(config, recipe, points)));
  }

  compare(measured: string): Outcome<Comparison> {
    return this.call('comparison', () => this.module.compare(JSON.stringify({ measured })));
  }

  // JSON in and out, advice after some tens of runs. For where there is no worker.
  raw(call: 'advise' | 'predict', request: string): string {
    return this.module[call](request);
  }

  private call<T>(name: string, run: () => string): Outcome<T> {
    try {
      if (this.stopped) throw new PartMissing(true);
      return outcomeOf(run(), name);
    } catch (error) {
      const incomplete = error instanceof PartMissing;
      if (incomplete) this.stopped = error.halfWay;
      return { ok: false, problem: problem(incomplete ? 'core_incomplete' : 'core_crashed', { read: String(error) }) };
    }
  }
}

// `name`: the member that holds the answer; where there is none the document itself is the answer.
export function outcomeOf<T>(text: string, name: string): Outcome<T> {
  const answer = JSON.parse(text) as Record<string, unknown>;
  if (answer['problem']) return { ok: false, problem: answer['problem'] as Problem };
  return { ok: true, value: (answer[name] ?? answer) as T };
}

function reasonFor(error: unknown, stderr: readonly string[]): Problem {
  const text = [String(error), ...stderr].join(' ');
  const read = String(error).slice(0, 200);
  if (/Content Security Policy|unsafe-eval|disallowed by embedder|EvalError/i.test(text)) return problem('wasm_blocked', { read });
  return problem('wasm_missing', { read });
}

function timeout(): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new CoreFailure(problem('wasm_timeout', { expected: `${START_LIMIT_MS / 1000} s` }))), START_LIMIT_MS);
  });
}

export async function startModule(extent: Extent): Promise<Module> {
  if (typeof WebAssembly !== 'object') throw new CoreFailure(problem('no_wasm'));
  const stderr: string[] = [];
  try {
    return await createModule({ print: () => {}, printErr: (line: string) => void stderr.push(line) }, extent);
  } catch (error) {
    throw new CoreFailure(reasonFor(error, stderr));
  }
}

async function start(module: Promise<Module>, missing?: Extent): Promise<Core> {
  return Promise.race([module.then((started) => new Core(started, missing)), timeout()]);
}

// One instance a page, however many elements ask for it.
function once(load: () => Promise<Core>): () => Promise<Core> {
  let core: Promise<Core> | undefined;
  return () => (core ??= load());
}

// All of the core at once.
export const loadCore = once(() => start(startModule('whole')));

// The answer that the page opens with, to be completed; without it, e.g. on a host that lost the file, all of the core.
export const loadFirst = SINGLE ? loadCore : once(() => start(storedModule(), 'whole').catch(() => loadCore()));

// What embeds usually ask, to be completed.
export const loadUsual = SINGLE ? loadCore : once(() => start(startModule('first'), 'parts'));
