// first_question.ts - what the page asks before the reader does anything, for the build (stored.ts).

import { configText, FIRST_REQUEST } from '../state/request.js';
import { questionOf } from './question.js';

export const question = questionOf(configText(FIRST_REQUEST.model), FIRST_REQUEST.recipe);
