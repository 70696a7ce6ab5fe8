// evidence.ts - how far predictions were off, by kind of run. Written by scripts/accuracy from what docs/accuracy.md lists.

export interface Spread { readonly runs: number; readonly low: number; readonly high: number } // shares: 0.01 is 1 %

// The framework's own code on fake tensors, by family: the largest difference of a phase either way.
export const TRACES: Readonly<Record<string, Spread>> = {
  bloom: { runs: 2, low: 0, high: 1.9e-05 },
  cohere: { runs: 1, low: 0, high: 0 },
  falcon: { runs: 3, low: 0, high: 9e-06 },
  gemma: { runs: 3, low: 0, high: 0 },
  gemma2: { runs: 4, low: 0, high: 0 },
  gemma3_text: { runs: 5, low: 0, high: 0 },
  gpt2: { runs: 2, low: 0, high: 7.8e-05 },
  gpt_neox: { runs: 4, low: 0, high: 4.9e-05 },
  granite: { runs: 2, low: 0, high: 0 },
  llama: { runs: 87, low: 0, high: 4e-06 },
  mistral: { runs: 9, low: 0, high: 0 },
  mixtral: { runs: 3, low: 0, high: 0 },
  olmo2: { runs: 2, low: 0, high: 0 },
  phi: { runs: 2, low: 0, high: 1.3e-05 },
  phi3: { runs: 8, low: 0, high: 0 },
  qwen2: { runs: 36, low: 0, high: 2e-06 },
  qwen3: { runs: 8, low: 0, high: 0 },
  qwen3_moe: { runs: 2, low: 0, high: 0 },
  smollm3: { runs: 2, low: 0, high: 0 },
  starcoder2: { runs: 3, low: 0, high: 2.9e-05 },
};

// Published GPU measurements, by stack and number of GPUs.
export const PUBLISHED: Readonly<Record<string, Spread>> = {
  'hf many': { runs: 13, low: -0.352106, high: 0.252883 },
  'hf one': { runs: 2, low: -0.044135, high: 0.065811 },
  'hf-4 many': { runs: 21, low: -0.28003, high: 0.011916 },
  'hf-4 one': { runs: 14, low: -0.232909, high: 0.02919 },
  'megatron many': { runs: 25, low: -0.069785, high: 0.000485 },
  'torchtitan many': { runs: 52, low: -0.163873, high: 0.223744 },
  'torchtune one': { runs: 2, low: 0, high: 0.023541 },
};
