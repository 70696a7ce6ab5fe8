// launchers.ts - files that say how a step is spread over GPUs and nothing of the model: accelerate's and DeepSpeed's.

import { at, choice, count, counts, flag, isOn, isSet, isTable, notModelled, text, type Format, type Row, type Values } from './rows.js';

// accelerate utils/dataclasses.py (FullyShardedDataParallelPlugin): with mixed precision FSDP2 holds fp32 shards and computes
// in that precision.
function mixed(file: Values): Readonly<Record<string, string | boolean>> | undefined {
  if (text(file['mixed_precision']) !== 'bf16') return undefined;
  return text(file['distributed_type']) === 'FSDP' ? { precision: 'fp32', param_dtype: 'bf16' } : { autocast: true };
}

// DeepSpeed's own keys, which accelerate's file has under other names.
const OFFLOADED = { optimizer: { none: {}, cpu: { offload: 'optimizer' } }, params: { none: {}, cpu: { offload: 'params' } } } as const;
const zeroStage = (key: string): Row => ({ key, says: (value) => { const stage = Number(value); return [0, 1, 2, 3].includes(stage) ? { zero: stage } : undefined; } });

export const ACCELERATE: Format = {
  name: 'accelerate',
  whole: false,
  is: (file) => 'distributed_type' in file || ('compute_environment' in file && 'num_processes' in file),
  base: () => ({}),
  rows: [
    counts('num_processes', 'dp'),
    choice('distributed_type', { no: { fsdp: 0 }, multi_gpu: { fsdp: 0 }, fsdp: { fsdp: 1 }, deepspeed: { fsdp: 0 } }),
    { key: 'mixed_precision', says: (value, file) => (text(value) === 'no' ? {} : mixed(file) ?? 'not_modelled') },
    { key: 'fsdp_config.fsdp_version', says: (value) => (count(value) === 2 ? { fsdp: 2 } : undefined) },
    { key: 'fsdp_config.fsdp_reshard_after_forward', says: (value, file) => (count(at(file, 'fsdp_config.fsdp_version')) === 2 ? { reshard_after_forward: isOn(value) } : undefined) },
    choice('fsdp_config.fsdp_sharding_strategy', { full_shard: {} }),
    flag('fsdp_config.fsdp_offload_params', { offload: 'params' }), flag('fsdp_config.fsdp_activation_checkpointing', { checkpointing: 'full' }),
    notModelled('fsdp_config.fsdp_use_orig_params', (value) => !isOn(value)), notModelled('fsdp_config.fsdp_forward_prefetch', isOn),
    zeroStage('deepspeed_config.zero_stage'),
    counts('deepspeed_config.gradient_accumulation_steps', 'grad_accum'),
    choice('deepspeed_config.offload_optimizer_device', OFFLOADED.optimizer), choice('deepspeed_config.offload_param_device', OFFLOADED.params),
    notModelled('deepspeed_config.deepspeed_config_file'), notModelled('parallelism_config'), notModelled('fp8_config'), notModelled('megatron_lm_config'), notModelled('dynamo_config', (value) => isTable(value) && isSet(value['dynamo_backend'])),
  ],
};

// deepspeed runtime/config.py and runtime/zero/config.py; "auto" is the Trainer's to fill in and says nothing here.
export const DEEPSPEED: Format = {
  name: 'DeepSpeed',
  whole: false,
  is: (file) => 'zero_optimization' in file || 'train_micro_batch_size_per_gpu' in file,
  base: () => ({}),
  rows: [
    counts('train_micro_batch_size_per_gpu', 'batch'), counts('gradient_accumulation_steps', 'grad_accum'),
    zeroStage('zero_optimization.stage'),
    choice('zero_optimization.offload_optimizer.device', OFFLOADED.optimizer), choice('zero_optimization.offload_param.device', OFFLOADED.params),
    flag('zero_optimization.cpu_offload', { offload: 'optimizer' }),
    { key: 'bf16.enabled', says: (value) => (isOn(value) ? { precision: 'bf16' } : undefined) }, notModelled('fp16.enabled', isOn),
    choice('optimizer.type', { adamw: {}, adam: {} }), notModelled('activation_checkpointing.partition_activations', isOn), notModelled('activation_checkpointing.cpu_checkpointing', isOn),
    notModelled('zero_optimization.zero_quantized_weights', isOn), notModelled('zero_optimization.zero_hpz_partition_size', (value) => (count(value) ?? 1) > 1),
  ],
};
