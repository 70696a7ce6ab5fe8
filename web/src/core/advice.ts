// advice.ts - what the core answers when asked what would help (docs/file-formats.md, "Advice").

import type { Answer, Bytes, Problem, Recipe } from './types.js';

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
  readonly at_limit: boolean; // the key allows no more, or more is not traced
  readonly after: Weighed | null;
}

// Seconds of one step, and bytes that one GPU sends in it (core/answer/step_time.h).
export interface StepTime {
  readonly seconds: number;
  readonly compute_s: number;
  readonly tensor_s: number;
  readonly context_s: number;
  readonly pipeline_s: number;
  readonly bubble_s: number;
  readonly data_s: number;
  readonly tensor_bytes: Bytes;
  readonly context_bytes: Bytes;
  readonly pipeline_bytes: Bytes;
  readonly data_bytes: Bytes;
}

export interface Plan {
  readonly time: StepTime;
  readonly allocated_bytes: Bytes; // of the rank that needs most
  readonly host_bytes: Bytes; // of one GPU's process, where something is offloaded: the time is then without the host's part
  readonly recipe: Recipe; // every key, resolved
}

interface Timed {
  readonly global_batch: number;
  readonly machine: { readonly gpus: number; readonly within_gb_per_s: number; readonly between_gb_per_s: number };
  readonly measured_over_computed: readonly [number, number];
}

export const SEARCHED = ['hf', 'megatron'] as const; // core/answer/plans.cc
export type Searched = (typeof SEARCHED)[number];

export interface Plans extends Timed {
  readonly about: 'plans';
  readonly stack: Searched;
  readonly gpus: number;
  readonly valid: number;
  readonly traced: number;
  readonly complete: boolean;
  readonly plans: readonly Plan[]; // quickest first, each with less memory than the one before
  readonly left_out: readonly { readonly problem: Problem; readonly combinations: number }[];
}

// On how few cards each method fits.
export interface Cards extends Timed {
  readonly about: 'cards';
  readonly most: number; // cards that were tried
  readonly methods: readonly { readonly method: 'full' | 'lora' | 'qlora'; readonly gpus: number | null; readonly plan: Plan | null; readonly offloaded: Plan | null; readonly problem: Problem | null }[];
}

export type Advice = Changes | Solution | Plans | Cards;
