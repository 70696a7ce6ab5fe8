// key_help.ts - what a recipe key does, in a line, with a link to its documentation: for the field that has the focus.

import type { Lang } from '../state/request.js';
import { KEY_DOCS } from '../state/key_docs.js';

export interface KeyHelp { readonly text: string; readonly url: string | undefined }

export async function keyHelp(name: string, lang: Lang): Promise<KeyHelp | undefined> {
  const texts: Readonly<Record<string, string>> = lang === 'zh' ? (await import('../i18n/help_zh.js')).helpZh : (await import('../i18n/help_en.js')).helpEn;
  const text = texts[name];
  return text === undefined ? undefined : { text, url: KEY_DOCS[name] };
}
