// hub.ts - a model named as on the Hugging Face hub: the only thing that is ever asked of another site, and only when the
// reader names it.

import { LARGEST_INPUT_BYTES } from '../core/limits.js';
import { problem, type Outcome } from '../core/types.js';

const HUB = 'https://huggingface.co';
const WAIT_MS = 15_000;

// "org/model", or a link to a model's page or to one of its files.
export function hubId(text: string): string | undefined {
  const trimmed = text.trim();
  const path = trimmed.startsWith(`${HUB}/`) ? trimmed.slice(HUB.length + 1) : trimmed;
  const match = /^([\w][\w.-]*\/[\w][\w.-]*)(\/(blob|resolve|tree|raw)\/.*|\/)?$/.exec(path.replace(/[?#].*$/, ''));
  return match && (path !== trimmed || match[2] === undefined) ? match[1] : undefined;
}

export async function fetchConfig(id: string): Promise<Outcome<string>> {
  const refuse = (read: string): Outcome<string> => ({ ok: false, problem: problem('hub_refused', { where: id, read }) });
  try {
    const response = await fetch(`${HUB}/${id}/resolve/main/config.json`, { credentials: 'omit', referrerPolicy: 'no-referrer', signal: AbortSignal.timeout(WAIT_MS) });
    if (!response.ok) return refuse(String(response.status));
    const text = await response.text();
    return text.length > LARGEST_INPUT_BYTES ? refuse(`${text.length} B`) : { ok: true, value: text };
  } catch (error) {
    return refuse(error instanceof Error ? error.name : String(error));
  }
}
