// place.ts - the course's address: "#c5", "#lang=zh" or "#c5&lang=zh". What cannot be read is left out.

import type { Lang } from '../state/request.js';

export interface Place { readonly at: string | undefined; readonly lang: Lang | undefined }

export function readPlace(hash: string): Place {
  const words = hash.replace(/^#/, '').split('&');
  const lang = words.find((word) => /^lang=(en|zh)$/.test(word))?.slice(5) as Lang | undefined;
  return { at: words.find((word) => /^[a-z][\w-]*$/.test(word)), lang };
}

export function writePlace({ at, lang }: Place): string {
  return `#${[at, lang && `lang=${lang}`].filter(Boolean).join('&')}`;
}
