// attributes.ts - an element's attributes as a link (state/hash.ts): one reader for both, and one list of mistakes.
//
// Recipe keys may be written with "-" for "_". What is neither a key nor HTML's own is passed on, so that a typing error is
// named instead of doing nothing.

import { pack } from '../state/codec.js';

export const VIEWS = ['verdict', 'bar', 'timeline', 'ledger', 'compare'] as const;
export type View = (typeof VIEWS)[number];

const OWN: ReadonlySet<string> = new Set(['view', 'lang', 'theme', 'controls', 'with']);
const HTML_OWN: ReadonlySet<string> = new Set(['class', 'id', 'style', 'slot', 'part', 'title', 'hidden', 'tabindex', 'role', 'dir', 'translate', 'inert', 'is', 'nonce', 'key', 'ref']);

export interface Attribute { readonly name: string; readonly value: string }

const ignored = (name: string): boolean => OWN.has(name) || HTML_OWN.has(name) || /^(data-|aria-|on|xml|v-|:|@|_|ng)/.test(name);

// config: a model's config.json in full, from the element's content.
export async function hashOf(attributes: readonly Attribute[], config: string | undefined): Promise<string> {
  const params = new URLSearchParams({ v: '1' });
  for (const { name, value } of attributes) {
    if (!ignored(name)) params.set(name.replaceAll('-', '_'), value === '' ? 'true' : value);
  }
  if (config !== undefined) {
    params.delete('model');
    params.set('config', await pack(config));
  }
  const model = params.get('config') ? { config: params.get('config') ?? '' } : { model: params.get('model') ?? '' };
  for (const scenario of split(attributes.find(({ name }) => name === 'with')?.value ?? '', ';')) {
    const own = new URLSearchParams(Object.entries(model).filter(([, value]) => value !== ''));
    for (const [key, value] of new URLSearchParams(scenario.replaceAll(',', '&'))) own.set(key.trim().replaceAll('-', '_'), value.trim());
    params.append('pin', own.toString());
  }
  return `#${params}`;
}

export function split(text: string, separator: string | RegExp): string[] {
  return text.split(separator).map((part) => part.trim()).filter((part) => part !== '');
}

// Unknown views are left out; none asks for the bar.
export function viewsOf(text: string | null): View[] {
  const asked = split(text ?? '', /[\s,|]+/);
  const known = VIEWS.filter((view) => asked.includes(view));
  return known.length > 0 ? known : ['bar'];
}

// The other way: a link's words as attributes, for the frame's page.
export function attributesOf(hash: string): Attribute[] {
  const params = new URLSearchParams(hash.replace(/^#/, ''));
  const pins = params.getAll('pin').map((pin) => [...new URLSearchParams(pin)].filter(([key]) => key !== 'model' && key !== 'config').map(([key, value]) => `${key}=${value}`).join('&'));
  params.delete('v');
  params.delete('pin');
  const plain = [...params].filter(([name]) => /^[a-z][a-z0-9_]*$/.test(name)).map(([name, value]) => ({ name: name.replaceAll('_', '-'), value }));
  return pins.length > 0 ? [...plain, { name: 'with', value: pins.join('; ') }] : plain;
}
