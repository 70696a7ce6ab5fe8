// problem_text.ts - a Problem as sentences.

import type { Problem } from '../core/types.js';
import { MIB } from '../format/format.js';
import type { I18n } from './i18n.js';

export function problemText(problem: Problem, i18n: I18n): string {
  const values = { ...facts(problem, i18n), ...position(problem) };
  const reason = `reason.${problem.expected}`;
  if (problem.code === 'unsupported_recipe' && i18n.has(reason)) return i18n.t(reason, values);
  const key = `problem.${problem.code}`;
  const sentence = i18n.has(key) ? i18n.t(key, values) : fallback(problem);
  const separator = i18n.lang === 'zh' ? '' : ' ';
  return problem.nearest ? sentence + separator + i18n.t('problem.nearest', { nearest: problem.nearest }) : sentence;
}

// A recipe that no framework can run, as opposed to one that is not computed yet.
export function isImpossible(problem: Problem): boolean {
  return problem.code === 'unsupported_recipe' && !problem.expected.endsWith('_not_modelled');
}

function facts(problem: Problem, i18n: I18n): Record<string, string> {
  const all: Record<string, string> = { file: i18n.maybe(`file.${problem.read}`, problem.read || '…') };
  for (const name of ['where', 'read', 'expected'] as const) {
    if (problem[name] !== '') all[name] = readable(problem[name], i18n);
  }
  if (problem.code === 'json_too_large') {
    all['read'] = sizeText(problem.read, i18n);
    all['expected'] = sizeText(problem.expected, i18n);
  }
  return all;
}

// "a|b|c" -> "a, b, c"; "1..1024" -> "1 to 1024".
function readable(text: string, i18n: I18n): string {
  const list = text.split('|').join(i18n.lang === 'zh' ? '、' : ', ');
  return list.replace(/^(-?[\d.]+?)\.\.(-?\d[\d.]*)$/, i18n.lang === 'zh' ? '$1 至 $2' : '$1 to $2');
}

function sizeText(text: string, i18n: I18n): string {
  const size = Number(text);
  if (!Number.isFinite(size)) return text;
  return size >= MIB ? i18n.format.binary(size) : i18n.format.exact(size);
}

function position(problem: Problem): Record<string, string> {
  const match = /^(\d+):(\d+)$/.exec(problem.where);
  return match ? { line: match[1] ?? '', column: match[2] ?? '' } : {};
}

function fallback(problem: Problem): string {
  return [problem.code, problem.where, problem.read, problem.expected].filter((part) => part !== '').join(': ');
}
