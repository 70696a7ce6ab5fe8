// texts.ts - the few sentences that embeds alone say.

import type { Lang } from '../state/request.js';

export const EMBED_TEXTS: Readonly<Record<Lang, Readonly<Record<'open' | 'label' | 'loading', string>>>> = {
  en: { open: 'Open in Memory Ledger', label: 'GPU memory of {model}', loading: 'Computing …' },
  zh: { open: '在 Memory Ledger 中打开', label: '{model} 的显存', loading: '正在计算……' },
};
