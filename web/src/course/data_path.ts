// data_path.ts - <ml-data-path>: C25, where the step's numbers lie and in which type they travel, for a chosen recipe.
//
// Drawn from the bytes that the core gives; boxes of nothing are left out. One step at a time on demand; whole in print.

import { css, html, nothing, svg, type SVGTemplateResult, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import { WidthController } from '../components/width.js';
import { RECIPES } from './bytes_figures.js';
import { Figure, figureStyles } from './figure.js';
import type { PerParameter } from './lesson_types.js';
import { LLAMA_3_8B } from './models.js';

const IDS = ['weights', 'copy', 'activations', 'loss', 'gradients', 'states'] as const;
type Id = (typeof IDS)[number];
interface Box { readonly id: Id; readonly color: string; readonly dtype: string; readonly bytes: number; readonly passing: boolean }
interface Place { readonly x: number; readonly y: number }

const [BOX_WIDTH, BOX_HEIGHT] = [190, 86];
const BEAT_MS = 1800;

const BELOW_BF16: ReadonlySet<string> = new Set(['amp-bf16', 'megatron-bf16', 'megatron-bf16-bf16grad']);

// The types behind the bytes: what has two bytes is of the recipe's 16-bit type.
export function boxesOf(precision: string, bytes: PerParameter): Box[] {
  const half = BELOW_BF16.has(precision) ? 'bf16' : 'fp16';
  const type = (n: number): string => (n === 2 ? half : 'fp32');
  const master = bytes.master_weights > 0;
  const compute = precision === 'fp32' ? 'fp32' : half;
  const copy = master ? bytes.weights : bytes.transient_copy;
  const all: Box[] = [
    { id: 'weights', color: master ? 'master_weights' : 'weights', dtype: 'fp32', bytes: master ? bytes.master_weights : bytes.weights, passing: false },
    { id: 'copy', color: 'weights', dtype: half, bytes: copy, passing: !master },
    { id: 'activations', color: 'activations', dtype: compute, bytes: -1, passing: true },
    { id: 'loss', color: 'logits', dtype: 'fp32', bytes: -1, passing: true },
    { id: 'gradients', color: 'gradients', dtype: type(bytes.gradients), bytes: bytes.gradients, passing: false },
    { id: 'states', color: 'optimizer_states', dtype: 'fp32', bytes: bytes.optimizer_states, passing: false },
  ];
  return all.filter((box) => box.bytes !== 0);
}

@customElement('ml-data-path')
export class DataPath extends Figure {
  static override styles = [...figureStyles, css`
    svg { display: block; width: 100%; overflow: visible; }
    text { font: 13px var(--sans); fill: var(--ink); }
    text.name { font-weight: 600; }
    text.soft { fill: var(--ink-soft); font-size: 12px; }
    .box { fill: var(--raised); stroke: var(--rule-strong); stroke-width: 1.25; }
    .box.passing { stroke-dasharray: 5 4; }
    .arrow { fill: none; stroke: var(--ink-soft); stroke-width: 1.5; }
    .head { fill: var(--ink-soft); }
    .number circle { fill: var(--paper); stroke: var(--ink-soft); }
    .now .box, .now.arrow { stroke: var(--accent); stroke-width: 3; }
    .now .head { fill: var(--accent); }
    .now .number circle, .now.number circle { fill: var(--accent); stroke: var(--accent); }
    .now.number text { fill: var(--on-accent); }
    ol { padding-inline-start: 1.5rem; margin: 0.75rem 0 0; }
    li { padding: 0.15rem 0.4rem; border-radius: 4px; }
    li.now { background: var(--sunk); font-weight: 600; }
  `];

  @state() private precision: (typeof RECIPES)[number] = 'amp-bf16';
  @state() private at = 0; // 0: everything
  private timer = 0;
  private readonly size = new WidthController(this);

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearInterval(this.timer);
  }

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const ledger = this.lab.ledger(LLAMA_3_8B, { precision: this.precision });
    const boxes = boxesOf(this.precision, ledger.per_parameter);
    const running = this.timer !== 0;
    return html`<div class="controls">
        ${this.select('key.precision', RECIPES, this.precision, (value) => i18n.t(`c2.${value}`), (value) => { this.precision = value; this.stop(); })}
        <span class="choices"><button @click=${() => (running ? this.stop() : this.play(boxes.length))}>${i18n.t(running ? 'c25.stop' : 'c25.play')}</button>
        <button @click=${() => { this.stop(); this.at = (this.at % boxes.length) + 1; }}>${i18n.t('c25.next')}</button></span>
      </div>
      ${this.size.width > 0 ? this.drawing(boxes, this.size.width) : nothing}
      <ol>${boxes.map((_, i) => html`<li class=${this.at === i + 1 ? 'now' : ''}>${i18n.t(this.stepKey(boxes, i), { dtype: boxes[(i + 1) % boxes.length]?.dtype ?? '' })}</li>`)}</ol>
      ${this.said('c25.said', { resident: i18n.t('c2.bytes', { n: ledger.per_parameter.resident }), passing: i18n.t('c2.bytes', { n: ledger.per_parameter.transient_copy }) })}`;
  }

  private stepKey(boxes: readonly Box[], i: number): 'c25.cast' | 'c25.multiply' | 'c25.reduce' | 'c25.backward' | 'c25.feed' | 'c25.update' {
    const next = boxes[(i + 1) % boxes.length]?.id;
    const keys = { copy: 'c25.cast', activations: 'c25.multiply', loss: 'c25.reduce', gradients: 'c25.backward', states: 'c25.feed', weights: 'c25.update' } as const;
    return keys[next ?? 'weights'];
  }

  private play(steps: number): void {
    this.at = 1;
    this.timer = window.setInterval(() => {
      if (this.at >= steps) return this.stop();
      this.at += 1;
    }, BEAT_MS);
  }

  private stop(): void {
    clearInterval(this.timer);
    this.timer = 0;
    this.at = 0;
  }

  private drawing(boxes: readonly Box[], width: number): SVGTemplateResult {
    const columns = width >= 620 ? 3 : 1;
    const places = boxes.map((_, i) => place(i, boxes.length, columns, width));
    const height = Math.max(...places.map(({ y }) => y)) + BOX_HEIGHT + 8;
    return svg`<svg height=${height} viewBox="0 0 ${width} ${height}" role="img" aria-label=${this.i18n.t('c25.label', { boxes: boxes.map((box) => `${this.i18n.t(`c25.${box.id}`)} ${box.dtype}`).join(', ') })}>
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="head" d="M0,0 L8,4 L0,8 z" /></marker></defs>
      ${places.map((from, i) => this.arrow(from, places[(i + 1) % places.length] as Place, i, columns))}
      ${boxes.map((box, i) => this.box(box, places[i] as Place, this.at === i + 1 || this.at === (i + boxes.length - 1) % boxes.length + 1))}
    </svg>`;
  }

  private box({ id, color, dtype, bytes, passing }: Box, { x, y }: Place, now: boolean): SVGTemplateResult {
    const { i18n } = this;
    const size = bytes < 0 ? i18n.t('c25.by_token') : i18n.t(passing ? 'c25.passing' : 'c25.resident', { n: bytes });
    return svg`<g class=${now ? 'now' : ''}><rect class="box ${passing ? 'passing' : ''}" x=${x} y=${y} width=${BOX_WIDTH} height=${BOX_HEIGHT} rx="6"></rect>
      <rect class="c-${color}" x=${x} y=${y + 10} width="6" height=${BOX_HEIGHT - 20}></rect>
      <text class="name" x=${x + 18} y=${y + 26}>${i18n.t(`c25.${id}`)}</text><text x=${x + 18} y=${y + 47}>${dtype}</text><text class="soft" x=${x + 18} y=${y + 68}>${size}</text></g>`;
  }

  private arrow(from: Place, to: Place, i: number, columns: number): SVGTemplateResult {
    const path = route(from, to, columns);
    const now = this.at === i + 1 ? 'now' : '';
    return svg`<path class="arrow ${now}" d=${path.d} marker-end="url(#head)"></path>
      <g class="number ${now}"><circle cx=${path.x} cy=${path.y} r="10"></circle><text x=${path.x} y=${path.y + 4.5} text-anchor="middle">${i + 1}</text></g>`;
  }
}

// Wide: the upper row from left to right, the lower row back. Narrow: one below the other.
function place(i: number, count: number, columns: number, width: number): Place {
  if (columns === 1) return { x: 30, y: 4 + i * (BOX_HEIGHT + 34) };
  const upper = Math.ceil(count / 2);
  const gap = (width - columns * BOX_WIDTH) / (columns - 1);
  const column = i < upper ? i : count - upper - 1 - (i - upper);
  return { x: column * (BOX_WIDTH + gap), y: i < upper ? 4 : BOX_HEIGHT + 74 };
}

function route(from: Place, to: Place, columns: number): { d: string; x: number; y: number } {
  const half = BOX_HEIGHT / 2;
  if (columns === 1 && to.y < from.y) { // back to the beginning, along the left edge
    const [y0, y1] = [from.y + half, to.y + half];
    return { d: `M${from.x},${y0} H12 V${y1} H${to.x}`, x: 12, y: (y0 + y1) / 2 };
  }
  if (from.x === to.x) {
    const [y0, y1] = from.y < to.y ? [from.y + BOX_HEIGHT, to.y] : [from.y, to.y + BOX_HEIGHT];
    return { d: `M${from.x + BOX_WIDTH / 2},${y0} V${y1}`, x: from.x + BOX_WIDTH / 2, y: (y0 + y1) / 2 };
  }
  if (from.y !== to.y) { // rows of unlike length
    const [x0, x1] = [from.x + BOX_WIDTH / 2, to.x + BOX_WIDTH / 2];
    const [y0, y1] = from.y < to.y ? [from.y + BOX_HEIGHT, to.y] : [from.y, to.y + BOX_HEIGHT];
    return { d: `M${x0},${y0} L${x1},${y1}`, x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
  }
  const [x0, x1] = from.x < to.x ? [from.x + BOX_WIDTH, to.x] : [from.x, to.x + BOX_WIDTH];
  return { d: `M${x0},${from.y + half} H${x1}`, x: (x0 + x1) / 2, y: from.y + half };
}
