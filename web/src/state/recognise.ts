// recognise.ts - what is this text? A config.json, a recipe, a measured.json, a report, a framework's own configuration, or
// nothing the page knows.
//
// Decided by telling keys, not by file names. Whether a config is a good one is the core's to say.

import type { Recipe, RecipeKey } from '../core/types.js';
import type { importedMessage } from '../importing/message.js';
import type { Imported } from '../importing/rows.js';

export type Recognised =
  | { readonly kind: 'config'; readonly text: string }
  | { readonly kind: 'recipe'; readonly recipe: Recipe }
  | { readonly kind: 'error'; readonly text: string }
  | { readonly kind: 'measured'; readonly text: string }
  | { readonly kind: 'report'; readonly config: string; readonly recipe: Recipe };

// Keys that a model's config.json has and a recipe has not.
const MODEL_KEYS = ['model_type', 'architectures', 'hidden_size', 'num_hidden_layers', 'vocab_size', 'layers', 'n_embd'];

// A framework's configuration, where the text may be one; what reads them is loaded with the first.
// `present`: the recipe that a file of one part changes.
export async function importable(text: string, found: Recognised, present: Recipe): Promise<{ readonly imported: Imported; readonly say: typeof importedMessage } | undefined> {
  const root = parse(text);
  if (!['config', 'recipe'].includes(found.kind) || (root && (MODEL_KEYS.some((key) => key in root) || 'peft_type' in root))) return undefined;
  try {
    const { importedMessage: say, readConfiguration } = await import('../importing/read.js');
    const imported = readConfiguration(text, present);
    return imported && { imported, say };
  } catch {
    return undefined; // offline before it ever came: the core says what the text is not
  }
}

export function recognise(text: string, keys: readonly RecipeKey[]): Recognised {
  const root = parse(text);
  if (root === undefined) return looksLikeError(text) ? { kind: 'error', text } : { kind: 'config', text }; // the core names line and column
  if (root['kind'] === 'measured' || root['kind'] === 'hook') return { kind: 'measured', text };
  if (root['kind'] === 'predicted') return asReport(root);
  if (isObject(root['config']) && isObject(root['recipe'])) {
    return { kind: 'report', config: JSON.stringify(root['config']), recipe: root['recipe'] as Recipe };
  }
  if ('peft_type' in root) return { kind: 'recipe', recipe: asAdapter(root) };
  if (looksLikeRecipe(root, keys)) return { kind: 'recipe', recipe: root as Recipe };
  return { kind: 'config', text };
}

// What only logs say. White space and markdown are left out first: terminals wrap inside words.
const ERROR_MARKS = /outofmemor|memoryerror|traceback\(most|resourceexhausted|outofresource|allocfailed|exitcode:?-9|returncode=-9|oom-?kill|defaultcpuallocator|unabletoallocate|allocationfailed|cannotallocate|reservedbypytorch|cacheblocks|cudafailure|显存/i;

export function looksLikeError(text: string): boolean {
  return ERROR_MARKS.test(text.replace(/[\s_*`│|]/g, '')) || /\boom\b/i.test(text);
}

// A pickle says so in its first byte and names its protocol in the second; a snapshot as JSON begins with one of its two keys.
export async function looksLikeSnapshot(file: Blob): Promise<boolean> {
  const [proto = 0, version = 0] = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  if (proto === 0x80 && version >= 2 && version <= 5) return true;
  return /^\s*\{\s*"(segments|device_traces)"\s*:/.test(await file.slice(0, 256).text());
}

function asReport(root: Record<string, unknown>): Recognised {
  const model = isObject(root['model']) ? root['model'] : {};
  const recipe = isObject(root['recipe']) ? (root['recipe'] as Recipe) : {};
  return { kind: 'report', config: JSON.stringify(model['config'] ?? {}), recipe };
}

// PEFT's adapter_config.json: the core reads it, too, and names what of it cannot be said; here it becomes the recipe that is shown.
function asAdapter(root: Record<string, unknown>): Recipe {
  const pairs: readonly (readonly [string, unknown])[] = [
    ['method', 'lora'], ['rank', root['r']], ['targets', root['target_modules']], ['lora_dropout', root['lora_dropout']], ['dora', root['use_dora']],
  ];
  return Object.fromEntries(pairs.filter(([, value]) => value !== undefined && value !== null)) as Recipe;
}

function looksLikeRecipe(root: Record<string, unknown>, keys: readonly RecipeKey[]): boolean {
  const names = new Set(keys.map((key) => key.name));
  const isModel = MODEL_KEYS.some((key) => key in root);
  return !isModel && Object.keys(root).some((key) => names.has(key));
}

function parse(text: string): Record<string, unknown> | undefined {
  try {
    const root: unknown = JSON.parse(text.replace(/^\uFEFF/, ''));
    return isObject(root) ? root : undefined;
  } catch {
    return undefined; // not JSON: the core's reader says where and why
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
