// rows.ts - what a framework's own configuration says of a recipe: a table of rows, one a key, read against the file.
//
// Every key of the file ends in one of three lists: used (it became part of the recipe), not modelled (it changes memory and
// no recipe can say it), or not read (it changes nothing that is counted here, or is not known).

import type { Recipe } from '../core/types.js';

export type Values = Readonly<Record<string, unknown>>;

// A part of the recipe; 'not_modelled'; or undefined: nothing follows from this value (it is off, or the default).
export type Said = Recipe | 'not_modelled' | undefined;

// `present`: the recipe beside which the file is read. A file that says only how a step is spread means another thing for
// adapters over a frozen base than for weights that are all trained.
export interface Row {
  readonly key: string; // "a.b": inside a table
  readonly says: (value: unknown, file: Values, present: Recipe) => Said;
}

export interface Imported {
  readonly format: string;
  readonly whole: boolean; // says everything: what it does not name is at that framework's default; else a part beside the present recipe
  readonly recipe: Recipe;
  readonly model: string | undefined; // a name on the hub, or of a checkpoint
  readonly config: string | undefined; // a config.json, where the file describes the model itself
  readonly used: readonly string[];
  readonly notModelled: readonly string[];
  readonly notRead: readonly string[];
}

export interface Format {
  readonly name: string;
  readonly whole: boolean;
  readonly is: (file: Values) => boolean;
  readonly base: (file: Values, present: Recipe) => Recipe; // before any row: the framework's own defaults
  readonly rows: readonly Row[];
  readonly model?: (file: Values) => string | undefined;
  readonly modelKeys?: readonly string[];
}

export function isTable(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function at(file: unknown, key: string): unknown {
  return key.split('.').reduce<unknown>((table, part) => (isTable(table) && Object.hasOwn(table, part) ? table[part] : undefined), file);
}

export function text(value: unknown): string | undefined {
  return typeof value === 'string' && value.trim() !== '' ? value.trim() : undefined;
}

export function isOn(value: unknown): boolean {
  return value === true || (typeof value === 'string' && /^(true|yes|1)$/i.test(value));
}

// A table's own row: a file may name what every object has, such as "constructor".
export function row<T>(table: Readonly<Record<string, T>>, name: string | undefined): T | undefined {
  return name !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
}

// Lengths, counts: what is no positive whole number says nothing.
export function count(value: unknown): number | undefined {
  const number = typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value;
  return typeof number === 'number' && Number.isSafeInteger(number) && number > 0 ? number : undefined;
}

// A number, or one in words ("5e8"); NaN for everything else. Number() alone calls functions that a file's table may name.
export function numeric(value: unknown): number {
  return typeof value === 'number' ? value : typeof value === 'string' && value.trim() !== '' ? Number(value) : Number.NaN;
}

// Rows that many tables have.
export const counts = (key: string, name: string): Row => ({ key, says: (value) => { const n = count(value); return n === undefined ? undefined : { [name]: n }; } });
export const flag = (key: string, recipe: Recipe, off?: Recipe): Row => ({ key, says: (value) => (isOn(value) ? recipe : value === undefined || value === null ? undefined : off) });
export const choice = (key: string, values: Readonly<Record<string, Recipe>>): Row => ({
  key,
  says: (value) => { const name = text(value)?.toLowerCase(); return name === undefined ? undefined : row(values, name) ?? 'not_modelled'; },
});
export const dropout = (key: string): Row => ({ key, says: (value) => (typeof value === 'number' && value >= 0 && value < 1 ? { lora_dropout: value } : undefined) });
export const notModelled = (key: string, when: (value: unknown) => boolean = isSet): Row => ({ key, says: (value) => (when(value) ? 'not_modelled' : undefined) });

// Given, and not as a way of saying "off".
export function isSet(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  return value !== undefined && value !== null && value !== false && value !== 0 && value !== '' && !(typeof value === 'string' && /^(false|no|none|null|disabled|0)$/i.test(value));
}

export function names(value: unknown): readonly string[] | undefined {
  const list = Array.isArray(value) ? value : typeof value === 'string' ? value.split(',') : [];
  const found = list.map((name) => (typeof name === 'string' ? name.trim() : '')).filter(Boolean);
  return found.length > 0 ? found : undefined;
}

// A key that no row knows; of a table of which rows know parts, the parts that none does.
function unread(file: Values, key: string, known: readonly string[]): readonly string[] {
  const value = file[key];
  const below = (table: string) => (name: string): boolean => name.startsWith(`${table}.`);
  if (!known.some(below(key))) return known.includes(key) ? [] : [key];
  return isTable(value) ? Object.keys(value).map((part) => `${key}.${part}`).filter((part) => !known.includes(part) && !known.some(below(part))) : [];
}

// Applies a table; later rows win over earlier ones.
export function readAs(format: Format, file: Values, present: Recipe = {}): Imported {
  let recipe: Recipe = format.base(file, present);
  const [used, unmodelled]: [string[], string[]] = [[], []];
  for (const row of format.rows) {
    const value = at(file, row.key);
    if (value === undefined || value === null) continue;
    const said = row.says(value, file, present);
    if (said === 'not_modelled') unmodelled.push(row.key);
    else if (said !== undefined) {
      recipe = { ...recipe, ...said };
      used.push(row.key);
    }
  }
  const known = [...format.rows.map(({ key }) => key), ...(format.modelKeys ?? [])];
  const model = format.model?.(file);
  if (model !== undefined) used.unshift(...(format.modelKeys ?? []).filter((key) => at(file, key) !== undefined));
  const notRead = [...new Set(Object.keys(file).flatMap((key) => unread(file, key, known)))]; // a key may be spelt as a table's part is
  return { format: format.name, whole: format.whole, recipe, model, config: undefined, used: [...new Set(used)], notModelled: [...new Set(unmodelled)], notRead };
}
