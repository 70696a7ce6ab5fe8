// presets.ts - models that the page knows by name; one JSON row each in web/presets/, with its source.

import llama3 from '../../presets/llama-3-8b.json';
import llama32 from '../../presets/llama-3.2-1b.json';
import llama2 from '../../presets/llama-2-7b.json';
import mistral from '../../presets/mistral-7b.json';
import qwen25 from '../../presets/qwen2.5-7b.json';
import qwen3 from '../../presets/qwen3-8b.json';
import tiny from '../../presets/tinyllama-1.1b.json';
import course from '../../presets/course-8x-linear-2048.json';
import type { Recipe } from '../core/types.js';

export interface Preset {
  readonly id: string;
  readonly name: string;
  readonly source: string;
  readonly params: number;
  readonly config: object;
  readonly recipe?: Recipe; // keys that choosing this model sets, where its defaults would make no sense
}

export const PRESETS: readonly Preset[] = [llama3, llama32, llama2, mistral, qwen25, qwen3, tiny, course];

export const DEFAULT_PRESET = llama3.id;

export function findPreset(id: string): Preset | undefined {
  return PRESETS.find((preset) => preset.id === id);
}
