// presets.ts - models that the page knows by name; one JSON row each in core/config/checkpoints/, with its source. A few
// come with the page; the others when they are looked for, or when a link names one.

import llama3 from '../../../core/config/checkpoints/llama-3-8b.json';
import llama32 from '../../../core/config/checkpoints/llama-3.2-1b.json';
import llama2 from '../../../core/config/checkpoints/llama-2-7b.json';
import mistral from '../../../core/config/checkpoints/mistral-7b.json';
import qwen25 from '../../../core/config/checkpoints/qwen2.5-7b.json';
import qwen3 from '../../../core/config/checkpoints/qwen3-8b.json';
import tiny from '../../../core/config/checkpoints/tinyllama-1.1b.json';
import course from '../../../core/config/checkpoints/course-8x-linear-2048.json';
import type { Recipe } from '../core/types.js';

export interface Preset {
  readonly id: string;
  readonly name: string;
  readonly hub?: string; // its name on the Hugging Face hub
  readonly source: string;
  readonly params: number;
  readonly config: object;
  readonly recipe?: Recipe; // keys that choosing this model sets, where its defaults would make no sense
}

export const PRESETS: readonly Preset[] = [llama3, llama32, llama2, mistral, qwen25, qwen3, tiny, course];

export const DEFAULT_PRESET = llama3.id;

const known = new Map(PRESETS.map((preset) => [preset.id, preset]));

// Among those that are here by now.
export function findPreset(id: string): Preset | undefined {
  return known.get(id);
}

// All of them, those that come with the page first.
export async function loadPresets(): Promise<readonly Preset[]> {
  const { default: rows } = await import('checkpoints');
  for (const row of rows) if (!known.has(row.id)) known.set(row.id, row);
  return [...known.values()];
}
