// loader.ts - loads ledger.js / ledger.wasm once and wraps its string-in, string-out functions.
//
// Whatever goes wrong ends as a Problem that the page can put into words; there is no state "still loading" for ever.

import { createModule, type Module } from './module.js';
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

  constructor(private readonly module: Module) {
    this.catalogue = JSON.parse(module.catalogue()) as Catalogue;
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
      return { ok: false, problem: problem('core_crashed', { read: String(error) }) };
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

export async function startModule(): Promise<Module> {
  if (typeof WebAssembly !== 'object') throw new CoreFailure(problem('no_wasm'));
  const stderr: string[] = [];
  try {
    return await createModule({ print: () => {}, printErr: (line: string) => void stderr.push(line) });
  } catch (error) {
    throw new CoreFailure(reasonFor(error, stderr));
  }
}

async function start(): Promise<Core> {
  return new Core(await startModule());
}

let loading: Promise<Core> | undefined;

// One instance a page, however many elements ask for it.
export function loadCore(): Promise<Core> {
  loading ??= Promise.race([start(), timeout()]);
  return loading;
}
