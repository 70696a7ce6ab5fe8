// lesson_types.ts - what the core answers when the course asks (docs/file-formats.md, "Lesson").

import type { Bytes } from '../core/types.js';

export interface FormatRow {
  readonly name: string;
  readonly sign_bits: number;
  readonly exponent_bits: number;
  readonly mantissa_bits: number;
  readonly bias: number;
  readonly infinities: boolean;
  readonly stored_bits: number;
  readonly largest: number;
  readonly smallest_normal: number;
  readonly smallest: number;
  readonly epsilon: number;
}

export interface Stored {
  readonly format: string;
  readonly bits: number;
  readonly asked: number | null; // null: not finite, as below
  readonly value: number | null;
  readonly error: number | null;
  readonly negative: boolean;
  readonly class: 'zero' | 'subnormal' | 'normal' | 'infinity' | 'nan' | 'code';
  readonly below: number | null;
  readonly above: number | null;
  readonly ulp: number;
}

export interface UpdateRow {
  readonly format: string;
  readonly start: number | null;
  readonly once: number | null;
  readonly after: number | null;
  readonly moved: boolean;
  readonly half_ulp: number;
}
export interface Update { readonly exact: number; readonly rows: readonly UpdateRow[] }

export interface ScalingRow {
  readonly gradient: number;
  readonly fp16: number | null;
  readonly bf16: number | null;
  readonly scaled: number | null;
  readonly overflow: boolean;
  readonly unscaled: number | null;
}
export interface Scaling { readonly scale: number; readonly rows: readonly ScalingRow[]; readonly skipped: boolean; readonly next_scale: number }

export interface TensorBytes {
  readonly elements: number;
  readonly rows: readonly { readonly dtype: string; readonly element_bytes: number; readonly bytes: Bytes }[];
}

export interface PerParameter {
  readonly weights: number;
  readonly gradients: number;
  readonly master_weights: number;
  readonly optimizer_states: number;
  readonly moments: number; // how many tensors the states are
  readonly resident: number;
  readonly transient_copy: number;
}

export interface CourseLedger {
  readonly params: number;
  readonly trainable: number;
  readonly per_parameter: PerParameter;
  readonly frozen_bytes: Bytes;
  readonly trained_bytes: Bytes;
  readonly states_bytes: Bytes;
  readonly inference: { readonly bf16: Bytes; readonly int8: Bytes; readonly int4: Bytes };
  readonly activations: { readonly layer_inputs: Bytes; readonly all: Bytes; readonly scores: Bytes };
  readonly compute: { readonly forward: number; readonly backward: number; readonly recompute: number; readonly total: number };
  readonly ranks: {
    readonly gpus: number;
    readonly ddp: { readonly bytes: Bytes; readonly all_reduce_bytes: Bytes };
    readonly fsdp: {
      readonly bytes: Bytes; readonly forward_gathers: number; readonly backward_gathers: number; readonly reduce_scatters: number; readonly layer_bytes: Bytes;
    };
  };
}

export interface Cut { readonly params: number; readonly params_per_gpu: number; readonly sends: number; readonly bytes: Bytes }
