// advice_sources.ts - where it is written what a change costs, by the change's id.

export interface Source { readonly name: string; readonly url: string }

const arxiv = (id: string, name: string): Source => ({ name, url: `https://arxiv.org/abs/${id}` });
const CHECKPOINT = arxiv('1604.06174', 'Chen et al. 2016');
const BITSANDBYTES = arxiv('2110.02861', 'Dettmers et al. 2021');
const QLORA = arxiv('2305.14314', 'Dettmers et al. 2023');
const LORA = arxiv('2106.09685', 'Hu et al. 2021');
const FLASH = arxiv('2205.14135', 'Dao et al. 2022');
const LIGER = arxiv('2410.10989', 'Hsu et al. 2024');
const ZERO = arxiv('1910.02054', 'Rajbhandari et al. 2019');
const FSDP = arxiv('2304.11277', 'Zhao et al. 2023');
const ACCUMULATION: Source = { name: 'transformers', url: 'https://huggingface.co/docs/transformers/perf_train_gpu_one#gradient-accumulation' };

export const ADVICE_SOURCES: Readonly<Record<string, Source>> = {
  checkpointing_full: CHECKPOINT,
  checkpointing_selective: arxiv('2205.05198', 'Korthikanti et al. 2022'),
  checkpointing_offload: { name: 'PyTorch', url: 'https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.save_on_cpu' },
  optimizer_fused: { name: 'PyTorch', url: 'https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html' },
  optimizer_8bit: BITSANDBYTES,
  optimizer_paged_8bit: QLORA,
  optimizer_adafactor: arxiv('1804.04235', 'Shazeer and Stern 2018'),
  offload_optimizer: arxiv('2101.06840', 'Ren et al. 2021'),
  method_lora: arxiv('2405.09673', 'Biderman et al. 2024'),
  method_qlora: QLORA,
  adapter_bf16: { name: 'PEFT', url: 'https://huggingface.co/docs/peft/package_reference/peft_model' },
  no_dora: arxiv('2402.09353', 'Liu et al. 2024'),
  no_lora_dropout: LORA,
  double_quant: QLORA,
  autocast: { name: 'PyTorch', url: 'https://docs.pytorch.org/docs/stable/amp.html' },
  precision_bf16: arxiv('2010.06192', 'Zamirai et al. 2020'),
  attention_sdpa: FLASH,
  attention_flash: FLASH,
  weights_int8: arxiv('2208.07339', 'Dettmers et al. 2022'),
  weights_nf4: QLORA,
  kv_cache_quantized: { name: 'transformers', url: 'https://huggingface.co/docs/transformers/kv_cache' },
  loss_chunked: LIGER,
  loss_fused_linear: LIGER,
  liger: LIGER,
  loss_cut: arxiv('2411.09009', 'Wijmans et al. 2024'),
  compile: { name: 'PyTorch', url: 'https://docs.pytorch.org/docs/stable/generated/torch.compile.html' },
  micro_batch_half: ACCUMULATION,
  micro_batch_1: ACCUMULATION,
  expandable_segments: { name: 'PyTorch', url: 'https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf' },
  fsdp_2: FSDP,
  fsdp_8: FSDP,
  offload_params: arxiv('2104.07857', 'Rajbhandari et al. 2021'),
  zero_2: ZERO,
  zero_3: ZERO,
};
