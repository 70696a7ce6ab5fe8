// question.ts - the question as a sentence, for the page, its exports and embeds: which text, and the value of each of its parts.

import type { Recipe } from '../core/types.js';
import type { I18n, Key } from '../i18n/i18n.js';

export interface Asked {
  readonly recipe: Recipe; // every key
  readonly plain: boolean;
  readonly modelName: string;
  readonly gpuName: string;
}

// Between the texts the names of the parts: "", "model", ", ", "method", ...
export function questionParts({ recipe, plain }: Asked, i18n: I18n): string[] {
  const key: Key = recipe['task'] === 'generate' && !plain ? 'question.generate' : plain ? 'question.plain' : 'question.train';
  return i18n.t(key, MARKED).split('\0');
}

const PARTS = ['model', 'method', 'precision', 'batch', 'seq', 'new_tokens', 'dp', 'gpu'];
const MARKED = Object.fromEntries(PARTS.map((part) => [part, `\0${part}\0`]));

export function partText(part: string, { recipe, modelName, gpuName }: Asked, i18n: I18n): string {
  switch (part) {
    case 'model': return modelName;
    case 'method': return i18n.maybe(`method.${String(recipe['method'])}`, String(recipe['method']));
    case 'precision': return String(recipe['precision']);
    case 'gpu': return gpuName;
    case 'dp': return i18n.format.count(gpusOf(recipe));
    default: return i18n.format.count(Number(recipe[part] ?? 0));
  }
}

export function questionText(asked: Asked, i18n: I18n): string {
  return questionParts(asked, i18n).map((part, at) => (at % 2 === 0 ? part : partText(part, asked, i18n))).join('');
}

// Experts are spread over the ranks that hold the same layers otherwise.
export function gpusOf(recipe: Recipe): number {
  return ['dp', 'tp', 'pp', 'cp'].reduce((all, key) => all * Number(recipe[key] ?? 1), 1);
}
