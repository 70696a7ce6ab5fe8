// form_keys.ts - where a recipe key stands in the form, and whether the recipe makes use of it at all.

import type { Recipe, RecipeKey } from '../core/types.js';

export type Group = 'main' | 'adapter' | 'more' | 'gpus';

const MAIN = ['method', 'precision', 'gpu', 'batch', 'seq', 'optimizer', 'checkpointing', 'attention', 'autocast'];
const ADAPTER = ['rank', 'adapter_dtype', 'targets', 'lora_dropout', 'dora'];
const FOUR_BIT = ['double_quant', 'prepare_kbit'];
const GENERATING = ['new_tokens', 'weights', 'kv_cache', 'prefill_logits', 'no_grad'];
const TRAINING = ['method', 'autocast', 'optimizer', 'checkpointing', 'loss', 'decoder_seq', 'grad_accum', 'keep_outputs', 'offload', 'liger', 'compile', 'float8', 'float8_all_gather'];
const MORE = ['task', 'stack', 'decoder_seq', 'transformer_impl', 'recompute_method', 'recompute_num_layers', 'loss', 'grad_accum', 'allocator', 'offload', 'memory_limit_bytes', 'liger', 'compile', 'float8', 'float8_all_gather', 'keep_outputs', 'images', 'image_height', 'image_width', 'freeze_vision_tower'];
const GPUS = [
  'dp', 'tp', 'pp', 'cp', 'cp_comm_type', 'cp_a2a_ranks', 'ep', 'etp', 'sequence_parallel', 'zero', 'pipeline_schedule', 'num_layers_per_virtual_pipeline_stage', 'decoder_first_pipeline_num_layers', 'decoder_last_pipeline_num_layers', 'micro_batches', 'fsdp', 'units', 'reshard_after_forward', 'fsdp_activation_checkpointing',
  'param_dtype', 'reduce_dtype', 'ddp_bucket_view', 'reduce_bucket_size', 'overlap_comm', 'reduce_scatter', 'deepspeed',
  'prefetch_bucket_size', 'param_persistence_threshold', 'max_live_parameters', 'max_reuse_distance', 'sub_group_size',
];
const RECOMPUTE = ['recompute_method', 'recompute_num_layers'];
const STAGES = ['decoder_first_pipeline_num_layers', 'decoder_last_pipeline_num_layers'];
const CONTEXT = ['cp_comm_type', 'cp_a2a_ranks'];
const IMAGES = ['images', 'image_height', 'image_width', 'freeze_vision_tower'];
const DEEPSPEED = ['reduce_bucket_size', 'overlap_comm', 'reduce_scatter', 'deepspeed'];
const ZERO_3 = ['prefetch_bucket_size', 'param_persistence_threshold', 'max_live_parameters', 'max_reuse_distance', 'sub_group_size'];
const DECODER = ['task', ...GENERATING, 'method', 'seq', 'decoder_seq', 'checkpointing', 'attention', 'loss', 'autocast', ...ADAPTER, ...FOUR_BIT];

const ORDER: Readonly<Record<Group, readonly string[]>> = { main: [...MAIN, ...GENERATING], adapter: [...ADAPTER, ...FOUR_BIT], more: MORE, gpus: GPUS };

// Keys of a newer core are found under "more".
export function groupOf(name: string): Group {
  if (MAIN.includes(name) || GENERATING.includes(name)) return 'main';
  if (GPUS.includes(name)) return 'gpus';
  return ADAPTER.includes(name) || FOUR_BIT.includes(name) ? 'adapter' : 'more';
}

export function keysOf(group: Group, keys: readonly RecipeKey[]): RecipeKey[] {
  const place = (key: RecipeKey): number => (ORDER[group].includes(key.name) ? ORDER[group].indexOf(key.name) : Infinity);
  return keys.filter((key) => groupOf(key.name) === group).sort((a, b) => (place(a) < place(b) ? -1 : 1));
}

// Adapters have their keys under LoRA and QLoRA alone, 4-bit weights under QLoRA, decoders what plain stacks have not,
// DeepSpeed's buffers under ZeRO, images where the model sees any;
// generating has keys of its own and none that only training reads.
export function isUsed(name: string, recipe: Recipe, plain: boolean, images = false): boolean {
  if (IMAGES.includes(name)) return images;
  if (plain && DECODER.includes(name)) return false;
  if (!plain && recipe['task'] === 'generate') {
    if (name === 'double_quant') return recipe['weights'] === 'nf4';
    return ![...TRAINING, ...ADAPTER, ...FOUR_BIT].includes(name);
  }
  if (GENERATING.includes(name)) return false;
  if (name === 'float8_all_gather') return recipe['float8'] === true || recipe['float8_all_gather'] === true;
  if (RECOMPUTE.includes(name)) return recipe['stack'] === 'megatron' && recipe['checkpointing'] === 'full';
  if (name === 'transformer_impl') return recipe['stack'] === 'megatron';
  if (name === 'num_layers_per_virtual_pipeline_stage') return recipe['stack'] === 'megatron' && recipe['pipeline_schedule'] === 'interleaved';
  if (STAGES.includes(name)) return recipe['stack'] === 'megatron' && Number(recipe['pp'] ?? 1) > 1 && recipe['pipeline_schedule'] !== 'interleaved';
  if (CONTEXT.includes(name)) return Number(recipe['cp'] ?? 1) > 1 && (name === 'cp_comm_type' || recipe['cp_comm_type'] === 'a2a_p2p');
  if (DEEPSPEED.includes(name)) return Number(recipe['zero'] ?? 0) > 0;
  if (ZERO_3.includes(name)) return Number(recipe['zero'] ?? 0) === 3;
  const method = plain ? 'full' : (recipe['method'] ?? 'full');
  if (FOUR_BIT.includes(name)) return method === 'qlora';
  return !ADAPTER.includes(name) || method !== 'full';
}

// The recipe without what it makes no use of: nothing out of sight stands in the way, or in the link.
export function withoutUnused(recipe: Recipe, plain: boolean, images = false): Recipe {
  return Object.fromEntries(Object.entries(recipe).filter(([name]) => isUsed(name, recipe, plain, images)));
}
