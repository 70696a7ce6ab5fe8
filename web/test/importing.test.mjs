// Frameworks' own configurations become the recipe that they mean; each key of them is accounted for; nothing in them harms.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './load.mjs';

const { readConfiguration } = await load('importing/read.ts');
const { knownModel } = await load('state/model_search.ts');

const AXOLOTL = `
base_model: NousResearch/Meta-Llama-3-8B
load_in_8bit: true
datasets:
  - path: some/data
    type: alpaca
sequence_len: 4096
sample_packing: true
adapter: lora
lora_model_dir:
lora_r: 32
lora_dropout: 0.05
lora_target_linear: true
lora_modules_to_save:
  - embed_tokens
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: adamw_bnb_8bit
learning_rate: 0.0002
bf16: auto
gradient_checkpointing: true
flash_attention: true
`;

test('axolotl: LoRA over 8 bits as it trains it, and the keys that no recipe can say', () => {
  const read = readConfiguration(AXOLOTL);
  assert.equal(read.format, 'axolotl');
  assert.deepEqual(read.recipe, {
    method: 'lora', weights: 'int8', precision: 'bf16', autocast: true, prepare_kbit: false, seq: 4096, batch: 2, grad_accum: 4, rank: 32, lora_dropout: 0.05,
    targets: 'all-linear', checkpointing: 'full-reentrant', attention: 'flash', optimizer: 'adamw_8bit',
  });
  assert.equal(read.model, 'NousResearch/Meta-Llama-3-8B');
  assert.deepEqual(read.notModelled, ['lora_modules_to_save']);
  assert.deepEqual(read.notRead, ['datasets', 'sample_packing', 'lora_model_dir', 'learning_rate']);
});

test('axolotl: full fine-tuning without reentrance, sharded, its loss fused', () => {
  const read = readConfiguration('base_model: a/b\nmicro_batch_size: 1\nbf16: full\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\nliger_fused_linear_cross_entropy: true\nliger_rms_norm: true\nfsdp_version: 2\nfsdp_config:\n  offload_params: false\n');
  const { method, precision, autocast, checkpointing, loss, fsdp, offload } = read.recipe;
  assert.deepEqual({ method, precision, autocast, checkpointing, loss, fsdp, offload }, { method: 'full', precision: 'bf16', autocast: undefined, checkpointing: 'full', loss: 'fused_linear', fsdp: 2, offload: 'none' });
  assert.deepEqual(read.notModelled, ['liger_rms_norm']);
});

test('Liger: one switch of the Trainer and of LLaMA-Factory, three of axolotl, which go together or are named', () => {
  const trainer = readConfiguration('output_dir: out\nper_device_train_batch_size: 2\nuse_liger_kernel: true\n').recipe;
  assert.deepEqual([trainer.loss, trainer.liger], ['fused_linear', true]);
  const factory = readConfiguration('model_name_or_path: a/b\nstage: sft\nenable_liger_kernel: true\n').recipe;
  assert.deepEqual([factory.loss, factory.liger], ['fused_linear', true]);
  const file = 'base_model: a/b\nmicro_batch_size: 1\nliger_rope: true\nliger_rms_norm: true\n';
  for (const last of ['liger_glu_activation', 'liger_swiglu']) {
    const all = readConfiguration(`${file}${last}: true\n`);
    assert.deepEqual([all.recipe.liger, all.recipe.loss, all.notModelled], [true, undefined, []]);
  }
  const two = readConfiguration(`${file}liger_glu_activation: false\n`);
  assert.equal(two.recipe.liger, undefined);
  assert.deepEqual(two.notModelled, ['liger_rope', 'liger_rms_norm']);
});

const FACTORY = 'model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: sft\ntemplate: llama3\ncutoff_len: 1024\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\n';

test('LLaMA-Factory: its defaults are LoRA of rank 8 with reentrant checkpointing; what it trains is fp32 unless told otherwise', () => {
  const lora = readConfiguration(FACTORY).recipe;
  assert.deepEqual(lora, { method: 'lora', rank: 8, seq: 1024, batch: 1, grad_accum: 8, checkpointing: 'full-reentrant', prepare_kbit: false, precision: 'bf16', autocast: true, freeze_vision_tower: true });
  assert.equal(readConfiguration(`${FACTORY}freeze_vision_tower: false\n`).recipe.freeze_vision_tower, false);
  const full = readConfiguration(`${FACTORY}finetuning_type: full\ndisable_gradient_checkpointing: true\n`).recipe;
  assert.deepEqual([full.method, full.precision, full.autocast, full.checkpointing], ['full', 'amp-bf16', undefined, 'none']);
  const pure = readConfiguration(`${FACTORY}finetuning_type: full\npure_bf16: true\n`).recipe;
  assert.deepEqual([pure.precision, pure.autocast], ['bf16', false]);
  const qlora = readConfiguration(`${FACTORY}quantization_bit: 4\nlora_target: q_proj,v_proj\nuse_galore: true\n`);
  assert.deepEqual([qlora.recipe.method, qlora.recipe.targets, qlora.notModelled], ['qlora', ['q_proj', 'v_proj'], ['use_galore']]);
});

test('TrainingArguments change their part of the present recipe and no more', () => {
  const read = readConfiguration(JSON.stringify({
    output_dir: 'out', per_device_train_batch_size: 4, gradient_accumulation_steps: 2, bf16: true, optim: 'adamw_torch', gradient_checkpointing: true, gradient_checkpointing_kwargs: { use_reentrant: true },
    max_length: 1024, torch_compile: false, fsdp: [], deepspeed: null, num_train_epochs: 3,
  }));
  assert.equal(read.whole, false);
  assert.deepEqual(read.recipe, { batch: 4, grad_accum: 2, autocast: true, optimizer: 'adamw_foreach', checkpointing: 'full-reentrant', seq: 1024 });
  assert.deepEqual(read.notModelled, []);
});

test('DeepSpeed and accelerate say how a step is spread', () => {
  const zero = readConfiguration('{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}');
  assert.deepEqual([zero.format, zero.recipe], ['DeepSpeed', { autocast: false, fsdp: 0, reduce_bucket_size: 5e8, prefetch_bucket_size: 5e7, param_persistence_threshold: 1e5, batch: 2, precision: 'bf16', zero: 3, offload: 'optimizer' }]);
  const fsdp = readConfiguration('compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n  fsdp_activation_checkpointing: true\n');
  assert.deepEqual(fsdp.recipe, { dp: 8, fsdp: 2, precision: 'fp32', autocast: false, param_dtype: 'bf16', reduce_dtype: 'bf16', reshard_after_forward: true, checkpointing: 'full' });
  assert.equal(readConfiguration('distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_use_orig_params: true\n').recipe.fsdp, 1);
  const first = readConfiguration('distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_backward_prefetch: BACKWARD_POST\n');
  assert.deepEqual([first.recipe, first.notModelled], [{ dp: 2, fsdp: 1, precision: 'fp32', autocast: false, param_dtype: 'bf16', reduce_dtype: 'bf16', reshard_after_forward: false }, ['fsdp_config.fsdp_backward_prefetch']]);
});

test('DeepSpeed: sizes, "auto" and what is not modelled', () => {
  const auto = readConfiguration(JSON.stringify({ zero_optimization: { stage: 3, reduce_bucket_size: 'auto', stage3_prefetch_bucket_size: 'auto', stage3_param_persistence_threshold: 'auto', stage3_max_live_parameters: 1e9, sub_group_size: '1e9', overlap_comm: false, contiguous_gradients: true }, fp16: { enabled: true } }));
  assert.deepEqual(auto.recipe, {
    autocast: false, fsdp: 0, reduce_bucket_size: 0, prefetch_bucket_size: 0, param_persistence_threshold: 0, zero: 3, max_live_parameters: 1e9, sub_group_size: 1e9, overlap_comm: 'off', precision: 'amp-fp16',
  });
  assert.deepEqual(auto.notModelled, []);
  const second = readConfiguration('{"zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8, "reduce_scatter": false, "overlap_comm": true}}');
  assert.deepEqual(second.recipe, { autocast: false, fsdp: 0, reduce_bucket_size: 2e8, zero: 2, reduce_scatter: false, overlap_comm: 'on' });
  const both = readConfiguration('{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}}');
  assert.equal(both.recipe.offload, 'params');
  const plus = readConfiguration('{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme"}, "zero_hpz_partition_size": 8, "zero_quantized_gradients": true, "mics_shard_size": 4, "contiguous_gradients": false}}');
  assert.deepEqual(plus.notModelled.map((key) => key.split('.').slice(1).join('.')).sort(), ['contiguous_gradients', 'mics_shard_size', 'offload_optimizer.device', 'offload_param.device', 'zero_hpz_partition_size', 'zero_quantized_gradients']);
});

test('accelerate: DeepSpeed casts, and its sizes are its own', () => {
  const read = readConfiguration('compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 2\n  offload_optimizer_device: cpu\n  offload_param_device: none\n');
  assert.deepEqual(read.recipe, { autocast: false, fsdp: 0, reduce_bucket_size: 5e8, dp: 4, precision: 'bf16', zero: 2, offload: 'optimizer' });
  assert.deepEqual(read.notModelled, []);
});

test('torchtune: the builder names model and method', () => {
  const read = readConfiguration(`
model:
  _component_: torchtune.models.llama3_1.qlora_llama3_1_8b
  lora_attn_modules: [q_proj, v_proj, output_proj]
  apply_lora_to_mlp: True
  lora_rank: 64
tokenizer: {max_seq_len: 2048}
batch_size: 2
optimizer:
  _component_: torch.optim.AdamW
  fused: True
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
enable_activation_checkpointing: True
enable_activation_offloading: False
dtype: bf16
`);
  assert.equal(read.model, 'llama-3.1-8b');
  assert.deepEqual(read.recipe, {
    stack: 'torchtune', method: 'qlora', batch: 2, seq: 2048, rank: 64, targets: ['q_proj', 'v_proj', 'o_proj', 'gate_proj', 'down_proj', 'up_proj'], precision: 'bf16', optimizer: 'adamw_fused',
    loss: 'chunked', checkpointing: 'full',
  });
});

test('torchtitan: TOML', () => {
  const read = readConfiguration('[model]\nname = "llama3"\nflavor = "8B"\n\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n\n[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\ncontext_parallel_degree = 2\ncontext_parallel_rotate_method = "alltoall"\n\n[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "2"\n');
  assert.equal(read.model, 'llama-3.1-8b');
  assert.deepEqual(read.recipe, { stack: 'torchtitan', precision: 'fp32', fsdp: 2, units: 'titan', param_dtype: 'bf16', batch: 2, seq: 8192, tp: 2, cp: 2, cp_comm_type: 'p2p', sequence_parallel: true, checkpointing: 'selective' });
  assert.deepEqual(read.notModelled, ['activation_checkpoint.selective_ac_option']);
});

test('torchtitan: a pipeline cuts the local batch into micro-batches', () => {
  const old = readConfiguration('[model]\nname = "llama3"\nflavor = "405B"\n\n[training]\nbatch_size = 32\nseq_len = 8192\ntensor_parallel_degree = 8\ncompile = true\n\n[experimental]\npipeline_parallel_degree = 8\npipeline_parallel_schedule = "Interleaved1F1B"\n\n[float8]\nenable_float8_linear = true\nenable_fsdp_float8_all_gather = true\n');
  const { pp, batch, micro_batches: each, pipeline_schedule: schedule, float8_all_gather: gathered } = old.recipe;
  assert.deepEqual([pp, batch, each, schedule, gathered, old.notModelled], [8, 4, 8, 'interleaved', true, []]);
  const today = '[model]\nname = "llama3"\nflavor = "8B"\n\n[training]\nlocal_batch_size = 12\nseq_len = 8192\n\n[parallelism]\npipeline_parallel_degree = 2\n';
  const read = (more) => { const { recipe, notModelled } = readConfiguration(today + more); return [recipe.pp, recipe.batch, recipe.micro_batches, notModelled]; };
  assert.deepEqual(read(''), [2, 1, 12, []]);
  assert.deepEqual(read('pipeline_parallel_microbatch_size = 4\n'), [2, 4, 3, []]);
  assert.deepEqual(read('pipeline_parallel_schedule = "ZBVZeroBubble"\n'), [2, 1, 12, ['parallelism.pipeline_parallel_schedule']]);
  assert.equal(readConfiguration(today.replace('degree = 2', 'degree = 1')).recipe.micro_batches, undefined);
  assert.equal(readConfiguration(`${today}\n[float8]\nenable_fsdp_float8_all_gather = true\n`).recipe.float8_all_gather, undefined);
});

test('torchtitan: files from before 0.1 are of that version', () => {
  const read = readConfiguration('[model]\nname = "llama3"\nflavor = "8B"\nnorm_type = "rmsnorm"\n\n[optimizer]\nname = "AdamW"\nfused = true\n\n[training]\nbatch_size = 1\nseq_len = 8192\ndata_parallel_shard_degree = 8\ncompile = false\n\n[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n');
  assert.deepEqual(read.recipe, { stack: 'torchtitan-0.0.2', precision: 'fp32', fsdp: 2, units: 'layers', param_dtype: 'bf16', batch: 1, seq: 8192, dp: 8, checkpointing: 'selective', optimizer: 'adamw_fused' });
  assert.deepEqual(read.notModelled, []);
});

test('Megatron-LM: a command line describes model, plan and recipe', () => {
  const read = readConfiguration(`torchrun --nproc_per_node 8 pretrain_gpt.py \\
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \\
    --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights --vocab-size 128256 --max-position-embeddings 8192 \\
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 2 --sequence-parallel \\
    --bf16 --use-distributed-optimizer --recompute-granularity selective --lr 3e-4`);
  assert.equal(read.format, 'Megatron-LM');
  assert.deepEqual(read.recipe, {
    stack: 'megatron', precision: 'megatron-bf16', attention: 'sdpa', loss: 'vocab_parallel', batch: 1, seq: 8192, tp: 2, sequence_parallel: true, zero: 1, checkpointing: 'selective', dp: 4, micro_batches: 32,
  });
  const { hidden_size, num_key_value_heads, intermediate_size, tie_word_embeddings } = JSON.parse(read.config);
  assert.deepEqual([hidden_size, num_key_value_heads, intermediate_size, tie_word_embeddings], [4096, 8, 14336, false]);
  const context = readConfiguration('--num-layers 2 --hidden-size 64 --num-attention-heads 4 --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 --attention-backend flash').recipe;
  assert.deepEqual([context.cp, context.cp_comm_type, context.cp_a2a_ranks, context.attention], [4, 'a2a_p2p', 2, 'flash']);
});

test('Megatron-LM: stages, chunks and local modules', () => {
  const read = (flags) => readConfiguration(`--num-layers 12 --hidden-size 64 --num-attention-heads 4 --pipeline-model-parallel-size 4 ${flags}`);
  const uneven = read('--decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 4').recipe;
  assert.deepEqual([uneven.decoder_first_pipeline_num_layers, uneven.decoder_last_pipeline_num_layers], [2, 4]);
  for (const [flags, layers] of [['--num-layers-per-virtual-pipeline-stage 3', 3], ['--num-virtual-stages-per-pipeline-rank 3', 1]]) {
    const { pipeline_schedule, num_layers_per_virtual_pipeline_stage } = read(flags).recipe;
    assert.deepEqual([pipeline_schedule, num_layers_per_virtual_pipeline_stage], ['interleaved', layers]);
  }
  assert.equal(read('--num-virtual-stages-per-pipeline-rank 5').recipe.pipeline_schedule, undefined);
  const local = read('--transformer-impl local').recipe;
  assert.deepEqual([local.transformer_impl, local.attention], ['local', 'eager']);
  assert.equal(read('--cross-entropy-loss-fusion').recipe.loss, 'vocab_parallel_fused');
  assert.deepEqual(read('--cross-entropy-loss-fusion --cross-entropy-fusion-impl te').notModelled.includes('cross-entropy-loss-fusion'), true);
  assert.equal(read('--transformer-impl transformer_engine').recipe.transformer_impl, undefined);
});

test('Megatron-LM: GPT is what its defaults are', () => {
  const flags = '--num-layers 12 --hidden-size 512 --num-attention-heads 8 --vocab-size 50257 --max-position-embeddings 1024 --bf16';
  const read = readConfiguration(`${flags} --attention-dropout 0`);
  assert.deepEqual(JSON.parse(read.config), {
    model_type: 'gpt2', n_embd: 512, n_layer: 12, n_head: 8, n_inner: 2048, vocab_size: 50257, n_positions: 1024, tie_word_embeddings: true, resid_pdrop: 0.1, embd_pdrop: 0.1, attn_pdrop: 0,
  });
  assert.deepEqual([read.notModelled, read.notRead], [[], []]);
  assert.ok(read.used.includes('attention-dropout'));
  assert.equal(JSON.parse(readConfiguration(`${flags} --hidden-dropout 0.2 --untie-embeddings-and-output-weights`).config).resid_pdrop, 0.2);
  for (const other of ['--squared-relu', '--disable-bias-linear', '--position-embedding-type rope', '--normalization RMSNorm']) assert.equal(readConfiguration(`${flags} ${other}`).config, undefined, other);
});

test('what is no configuration is left alone', () => {
  for (const source of ['', 'hello', '[]', '{}', '{"model_type": "llama"}', 'a: b', 'key: [unclosed', '--num-layers 2', '\0']) assert.equal(readConfiguration(source), undefined, source);
});

test('a model is known by its own name, by a copy’s, and by what was tuned from it; another version is another model', async () => {
  const names = ['NousResearch/Meta-Llama-3-8B', 'meta-llama/Meta-Llama-3-8B-Instruct', 'Qwen/Qwen2.5-7B-Instruct', 'meta-llama/Llama-2-7b-chat-hf', 'llama-3.1-8b', 'mistralai/Mistral-7B-v0.1', 'someone/else'];
  assert.deepEqual(await Promise.all(names.map(async (name) => (await knownModel(name))?.id)), ['llama-3-8b', 'llama-3-8b', 'qwen2.5-7b', 'llama-2-7b', 'llama-3.1-8b', undefined, undefined]);
});

test('hostile files end quickly and quietly', () => {
  const bomb = `a: &a [x, x]\n${[...'bcdefghijklmnop'].map((name, i) => `${name}: &${name} [*${'abcdefghijklmno'[i]}, *${'abcdefghijklmno'[i]}]`).join('\n')}\nbase_model: *p\nmicro_batch_size: 1\n`;
  const began = Date.now();
  for (const source of [bomb, `base_model: ${'['.repeat(50_000)}`, `{"base_model": "x", "micro_batch_size": ${'9'.repeat(400)}}`, '__proto__: {polluted: 1}\nbase_model: x\nmicro_batch_size: 1\n', 'x'.repeat(100_000_000)]) readConfiguration(source);
  assert.equal({}.polluted, undefined);
  assert.ok(Date.now() - began < 5000);
  assert.equal(readConfiguration('{"base_model": "<img src=x onerror=alert(1)>", "micro_batch_size": 1e308, "sequence_len": -1, "datasets": []}').recipe.batch, undefined);
});

// Seeded, so that a failure comes again.
test('mutations of every format never throw, and say only what a recipe can hold', () => {
  const seeds = [AXOLOTL, FACTORY, '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}', '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n', 'pretrain --num-layers 2 --hidden-size 8 --num-attention-heads 2 --bf16'];
  let state = 12345;
  const below = (end) => { state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff; return state % end; };
  const pieces = ['\n', ': ', '- ', '{', '}', '[', ']', '"', "'", '&a ', '*a', '!!js/function ', '--', '=', '\u0000', '1e999', 'null', '\\', '\t'];
  let read = 0;
  for (let round = 0; round < 4000; ++round) {
    let source = seeds[below(seeds.length)];
    for (let edit = 1 + below(3); edit > 0; --edit) {
      const at = below(source.length + 1);
      source = source.slice(0, at) + (below(2) ? pieces[below(pieces.length)] : '') + source.slice(at + below(8));
    }
    const imported = readConfiguration(source);
    for (const value of Object.values(imported?.recipe ?? {})) assert.ok(['string', 'number', 'boolean'].includes(typeof value) || Array.isArray(value), source);
    read += imported ? 1 : 0;
  }
  assert.ok(read > 1000, `${read} of 4000 still read`);
});

// Found by fuzzing: what every object has is no row of a table.
for (const [what, source] of [
  ['a stage', 'model_name_or_path: x\nstage: constructor\nfinetuning_type: lora\n'], ['an optimizer', '{"zero_optimization": {"stage": 2}, "optimizer": {"type": "__proto__"}}'],
  ['an adapter', 'base_model: x\nadapter: constructor\nmicro_batch_size: 1\n'], ['an attention', '{"per_device_train_batch_size": 1, "output_dir": "o", "model_init_kwargs": {"attn_implementation": "constructor"}}'],
]) {
  test(`${what} of a name that every object has is not modelled`, () => assert.equal(readConfiguration(source).notModelled.length, 1));
}

test('a builder of a name that every object has is no model', () => {
  assert.equal(readConfiguration('model: {_component_: torchtune.models.lora_constructor}\nbatch_size: 2\n').model, undefined);
});

// Found by fuzzing: a table that stands for a number is none, whatever it says of its own conversion.
test('a table where a number belongs says nothing', () => {
  const table = { toString: 1, valueOf: 1 };
  const sources = [
    { zero_optimization: { stage: table } }, { zero_optimization: { stage: 3, reduce_bucket_size: table, stage3_model_persistence_threshold: table } },
    { distributed_type: 'DEEPSPEED', compute_environment: 'x', num_processes: 2, deepspeed_config: { zero_stage: table } },
  ];
  for (const source of sources) assert.ok(!Object.values(readConfiguration(JSON.stringify(source)).recipe).some((value) => typeof value === 'object' || Number.isNaN(value)));
  assert.equal(readConfiguration(JSON.stringify(sources[0])).recipe.zero, undefined);
});

test('a dropout that is no share of one says nothing', () => {
  for (const value of ['.nan', '.inf', '-1', '1', 'x']) {
    assert.equal('lora_dropout' in readConfiguration(`model: {_component_: torchtune.models.llama3.lora_llama3_8b, lora_dropout: ${value}}\n`).recipe, false, value);
  }
});
