// activation_figures.ts - C9 to C13: what grows with batch and length, what checkpointing trades.

import { html, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import type { Line, Report } from '../core/types.js';
import './bars.js';
import type { Row } from './bars.js';
import { Figure, powers } from './figure.js';
import type { CourseLedger } from './lesson_types.js';
import { LLAMA_3_8B, TWO_LAYERS } from './models.js';

@customElement('ml-activations-figure')
export class ActivationsFigure extends Figure {
  @state() private batch = 1;
  @state() private seq = 4096;
  @state() private layers = LLAMA_3_8B.num_hidden_layers;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const model = { ...LLAMA_3_8B, num_hidden_layers: this.layers };
    const ledger = this.lab.ledger(model, { batch: this.batch, seq: this.seq });
    const twice = this.lab.ledger(model, { batch: 2 * this.batch, seq: this.seq });
    const states: Row = { name: i18n.t('c9.states'), sum: this.gib(ledger.states_bytes), pieces: [{ color: 'optimizer_states', name: i18n.t('c9.by_parameter'), size: ledger.states_bytes, text: this.gib(ledger.states_bytes) }] };
    const bar = (name: string, bytes: number): Row => ({ name, sum: this.gib(bytes), pieces: [{ color: 'activations', name: i18n.t('c9.by_token'), size: bytes, text: this.gib(bytes) }] });
    return html`<div class="controls">
        ${this.slider('key.batch', powers(0, 6), this.batch, String, (batch) => (this.batch = batch))}
        ${this.slider('key.seq', powers(9, 17), this.seq, (seq) => i18n.format.count(seq), (seq) => (this.seq = seq))}
        ${this.slider('c11.layers', [8, 16, 32, 64, 80], this.layers, String, (layers) => (this.layers = layers))}
      </div>
      <ml-bars .i18n=${i18n} .label=${i18n.t('c9.title')} .rows=${[bar(i18n.t('c9.inputs'), ledger.activations.layer_inputs), bar(i18n.t('c10.all'), ledger.activations.all), states]}></ml-bars>
      ${this.said('c9.said', { inputs: this.gib(ledger.activations.layer_inputs), all: this.gib(ledger.activations.all), twice: this.gib(twice.activations.all), times: i18n.format.count(twice.activations.all / ledger.activations.all), states: this.gib(twice.states_bytes) })}
      <p class="note">${i18n.t('c10.note')}</p>`;
  }
}

// Tensors with the sequence in two of their dimensions: scores.
const isSquare = (line: Line, seq: number): boolean => line.shape.filter((size) => size === seq).length >= 2;

@customElement('ml-scores-figure')
export class ScoresFigure extends Figure {
  @state() private seq = 32768;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const from = 4096;
    const at = (seq: number): CourseLedger['activations'] => this.lab.ledger(LLAMA_3_8B, { seq }).activations;
    const [short, long] = [at(from), at(this.seq)];
    const rows: Row[] = [
      { name: i18n.t('c12.linear'), sum: this.gib(long.all), pieces: [{ color: 'activations', name: i18n.t('c12.linear'), size: long.all, text: this.gib(long.all) }] },
      { name: i18n.t('c12.scores'), sum: this.gib(long.scores), pieces: [{ color: 'logits', name: i18n.t('c12.scores'), size: long.scores, text: this.gib(long.scores) }] },
    ];
    return html`<div class="controls">${this.slider('key.seq', powers(12, 17), this.seq, (seq) => i18n.format.count(seq), (seq) => (this.seq = seq))}</div>
      <ml-bars .i18n=${i18n} .label=${i18n.t('c12.title')} .rows=${rows}></ml-bars>
      ${this.said('c12.said', { from: i18n.format.count(from), to: i18n.format.count(this.seq), linear: i18n.format.count(long.all / short.all), scores: i18n.format.count(long.scores / short.scores) })}
      ${this.real()}`;
  }

  // Two layers of the real code, with the scores and without.
  private real(): TemplateResult {
    const { i18n } = this;
    const seq = Math.min(this.seq, 8192);
    const scores = (report: Report | undefined): string => this.gib((report?.at_peak.tensors ?? []).filter((line) => isSquare(line, seq)).reduce((all, line) => all + line.bytes, 0));
    return this.ofSteps(['eager', 'flash'].map((attention) => [TWO_LAYERS, { seq, attention }]),
      (eager, flash) => html`<p class="note">${i18n.t('c12.note', { seq: i18n.format.count(seq), eager: scores(eager), flash: scores(flash) })}</p>`);
  }
}

@customElement('ml-trade-figure')
export class TradeFigure extends Figure {
  @state() private seq = 4096;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const ask = (checkpointing: string) => this.lab.ledger(LLAMA_3_8B, { seq: this.seq, checkpointing });
    const [plain, again] = [ask('none'), ask('full')];
    const unit = plain.compute.forward;
    const parts = (compute: typeof plain.compute) => [['forward', 'weights'], ['recompute', 'temporaries'], ['backward', 'gradients']].map(([id, color]) => {
      const work = compute[id as 'forward' | 'recompute' | 'backward'];
      return { color: color as string, name: i18n.t(`c13.${id as 'forward' | 'recompute' | 'backward'}`), size: work, text: `${i18n.format.count(work / unit)} ×` };
    });
    const rows: Row[] = [
      { name: i18n.t('c13.without', { bytes: this.gib(plain.activations.all) }), sum: this.flops(plain.compute.total), pieces: parts(plain.compute) },
      { name: i18n.t('c13.with', { bytes: this.gib(again.activations.layer_inputs) }), sum: this.flops(again.compute.total), pieces: parts(again.compute) },
    ];
    return html`<div class="controls">${this.slider('key.seq', powers(10, 15), this.seq, (seq) => i18n.format.count(seq), (seq) => (this.seq = seq))}</div>
      <ml-bars .i18n=${i18n} .label=${i18n.t('c13.title')} .rows=${rows}></ml-bars>
      ${this.said('c13.said', { more: i18n.format.percent(again.compute.total - plain.compute.total, plain.compute.total), fraction: `${i18n.format.count(again.compute.total / unit)}/${i18n.format.count(plain.compute.total / unit)}`, from: this.gib(plain.activations.all), to: this.gib(again.activations.layer_inputs) })}
      ${this.real()}`;
  }

  private real(): TemplateResult {
    return this.ofSteps(['none', 'full'].map((checkpointing) => [LLAMA_3_8B, { method: 'lora', seq: this.seq, checkpointing }]),
      (none, full) => html`<p class="note">${this.i18n.t('c13.note', { saved: this.gib((none?.peaks.allocated_bytes ?? 0) - (full?.peaks.allocated_bytes ?? 0)) })}</p>`);
  }

  private flops(work: number): string {
    return `${(work / 1e12).toFixed(0)} TFLOP`;
  }
}
