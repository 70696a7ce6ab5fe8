// megatron.ts - Megatron-LM's command line (megatron/training/arguments.py): the one input that describes the model itself.

import type { Recipe } from '../core/types.js';
import { flagsOf } from './command_line.js';
import { choice, count, counts, flag, isOn, notModelled, numeric, readAs, text, type Format, type Imported, type Values } from './rows.js';

// `undefined` when it is no such command line.
export function megatronFlags(source: string): Values | undefined {
  const flags = flagsOf(source);
  return flags['num-layers'] !== undefined && flags['hidden-size'] !== undefined && flags['num-attention-heads'] !== undefined ? flags : undefined;
}

const MEGATRON: Format = {
  name: 'Megatron-LM',
  whole: true,
  is: () => true,
  base: () => ({ stack: 'megatron', precision: 'fp32', attention: 'sdpa', loss: 'vocab_parallel' }),
  rows: [
    counts('micro-batch-size', 'batch'), counts('seq-length', 'seq'),
    counts('tensor-model-parallel-size', 'tp'), counts('pipeline-model-parallel-size', 'pp'), counts('context-parallel-size', 'cp'), choice('cp-comm-type', { p2p: { cp_comm_type: 'p2p' }, a2a: { cp_comm_type: 'a2a' }, 'a2a+p2p': { cp_comm_type: 'a2a_p2p' }, all_gather: { cp_comm_type: 'all_gather' } }), counts('hierarchical-context-parallel-sizes', 'cp_a2a_ranks'), counts('expert-model-parallel-size', 'ep'), counts('expert-tensor-parallel-size', 'etp'),
    choice('attention-backend', { auto: { attention: 'sdpa' }, flash: { attention: 'flash' }, fused: { attention: 'cudnn' }, unfused: { attention: 'eager' } }), flag('sequence-parallel', { sequence_parallel: true }), flag('bf16', { precision: 'megatron-bf16' }), notModelled('fp16'), notModelled('fp8-format'), notModelled('fp8-hybrid'),
    choice('main-grads-dtype', { fp32: {}, bf16: { precision: 'megatron-bf16-bf16grad' } }), flag('use-distributed-optimizer', { zero: 1 }),
    flag('recompute-activations', { checkpointing: 'selective' }), choice('recompute-granularity', { full: { checkpointing: 'full' }, selective: { checkpointing: 'selective' } }),
    notModelled('recompute-modules'), choice('recompute-method', { uniform: {}, block: { recompute_method: 'block' } }), counts('recompute-num-layers', 'recompute_num_layers'),
    { key: 'num-layers-per-virtual-pipeline-stage', says: (value) => chunked(count(value)) },
    { key: 'num-virtual-stages-per-pipeline-rank', says: (value, file) => chunked(layersOfChunk(count(value), file)) },
    counts('decoder-first-pipeline-num-layers', 'decoder_first_pipeline_num_layers'), counts('decoder-last-pipeline-num-layers', 'decoder_last_pipeline_num_layers'),
    choice('transformer-impl', { transformer_engine: {}, local: { transformer_impl: 'local', attention: 'eager' } }),
    choice('optimizer', { adam: { optimizer: 'adamw_fused' }, sgd: { optimizer: 'sgd_momentum' } }),
    { key: 'global-batch-size', says: (value, file) => microBatches(count(value), file) },
    { key: 'cross-entropy-loss-fusion', says: (value, file) => (!isOn(value) ? undefined : text(file['cross-entropy-fusion-impl']) === 'te' ? 'not_modelled' : { loss: 'vocab_parallel_fused' }) },
    choice('moe-token-dispatcher-type', { alltoall: {} }), choice('moe-router-load-balancing-type', { aux_loss: {} }),
    ...['optimizer-cpu-offload', 'moe-shared-expert-intermediate-size', 'moe-expert-capacity-factor', 'moe-permute-fusion', 'moe-router-dtype', 'moe-layer-freq', 'multi-latent-attention', 'overlap-param-gather', 'use-torch-fsdp2', 'use-megatron-fsdp', 'hidden-dropout', 'attention-dropout'].map(
      (key) => notModelled(key, (value) => numeric(value) !== 0),
    ),
  ],
};

function chunked(layers: number | undefined): Recipe | undefined {
  return layers === undefined ? undefined : { pipeline_schedule: 'interleaved', num_layers_per_virtual_pipeline_stage: layers };
}

function layersOfChunk(chunks: number | undefined, file: Values): number | undefined {
  const layers = (count(file['num-layers']) ?? 0) / ((count(file['pipeline-model-parallel-size']) ?? 1) * (chunks ?? 1));
  return chunks !== undefined && Number.isInteger(layers) && layers > 0 ? layers : undefined;
}

// As many as one pipeline sees in a step; how many pipelines there are, the world's size says, which is seldom in the command.
function microBatches(global: number | undefined, file: Values): Recipe | undefined {
  const world = (count(file['nproc_per_node']) ?? count(file['nproc-per-node']) ?? 0) * (count(file['nnodes']) ?? 1);
  const model = ['tensor-model-parallel-size', 'pipeline-model-parallel-size', 'context-parallel-size'].reduce((all, key) => all * (count(file[key]) ?? 1), 1);
  const dp = world / model;
  const each = (global ?? 0) / ((count(file['micro-batch-size']) ?? 1) * dp);
  return Number.isInteger(dp) && dp > 0 && Number.isInteger(each) && each > 0 ? { dp, micro_batches: each } : undefined;
}

// GPT: LayerNorm, biases, GELU, learned positions and dropout (0.1 where nothing is said) are Megatron's defaults; undefined where a
// flag says otherwise, or does not say the vocabulary.
function gptOf(file: Values): string | undefined {
  const plain = NOT_GPT.every((key) => file[key] === undefined) && [undefined, 'LayerNorm'].includes(text(file['normalization'])) && [undefined, 'learned_absolute'].includes(text(file['position-embedding-type']));
  const hidden = count(file['hidden-size']);
  if (!plain || hidden === undefined || count(file['vocab-size']) === undefined) return undefined;
  const rate = (key: string): number => { const said = numeric(file[key]); return said >= 0 && said <= 1 ? said : 0.1; };
  const dropout = rate('hidden-dropout');
  return JSON.stringify({
    model_type: 'gpt2', n_embd: hidden, n_layer: count(file['num-layers']), n_head: count(file['num-attention-heads']), n_inner: count(file['ffn-hidden-size']) ?? hidden * 4,
    vocab_size: count(file['vocab-size']), n_positions: count(file['max-position-embeddings']), tie_word_embeddings: file['untie-embeddings-and-output-weights'] !== true,
    resid_pdrop: dropout, embd_pdrop: dropout, attn_pdrop: rate('attention-dropout'),
  });
}

const NOT_GPT = ['swiglu', 'squared-relu', 'openai-gelu', 'disable-bias-linear', 'group-query-attention', 'kv-channels', 'num-experts', 'multi-latent-attention', 'qk-layernorm', 'use-rotary-position-embeddings'];
const DROPOUTS = ['hidden-dropout', 'attention-dropout'];

// The model as Hugging Face would write it; undefined where it is none of the families known there.
function configOf(file: Values): string | undefined {
  const known = isOn(file['swiglu']) && text(file['normalization']) === 'RMSNorm' && count(file['vocab-size']) !== undefined;
  const experts = count(file['num-experts']);
  if (!known || (experts !== undefined && OTHER_EXPERTS.some((key) => file[key] !== undefined))) return undefined;
  const heads = count(file['num-attention-heads']);
  const hidden = count(file['hidden-size']);
  const config = {
    model_type: experts === undefined ? 'llama' : 'mixtral', hidden_size: hidden, num_hidden_layers: count(file['num-layers']), num_attention_heads: heads,
    num_key_value_heads: isOn(file['group-query-attention']) ? count(file['num-query-groups']) ?? heads : heads,
    head_dim: count(file['kv-channels']), intermediate_size: count(file['ffn-hidden-size']) ?? (hidden === undefined ? undefined : hidden * 4),
    vocab_size: count(file['vocab-size']), max_position_embeddings: count(file['max-position-embeddings']), tie_word_embeddings: file['untie-embeddings-and-output-weights'] !== true,
  };
  if (experts === undefined) return JSON.stringify(config);
  return JSON.stringify({ ...config, intermediate_size: count(file['moe-ffn-hidden-size']) ?? config.intermediate_size, num_local_experts: experts, num_experts_per_tok: count(file['moe-router-topk']) ?? 2 });
}

const MODEL_FLAGS = ['num-layers', 'hidden-size', 'ffn-hidden-size', 'num-attention-heads', 'group-query-attention', 'num-query-groups', 'kv-channels', 'vocab-size', 'max-position-embeddings', 'swiglu', 'normalization', 'untie-embeddings-and-output-weights', 'num-experts', 'moe-router-topk', 'moe-ffn-hidden-size'];
// Experts that are not Mixtral's.
const OTHER_EXPERTS = ['moe-shared-expert-intermediate-size', 'moe-layer-freq', 'multi-latent-attention', 'qk-layernorm', 'moe-router-pre-softmax', 'moe-router-num-groups'];

export function readMegatron(source: string): Imported | undefined {
  const file = megatronFlags(source);
  if (file === undefined) return undefined;
  const imported = readAs(MEGATRON, file);
  const gpt = gptOf(file);
  const config = gpt ?? configOf(file);
  const ofModel = MODEL_FLAGS.filter((key) => file[key] !== undefined);
  const notRead = imported.notRead.filter((key) => !MODEL_FLAGS.includes(key));
  const dropouts = gpt === undefined ? [] : DROPOUTS.filter((key) => file[key] !== undefined);
  return config === undefined ? { ...imported, notRead, notModelled: [...ofModel.filter((key) => ['num-layers', 'hidden-size', 'num-experts'].includes(key)), ...imported.notModelled] }
    : { ...imported, config, used: [...ofModel, ...dropouts, ...imported.used], notModelled: imported.notModelled.filter((key) => !dropouts.includes(key)), notRead: notRead.filter((key) => !dropouts.includes(key)) };
}
