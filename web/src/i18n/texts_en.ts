// texts_en.ts - all English texts; a file of its own in the site, so that a reader loads one language.

import { en } from './en.js';
import { problemsEn } from './problems_en.js';

export const texts = { ...en, ...problemsEn } as const;
