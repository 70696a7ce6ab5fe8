// claims.ts - the order of the course: its parts, the figures in each, the claims they stand for, where ideas come from.

import type { Key } from '../i18n/i18n.js';

export interface Source { readonly name: string; readonly url: string }
export interface Claim {
  readonly ids: readonly string[]; // of docs/course.md
  readonly figure: string; // the element that shows it
  readonly title: Key;
  readonly text: Key;
  readonly sources: readonly Source[];
}
export interface Part { readonly id: 'copies' | 'precision' | 'methods' | 'activations' | 'oom' | 'gpus' | 'measure' | 'test'; readonly claims: readonly Claim[] }

const arxiv = (name: string, id: string): Source => ({ name, url: `https://arxiv.org/abs/${id}` });
const AMP: Source = { name: 'PyTorch: Automatic Mixed Precision', url: 'https://docs.pytorch.org/docs/stable/amp.html' };
const MEMORY: Source = { name: 'PyTorch: CUDA memory management', url: 'https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management' };
const MIXED = arxiv('Micikevicius et al., Mixed Precision Training', '1710.03740');

export const PARTS: readonly Part[] = [
  { id: 'copies', claims: [
    { ids: ['C1'], figure: 'ml-tensor-figure', title: 'c1.title', text: 'c1.text', sources: [] },
    { ids: ['C2', 'C3', 'C4'], figure: 'ml-copies-figure', title: 'c2.title', text: 'c2.text', sources: [arxiv('Rajbhandari et al., ZeRO', '1910.02054'), arxiv('Dettmers et al., 8-bit Optimizers', '2110.02861')] },
    { ids: ['C25'], figure: 'ml-data-path', title: 'c25.title', text: 'c25.text', sources: [MIXED, arxiv('Shoeybi et al., Megatron-LM', '1909.08053')] },
  ] },
  { id: 'precision', claims: [
    { ids: ['C22'], figure: 'ml-number-lab', title: 'c22.title', text: 'c22.text', sources: [arxiv('Kalamkar et al., BFLOAT16', '1905.12322'), arxiv('Micikevicius et al., FP8 Formats', '2209.05433'), arxiv('Dettmers et al., QLoRA (nf4)', '2305.14314')] },
    { ids: [], figure: 'ml-update-figure', title: 'c22.swallow', text: 'c22.swallow.text', sources: [MIXED] },
    { ids: ['C23'], figure: 'ml-scaling-figure', title: 'c23.title', text: 'c23.text', sources: [MIXED, AMP] },
    { ids: ['C24'], figure: 'ml-autocast-figure', title: 'c24.title', text: 'c24.text', sources: [AMP] },
  ] },
  { id: 'methods', claims: [
    { ids: ['C5', 'C6', 'C7'], figure: 'ml-methods-figure', title: 'c5.title', text: 'c5.text', sources: [arxiv('Hu et al., LoRA', '2106.09685'), arxiv('Dettmers et al., QLoRA', '2305.14314')] },
    { ids: ['C8'], figure: 'ml-inference-figure', title: 'c8.title', text: 'c8.text', sources: [] },
  ] },
  { id: 'activations', claims: [
    { ids: ['C9', 'C10', 'C11'], figure: 'ml-activations-figure', title: 'c9.title', text: 'c9.text', sources: [arxiv('Korthikanti et al., Reducing Activation Recomputation', '2205.05198')] },
    { ids: ['C12'], figure: 'ml-scores-figure', title: 'c12.title', text: 'c12.text', sources: [arxiv('Dao et al., FlashAttention', '2205.14135')] },
    { ids: ['C13'], figure: 'ml-trade-figure', title: 'c13.title', text: 'c13.text', sources: [arxiv('Chen et al., Sublinear Memory Cost', '1604.06174')] },
  ] },
  { id: 'oom', claims: [{ ids: ['C14'], figure: 'ml-oom-figure', title: 'c14.title', text: 'c14.text', sources: [MEMORY] }] },
  { id: 'gpus', claims: [
    { ids: ['C15', 'C16'], figure: 'ml-ranks-figure', title: 'c15.title', text: 'c15.text', sources: [arxiv('Li et al., PyTorch Distributed', '2006.15704'), arxiv('Zhao et al., PyTorch FSDP', '2304.11277')] },
    { ids: ['C17'], figure: 'ml-cuts-figure', title: 'c17.title', text: 'c17.text', sources: [arxiv('Narayanan et al., Megatron-LM on clusters', '2104.04473'), arxiv('Lepikhin et al., GShard', '2006.16668')] },
  ] },
  { id: 'measure', claims: [{ ids: ['C18', 'C19'], figure: 'ml-measure-figure', title: 'c19.title', text: 'c19.text', sources: [MEMORY] }] },
  { id: 'test', claims: [{ ids: ['C20', 'C21'], figure: 'ml-self-test', title: 'part.test', text: 'part.test.text', sources: [] }] },
];
