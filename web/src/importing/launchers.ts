// launchers.ts - files that say how a step is spread over GPUs and nothing of the model: accelerate's and DeepSpeed's.

import type { Recipe } from '../core/types.js';
import { at, choice, count, counts, flag, isOn, isSet, isTable, notModelled, numeric, row, text, type Format, type Row, type Said, type Values } from './rows.js';
import { fsdpRows, fsdpVersion, isMixed, shardDtypes } from './sharding.js';

const version = fsdpVersion('fsdp_config.fsdp_version');

// Version 1 and 2 of FSDP: sharding.ts. Elsewhere mixed precision is autocast over weights as they were loaded.
function mixed(file: Values, present: Recipe): Said {
  const precision = text(file['mixed_precision']), launcher = text(file['distributed_type'])?.toLowerCase();
  if (launcher === 'fsdp' && precision !== 'fp16') return shardDtypes({ version: version(file), method: present['method'], mixed: isMixed(file, present) }) ?? {};
  if (precision === 'no') return {};
  if (launcher === 'deepspeed') return precision === 'bf16' ? { precision: 'bf16' } : precision === 'fp16' ? { precision: 'amp-fp16' } : 'not_modelled';
  return precision === 'bf16' ? { autocast: true } : 'not_modelled';
}

// DeepSpeed's own keys, which accelerate's file has under other names. Offloaded parameters are computed together with an
// offloaded optimizer only.
const zeroStage = (key: string): Row => ({ key, says: (value) => { const stage = numeric(value); return [0, 1, 2, 3].includes(stage) ? { zero: stage } : undefined; } });
const offloaded = (optimizer: string, params: string): readonly Row[] => [
  choice(optimizer, { none: {}, cpu: { offload: 'optimizer' } }),
  {
    key: params,
    says: (value, file): Said => {
      if (text(value) === 'none') return {};
      return text(value) === 'cpu' && text(at(file, optimizer)) === 'cpu' ? { offload: 'params' } : 'not_modelled';
    },
  },
];

// runtime/zero/config.py: sizes that the file leaves out are DeepSpeed's own, not those that Trainer makes of "auto". Nothing
// runs under autocast, and FSDP is off.
const DEEPSPEED_SIZES = { reduce_bucket_size: 500_000_000, prefetch_bucket_size: 50_000_000, param_persistence_threshold: 100_000 } as const;
function deepspeedBase(stage: unknown): Recipe {
  const { reduce_bucket_size, ...third } = DEEPSPEED_SIZES;
  const zero = numeric(stage);
  return zero > 0 ? { autocast: false, fsdp: 0, reduce_bucket_size, ...(zero === 3 ? third : {}) } : {};
}

// Without DeepSpeed its sizes are at their defaults; the recipe beside which the file is read may have had a stage.
const WITHOUT_STAGE: Recipe = {
  zero: 0, reduce_bucket_size: 0, prefetch_bucket_size: 0, param_persistence_threshold: 0, max_live_parameters: 1_000_000_000, max_reuse_distance: 1_000_000_000, sub_group_size: 1_000_000_000, overlap_comm: 'auto', reduce_scatter: true,
};
function launched(fsdp: number): (present: Recipe) => Recipe {
  return (present) => ({ fsdp, ...(numeric(present['zero']) > 0 ? WITHOUT_STAGE : {}) });
}
const LAUNCHERS: Readonly<Record<string, (present: Recipe) => Recipe>> = { no: launched(0), multi_gpu: launched(0), fsdp: launched(1), deepspeed: () => ({ fsdp: 0 }) };

// "auto", a number, or one in words: "5e8".
const elements = (key: string, name: string): Row => ({
  key: `zero_optimization.${key}`,
  says: (value) => { if (value === 'auto') return { [name]: 0 }; const number = Math.trunc(numeric(value)); return Number.isSafeInteger(number) && number > 0 ? { [name]: number } : 'not_modelled'; },
});

export const ACCELERATE: Format = {
  name: 'accelerate',
  whole: false,
  is: (file) => 'distributed_type' in file || ('compute_environment' in file && 'num_processes' in file),
  base: (file) => deepspeedBase(at(file, 'deepspeed_config.zero_stage')),
  rows: [
    counts('num_processes', 'dp'),
    { key: 'distributed_type', says: (value, _, present) => row(LAUNCHERS, text(value)?.toLowerCase())?.(present) ?? 'not_modelled' },
    { key: 'mixed_precision', says: (_, file, present) => mixed(file, present) },
    { key: 'fsdp_config.fsdp_version', says: (value) => (count(value) === 2 ? { fsdp: 2 } : count(value) === 1 ? { fsdp: 1 } : undefined) },
    ...fsdpRows('fsdp_config.fsdp_', version, (_, present) => present['method']),
    zeroStage('deepspeed_config.zero_stage'),
    counts('deepspeed_config.gradient_accumulation_steps', 'grad_accum'),
    ...offloaded('deepspeed_config.offload_optimizer_device', 'deepspeed_config.offload_param_device'),
    notModelled('deepspeed_config.zero3_leaf_modules'),
    notModelled('deepspeed_config.deepspeed_config_file'), notModelled('parallelism_config'), notModelled('fp8_config'), notModelled('megatron_lm_config'), notModelled('dynamo_config', (value) => isTable(value) && isSet(value['dynamo_backend'])),
  ],
};

// deepspeed runtime/config.py and runtime/zero/config.py; "auto" is the Trainer's to fill in and says nothing here.
export const DEEPSPEED: Format = {
  name: 'DeepSpeed',
  whole: false,
  is: (file) => 'zero_optimization' in file || 'train_micro_batch_size_per_gpu' in file,
  base: (file) => deepspeedBase(at(file, 'zero_optimization.stage')),
  rows: [
    counts('train_micro_batch_size_per_gpu', 'batch'), counts('gradient_accumulation_steps', 'grad_accum'),
    zeroStage('zero_optimization.stage'),
    ...offloaded('zero_optimization.offload_optimizer.device', 'zero_optimization.offload_param.device'),
    elements('reduce_bucket_size', 'reduce_bucket_size'), elements('stage3_prefetch_bucket_size', 'prefetch_bucket_size'), elements('stage3_param_persistence_threshold', 'param_persistence_threshold'),
    elements('stage3_max_live_parameters', 'max_live_parameters'), elements('stage3_max_reuse_distance', 'max_reuse_distance'), elements('sub_group_size', 'sub_group_size'),
    flag('zero_optimization.overlap_comm', { overlap_comm: 'on' }, { overlap_comm: 'off' }), flag('zero_optimization.reduce_scatter', { reduce_scatter: true }, { reduce_scatter: false }),
    flag('zero_optimization.cpu_offload', { offload: 'optimizer' }),
    { key: 'bf16.enabled', says: (value) => (isOn(value) ? { precision: 'bf16' } : undefined) }, { key: 'fp16.enabled', says: (value) => (isOn(value) ? { precision: 'amp-fp16' } : undefined) },
    choice('optimizer.type', { adamw: {}, adam: {} }), notModelled('activation_checkpointing.partition_activations', isOn), notModelled('activation_checkpointing.cpu_checkpointing', isOn),
    // ZeRO++, MiCS, partial offloading, and what lays buffers out in another way.
    ...['zero_quantized_weights', 'zero_quantized_gradients', 'zero_quantized_nontrainable_weights', 'zeropp_loco_param', 'zenflow', 'round_robin_gradients', 'stage3_use_all_reduce_for_fetch_params', 'stage3_allgather_sequential', 'stage3_module_granularity_threshold', 'leaf_module'].map((key) => notModelled(`zero_optimization.${key}`)),
    ...['contiguous_gradients', 'use_multi_rank_bucket_allreduce'].map((key) => notModelled(`zero_optimization.${key}`, (value) => !isOn(value))),
    notModelled('zero_optimization.zero_hpz_partition_size', (value) => (count(value) ?? 1) > 1), notModelled('zero_optimization.mics_shard_size', (value) => (count(value) ?? 0) > 0), notModelled('zero_optimization.offload_optimizer.ratio', (value) => numeric(value) < 1),
    notModelled('data_types.grad_accum_dtype', (value) => text(value) !== 'bf16' && text(value) !== 'fp16'), notModelled('communication_data_type'), notModelled('zero_optimization.stage3_model_persistence_threshold', (value) => value !== 'auto' && numeric(value) < 1e12),
  ],
};
