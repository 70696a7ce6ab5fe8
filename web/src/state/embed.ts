// embed.ts - what an author pastes into a page of their own to show what stands here (docs/embedding.md).

import { configText, writeValue, type Request } from './request.js';

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');

export function embedSnippet(request: Request, site: string): string {
  const { model, recipe, lang } = request;
  const attributes = Object.entries(recipe).map(([key, value]) => [key.replaceAll('_', '-'), writeValue(value)] as const);
  const all = [...(model.kind === 'preset' ? [['model', model.id] as const] : []), ...attributes, ['view', 'verdict bar'] as const, ...(lang ? [['lang', lang] as const] : [])];
  const content = model.kind === 'custom' ? `<script type="application/json">${configText(model).replaceAll('</', '<\\/')}</script>` : '';
  return `<script type="module" src="${escaped(site)}embed.js"></script>\n<memory-ledger ${all.map(([name, value]) => `${name}="${escaped(value)}"`).join(' ')}>${content}</memory-ledger>`;
}
