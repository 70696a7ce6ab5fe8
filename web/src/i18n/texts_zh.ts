// texts_zh.ts - all Chinese texts; a file of its own in the site, so that a reader loads one language.

import type { Texts } from './i18n.js';
import { problemsZh } from './problems_zh.js';
import { zh } from './zh.js';

export const texts: Texts = { ...zh, ...problemsZh };
