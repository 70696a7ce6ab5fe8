// loader.ts - loads ledger.js / ledger.wasm once and wraps its string-in, string-out functions.
//
// Whatever goes wrong ends as a Problem that the page can put into words; there is no state "still loading" for ever.

import { problem, type Catalogue, type Comparison, type Outcome, type Problem, type Recipe, type Report } from './types.js';

interface Module {
  predict(request: string): string;
  catalogue(): string;
  compare(request: string): string;
  version(): string;
}

type Factory = (options: { locateFile: (name: string) => string; print: () => void; printErr: (line: string) => void }) => Promise<Module>;

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

async function start(): Promise<Core> {
  if (typeof WebAssembly !== 'object') throw new CoreFailure(problem('no_wasm'));
  const stderr: string[] = [];
  const besideThisScript = (name: string): string => new URL(name, import.meta.url).href;
  try {
    const glue = (await import(besideThisScript('ledger.js'))) as { default: Factory };
    const options = { locateFile: besideThisScript, print: () => {}, printErr: (line: string) => void stderr.push(line) };
    return new Core(await glue.default(options));
  } catch (error) {
    throw new CoreFailure(reasonFor(error, stderr));
  }
}

let loading: Promise<Core> | undefined;

// One instance a page, however many elements ask for it.
export function loadCore(): Promise<Core> {
  loading ??= Promise.race([start(), timeout()]);
  return loading;
}
