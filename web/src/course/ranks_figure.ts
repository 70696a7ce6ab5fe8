// ranks_figure.ts - C15 to C17: what one of several GPUs holds and sends under DDP and FSDP, and what else can be cut.

import { html, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import type { Recipe, Report } from '../core/types.js';
import './bars.js';
import type { Row } from './bars.js';
import { Figure, powers } from './figure.js';
import { LLAMA_3_8B, MIXTRAL } from './models.js';

@customElement('ml-ranks-figure')
export class RanksFigure extends Figure {
  @state() private gpus = 8;
  @state() private seq = 4096;
  @state() private reshard = true;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const recipe: Recipe = { dp: this.gpus, seq: this.seq, checkpointing: 'full', reshard_after_forward: this.reshard };
    const lora = this.lab.ledger(LLAMA_3_8B, { ...recipe, method: 'lora' });
    const full = this.lab.ledger(LLAMA_3_8B, recipe);
    const activations = full.activations.layer_inputs;
    const row = (name: string, bytes: number, color: string): Row => ({
      name, sum: this.gb(bytes + activations), pieces: [
        { color, name: i18n.t(color === 'weights' ? 'c15.copy' : 'c16.shard'), size: bytes, text: this.gb(bytes) },
        { color: 'activations', name: i18n.t('category.activations'), size: activations, text: this.gb(activations) }],
    });
    const { ddp } = lora.ranks;
    const { fsdp } = full.ranks;
    return html`<div class="controls">
        ${this.slider('c15.gpus', [2, 4, 8, 16, 32, 64], this.gpus, String, (gpus) => (this.gpus = gpus))}
        ${this.slider('key.seq', powers(10, 15), this.seq, (seq) => i18n.format.count(seq), (seq) => (this.seq = seq))}
        <label><span>reshard_after_forward</span><input type="checkbox" .checked=${this.reshard} @change=${(event: Event) => (this.reshard = (event.target as HTMLInputElement).checked)} /></label>
      </div>
      <ml-bars .i18n=${i18n} .label=${i18n.t('c15.title')} .rows=${[row(i18n.t('c15.lora'), ddp.bytes, 'weights'), row(i18n.t('c16.full'), fsdp.bytes, 'optimizer_states'), row(i18n.t('c15.full'), full.ranks.ddp.bytes, 'weights')]}
        .mark=${{ at: 80e9, text: '80 GB' }}></ml-bars>
      ${this.said('c15.said', { gpus: this.gpus, ddp: this.gb(ddp.bytes), reduce: this.gb(ddp.all_reduce_bytes, 2) })}
      ${this.said('c16.said', { gpus: this.gpus, all: this.gb(full.states_bytes), fsdp: this.gb(fsdp.bytes), forward: fsdp.forward_gathers, backward: fsdp.backward_gathers, scatters: fsdp.reduce_scatters, layer: this.gb(fsdp.layer_bytes, 2) })}
      ${this.real()}`;
  }

  // The same two runs traced: what rank 0 holds, with PyTorch's own buffers. bf16 without a master copy.
  private real(): TemplateResult {
    const recipe: Recipe = { dp: this.gpus, seq: this.seq, checkpointing: 'full' };
    const peak = (report: Report | undefined): string => this.gb(report?.peaks.allocated_bytes ?? 0);
    return this.ofSteps([[LLAMA_3_8B, { ...recipe, method: 'lora' }], [LLAMA_3_8B, { ...recipe, fsdp: 2, precision: 'fp32' }]],
      (ddp, fsdp) => html`<p class="note">${this.i18n.t('c16.note', { ddp: peak(ddp), fsdp: peak(fsdp) })}</p>`);
  }
}

const CUTS = ['tensor', 'pipeline', 'expert'] as const;

@customElement('ml-cuts-figure')
export class CutsFigure extends Figure {
  @state() private ways = 8;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const recipe: Recipe = { seq: 4096 };
    const rows = CUTS.map((kind) => ({ kind, cut: this.lab.cut(kind, kind === 'expert' ? MIXTRAL : LLAMA_3_8B, recipe, this.ways) }));
    return html`<div class="controls">${this.slider('c15.gpus', [2, 4, 8], this.ways, String, (ways) => (this.ways = ways))}</div>
      <div class="scroll" tabindex="0" role="region" aria-label=${i18n.t('c17.title')}><table><caption class="visually-hidden">${i18n.t('c17.title')}</caption>
        <thead><tr><th scope="col">${i18n.t('c17.kind')}</th><th scope="col">${i18n.t('c17.cuts')}</th><th scope="col" class="right">${i18n.t('c17.held')}</th><th scope="col">${i18n.t('c17.sends')}</th></tr></thead>
        <tbody>${rows.map(({ kind, cut }) => html`<tr><th scope="row">${i18n.t(`c17.${kind}`)}</th><td>${i18n.t(`c17.${kind}.cuts`)}</td>
          <td class="right">${i18n.t('c17.of', { held: (cut.params_per_gpu / 1e9).toFixed(2), all: (cut.params / 1e9).toFixed(2) })}</td>
          <td>${i18n.t(`c17.${kind}.sends`, { times: i18n.format.count(cut.sends), bytes: i18n.format.decimal(cut.bytes) })}</td></tr>`)}</tbody></table></div>
      <p class="note">${i18n.t('c17.note')}</p>`;
  }
}
