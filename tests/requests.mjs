// requests.mjs - the requests that tests put to every build of the core: each fixture and preset under several recipes,
// and what a reader may get wrong.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

const RECIPES = {
  default: {},
  'amp, checkpointed': { precision: 'amp-bf16', checkpointing: 'full', batch: 2, seq: 512 },
  'odd sizes': { batch: 3, seq: 1023, attention: 'flash', gpu: 'rtx4090-24gb' },
  'two micro-batches': { grad_accum: 2, seq: 512 },
  fp32: { precision: 'fp32', attention: 'math' },
  lora: { method: 'lora', rank: 8, batch: 2, seq: 1024 },
  qlora: { method: 'qlora', rank: 64, seq: 777, checkpointing: 'full' },
  'liger, amp': { loss: 'fused_linear', liger: true, precision: 'amp-bf16', seq: 96 },
  'liger of 2025': { loss: 'fused_linear_0.6', liger: true, method: 'lora', checkpointing: 'full', seq: 96 },
  'cut, selective': { loss: 'cut', checkpointing: 'selective', autocast: true, seq: 96 },
  'chunked, offloaded': { loss: 'chunked', checkpointing: 'offload', batch: 2, seq: 200, keep_outputs: true },
  'older transformers, muon': { stack: 'hf-4', optimizer: 'muon', precision: 'fp32', seq: 96 },
  'galore, cudnn': { optimizer: 'galore_adamw', attention: 'cudnn', seq: 96 },
  'lora over int8': { method: 'lora', weights: 'int8', seq: 96 },
  fsdp2: { fsdp: 2, dp: 3, precision: 'fp32', checkpointing: 'full', seq: 96 },
  'torchtune, in chunks': { stack: 'torchtune', checkpointing: 'full', loss: 'chunked', batch: 2, seq: 96 },
  'native, checkpointed adapters': { stack: 'native', method: 'lora', checkpointing: 'full', batch: 2, seq: 96 },
  'torchtitan, sharded': { stack: 'torchtitan', precision: 'fp32', fsdp: 2, units: 'titan', dp: 3, tp: 2, sequence_parallel: true, checkpointing: 'selective', batch: 2, seq: 96 },
  'older torchtitan, compiled': { stack: 'torchtitan-0.1', precision: 'fp32', fsdp: 2, dp: 2, cp: 2, compile: true, checkpointing: 'selective', seq: 96 },
  'a pipeline': { stack: 'megatron', precision: 'megatron-bf16', dp: 3, zero: 1, tp: 2, sequence_parallel: true, pp: 2, micro_batches: 4, seq: 96 },
  'spread experts': { stack: 'megatron', precision: 'megatron-bf16', dp: 2, zero: 1, tp: 2, sequence_parallel: true, ep: 2, etp: 1, micro_batches: 2, seq: 96 },
  'ZeRO-2, offloaded': { zero: 2, dp: 3, offload: 'optimizer', checkpointing: 'full', grad_accum: 2, overlap_comm: 'on', batch: 2, seq: 48 },
  'ZeRO-3': { zero: 3, dp: 3, checkpointing: 'full', max_reuse_distance: 5000, batch: 2, seq: 48 },
  'ZeRO-3 and adapters': { zero: 3, dp: 2, method: 'lora', checkpointing: 'full-reentrant', loss: 'fused_linear', seq: 48 },
  'FSDP1': { fsdp: 1, dp: 3, precision: 'fp32', reduce_dtype: 'bf16', grad_accum: 2, seq: 48 },
  ddp: { dp: 2, ddp_bucket_view: true, grad_accum: 2, seq: 96 },
  generate: { task: 'generate', seq: 512, new_tokens: 40, batch: 2 },
  'generate, 4 bits': { task: 'generate', seq: 300, new_tokens: 3, weights: 'nf4', batch: 5 },
  'generate, a graph and all logits': { task: 'generate', seq: 64, new_tokens: 4, no_grad: false, prefill_logits: 'all' },
  'generate, quantised cache': { task: 'generate', seq: 64, new_tokens: 200, kv_cache: 'quantized' },
  'generate, static cache': { task: 'generate', seq: 64, new_tokens: 20, kv_cache: 'static' },
  'generate, int8': { task: 'generate', seq: 33, new_tokens: 12, weights: 'int8', kv_cache: 'static', attention: 'eager' },
  'small card': { gpu: 'h100-80gb', memory_limit_bytes: 1 << 30, seq: 4096 },
};

const MISTAKES = {
  'empty request': '',
  'not JSON': '{"config": ',
  'not an object': '[1, 2]',
  'no config': '{"recipe": {}}',
  'unknown key': '{"config": {"layers": [{"linear": [8, 8]}]}, "recipe": {"batchsize": 2}}',
  'unknown value': '{"config": {"layers": [{"linear": [8, 8]}]}, "recipe": {"optimizer": "adam"}}',
  'negative batch': '{"config": {"layers": [{"linear": [8, 8]}]}, "recipe": {"batch": -1}}',
  'sizes beyond 64 bits': '{"config": {"layers": [{"linear": [18446744073709551616, 8]}]}, "recipe": {}}',
  'unknown family': '{"config": {"model_type": "nosuch"}, "recipe": {}}',
  'config as broken text': '{"config": "{\\"model_type\\": ", "recipe": {}}',
  'not UTF-8 safe': '{"config": "\\u4f60\\ud83d\\ude00", "recipe": {}}',
  'deeply nested': `{"config": ${'['.repeat(200)}${']'.repeat(200)}, "recipe": {}}`,
};

// Checkpoints that meet every recipe; the others meet the default.
const IN_FULL = new Set(['llama-3-8b', 'llama-3.2-1b', 'llama-2-7b', 'mistral-7b', 'qwen2.5-7b', 'qwen3-8b', 'tinyllama-1.1b']);

// Two layers of every family whose step is traced, and some that are only counted.
const FAMILIES = [
  'mistral', 'qwen2', 'qwen3', 'granite', 'smollm3', 'gemma', 'gemma2', 'gemma3_text', 'phi', 'phi3', 'starcoder2', 'cohere', 'cohere2',
  'olmo', 'olmo2', 'glm', 'glm4', 'gpt_neox', 'gpt2', 'mixtral', 'falcon', 'deepseek_v3', 'gpt_oss', 'stablelm',
  'gptj', 'llama4_text', 'bloom', 'internlm2', 't5', 'vit', 'gemma3', 'qwen2_vl',
];

function* familyRequests() {
  const recipe = { batch: 2, seq: 64 };
  for (const model_type of FAMILIES) {
    yield { name: `family ${model_type}`, request: JSON.stringify({ config: { model_type, num_hidden_layers: 2 }, recipe }) };
  }
}

// Families whose step is traced only where the file says more than its class's defaults.
const SAID = {
  'bert with its masked-language head': { model_type: 'bert', architectures: ['BertForMaskedLM'] },
  'deepseek_v2 in groups': {
    model_type: 'deepseek_v2', num_experts_per_tok: 6, topk_method: 'group_limited_greedy', n_group: 8, topk_group: 3,
  },
};

function* saidRequests() {
  for (const [name, keys] of Object.entries(SAID)) {
    yield { name, request: JSON.stringify({ config: { ...keys, num_hidden_layers: 2 }, recipe: { batch: 2, seq: 64 } }) };
  }
}

function* jsonFiles(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* jsonFiles(path);
    else if (entry.name.endsWith('.json')) yield path;
  }
}

// A file is a config.json, a preset or request around one, or a list of rows with a model and a recipe each.
function* requestsIn(name, document) {
  if (Array.isArray(document)) {
    for (const [i, row] of document.entries()) yield* requestsIn(`${name}[${row?.id ?? i}]`, row);
    return;
  }
  if (document === null || typeof document !== 'object') return;
  const config = document.config ?? document.model ?? document;
  if (typeof config?.model_type !== 'string' && !Array.isArray(config?.layers)) return;
  const recipes = document.recipe ? { 'own recipe': document.recipe } : !document.hub || IN_FULL.has(document.id) ? RECIPES : { default: {} };
  for (const [title, recipe] of Object.entries(recipes)) {
    yield { name: `${name}, ${title}`, request: JSON.stringify({ config, recipe, timeline_points: 200 }) };
  }
}

export function requests() {
  const all = [...Object.entries(MISTAKES).map(([name, request]) => ({ name, request })), ...familyRequests(), ...saidRequests()];
  for (const folder of ['core/config/checkpoints', 'tests/fixtures']) {
    for (const path of jsonFiles(join(root, folder))) {
      let document;
      try {
        document = JSON.parse(readFileSync(path, 'utf8'));
      } catch {
        continue; // fixtures of broken files
      }
      all.push(...requestsIn(path.slice(root.length), document));
    }
  }
  return all;
}
