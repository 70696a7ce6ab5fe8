// choices.ts - the values that a recipe key may be set to, as the form and the sentence offer them.

import { html, type TemplateResult } from 'lit';
import type { Catalogue, Problem, RecipeKey, RecipeValue } from '../core/types.js';
import type { I18n } from '../i18n/i18n.js';
import { isImpossible } from '../i18n/problem_text.js';
import type { Refused } from '../state/availability.js';

// A value that the core refuses next to the present recipe says so before it is chosen.
export function marked(refused: Refused, name: string, value: string, text: string, i18n: I18n): string {
  const problem = refused.get(`${name}=${value}`);
  if (!problem) return text;
  return i18n.t(isImpossible(problem) ? 'form.impossible' : 'form.unavailable', { choice: text });
}

export function options(key: RecipeKey, value: RecipeValue, catalogue: Catalogue, refused: Refused, i18n: I18n): TemplateResult[] {
  if (key.name === 'gpu') {
    return catalogue.gpus.map((gpu) => html`<option value=${gpu.id} .selected=${gpu.id === value}>${shortName(gpu.name)} · ${i18n.format.binary(gpu.usable_bytes)}</option>`);
  }
  return (key.choices ?? []).map((choice) => html`<option value=${choice} .selected=${choice === value}>${choice === value ? choice : marked(refused, key.name, choice, choice, i18n)}</option>`);
}

// Whether the problem is with this key.
export function isNamed({ name }: RecipeKey, problem: Problem | undefined): boolean {
  return problem?.where.split(/[\s,|+]+/).includes(name) ?? false;
}

export function shortName(gpu: string): string {
  return gpu.replace(/^NVIDIA (GeForce )?/, '');
}

const STEP: Readonly<Record<string, number>> = { seq: 512, memory_limit_bytes: 1024 ** 3 };

// Arrow keys step by amounts that mean something: sequences by 512. Undefined: the field's own steps will do.
export function stepped(key: RecipeKey, now: number, event: KeyboardEvent): string | undefined {
  const size = STEP[key.name];
  if (size === undefined || !['ArrowUp', 'ArrowDown'].includes(event.key) || event.isComposing) return undefined;
  const next = event.key === 'ArrowUp' ? (Math.floor(now / size) + 1) * size : (Math.ceil(now / size) - 1) * size;
  return String(Math.max(next, key.low ?? 0));
}
