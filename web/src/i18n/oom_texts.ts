// oom_texts.ts - the texts of <ml-oom>, loaded with it; apart from the page's own, which every visit downloads.

import type { Lang } from '../state/request.js';
import type { oomEn } from './oom_en.js';

export type OomKey = keyof typeof oomEn;
export type OomTexts = Readonly<Record<OomKey, string>>;

export async function loadOomTexts(lang: Lang): Promise<OomTexts> {
  return lang === 'zh' ? (await import('./oom_zh.js')).oomZh : (await import('./oom_en.js')).oomEn;
}

export function fill(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? '…'));
}
