// oom_types.ts - the document of kind "oom" (docs/file-formats.md) as TypeScript.

import type { Bytes } from './types.js';

type Known<T> = T | null; // null: the text does not say

export interface OomMessage {
  readonly format: string;
  readonly memory: 'device' | 'host' | 'other';
  readonly device: Known<string>;
  readonly gpu: Known<number>;
  readonly requested_bytes: Known<Bytes>;
  readonly capacity_bytes: Known<Bytes>;
  readonly allocated_bytes: Known<Bytes>;
  readonly reserved_bytes: Known<Bytes>;
  readonly free_bytes: Known<Bytes>;
  readonly unallocated_bytes: Known<Bytes>;
  readonly this_process_bytes: Known<Bytes>;
  readonly processes: readonly { readonly pid: number; readonly bytes: Known<Bytes> }[];
}

export interface OomAdvice {
  readonly id: string;
  readonly recipe: Readonly<Record<string, string>>;
  readonly saves_bytes: Known<Bytes>;
}

export interface OomMatch {
  readonly name: string;
  readonly category: string;
  readonly op: string;
  readonly dtype: string;
  readonly bytes: Bytes;
  readonly element_bytes: number;
  readonly other_dtype: boolean;
  readonly divided_by: number;
}

export interface OomPrediction {
  readonly predicted_allocated_bytes: Bytes;
  readonly predicted_device_bytes: Bytes;
  readonly phase: string;
  readonly request_says_nothing: boolean;
  readonly matches: readonly OomMatch[];
  readonly conclusions: readonly string[];
}

export interface Oom {
  readonly kind: 'oom';
  readonly text_bytes: Bytes;
  readonly read_bytes: Bytes;
  readonly messages: readonly OomMessage[];
  readonly stage: string;
  readonly cause: string;
  readonly also_possible: readonly string[];
  readonly confidence: number;
  readonly evidence: readonly { readonly id: string; readonly quote: string; readonly bytes: Known<Bytes> }[];
  readonly advice: readonly OomAdvice[];
  readonly recipe: readonly { readonly key: string; readonly value: string; readonly quote: string }[];
  readonly prediction: Known<OomPrediction>;
}
