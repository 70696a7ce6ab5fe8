// bytes_figures.ts - C1 to C8: a tensor's bytes, the copies of a parameter, three ways of tuning, inference.

import { html, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import type { Report } from '../core/types.js';
import './bars.js';
import type { Piece, Row } from './bars.js';
import { Figure, powers } from './figure.js';
import type { CourseLedger, PerParameter } from './lesson_types.js';
import { LLAMA_3_8B } from './models.js';

export const COPIES = ['weights', 'gradients', 'master_weights', 'optimizer_states'] as const;
export const RECIPES = ['megatron-bf16-bf16grad', 'megatron-bf16', 'amp-bf16', 'amp-fp16', 'fp32'] as const;
export const OPTIMIZERS = ['adamw_fused', 'adamw_8bit', 'sgd_momentum', 'sgd'] as const;

@customElement('ml-tensor-figure')
export class TensorFigure extends Figure {
  @state() private rows = 1000;
  @state() private columns = 1000;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const tensor = this.lab.tensor([this.rows, this.columns]);
    const bars: Row[] = tensor.rows.map((row) => ({
      name: i18n.t('c1.row', { dtype: row.dtype, bytes: row.element_bytes }), sum: i18n.format.decimal(row.bytes),
      pieces: [{ color: 'weights', name: i18n.t('c1.piece'), size: row.bytes, text: i18n.format.exact(row.bytes) }],
    }));
    return html`<div class="controls">${this.size('c1.rows', this.rows, (value) => (this.rows = value))}${this.size('c1.columns', this.columns, (value) => (this.columns = value))}</div>
      <ml-bars .i18n=${i18n} .label=${i18n.t('c1.title')} .rows=${bars}></ml-bars>
      ${this.said('c1.said', { elements: i18n.format.count(tensor.elements), bytes: i18n.format.exact(tensor.rows[0]?.bytes ?? 0), small: i18n.format.exact(tensor.rows[1]?.bytes ?? 0) })}`;
  }

  private size(label: 'c1.rows' | 'c1.columns', value: number, set: (value: number) => void): TemplateResult {
    return html`<label>${this.i18n.t(label)}<input type="number" inputmode="numeric" min="1" max="1000000" .value=${String(value)} @input=${(event: Event) => {
      const read = Number((event.target as HTMLInputElement).value);
      if (Number.isInteger(read) && read >= 1 && read <= 1e6) set(read);
    }} /></label>`;
  }
}

// Bytes of each copy: the states are one a moment.
function copiesOf(bytes: PerParameter): number[] {
  const states = Array.from({ length: bytes.moments }, () => bytes.optimizer_states / bytes.moments);
  return [bytes.weights, bytes.gradients, bytes.master_weights, ...states].filter((n) => n > 0);
}

// The copies of one parameter as pieces of a bar; those the reader took out are gone.
export function copyPieces(bytes: PerParameter, name: (id: (typeof COPIES)[number]) => string, unit: (n: number) => string, passing: string): Piece[] {
  const stays = COPIES.map((id) => ({ color: id, name: name(id), size: bytes[id], text: unit(bytes[id]) }));
  return [...stays, { color: 'temporaries', name: passing, size: bytes.transient_copy, text: unit(bytes.transient_copy), passing: true }];
}

@customElement('ml-copies-figure')
export class CopiesFigure extends Figure {
  @state() private precision: (typeof RECIPES)[number] = 'megatron-bf16-bf16grad';
  @state() private optimizer: (typeof OPTIMIZERS)[number] = 'adamw_fused';
  @state() private without: ReadonlySet<string> = new Set();

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const ask = (precision: string, optimizer: string): PerParameter => this.lab.ledger(LLAMA_3_8B, { precision, optimizer }).per_parameter;
    const bytes = ask(this.precision, this.optimizer);
    const left = COPIES.filter((id) => !this.without.has(id)).reduce((all, id) => all + bytes[id], 0);
    const row: Row = {
      name: i18n.t('c2.row'), sum: i18n.t('c2.bytes', { n: left }),
      pieces: this.pieces(bytes).filter((piece) => !this.without.has(piece.color)),
    };
    return html`<div class="controls">
        ${this.select('key.precision', RECIPES, this.precision, (value) => i18n.t(`c2.${value}`), (value) => (this.precision = value))}
        ${this.select('key.optimizer', OPTIMIZERS, this.optimizer, (value) => i18n.t(`c4.${value}`), (value) => (this.optimizer = value))}
      </div>
      <div class="choices" role="group" aria-label=${i18n.t('c2.apart')}>${COPIES.filter((id) => bytes[id] > 0).map((id) => html`
        <button aria-pressed=${this.without.has(id) ? 'false' : 'true'} @click=${() => this.toggle(id)}><span class="swatch c-${id}"></span>${i18n.t(`copy.${id}`)}: ${i18n.t('c2.bytes', { n: bytes[id] })}</button>`)}</div>
      <ml-bars .i18n=${i18n} .label=${i18n.t('c2.title')} .rows=${[row]} .end=${20}></ml-bars>
      ${this.said('c2.said', { sum: copiesOf(bytes).join(' + '), resident: i18n.t('c2.bytes', { n: bytes.resident }), passing: i18n.t('c2.bytes', { n: bytes.transient_copy }) })}
      <p class="note">${i18n.t('c4.note', { sgd: ask('megatron-bf16-bf16grad', 'sgd').resident, eight: ask('megatron-bf16-bf16grad', 'adamw_8bit').resident, adamw: ask('megatron-bf16-bf16grad', 'adamw_fused').resident })}</p>`;
  }

  private pieces(bytes: PerParameter): Piece[] {
    return copyPieces(bytes, (id) => this.i18n.t(`copy.${id}`), (n) => this.i18n.t('c2.bytes', { n }), this.i18n.t('copy.transient'));
  }

  private toggle(id: string): void {
    const next = new Set(this.without);
    if (!next.delete(id)) next.add(id);
    this.without = next;
  }
}

const METHODS = ['full', 'lora', 'qlora'] as const;
const CARDS = ['rtx4090-24gb', 'a100-40gb', 'h100-80gb', 'h200-141gb'] as const;

@customElement('ml-methods-figure')
export class MethodsFigure extends Figure {
  @state() private rank = 16;
  @state() private card = 'h100-80gb';

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const gpu = this.lab.core.catalogue.gpus.find(({ id }) => id === this.card);
    const ledgers = METHODS.map((method) => this.lab.ledger(LLAMA_3_8B, { method, rank: this.rank }));
    const [full, lora, qlora] = ledgers as [CourseLedger, CourseLedger, CourseLedger];
    const cards = this.lab.core.catalogue.gpus.filter(({ id }) => (CARDS as readonly string[]).includes(id));
    return html`<div class="controls">
        ${this.slider('key.rank', powers(0, 8), this.rank, String, (rank) => (this.rank = rank))}
        ${this.select('key.gpu', cards.map(({ id }) => id), this.card, (id) => cards.find((row) => row.id === id)?.name ?? id, (id) => (this.card = id))}
      </div>
      <ml-bars .i18n=${i18n} .label=${i18n.t('c5.title')} .rows=${METHODS.map((method, i) => this.row(method, ledgers[i] as CourseLedger))}
        .mark=${gpu ? { at: gpu.label_bytes ?? gpu.usable_bytes, text: gpu.name } : undefined}></ml-bars>
      ${this.said('c5.said', { params: i18n.format.count(full.params), full: this.gb(full.states_bytes), trainable: i18n.format.count(lora.trainable), frozen: this.gb(lora.frozen_bytes), adapters: this.gb(lora.trained_bytes, 2), lora: this.gb(lora.states_bytes), base: this.gb(qlora.frozen_bytes), qlora: this.gb(qlora.states_bytes) })}
      ${this.beside()}`;
  }

  private row(method: (typeof METHODS)[number], ledger: CourseLedger): Row {
    const { i18n } = this;
    const { trainable, per_parameter: bytes } = ledger;
    const pieces = COPIES.map((id) => ({ color: id as string, name: i18n.t(`copy.${id}`), size: trainable * bytes[id], text: this.gb(trainable * bytes[id]) }));
    const frozen: Piece = { color: 'buffers', name: i18n.t('copy.frozen'), size: ledger.frozen_bytes, text: this.gb(ledger.frozen_bytes) };
    return { name: i18n.t(`method.${method}`), sum: this.gb(ledger.states_bytes), pieces: [frozen, ...pieces] };
  }

  // What frameworks really hold for the same, at the end of loading.
  private beside(): TemplateResult {
    const { i18n } = this;
    const stored = (report: Report | undefined): string => this.gb(report?.phases[0]?.end_bytes ?? 0);
    return this.ofSteps([false, true].map((prepare_kbit) => [LLAMA_3_8B, { method: 'qlora', seq: 128, rank: this.rank, prepare_kbit }]),
      (plain, prepared) => html`<p class="note">${i18n.t('c7.note', { plain: stored(plain), prepared: stored(prepared) })}</p>`);
  }
}

@customElement('ml-inference-figure')
export class InferenceFigure extends Figure {
  protected override figure(): TemplateResult {
    const { i18n } = this;
    const ledger = this.lab.ledger(LLAMA_3_8B, {});
    const widths = ['bf16', 'int8', 'int4'] as const;
    const rows: Row[] = widths.map((id) => ({
      name: i18n.t('c8.row', { dtype: id, bytes: ledger.inference[id] / ledger.params }), sum: this.gb(ledger.inference[id]),
      pieces: [{ color: 'weights', name: i18n.t('copy.weights'), size: ledger.inference[id], text: this.gb(ledger.inference[id]) }],
    }));
    const training: Row = { name: i18n.t('c8.training'), sum: this.gb(ledger.states_bytes), pieces: COPIES.map((id) => ({ color: id, name: i18n.t(`copy.${id}`), size: ledger.params * ledger.per_parameter[id], text: this.gb(ledger.params * ledger.per_parameter[id]) })) };
    return html`<ml-bars .i18n=${i18n} .label=${i18n.t('c8.title')} .rows=${[...rows, training]}></ml-bars>
      ${this.said('c8.said', { times: i18n.format.count(ledger.states_bytes / ledger.inference.bf16), one: this.gb(ledger.inference.bf16) })}`;
  }
}
