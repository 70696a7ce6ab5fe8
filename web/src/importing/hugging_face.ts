// hugging_face.ts - axolotl, LLaMA-Factory, and the Trainer's own arguments (TRL's among them).

import type { Recipe } from '../core/types.js';
import { HF_OPTIMIZERS } from './optimizers.js';
import { at, choice, count, counts, dropout, flag, isOn, isSet, isTable, names, notModelled, numeric, row, text, type Format, type Row, type Said, type Values } from './rows.js';
import { fsdpRows, fsdpVersion, shardDtypes } from './sharding.js';

const KERNELS = ['liger_layer_norm', 'lora_mlp_kernel', 'lora_qkv_kernel', 'lora_o_kernel'];

// axolotl switches Liger's kernels one by one, a recipe all three or none: without one of them its neighbours go unsaid, too.
const LIGER = ['liger_rope', 'liger_rms_norm', 'liger_glu_activation'];
const SPELLINGS = [...LIGER, 'liger_swiglu'];
const hasAllOfLiger = (file: Values): boolean => LIGER.every((key) => isOn(file[key]) || (key === 'liger_glu_activation' && isOn(file['liger_swiglu'])));

function adapters(file: Values): boolean {
  return text(file['adapter']) !== undefined;
}

// axolotl's own keys of FSDP, with fsdp_ before each or without (utils/schemas/fsdp.py). With bf16 accelerate's mixed precision
// is on, except for `bf16: full` (utils/trainer.py, prepare_optim_env).
const version = fsdpVersion('fsdp_version', 'fsdp_config.fsdp_version', 'fsdp_config.version');
const isSharded = (file: Values): boolean => isSet(file['fsdp']) || isTable(file['fsdp_config']);
const methodOf = (file: Values): string => (!adapters(file) ? 'full' : isOn(file['load_in_4bit']) || text(file['adapter']) === 'qlora' ? 'qlora' : 'lora');

function computedIn(value: unknown, file: Values): Said {
  const mixed = isOn(value) || value === 'auto';
  const sharded = isSharded(file) ? shardDtypes({ version: version(file), method: methodOf(file), mixed }) : undefined;
  return sharded ?? (value === 'full' ? { precision: 'bf16' } : mixed ? { precision: 'bf16', autocast: true } : undefined);
}

// Either spelling of a key, as one row each; what one of them says the other does not say again.
const axolotlFsdp: readonly Row[] = ['fsdp_config.', 'fsdp_config.fsdp_'].flatMap((prefix) => fsdpRows(prefix, version, methodOf));

// axolotl: utils/config/__init__.py (resolve_dtype, normalize_config) and loaders/model.py. bf16 loads the weights in bf16 and
// trains under autocast; with adapters, norms and embedding are put back to bf16 after PEFT prepared them.
export const AXOLOTL: Format = {
  name: 'axolotl',
  whole: true,
  is: (file) => 'base_model' in file && ['micro_batch_size', 'sequence_len', 'adapter', 'datasets'].some((key) => key in file),
  // The file says nothing of the number of GPUs.
  base: (file, present) => ({ method: 'full', precision: 'fp32', ...(adapters(file) ? { prepare_kbit: false } : {}), ...(isSharded(file) && numeric(present['dp']) > 1 ? { dp: numeric(present['dp']) } : {}) }),
  model: (file) => text(file['base_model']),
  modelKeys: ['base_model'],
  rows: [
    counts('sequence_len', 'seq'), counts('micro_batch_size', 'batch'), counts('gradient_accumulation_steps', 'grad_accum'),
    { key: 'adapter', says: (value) => row<Recipe>({ lora: { method: 'lora' }, qlora: { method: 'qlora' } }, text(value)) ?? 'not_modelled' },
    { key: 'load_in_8bit', says: (value, file) => (isOn(value) && adapters(file) ? { weights: 'int8' } : undefined) },
    { key: 'load_in_4bit', says: (value, file) => (isOn(value) && adapters(file) ? { method: 'qlora' } : undefined) },
    counts('lora_r', 'rank'), dropout('lora_dropout'), flag('lora_target_linear', { targets: 'all-linear' }),
    { key: 'lora_target_modules', says: (value) => { const list = names(value); return list && { targets: [...list] }; } },
    flag('peft_use_dora', { dora: true }), notModelled('lora_modules_to_save'), notModelled('unfrozen_parameters'),
    { key: 'bf16', says: computedIn },
    flag('bfloat16', { precision: 'bf16' }), notModelled('fp16'), notModelled('float16'), notModelled('fp8'),
    {
      key: 'gradient_checkpointing',
      says: (value, file) => (value === 'offload' || value === 'offload_disk' ? { checkpointing: 'offload' }
        : isOn(value) ? { checkpointing: at(file, 'gradient_checkpointing_kwargs.use_reentrant') === false ? 'full' : 'full-reentrant' } : undefined),
    },
    { key: 'gradient_checkpointing_kwargs', says: (value, file) => (isTable(value) && isOn(file['gradient_checkpointing']) ? {} : undefined) },
    notModelled('activation_offloading'),
    choice('attn_implementation', { flash_attention_2: { attention: 'flash' }, sdpa: { attention: 'sdpa' }, eager: { attention: 'eager' }, xformers: { attention: 'efficient' } }),
    choice('attention', { flash: { attention: 'flash' }, sdp: { attention: 'sdpa' }, sdpa: { attention: 'sdpa' }, eager: { attention: 'eager' }, xformers: { attention: 'efficient' } }),
    flag('flash_attention', { attention: 'flash' }), flag('sdp_attention', { attention: 'sdpa' }), flag('eager_attention', { attention: 'eager' }),
    flag('xformers_attention', { attention: 'efficient' }), notModelled('flex_attention'), notModelled('sage_attention'),
    choice('optimizer', HF_OPTIMIZERS),
    flag('liger_fused_linear_cross_entropy', { loss: 'fused_linear' }), flag('cut_cross_entropy', { loss: 'cut' }), notModelled('chunked_cross_entropy'),
    ...SPELLINGS.map((key) => ({ key, says: (value: unknown, file: Values): Said => (!isOn(value) ? undefined : hasAllOfLiger(file) ? { liger: true } : 'not_modelled') })),
    ...KERNELS.map((key) => notModelled(key)), flag('torch_compile', { compile: true }),
    counts('dp_shard_size', 'dp'),
    ...['fsdp', 'fsdp_config'].map((key) => ({ key, says: (_: unknown, file: Values): Said => (isSharded(file) ? { fsdp: version(file) } : undefined) })),
    ...['fsdp_version', 'fsdp_config.fsdp_version', 'fsdp_config.version'].map((key) => ({ key, says: (value: unknown): Said => { const number = count(value); return number === 1 || number === 2 ? { fsdp: number } : undefined; } })),
    ...axolotlFsdp,
    counts('tensor_parallel_size', 'tp'), counts('context_parallel_size', 'cp'), notModelled('deepspeed'), notModelled('rl'), notModelled('unsloth_lora_mlp'), notModelled('lora_fan_in_fan_out'),
  ],
};

// LLaMA-Factory: hparams/{finetuning,model}_args.py for the defaults; model/adapter.py: what is trained is held in fp32 unless
// pure_bf16; model/model_utils/checkpointing.py: checkpointing is on, and reentrant, unless switched off.
export const LLAMA_FACTORY: Format = {
  name: 'LLaMA-Factory',
  whole: true,
  is: (file) => 'model_name_or_path' in file && ['finetuning_type', 'stage', 'template', 'cutoff_len'].some((key) => key in file),
  base: (file) => ({
    method: 'lora', rank: 8, seq: 2048, batch: 8, checkpointing: 'full-reentrant', prepare_kbit: false, precision: text(file['finetuning_type']) === 'full' ? 'fp32' : 'bf16', freeze_vision_tower: true,
  }),
  model: (file) => text(file['model_name_or_path']),
  modelKeys: ['model_name_or_path'],
  rows: [
    choice('finetuning_type', { lora: { method: 'lora' }, full: { method: 'full' } }),
    choice('stage', { sft: {}, pt: {} }),
    { key: 'quantization_bit', says: (value): Said => (count(value) === 4 ? { method: 'qlora' } : count(value) === 8 ? { weights: 'int8' } : 'not_modelled') },
    choice('quantization_type', { nf4: {} }),
    { key: 'double_quantization', says: (value) => ({ double_quant: isOn(value) }) },
    counts('cutoff_len', 'seq'), counts('per_device_train_batch_size', 'batch'), counts('gradient_accumulation_steps', 'grad_accum'),
    counts('lora_rank', 'rank'), dropout('lora_dropout'), flag('use_dora', { dora: true }),
    { key: 'lora_target', says: (value) => { const list = names(value); return list && { targets: list.length === 1 && list[0] === 'all' ? 'all-linear' : [...list] }; } },
    { key: 'bf16', says: (value, file) => (!isOn(value) || isOn(file['pure_bf16']) ? undefined : text(file['finetuning_type']) === 'full' ? { precision: 'amp-bf16' } : { precision: 'bf16', autocast: true }) },
    flag('pure_bf16', { precision: 'bf16', autocast: false, adapter_dtype: 'bf16' }),
    { key: 'fp16', says: (value, file) => (!isOn(value) ? undefined : text(file['finetuning_type']) === 'full' ? { precision: 'amp-fp16' } : 'not_modelled') },
    { key: 'use_reentrant_gc', says: (value) => ({ checkpointing: isOn(value) ? 'full-reentrant' : 'full' }) },
    flag('use_unsloth_gc', { checkpointing: 'offload' }), flag('disable_gradient_checkpointing', { checkpointing: 'none' }),
    choice('flash_attn', { auto: { attention: 'sdpa' }, sdpa: { attention: 'sdpa' }, disabled: { attention: 'eager' }, fa2: { attention: 'flash' } }),
    flag('freeze_vision_tower', { freeze_vision_tower: true }, { freeze_vision_tower: false }),
    choice('optim', HF_OPTIMIZERS), flag('enable_liger_kernel', { loss: 'fused_linear', liger: true }), flag('torch_compile', { compile: true }),
    ...['additional_target', 'use_galore', 'use_apollo', 'use_badam', 'use_adam_mini', 'use_muon', 'use_unsloth', 'shift_attn', 'mixture_of_depths', 'upcast_layernorm', 'upcast_lmhead_output', 'fp8',
      'use_llama_pro', 'deepspeed', 'fsdp', 'freeze_trainable_layers', 'freeze_multi_modal_projector'].map((key) => notModelled(key)),
  ],
};

// FSDP and DeepSpeed have a precision of their own, which the Trainer's bf16 switches on.
function trainerBf16(on: boolean, present: Recipe): Recipe {
  const fsdp = numeric(present['fsdp']);
  const sharded = fsdp > 0 ? shardDtypes({ version: fsdp === 2 ? 2 : 1, method: present['method'], mixed: on }) : undefined;
  return sharded ?? { autocast: on && !(fsdp > 0) && !(numeric(present['zero']) > 0) };
}

// transformers training_args.py and trl trainer/sft_config.py. Neither says how the weights were loaded nor whether there are
// adapters: the rest of the present recipe stands.
export const TRAINER: Format = {
  name: 'TrainingArguments',
  whole: false,
  is: (file) => 'per_device_train_batch_size' in file && ('output_dir' in file || 'learning_rate' in file || 'optim' in file),
  base: () => ({}),
  rows: [
    counts('per_device_train_batch_size', 'batch'), counts('gradient_accumulation_steps', 'grad_accum'), counts('max_seq_length', 'seq'), counts('max_length', 'seq'),
    { key: 'bf16', says: (value, _, present) => trainerBf16(isOn(value), present) }, flag('fp16', { precision: 'amp-fp16' }),
    {
      key: 'gradient_checkpointing',
      says: (value, file) => ({ checkpointing: !isOn(value) ? 'none' : at(file, 'gradient_checkpointing_kwargs.use_reentrant') === true ? 'full-reentrant' : 'full' }),
    },
    { key: 'gradient_checkpointing_kwargs', says: (value) => (isTable(value) ? {} : undefined) },
    choice('optim', HF_OPTIMIZERS), flag('use_liger_kernel', { loss: 'fused_linear', liger: true }), choice('loss_type', { nll: { loss: 'full' }, chunked_nll: { loss: 'chunked' } }),
    flag('torch_compile', { compile: true }),
    { key: 'model_init_kwargs.attn_implementation', says: (value) => row<Recipe>({ flash_attention_2: { attention: 'flash' }, sdpa: { attention: 'sdpa' }, eager: { attention: 'eager' } }, text(value)) ?? 'not_modelled' },
    ...['deepspeed', 'fsdp', 'optim_target_modules', 'activation_offloading'].map((key) => notModelled(key)),
  ],
};
