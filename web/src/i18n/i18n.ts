// i18n.ts - one object that speaks: texts, names of ids and numbers in the reader's language and units.

import type { Category } from '../core/types.js';
import { Format } from '../format/format.js';
import type { Lang, Units } from '../state/request.js';
import type { belowEn } from './below_en.js';
import type { courseEn } from './course_en.js';
import type { en } from './en.js';
import type { problemsEn } from './problems_en.js';

export type Key = keyof typeof en | keyof typeof belowEn | keyof typeof courseEn | keyof typeof problemsEn;
export type Texts = Readonly<Record<keyof typeof en, string>>;
export type Values = Readonly<Record<string, string | number>>;

export class I18n {
  readonly format: Format;

  constructor(readonly lang: Lang, units: Units, private readonly texts: Readonly<Partial<Record<Key, string>>>) {
    this.format = new Format(lang, units);
  }

  t(key: Key, values: Values = {}): string {
    return (this.texts[key] ?? key).replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? '…'));
  }

  // The same with more texts.
  with(texts: Readonly<Partial<Record<Key, string>>>): I18n {
    return new I18n(this.lang, this.format.units, { ...this.texts, ...texts });
  }

  // The same language in other units.
  in(units: Units): I18n {
    return units === this.format.units ? this : new I18n(this.lang, units, this.texts);
  }

  has(key: string): key is Key {
    return key in this.texts;
  }

  // The text of `key`, or `fallback` for ids that this page has no words for (a newer core may know more).
  maybe(key: string, fallback: string): string {
    return this.has(key) ? this.t(key) : fallback;
  }

  bytes(value: number): string {
    return this.format.bytes(value);
  }

  category(id: Category | string): string {
    const plain = id.replace(/^\[(.*)\]$/, '$1').replaceAll(' ', '_');
    return this.maybe(`category.${plain}`, id);
  }

  key(name: string): string {
    return this.maybe(`key.${name}`, name);
  }

  // "step2.backward" -> "backward of step 2"; "step1.2.forward" -> "forward of step 1.2"; "decode7" -> "decode of step 7".
  phase(id: string): string {
    const { step, name } = splitPhase(id);
    const phase = this.maybe(`phase.${name}`, name);
    return step === '' ? phase : this.t('phase.in_step', { phase, step });
  }
}

export async function loadTexts(lang: Lang): Promise<Texts> {
  return lang === 'zh' ? (await import('./zh.js')).zh : (await import('./en.js')).en;
}

type ProblemTexts = Readonly<Record<keyof typeof problemsEn, string>>;

// Sentences about problems, which most visits never need.
export async function loadProblemTexts(lang: Lang): Promise<ProblemTexts> {
  return lang === 'zh' ? (await import('./problems_zh.js')).problemsZh : (await import('./problems_en.js')).problemsEn;
}

export function splitPhase(id: string): { step: string; name: string } {
  const match = /^step([\d.]+)\.(\w+)$/.exec(id) ?? /^(?=decode(\d+))(decode)\d+$/.exec(id) ?? /^()(skipped)\d+$/.exec(id);
  return { step: match?.[1] ?? '', name: match?.[2] ?? id };
}

export function browserLang(languages: readonly string[] = navigator.languages): Lang {
  const first = languages.find((language) => /^(en|zh)\b/i.test(language));
  return first && /^zh/i.test(first) ? 'zh' : 'en';
}
