// oom_loader.ts - loads oom.js / oom.wasm when the first error is pasted; strings in, strings out.

import type { Oom } from './oom_types.js';
import { problem, type Outcome, type Problem, type Report } from './types.js';

interface Module {
  explain(request: string): string;
}

type Factory = (options: { locateFile: (name: string) => string }) => Promise<Module>;

async function start(): Promise<Module> {
  const beside = (name: string): string => new URL(name, import.meta.url).href;
  const glue = (await import(beside('oom.js'))) as { default: Factory };
  return glue.default({ locateFile: beside });
}

let loading: Promise<Module> | undefined;

// `report`: the page's answer, for what the numbers say beside it.
export async function explainOom(text: string, report: Report | undefined): Promise<Outcome<Oom>> {
  try {
    loading ??= start();
    const module = await loading;
    const answer = JSON.parse(module.explain(JSON.stringify({ text, report: report ?? null }))) as { oom?: Oom; problem?: Problem };
    if (answer.problem) return { ok: false, problem: answer.problem };
    return { ok: true, value: answer.oom as Oom };
  } catch (error) {
    loading = undefined; // a lost connection may be back for the next paste
    return { ok: false, problem: problem('wasm_missing', { read: String(error).slice(0, 200) }) };
  }
}
