// oom_figure.ts - C14: when it strikes names the block. Four runs that fail, on a card and at a length to choose.

import { html, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import type { Recipe, Report } from '../core/types.js';
import { Figure, powers } from './figure.js';
import { LLAMA_3_8B } from './models.js';

const CASES = {
  load: { recipe: {}, gb: 12, seq: 2048 },
  states: { recipe: { checkpointing: 'full' }, gb: 40, seq: 2048 },
  grows: { recipe: { method: 'lora' }, gb: 24, seq: 8192 },
  generate: { recipe: { task: 'generate', no_grad: false }, gb: 24, seq: 4096 },
} as const;
type Case = keyof typeof CASES;
const IDS = Object.keys(CASES) as readonly Case[];
const CARDS = [8, 12, 16, 24, 32, 40, 48, 80, 141];

@customElement('ml-oom-figure')
export class OomFigure extends Figure {
  @state() private run: Case = 'load';
  @state() private card: number = CASES.load.gb;
  @state() private seq: number = CASES.load.seq;
  @state() private noGrad = false;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const generating = this.run === 'generate';
    return html`${this.choices('c14.cases', IDS, this.run, (id) => i18n.t(`c14.${id}`), (id) => this.choose(id))}
      <div class="controls" id="fields">
        ${this.slider('c14.card', CARDS, this.card, (gb) => `${gb} GB`, (gb) => (this.card = gb))}
        ${this.slider('key.seq', powers(9, 16), this.seq, (seq) => i18n.format.count(seq), (seq) => (this.seq = seq))}
        ${generating ? html`<label><span>torch.no_grad()</span><input type="checkbox" .checked=${this.noGrad} @change=${(event: Event) => (this.noGrad = (event.target as HTMLInputElement).checked)} /></label>` : ''}
      </div>
      ${this.answer()}
      <p class="note">${i18n.t(`c14.${this.run}.note`)}</p>`;
  }

  private answer(): TemplateResult {
    const recipe: Recipe = { ...CASES[this.run].recipe, seq: this.seq, memory_limit_bytes: this.card * 1e9, ...(this.run === 'generate' ? { no_grad: this.noGrad } : {}) };
    return this.ofSteps([[LLAMA_3_8B, recipe]], (report) => (report ? this.saidOf(report) : html``));
  }

  private saidOf({ verdict, peaks, at_peak }: Report): TemplateResult {
    const { i18n } = this;
    const oom = verdict.out_of_memory;
    if (!oom) return this.said('c14.fits', { card: `${this.card} GB`, peak: this.i18n.format.decimal(peaks.allocated_bytes) });
    return this.said('c14.said', {
      phase: i18n.phase(oom.phase), op: oom.op, name: oom.name || oom.op, bytes: i18n.format.binary(oom.bytes),
      peak: this.i18n.format.decimal(peaks.allocated_bytes), largest: i18n.category(verdict.largest_category), part: this.i18n.format.decimal(at_peak.categories[verdict.largest_category] ?? 0),
    });
  }

  private choose(id: Case): void {
    this.run = id;
    this.card = CASES[id].gb;
    this.seq = CASES[id].seq;
    this.noGrad = false;
  }
}
