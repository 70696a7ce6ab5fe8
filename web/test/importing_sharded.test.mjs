// Sharded fine-tuning as published: settings of the frameworks' own example files, which become recipes that the core computes.
// Sources: huggingface/peft 5d602fd examples/sft; huggingface/trl f2cd577 examples/accelerate_configs; axolotl 067b021 examples;
// LLaMA-Factory ff6d4d1 examples. tests/answer/imported_recipes_test.cc predicts each recipe below.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readFileSync } from 'node:fs';
import { load } from './load.mjs';

const { readConfiguration } = await load('importing/read.ts');

// What the core predicts, by name: one list for this test and for the core's.
const EXPECTED = JSON.parse(readFileSync(new URL('../../tests/fixtures/imported_recipes.json', import.meta.url), 'utf8'));
const expect = (name, recipe) => assert.deepEqual(recipe, EXPECTED[name], name);

// examples/sft/configs/fsdp_config_qlora.yaml
const PEFT_FSDP = `compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: true
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_use_orig_params: false
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
use_cpu: false
`;

// examples/sft/run_peft_qlora_fsdp.sh
const PEFT_COMMAND = `accelerate launch --config_file "configs/fsdp_config_qlora.yaml"  train.py \\
--seed 100 \\
--model_name_or_path "meta-llama/Llama-2-70b-hf" \\
--dataset_name "smangrul/ultrachat-10k-chatml" \\
--chat_template_format "chatml" \\
--add_special_tokens False \\
--splits "train,test" \\
--max_length 2048 \\
--num_train_epochs 1 \\
--bf16 True \\
--packing True \\
--learning_rate 1e-4 \\
--max_grad_norm 1.0 \\
--output_dir "llama-sft-qlora-fsdp" \\
--per_device_train_batch_size 2 \\
--gradient_accumulation_steps 2 \\
--gradient_checkpointing True \\
--use_reentrant True \\
--use_flash_attn True \\
--use_peft_lora True \\
--lora_r 8 \\
--lora_alpha 16 \\
--lora_dropout 0.1 \\
--lora_target_modules "all-linear" \\
--use_4bit_quantization True \\
--use_nested_quant True \\
--bnb_4bit_compute_dtype "bfloat16" \\
--bnb_4bit_quant_storage_dtype "bfloat16"`;

const merged = (...sources) => sources.reduce((recipe, source) => {
  const read = readConfiguration(source, recipe);
  assert.deepEqual(read.notModelled, [], source);
  return { ...(read.whole ? {} : recipe), ...read.recipe };
}, {});

test("peft's QLoRA under FSDP: the command first or the launcher's file first, either way the same recipe", () => {
  const both = merged(PEFT_COMMAND, PEFT_FSDP);
  expect('peft_qlora_fsdp', both);
  const first = readConfiguration(PEFT_FSDP);
  assert.deepEqual(first.notModelled, ['fsdp_config.fsdp_use_orig_params'], 'of weights that are all trained, as a recipe without the command has them');
  assert.deepEqual({ ...first.recipe, ...readConfiguration(PEFT_COMMAND, first.recipe).recipe }, both);
  assert.equal(readConfiguration(PEFT_COMMAND).model, 'meta-llama/Llama-2-70b-hf');
});

test("accelerate's file: what it means for weights that are all trained, for adapters, and over 4 bits", () => {
  const file = (version, precision = 'bf16') => `distributed_type: FSDP\nmixed_precision: ${precision}\nnum_processes: 8\nfsdp_config:\n  fsdp_version: ${version}\n`;
  const read = (source, present) => { const { precision, param_dtype, reduce_dtype, adapter_dtype, autocast } = readConfiguration(source, present).recipe; return [precision, param_dtype, reduce_dtype, adapter_dtype, autocast]; };
  for (const version of [1, 2]) {
    assert.deepEqual(read(file(version), {}), ['fp32', 'bf16', 'bf16', undefined, false], 'trained whole: fp32 shards');
    assert.deepEqual(read(file(version), { method: 'lora' }), ['bf16', 'bf16', 'bf16', 'fp32', false], 'the frozen base stays as it was loaded');
    assert.deepEqual(read(file(version, "'no'"), { method: 'qlora' }), ['bf16', 'bf16', 'bf16', undefined, false], "the storage's dtype");
    assert.deepEqual(read(file(version, "'no'"), { autocast: true }), ['fp32', 'bf16', 'bf16', undefined, false], "the Trainer's bf16");
    assert.deepEqual(read(file(version, "'no'"), {}), [undefined, undefined, undefined, undefined, undefined]);
  }
  assert.deepEqual(read(file(1), { method: 'qlora' }), ['bf16', 'bf16', 'bf16', 'fp32', false], 'FSDP1 upcasts every flat parameter that is trained');
  assert.deepEqual(read(file(2), { method: 'qlora' }), ['bf16', 'bf16', 'bf16', undefined, false], 'FSDP2 leaves models with 4-bit weights alone');
});

// examples/accelerate_configs/{fsdp1,fsdp2}.yaml, without what every such file has.
const TRL = (version, sharding) => `distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n  fsdp_activation_checkpointing: false\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_cpu_ram_efficient_loading: true\n  fsdp_offload_params: false\n  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_version: ${version}\n${sharding}`;

test("TRL's scripts and its files for accelerate", () => {
  const command = 'accelerate launch --config_file examples/accelerate_configs/fsdp2.yaml trl/scripts/sft.py --model_name_or_path Qwen/Qwen2-0.5B --dataset_name trl-lib/Capybara --learning_rate 2.0e-4 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --gradient_checkpointing --use_peft --lora_r 32 --lora_target_modules q_proj v_proj --load_in_4bit --bnb_4bit_quant_storage bfloat16 --output_dir out';
  expect('trl_qlora_fsdp2', merged(TRL(2, '  fsdp_reshard_after_forward: true\n'), command));
  expect('trl_qlora_fsdp2', merged(command, TRL(2, '  fsdp_reshard_after_forward: true\n')));
  const first = readConfiguration(TRL(1, '  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_forward_prefetch: true\n  fsdp_reshard_after_forward: SHARD_GRAD_OP\n  fsdp_use_orig_params: true\n'));
  assert.deepEqual([first.recipe.fsdp, first.recipe.reshard_after_forward, first.recipe.offload], [1, false, 'none']);
  assert.deepEqual(first.notModelled, ['fsdp_config.fsdp_forward_prefetch']);
  const within = (version) => readConfiguration(TRL(version, '').replace('activation_checkpointing: false', 'activation_checkpointing: true')).recipe;
  assert.deepEqual([within(1).checkpointing, within(1).fsdp_activation_checkpointing], ['full', true]);
  assert.deepEqual([within(2).checkpointing, within(2).fsdp_activation_checkpointing], ['full', undefined]);
  const bytes = readConfiguration(command.replace('--bnb_4bit_quant_storage bfloat16', '--bnb_4bit_quant_storage uint8'));
  assert.deepEqual(bytes.notModelled, ['bnb_4bit_quant_storage'], 'which FSDP does not shard');
});

// examples/llama-3/qlora-fsdp-70b.yaml
const AXOLOTL = `base_model: casperhansen/llama-3-70b-fp16
load_in_8bit: false
load_in_4bit: true
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
adapter: qlora
lora_model_dir:
sequence_len: 512
lora_r: 8
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 1
optimizer: adamw_torch_fused
bf16: auto
gradient_checkpointing: true
gradient_checkpointing_kwargs: {use_reentrant: true}
attn_implementation: flash_attention_2
fsdp: [full_shard, auto_wrap]
fsdp_config:
  fsdp_limit_all_gathers: true
  fsdp_sync_module_states: true
  fsdp_offload_params: true
  fsdp_use_orig_params: false
  fsdp_cpu_ram_efficient_loading: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_sharding_strategy: FULL_SHARD
`;

test('axolotl: QLoRA under either version of FSDP, on as many GPUs as the recipe had', () => {
  const read = readConfiguration(AXOLOTL, { dp: 4 });
  assert.deepEqual(read.notModelled, []);
  expect('axolotl_qlora_fsdp', read.recipe);
  assert.equal(readConfiguration(AXOLOTL).recipe.dp, undefined, 'which the file does not say');
  assert.ok(read.notRead.includes('fsdp_config.fsdp_limit_all_gathers'), 'every key is accounted for, those in tables too');
  const second = AXOLOTL.replace('fsdp: [full_shard, auto_wrap]', 'fsdp_version: 2').replace('fsdp_sharding_strategy: FULL_SHARD', 'reshard_after_forward: true');
  const { fsdp, adapter_dtype, reshard_after_forward } = readConfiguration(second, { dp: 4 }).recipe;
  assert.deepEqual([fsdp, adapter_dtype, reshard_after_forward], [2, undefined, true]);
});

// examples/extras/fsdp_qlora: llama3_lora_sft.yaml, launched with examples/accelerate/fsdp_config.yaml
const FACTORY = 'model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nquantization_bit: 4\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\ntemplate: llama3\ncutoff_len: 2048\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\n';
const FACTORY_FSDP = (offload) => `compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_forward_prefetch: false\n  fsdp_cpu_ram_efficient_loading: true\n  fsdp_offload_params: ${offload}\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_sync_module_states: true\n  fsdp_use_orig_params: true\n`;

test("LLaMA-Factory's QLoRA under FSDP: its own file, then the launcher's", () => {
  expect('llama_factory_qlora_fsdp', merged(FACTORY, FACTORY_FSDP(false)));
  expect('llama_factory_qlora_fsdp_offload', merged(FACTORY, FACTORY_FSDP(true)));
});

test('the Trainer’s bf16 beside FSDP or DeepSpeed is theirs, not autocast', () => {
  const args = JSON.stringify({ output_dir: 'out', per_device_train_batch_size: 4, bf16: true });
  assert.deepEqual(readConfiguration(args, { fsdp: 2 }).recipe, { batch: 4, precision: 'fp32', autocast: false, param_dtype: 'bf16', reduce_dtype: 'bf16' });
  assert.deepEqual(readConfiguration(args, { zero: 3 }).recipe, { batch: 4, autocast: false });
  assert.deepEqual(readConfiguration(args).recipe, { batch: 4, autocast: true });
});

test("accelerate's file for FSDP takes a stage of DeepSpeed away, with its sizes", () => {
  const { fsdp, zero, reduce_bucket_size, overlap_comm } = readConfiguration(PEFT_FSDP, { zero: 3, reduce_bucket_size: 5e8, overlap_comm: 'off' }).recipe;
  assert.deepEqual([fsdp, zero, reduce_bucket_size, overlap_comm], [1, 0, 0, 'auto']);
  assert.deepEqual(readConfiguration('distributed_type: constructor\nnum_processes: 2\n').notModelled, ['distributed_type']);
});

test('a key that is spelt as a part of a table is named once', () => {
  const { notRead } = readConfiguration('distributed_type: FSDP\nnum_processes: 2\nfsdp_config.odd: 1\nfsdp_config: {odd: 2}\n');
  assert.deepEqual(notRead, ['fsdp_config.odd']);
});

test('a command line of a trainer alone', () => {
  const lora = readConfiguration('python sft.py --model_name_or_path a/b --dtype bfloat16 --use_peft --lora_r 8 --lora_target_modules q_proj k_proj --per_device_train_batch_size 4 --max_length 512 > log');
  assert.deepEqual(lora.recipe, { stack: 'hf', method: 'lora', weights: 'unquantised', precision: 'bf16', autocast: true, checkpointing: 'full', batch: 4, seq: 512, rank: 8, targets: ['q_proj', 'k_proj'] });
  const full = readConfiguration('torchrun --nproc_per_node 8 sft.py --model_name_or_path a/b --output_dir o --gradient_checkpointing False --bf16 False');
  assert.deepEqual(full.recipe, { stack: 'hf', method: 'full', weights: 'unquantised', precision: 'fp32', autocast: false, checkpointing: 'none', dp: 8 });
  for (const source of ['--model_name_or_path', 'python x.py --output_dir o']) assert.equal(readConfiguration(source), undefined);
});
