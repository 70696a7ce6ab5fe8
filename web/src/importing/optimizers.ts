// optimizers.ts - names of optimizers in the Hugging Face Trainer (transformers training_args.py, OptimizerNames), which
// axolotl, LLaMA-Factory and TRL share. What is missing here is not modelled.

import type { Recipe } from '../core/types.js';

export const HF_OPTIMIZERS: Readonly<Record<string, Recipe>> = {
  adamw_torch: { optimizer: 'adamw_foreach' }, // torch's own choice on CUDA
  adamw_torch_fused: { optimizer: 'adamw_fused' },
  adamw_hf: { optimizer: 'adamw_forloop' },
  adamw_bnb_8bit: { optimizer: 'adamw_8bit' },
  adamw_8bit: { optimizer: 'adamw_8bit' },
  paged_adamw_8bit: { optimizer: 'paged_adamw_8bit' },
  adamw_torch_8bit: { optimizer: 'adamw_ao_8bit' },
  adamw_torch_4bit: { optimizer: 'adamw_ao_4bit' },
  ao_adamw_8bit: { optimizer: 'adamw_ao_8bit' },
  ao_adamw_4bit: { optimizer: 'adamw_ao_4bit' },
  adafactor: { optimizer: 'adafactor_hf' },
  lion_32bit: { optimizer: 'lion' },
  galore_adamw: { optimizer: 'galore_adamw' },
  sgd: { optimizer: 'sgd' },
};
