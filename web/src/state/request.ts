// request.ts - the one piece of state: which model, which recipe, how to show it. Everything else on the page is
// derived from this and the core's answer.

import { problem, type Problem, type Recipe, type RecipeKey, type RecipeValue } from '../core/types.js';
import { DEFAULT_PRESET, findPreset } from './presets.js';

export type ModelChoice =
  | { readonly kind: 'preset'; readonly id: string }
  | { readonly kind: 'custom'; readonly text: string; readonly packed: string }; // packed: as it stands in the URL

export type Lang = 'en' | 'zh';
export type Units = 'gib' | 'gb' | 'bytes';

// A scenario kept for comparison.
export interface Pin {
  readonly model: ModelChoice;
  readonly recipe: Recipe;
}

export interface Request {
  readonly model: ModelChoice;
  readonly recipe: Recipe; // only keys that differ from the core's defaults
  readonly lang: Lang | undefined; // undefined: the browser's language
  readonly units: Units;
  readonly pins: readonly Pin[]; // four at most
}

export const FIRST_REQUEST: Request = {
  model: { kind: 'preset', id: DEFAULT_PRESET },
  recipe: {},
  lang: undefined,
  units: 'gib',
  pins: [],
};

// The config.json text that the core is asked about.
export function configText(model: ModelChoice): string {
  if (model.kind === 'custom') return model.text;
  return JSON.stringify(findPreset(model.id)?.config ?? {});
}

// A stack of plain layers rather than a decoder.
export function isPlain(model: ModelChoice): boolean {
  return /"layers"\s*:/.test(configText(model));
}

// A model that sees images.
export function seesImages(model: ModelChoice): boolean {
  return /"vision_config"\s*:|"patch_size"\s*:/.test(configText(model));
}

export type Defaults = Recipe;

export function sameValue(a: RecipeValue | undefined, b: RecipeValue | undefined): boolean {
  return JSON.stringify(normalised(a)) === JSON.stringify(normalised(b));
}

// "all-linear" and ["all-linear"] are one value.
function normalised(value: RecipeValue | undefined): unknown {
  return Array.isArray(value) && value.length === 1 ? (value[0] as string) : value;
}

// Sets keys, dropping those that now equal their default.
export function withRecipe(request: Request, patch: Recipe, defaults: Defaults): Request {
  const merged = { ...request.recipe, ...patch };
  const kept = Object.entries(merged).filter(([key, value]) => !sameValue(value, defaults[key]));
  return { ...request, recipe: Object.fromEntries(kept) };
}

// The first key whose value is of no kind that a key's value can be, in a recipe that came as a file.
export function wrongKind(recipe: Readonly<Record<string, unknown>>): Problem | undefined {
  const isText = (value: unknown): boolean => typeof value === 'string';
  const wrong = Object.entries(recipe).find(([, value]) => !isText(value) && typeof value !== 'boolean' && !Number.isFinite(value) && !(Array.isArray(value) && value.every(isText)));
  return wrong && problem('wrong_type', { where: wrong[0].slice(0, 80), read: JSON.stringify(wrong[1]).slice(0, 80), expected: 'string|number|boolean|array' });
}

// Reads one value as a person or a link would write it; undefined when it is not one of the key's values.
export function readValue(key: RecipeKey, text: string): RecipeValue | undefined {
  const trimmed = text.trim();
  switch (key.kind) {
    case 'choice':
      return key.choices?.includes(trimmed) ? trimmed : undefined;
    case 'flag':
      return { true: true, '1': true, false: false, '0': false }[trimmed];
    case 'integer':
      return /^\d{1,16}$/.test(trimmed) && inRange(key, Number(trimmed)) ? Number(trimmed) : undefined;
    case 'real':
      return trimmed !== '' && Number.isFinite(Number(trimmed)) && inReal(key, Number(trimmed)) ? Number(trimmed) : undefined;
    case 'names':
      return readNames(trimmed);
    case 'text':
      return trimmed !== '' && (!key.choices?.length || key.choices.includes(trimmed)) ? trimmed : undefined;
  }
}

function readNames(text: string): RecipeValue | undefined {
  const names = text.split(',').map((name) => name.trim()).filter((name) => name !== '');
  if (names.length === 0) return undefined;
  return names.length === 1 ? names[0] : names;
}

function inRange(key: RecipeKey, value: number): boolean {
  return Number.isSafeInteger(value) && value >= (key.low ?? 0) && value <= (key.high ?? Number.MAX_SAFE_INTEGER);
}

function inReal(key: RecipeKey, value: number): boolean {
  return value >= (key.low ?? -Infinity) && value <= (key.high ?? Infinity);
}

export function writeValue(value: RecipeValue): string {
  return Array.isArray(value) ? value.join(',') : String(value);
}

// What a key accepts, language-neutral: "1..1024", "a|b|c", "true|false".
export function expectedOf(key: RecipeKey): string {
  if (key.choices && key.choices.length > 0) return key.choices.join('|');
  if (key.kind === 'flag') return 'true|false';
  if (key.kind === 'integer') return `${key.low ?? 0}..${key.high ?? Number.MAX_SAFE_INTEGER}`;
  if (key.kind === 'real') return key.high === undefined ? 'number' : `${key.low ?? 0}..${key.high}`;
  return 'text';
}
