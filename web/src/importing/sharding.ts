// sharding.ts - FSDP as accelerate sets it up, for its own files and for frameworks that hand it theirs (axolotl).
// Source: accelerate 1.12 utils/dataclasses.py (FullyShardedDataParallelPlugin, set_mixed_precision), accelerator.py
// (prepare_model), utils/fsdp_utils.py (fsdp2_prepare_model); transformers 5 trainer.py (_fsdp_qlora_plugin_updates).

import type { Recipe } from '../core/types.js';
import { at, choice, count, flag, isOn, notModelled, text, type Row, type Said, type Values } from './rows.js';

export interface Sharded {
  readonly version: 1 | 2;
  readonly method: unknown; // of the recipe
  readonly mixed: boolean; // bf16, by the file or by the Trainer, whose word it is
}

// In which dtypes shards are held, gathered and reduced. mixed_precision has one dtype for gathered parameters and for their
// gradients, in both versions. What is trained is upcast to fp32; under FSDP2 not beside 4-bit weights, whose adapters stay as
// the trainer made them. Weights in 4 bits are gathered in the dtype in which they are stored, whatever mixed_precision says.
export function shardDtypes({ version, method, mixed }: Sharded): Recipe | undefined {
  const computed: Recipe = { autocast: false, param_dtype: 'bf16', reduce_dtype: 'bf16' };
  if (method === 'qlora') return { precision: 'bf16', ...computed, ...(mixed && version === 1 ? { adapter_dtype: 'fp32' } : {}) };
  if (!mixed) return undefined;
  return method === 'lora' ? { precision: 'bf16', adapter_dtype: 'fp32', ...computed } : { precision: 'fp32', ...computed };
}

const adapts = (method: unknown): boolean => method === 'lora' || method === 'qlora';
const STRATEGIES: Readonly<Record<string, Recipe>> = { full_shard: {}, shard_grad_op: { reshard_after_forward: false }, 1: {}, 2: { reshard_after_forward: false } };

// `prefix`: before each key, in a file's table of them. `version` and `method` as the file has them beside the present recipe.
export function fsdpRows(prefix: string, version: (file: Values) => 1 | 2, method: (file: Values, present: Recipe) => unknown): readonly Row[] {
  const strategy = choice(`${prefix}sharding_strategy`, STRATEGIES), reshards = choice(`${prefix}reshard_after_forward`, STRATEGIES);
  const first = (file: Values): boolean => version(file) === 1;
  return [
    // Version 2 has no strategies, version 1 spells them in either key (FullyShardedDataParallelPlugin.__post_init__).
    { key: strategy.key, says: (value, file, present) => (first(file) ? strategy.says(value, file, present) : undefined) },
    { key: reshards.key, says: (value, file, present): Said => (!first(file) ? { reshard_after_forward: isOn(value) } : typeof value === 'boolean' ? undefined : reshards.says(value, file, present)) },
    choice(`${prefix}backward_prefetch`, { backward_pre: {}, backward_pre_prefetch: {} }),
    flag(`${prefix}offload_params`, { offload: 'params' }, { offload: 'none' }),
    // Version 2 wraps what is checkpointed already (fsdp2_apply_ac).
    { key: `${prefix}activation_checkpointing`, says: (value, file): Said => (!isOn(value) ? {} : first(file) ? { checkpointing: 'full', fsdp_activation_checkpointing: true } : { checkpointing: 'full' }) },
    // Off, a flat parameter is trained as one. PEFT makes units of adapters alone, which come out alike either way.
    { key: `${prefix}use_orig_params`, says: (value, file, present): Said => (!first(file) ? undefined : isOn(value) || adapts(method(file, present)) ? {} : 'not_modelled') },
    notModelled(`${prefix}forward_prefetch`, isOn),
    // Otherwise each process quantises the whole model before it is cut.
    { key: `${prefix}cpu_ram_efficient_loading`, says: (value, file, present): Said => (isOn(value) || method(file, present) !== 'qlora' ? {} : 'not_modelled') },
    choice(`${prefix}auto_wrap_policy`, { transformer_based_wrap: {} }), notModelled(`${prefix}min_num_params`),
  ];
}

export const fsdpVersion = (...keys: readonly string[]) => (file: Values): 1 | 2 => (keys.some((key) => count(at(file, key)) === 2) ? 2 : 1);

// mixed_precision of the file; the Trainer's bf16 sets it whatever the file says (transformers training_args.py).
export function isMixed(file: Values, present: Recipe): boolean {
  return text(file['mixed_precision']) === 'bf16' || present['autocast'] === true || present['precision'] === 'amp-bf16';
}
