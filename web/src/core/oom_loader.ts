// oom_loader.ts - loads the module that reads errors when the first one is pasted; strings in, strings out.

import { createOomModule, type OomModule } from './oom_module.js';
import type { Oom } from './oom_types.js';
import { problem, type Outcome, type Problem, type Report } from './types.js';

let loading: Promise<OomModule> | undefined;

// `report`: the page's answer, for what the numbers say beside it.
export async function explainOom(text: string, report: Report | undefined): Promise<Outcome<Oom>> {
  try {
    loading ??= createOomModule();
    const module = await loading;
    const answer = JSON.parse(module.explain(JSON.stringify({ text, report: report ?? null }))) as { oom?: Oom; problem?: Problem };
    if (answer.problem) return { ok: false, problem: answer.problem };
    return { ok: true, value: answer.oom as Oom };
  } catch (error) {
    loading = undefined; // a lost connection may be back for the next paste
    return { ok: false, problem: problem('wasm_missing', { read: String(error).slice(0, 200) }) };
  }
}
