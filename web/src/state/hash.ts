// hash.ts - request <-> URL hash: "#v=1&model=llama-3-8b&seq=4096&lang=zh".
//
// Never throws. Defaults are left out when writing. What cannot be read is reported as a Problem and its default taken;
// keys of other versions are reported and ignored. A link, once shared, keeps working: new versions add a step to UPGRADES.

import { problem, type Problem, type RecipeKey, type RecipeValue } from '../core/types.js';
import { unpack } from './codec.js';
import { MOST_PINS } from './pins.js';
import { DEFAULT_PRESET, findPreset, loadPresets } from './presets.js';
import {
  expectedOf, FIRST_REQUEST, readValue, withRecipe, writeValue, type Defaults, type Lang, type ModelChoice, type Pin, type Request, type Units,
} from './request.js';

export const HASH_VERSION = 1;

const LANGS: readonly string[] = ['en', 'zh'];
const UNITS: readonly string[] = ['gib', 'gb', 'bytes'];

type Upgrade = (params: URLSearchParams) => void;
const UPGRADES: readonly Upgrade[] = []; // UPGRADES[n] turns version n + 1 into n + 2

export interface ReadHash {
  readonly request: Request;
  readonly problems: readonly Problem[];
}

export async function readHash(hash: string, keys: readonly RecipeKey[], defaults: Defaults): Promise<ReadHash> {
  const problems: Problem[] = [];
  const params = new URLSearchParams(hash.replace(/^#/, ''));
  upgrade(params, problems);
  const model = await readModel(params, problems);
  const lang = readOneOf(params, 'lang', LANGS, problems) as Lang | undefined;
  const units = (readOneOf(params, 'show', UNITS, problems) as Units | undefined) ?? FIRST_REQUEST.units;
  const pins = await readPins(params, keys, defaults, problems);
  const recipe = readRecipe(params, keys, problems);
  return { request: withRecipe({ model, lang, units, pins, recipe: {} }, recipe, defaults), problems };
}

// Each is a query of its own with a model and a recipe.
async function readPins(params: URLSearchParams, keys: readonly RecipeKey[], defaults: Defaults, problems: Problem[]): Promise<Pin[]> {
  const texts = params.getAll('pin');
  params.delete('pin');
  if (texts.length > MOST_PINS) problems.push(problem('bad_link', { where: 'pin', read: String(texts.length), expected: `1..${MOST_PINS}` }));
  return Promise.all(texts.slice(0, MOST_PINS).map(async (text) => {
    const own = new URLSearchParams(text);
    const model = await readModel(own, problems);
    return withRecipe({ ...FIRST_REQUEST, model }, readRecipe(own, keys, problems), defaults);
  })).then((requests) => requests.map(({ model, recipe }) => ({ model, recipe })));
}

// The language that a link asks for, before anything else is known.
export function hashLang(hash: string): Lang | undefined {
  const lang = new URLSearchParams(hash.replace(/^#/, '')).get('lang');
  return LANGS.includes(lang ?? '') ? (lang as Lang) : undefined;
}

// Whether the hash asks what the page asks by itself, which the first part of the core answers.
export function isFirstQuestion(hash: string): boolean {
  const view = ['v', 'lang', 'show'];
  return [...new URLSearchParams(hash.replace(/^#/, ''))].every(([key, value]) => view.includes(key) || (key === 'model' && value === DEFAULT_PRESET));
}

function upgrade(params: URLSearchParams, problems: Problem[]): void {
  const text = params.get('v') ?? String(HASH_VERSION);
  const version = Number(text);
  if (!Number.isInteger(version) || version < 1 || version > HASH_VERSION) {
    problems.push(problem('bad_link', { where: 'v', read: text.slice(0, 80), expected: `1..${HASH_VERSION}` }));
  } else {
    for (const step of UPGRADES.slice(version - 1)) step(params);
  }
  params.delete('v');
}

async function readModel(params: URLSearchParams, problems: Problem[]): Promise<ModelChoice> {
  const packed = take(params, 'config');
  const id = take(params, 'model');
  if (packed !== undefined) {
    const text = await unpack(packed);
    if (text !== undefined) return { kind: 'custom', text, packed };
    problems.push(problem('bad_link', { where: 'config', read: packed.slice(0, 40), expected: 'deflate-raw, base64url' }));
  }
  if (id === undefined || findPreset(id)) return { kind: 'preset', id: id ?? DEFAULT_PRESET };
  const found = (await loadPresets().catch(() => [])).some((preset) => preset.id === id);
  if (!found) problems.push(problem('unknown_preset', { where: 'model', read: id.slice(0, 80) }));
  return { kind: 'preset', id: found ? id : DEFAULT_PRESET };
}

function readOneOf(params: URLSearchParams, key: string, values: readonly string[], problems: Problem[]): string | undefined {
  const text = take(params, key);
  if (text === undefined || values.includes(text)) return text;
  problems.push(problem('bad_link', { where: key, read: text.slice(0, 80), expected: values.join('|') }));
  return undefined;
}

function readRecipe(params: URLSearchParams, keys: readonly RecipeKey[], problems: Problem[]): Record<string, RecipeValue> {
  const recipe: Record<string, RecipeValue> = {};
  for (const [name, text] of params) {
    const key = keys.find((row) => row.name === name);
    const value = key && readValue(key, text);
    if (!key) problems.push(problem('bad_link', { where: name.slice(0, 80), read: text.slice(0, 80) }));
    else if (value === undefined) problems.push(problem('bad_link', { where: name, read: text.slice(0, 80), expected: expectedOf(key) }));
    else recipe[name] = value;
  }
  return recipe;
}

function take(params: URLSearchParams, key: string): string | undefined {
  const text = params.get(key) ?? undefined;
  params.delete(key);
  return text;
}

function writeScenario(params: URLSearchParams, { model, recipe }: Pin): void {
  if (model.kind === 'custom') params.set('config', model.packed);
  else params.set('model', model.id);
  for (const [key, value] of Object.entries(recipe)) params.set(key, writeValue(value));
}

export function writeHash(request: Request): string {
  const params = new URLSearchParams({ v: String(HASH_VERSION) });
  writeScenario(params, request);
  for (const pin of request.pins) {
    const own = new URLSearchParams();
    writeScenario(own, pin);
    params.append('pin', own.toString().replaceAll('%2C', ','));
  }
  if (request.units !== FIRST_REQUEST.units) params.set('show', request.units);
  if (request.lang) params.set('lang', request.lang);
  return `#${params.toString().replaceAll('%2C', ',')}`;
}
