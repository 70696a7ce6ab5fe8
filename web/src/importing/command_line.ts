// command_line.ts - a trainer's command line: peft's examples/sft/train.py and TRL's scripts, which share the Trainer's flags.
// How the step is spread stands in the file that `accelerate launch` is given: it is read by itself, before or after.
// Source: peft examples/sft/{train,utils}.py (August 2026); trl trainer/{model_config,sft_config}.py (1.6).

import type { Recipe } from '../core/types.js';
import { TRAINER } from './hugging_face.js';
import { choice, counts, dropout, flag, isOn, names, notModelled, numeric, readAs, text, type Format, type Imported, type Row, type Said, type Values } from './rows.js';
import { shardDtypes } from './sharding.js';

// "--micro-batch-size 1 --bf16 \" -> {"micro-batch-size": "1", bf16: true}. `lists`: flags of which every word counts.
export function flagsOf(source: string, lists: readonly string[] = []): Record<string, unknown> {
  const words = source.replace(/\\\r?\n/g, ' ').match(/"[^"\n]*"|'[^'\n]*'|[^\s"'()]+/g) ?? [];
  const bare = (word: string): string => word.replace(/^["']|["']$/g, '');
  const flags: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (let i = 0; i < words.length; ++i) {
    const [, name, joined] = /^--([a-z][a-z0-9_-]*)(?:=(.*))?$/.exec(words[i] ?? '') ?? [];
    if (name === undefined) continue;
    const next = words[i + 1];
    if (joined !== undefined || next === undefined || next.startsWith('--')) flags[name] = joined ?? true;
    else flags[name] = lists.includes(name) ? words.slice(i + 1, i + 1 + until(words.slice(i + 1))).map(bare) : bare(next);
  }
  return flags;
}

function until(words: readonly string[]): number {
  const end = words.findIndex((word) => word.startsWith('-') || /^[|&;<>]/.test(word));
  return end < 0 ? words.length : end;
}

const on = (file: Values, ...keys: readonly string[]): boolean => keys.some((key) => isOn(file[key]));

function methodOf(file: Values): 'full' | 'lora' | 'qlora' {
  if (!on(file, 'use_peft', 'use_peft_lora')) return 'full';
  return on(file, 'load_in_4bit', 'use_4bit_quantization') ? 'qlora' : 'lora';
}

// Both load in fp32 unless told otherwise, and peft's in the dtype in which 4-bit weights are stored; bf16 is SFTConfig's default.
function precisionOf(file: Values, present: Recipe): Recipe {
  const method = methodOf(file), mixed = !('bf16' in file) || on(file, 'bf16');
  if (numeric(present['zero']) > 0) return { precision: 'bf16', autocast: false };
  const sharded = numeric(present['fsdp']);
  if (sharded > 0) return shardDtypes({ version: sharded === 2 ? 2 : 1, method, mixed }) ?? {};
  const loaded = text(file['dtype']) ?? text(file['torch_dtype']);
  if (method === 'qlora' || loaded === 'bfloat16' || loaded === 'auto' || on(file, 'load_in_8bit', 'use_8bit_quantization')) return { precision: 'bf16', autocast: mixed };
  return { precision: mixed ? 'amp-bf16' : 'fp32', autocast: false };
}

function checkpointing(file: Values): Recipe {
  if ('gradient_checkpointing' in file && !on(file, 'gradient_checkpointing')) return { checkpointing: 'none' };
  return { checkpointing: on(file, 'use_reentrant') ? 'full-reentrant' : 'full' };
}

// Read by base() from several flags at once; here they are only counted as used.
const inBase = (...keys: readonly string[]): readonly Row[] => keys.map((key) => ({ key, says: (): Said => ({}) }));
const BASE = ['bf16', 'gradient_checkpointing', 'use_reentrant', 'use_peft', 'use_peft_lora', 'load_in_4bit', 'use_4bit_quantization', 'dtype', 'torch_dtype'];

// bitsandbytes' default storage, bytes, is no dtype that FSDP shards.
const storage = (key: string): Row => ({ key, says: (value) => (text(value) === 'bfloat16' ? {} : 'not_modelled') });

const COMMAND: Format = {
  name: 'SFTTrainer (command line)',
  whole: false,
  is: (file) => 'model_name_or_path' in file && ['per_device_train_batch_size', 'output_dir', 'use_peft', 'use_peft_lora'].some((key) => key in file),
  base: (file, present) => ({
    stack: 'hf', method: methodOf(file), weights: 'unquantised', ...precisionOf(file, present), ...checkpointing(file),
    ...(methodOf(file) === 'qlora' ? { double_quant: on(file, 'use_nested_quant', 'use_bnb_nested_quant') } : {}),
  }),
  model: (file) => text(file['model_name_or_path']),
  modelKeys: ['model_name_or_path'],
  rows: [
    ...TRAINER.rows.filter(({ key }) => !BASE.includes(key)), ...inBase(...BASE, 'use_nested_quant', 'use_bnb_nested_quant', 'bnb_4bit_compute_dtype'),
    counts('nproc_per_node', 'dp'), counts('nproc-per-node', 'dp'), counts('num_processes', 'dp'),
    counts('lora_r', 'rank'), { ...dropout('lora_dropout'), says: (value, file, present) => dropout('lora_dropout').says(numeric(value), file, present) },
    { key: 'lora_target_modules', says: (value) => { const list = names(value); return list && { targets: list.length === 1 && list[0] === 'all-linear' ? 'all-linear' : [...list] }; } },
    flag('use_dora', { dora: true }), flag('use_flash_attn', { attention: 'flash' }),
    choice('attn_implementation', { flash_attention_2: { attention: 'flash' }, sdpa: { attention: 'sdpa' }, eager: { attention: 'eager' } }),
    ...['use_8bit_quantization', 'load_in_8bit'].map((key) => flag(key, { weights: 'int8' })),
    storage('bnb_4bit_quant_storage'), storage('bnb_4bit_quant_storage_dtype'), choice('bnb_4bit_quant_type', { nf4: {} }),
    notModelled('use_unsloth', isOn), notModelled('lora_modules_to_save'), notModelled('lora_target_parameters'),
  ],
};

export function readCommand(source: string, present: Recipe): Imported | undefined {
  const flags = flagsOf(source, ['lora_target_modules']);
  return COMMAND.is(flags) ? readAs(COMMAND, flags, present) : undefined;
}
