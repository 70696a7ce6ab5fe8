// pytorch.ts - torchtune's YAML and torchtitan's TOML: files of a stack of their own, which name the model by a builder or a
// flavor.

import type { Recipe } from '../core/types.js';
import { at, choice, count, counts, dropout, flag, isOn, isTable, names, notModelled, row, text, type Format, type Row, type Values } from './rows.js';

// torchtune models/*/_model_builders.py: "torchtune.models.llama3_1.qlora_llama3_1_8b".
const TORCHTUNE_MODELS: Readonly<Record<string, string>> = {
  llama2_7b: 'llama-2-7b', llama2_13b: 'llama-2-13b', llama2_70b: 'llama-2-70b', llama3_8b: 'llama-3-8b', llama3_1_8b: 'llama-3.1-8b', llama3_1_70b: 'llama-3.1-70b',
  llama3_1_405b: 'llama-3.1-405b', llama3_2_1b: 'llama-3.2-1b', llama3_2_3b: 'llama-3.2-3b', mistral_7b: 'mistral-7b', qwen2_5_1_5b_base: 'qwen2.5-1.5b', qwen2_5_3b: 'qwen2.5-3b',
  qwen2_5_7b_base: 'qwen2.5-7b', qwen2_5_32b_base: 'qwen2.5-32b', qwen2_5_72b_base: 'qwen2.5-72b', gemma_2b: 'gemma-2b', gemma_7b: 'gemma-7b', gemma2_2b: 'gemma-2-2b', gemma2_9b: 'gemma-2-9b',
  gemma2_27b: 'gemma-2-27b', phi3_mini: 'phi-3-mini', phi4_14b: 'phi-4',
};

// Its names of linears, as the hub's checkpoints call them (torchtune models/convert_weights.py).
const LINEARS: Readonly<Record<string, string>> = { output_proj: 'o_proj' };
const FEED_FORWARD = ['gate_proj', 'down_proj', 'up_proj'];

function builder(file: Values): { readonly method: 'full' | 'lora' | 'qlora' | undefined; readonly model: string | undefined } {
  const name = text(at(file, 'model._component_'))?.split('.').pop() ?? '';
  const [, kind = '', rest = ''] = /^(lora_|qlora_|dora_|qdora_)?(.*)$/.exec(name) ?? [];
  const method = ({ '': 'full', lora_: 'lora', dora_: 'lora', qlora_: 'qlora', qdora_: 'qlora' } as const)[kind];
  return { method, model: row(TORCHTUNE_MODELS, rest) };
}

function torchtuneTargets(file: Values): readonly string[] {
  const attention = (names(at(file, 'model.lora_attn_modules')) ?? []).map((name) => row(LINEARS, name) ?? name);
  return [...new Set([...attention, ...(isOn(at(file, 'model.apply_lora_to_mlp')) ? FEED_FORWARD : [])])];
}

const TORCHTUNE_OPTIMIZERS: Readonly<Record<string, Recipe>> = {
  'torch.optim.adamw': { optimizer: 'adamw_foreach' }, 'torch.optim.sgd': { optimizer: 'sgd' }, 'bitsandbytes.optim.pagedadamw8bit': { optimizer: 'paged_adamw_8bit' },
  'bitsandbytes.optim.adamw8bit': { optimizer: 'adamw_8bit' }, 'torchao.optim.adamw8bit': { optimizer: 'adamw_ao_8bit' }, 'torchao.optim.adamw4bit': { optimizer: 'adamw_ao_4bit' },
  'torchao.prototype.low_bit_optim.adamw8bit': { optimizer: 'adamw_ao_8bit' }, 'torchao.prototype.low_bit_optim.adamw4bit': { optimizer: 'adamw_ao_4bit' },
};

export const TORCHTUNE: Format = {
  name: 'torchtune',
  whole: true,
  is: (file) => text(at(file, 'model._component_')) !== undefined,
  base: (file) => ({ stack: 'torchtune', method: builder(file).method ?? 'full' }),
  model: (file) => builder(file).model,
  modelKeys: ['model._component_'],
  rows: [
    counts('batch_size', 'batch'), counts('gradient_accumulation_steps', 'grad_accum'), counts('tokenizer.max_seq_len', 'seq'),
    counts('model.lora_rank', 'rank'), dropout('model.lora_dropout'),
    ...['model.lora_attn_modules', 'model.apply_lora_to_mlp'].map((key) => ({ key, says: (_: unknown, file: Values) => { const targets = torchtuneTargets(file); return targets.length > 0 ? { targets } : undefined; } })),
    notModelled('model.apply_lora_to_output', isOn), flag('model.use_dora', { dora: true }), flag('model.quantize_base', { method: 'qlora' }),
    choice('dtype', { bf16: { precision: 'bf16' }, fp32: { precision: 'fp32' } }), choice('optimizer._component_', TORCHTUNE_OPTIMIZERS),
    { key: 'optimizer.fused', says: (value, file) => (isOn(value) && /AdamW$/.test(text(at(file, 'optimizer._component_')) ?? '') ? { optimizer: 'adamw_fused' } : undefined) },
    notModelled('optimizer_in_bwd', isOn),
    { key: 'loss._component_', says: (value) => (/ChunkedOutputLoss$/.test(text(value) ?? '') ? { loss: 'chunked' } : /CrossEntropyLoss$/.test(text(value) ?? '') && !/Linear/.test(text(value) ?? '') ? { loss: 'full' } : 'not_modelled') },
    flag('enable_activation_checkpointing', { checkpointing: 'full' }), notModelled('enable_activation_offloading', isOn), flag('compile', { compile: true }),
    flag('fsdp_cpu_offload', { offload: 'params' }), counts('tensor_parallel_dim', 'tp'),
  ],
};

const TORCHTITAN_MODELS: Readonly<Record<string, string>> = { 'llama3 8B': 'llama-3.1-8b', 'llama3 70B': 'llama-3.1-70b', 'llama3 405B': 'llama-3.1-405b',
  'qwen3 8B': 'qwen3-8b', 'qwen3 14B': 'qwen3-14b', 'qwen3 32B': 'qwen3-32b' };

// Keys that left torchtitan's files with 0.1: batch_size became local_batch_size, and compile and the degrees got tables of their own.
const isBefore01 = (file: Values): boolean => ['batch_size', 'compile', 'tensor_parallel_degree', 'data_parallel_shard_degree', 'data_parallel_degree'].some((key) => at(file, `training.${key}`) !== undefined);

// apply_tp: the sequence is cut wherever the matrices are.
const tensorParallel = (key: string): Row => ({ key, says: (value): Recipe | undefined => { const tp = count(value); return tp === undefined ? undefined : tp > 1 ? { tp, sequence_parallel: true } : { tp }; } });

// A pipeline's micro-batches are parts of the local batch: as many as stages, or as many as are told, until 0.1; of one
// sequence, or as many as are told, since.
const stages = (key: string): Row => ({ key, says: (value, file): Recipe | undefined => {
  const pp = count(value);
  if (pp === undefined || pp < 2) return pp === undefined ? undefined : { pp };
  const local = count(at(file, 'training.batch_size')) ?? count(at(file, 'training.local_batch_size')) ?? 8;
  const size = count(at(file, 'parallelism.pipeline_parallel_microbatch_size')) ?? 1;
  const each = isBefore01(file) ? count(at(file, 'experimental.pipeline_parallel_microbatches')) ?? pp : local / size;
  return Number.isInteger(each) && Number.isInteger(local / each) ? { pp, batch: local / each, micro_batches: each } : { pp };
} });

const multipliesInFloat8 = (file: Values): boolean => isOn(at(file, 'float8.enable_float8_linear')) || (names(at(file, 'model.converters')) ?? []).some((name) => /(^|\.)float8$/.test(name));

// torchtitan config/job_config.py: fp32 shards, computed in bf16, fused AdamW, wherever FSDP is on.
export const TORCHTITAN: Format = {
  name: 'torchtitan',
  whole: true,
  is: (file) => isTable(file['training']) && isTable(file['model']) && text(at(file, 'model.flavor')) !== undefined,
  base: (file) => ({ stack: isBefore01(file) ? 'torchtitan-0.0.2' : 'torchtitan', precision: 'fp32', fsdp: 2, units: isBefore01(file) ? 'layers' : 'titan', param_dtype: 'bf16', batch: 8 }),
  model: (file) => row(TORCHTITAN_MODELS, `${text(at(file, 'model.name'))} ${text(at(file, 'model.flavor'))}`),
  modelKeys: ['model.name', 'model.flavor'],
  rows: [
    counts('training.batch_size', 'batch'), counts('training.local_batch_size', 'batch'), counts('training.seq_len', 'seq'),
    flag('training.compile', { compile: true }), flag('compile.enable', { compile: true }),
    choice('training.mixed_precision_param', { bfloat16: { param_dtype: 'bf16' }, float32: { param_dtype: 'fp32' } }), choice('training.mixed_precision_reduce', { float32: { reduce_dtype: 'fp32' }, bfloat16: { reduce_dtype: 'bf16' } }),
    counts('training.data_parallel_shard_degree', 'dp'), counts('training.data_parallel_degree', 'dp'), ...['training.tensor_parallel_degree', 'parallelism.tensor_parallel_degree'].map(tensorParallel),
    choice('training.fsdp_reshard_after_forward', { never: { reshard_after_forward: false }, default: {} }),
    counts('parallelism.data_parallel_shard_degree', 'dp'), notModelled('parallelism.data_parallel_replicate_degree', (value) => (count(value) ?? 1) > 1),
    ...['parallelism', 'experimental'].flatMap((table) => [stages(`${table}.pipeline_parallel_degree`), choice(`${table}.pipeline_parallel_schedule`, { '1f1b': {}, interleaved1f1b: { pipeline_schedule: 'interleaved' } })]),
    ...['parallelism.pipeline_parallel_microbatch_size', 'experimental.pipeline_parallel_microbatches'].map((key): Row => ({ key, says: (value) => (count(value) === undefined ? undefined : {}) })),
    counts('parallelism.context_parallel_degree', 'cp'), ...['parallelism.context_parallel_rotate_method', 'experimental.context_parallel_rotate_method'].map((key) => choice(key, { allgather: { cp_comm_type: 'all_gather' }, alltoall: { cp_comm_type: 'p2p' } })), counts('parallelism.expert_parallel_degree', 'ep'),
    choice('parallelism.fsdp_reshard_after_forward', { never: { reshard_after_forward: false }, default: {} }),
    choice('activation_checkpoint.mode', { none: { checkpointing: 'none' }, full: { checkpointing: 'full' }, selective: { checkpointing: 'selective' } }),
    { key: 'activation_checkpoint.selective_ac_option', says: (value, file) => (text(at(file, 'activation_checkpoint.mode')) !== 'selective' ? undefined : value === 'op' ? {} : 'not_modelled') },
    choice('optimizer.name', { adamw: { optimizer: 'adamw_fused' } }), flag('optimizer.fused', { optimizer: 'adamw_fused' }), choice('optimizer.implementation', { fused: { optimizer: 'adamw_fused' }, foreach: { optimizer: 'adamw_foreach' }, 'for-loop': { optimizer: 'adamw_forloop' } }),
    flag('training.enable_cpu_offload', { offload: 'params' }), { key: 'model.converters', says: (value): Recipe | 'not_modelled' | undefined => { const named = names(value) ?? []; return named.length === 0 ? undefined : named.every((name) => /(^|\.)float8$/.test(name)) ? { float8: true } : 'not_modelled'; } }, flag('float8.enable_float8_linear', { float8: true }), { key: 'float8.enable_fsdp_float8_all_gather', says: (value, file) => (isOn(value) && multipliesInFloat8(file) ? { float8_all_gather: true } : undefined) }, notModelled('quantize'),
  ],
};

