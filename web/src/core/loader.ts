// loader.ts - loads the core once, its first part first, and wraps its string-in, string-out functions.
//
// Whatever goes wrong ends as a Problem that the page can put into words; there is no state "still loading" for ever.

import { createModule, PartMissing, type Extent, type Module } from './module.js';
import { SINGLE } from './site.js';
import { problem, type Catalogue, type Comparison, type Outcome, type Problem, type Recipe, type Report } from './types.js';

const START_LIMIT_MS = 15_000;
const TIMELINE_POINTS = 400;

export class CoreFailure extends Error {
  constructor(readonly problem: Problem) {
    super(problem.code);
  }
}

export class Core {
  readonly catalogue: Catalogue;
  private completing: Promise<void> | undefined;

  // whole: false when `module` is the first part alone; what that cannot answer comes back as `core_incomplete`.
  constructor(private module: Module, private isWhole: boolean) {
    this.catalogue = JSON.parse(module.catalogue()) as Catalogue;
  }

  get whole(): boolean {
    return this.isWhole;
  }

  // Loads the rest, once. An instance that stopped half-way is not used again: all of the core starts anew.
  complete(): Promise<void> {
    if (this.isWhole) return Promise.resolve();
    this.completing ??= startModule('parts').then((module) => {
      this.module = module;
      this.isWhole = true;
    });
    return this.completing;
  }

  predict(config: string, recipe: Recipe, points = TIMELINE_POINTS): Outcome<Report> {
    const request = JSON.stringify({ config, recipe, timeline_points: points });
    return this.call('report', () => this.module.predict(request));
  }

  compare(measured: string): Outcome<Comparison> {
    return this.call('comparison', () => this.module.compare(JSON.stringify({ measured })));
  }

  // JSON in and out; some tens of runs. For where there is no worker.
  advise(request: string): string {
    return this.module.advise(request);
  }

  private call<T>(name: string, run: () => string): Outcome<T> {
    let answer: Record<string, unknown>;
    try {
      answer = JSON.parse(run()) as Record<string, unknown>;
    } catch (error) {
      return { ok: false, problem: problem(error instanceof PartMissing ? 'core_incomplete' : 'core_crashed', { read: String(error) }) };
    }
    if (answer['problem']) return { ok: false, problem: answer['problem'] as Problem };
    return { ok: true, value: (answer[name] ?? answer) as T };
  }
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

async function start(extent: Extent): Promise<Core> {
  return Promise.race([startModule(extent).then((module) => new Core(module, extent !== 'first')), timeout()]);
}

let first: Promise<Core> | undefined;
let all: Promise<Core> | undefined;

// Both: one instance a page, however many elements ask for it. The first part alone, to be completed:
export function loadFirst(): Promise<Core> {
  first ??= start(SINGLE ? 'whole' : 'first');
  return first;
}

// All of the core at once:
export function loadCore(): Promise<Core> {
  all ??= start('whole');
  return all;
}
