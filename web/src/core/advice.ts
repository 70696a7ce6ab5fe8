// advice.ts - what the core answers when asked what would help (docs/file-formats.md, "Advice").

import type { Answer, Bytes, Recipe } from './types.js';

export const ABOUT = ['changes', 'batch', 'seq', 'gpu'] as const;
export type About = (typeof ABOUT)[number];

export interface Weighed {
  readonly allocated_bytes: Bytes;
  readonly reserved_bytes: Bytes;
  readonly answer: Answer;
  readonly headroom_bytes: Bytes;
}

export interface AdvisedChange {
  readonly id: string;
  readonly saved_bytes: Bytes;
  readonly after: Weighed;
  readonly recipe: Recipe; // every key, resolved
}

export interface Changes {
  readonly about: 'changes';
  readonly before: Weighed;
  readonly changes: readonly AdvisedChange[];
}

export interface Solution {
  readonly about: 'batch' | 'seq' | 'gpu';
  readonly value: number | string | null; // null: nothing fits
  readonly at_limit: boolean; // the key allows no more
  readonly after: Weighed | null;
}

export type Advice = Changes | Solution;
