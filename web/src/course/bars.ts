// bars.ts - <ml-bars>: rows of stacked bars on one scale, each row with its name and its sum, and a mark for a card.

import { css, html, nothing, svg, type SVGTemplateResult, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import { LedgerElement } from '../components/base.js';
import { WidthController } from '../components/width.js';
import { base, categories } from '../styles/shared.js';

export interface Piece {
  readonly color: string; // a category of the ledger
  readonly name: string;
  readonly size: number;
  readonly text: string; // the size, in words
  readonly passing?: boolean; // there for a moment only
}

export interface Row { readonly name: string; readonly sum: string; readonly pieces: readonly Piece[] }

const [TOP, BAR, STEP] = [20, 26, 58];

@customElement('ml-bars')
export class Bars extends LedgerElement {
  static override styles = [base, categories, css`
    svg { display: block; width: 100%; overflow: visible; }
    text { font: 13px var(--sans); fill: var(--ink); font-variant-numeric: tabular-nums; }
    text.sum { font-weight: 600; }
    text.on { fill: var(--c-text); font-size: 12px; }
    text.card { fill: var(--bad); font-size: 12px; }
    .passing { fill-opacity: 0.35; stroke: var(--rule-strong); stroke-dasharray: 3 3; }
    text.on.passing { fill: var(--ink); fill-opacity: 1; stroke: none; }
    .mark { stroke: var(--bad); stroke-width: 1.5; }
    ul { list-style: none; display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; padding: 0; margin: 0.5rem 0 0; font-size: 0.875rem; }
    .swatch.passing { opacity: 0.45; outline: 1px dashed var(--rule-strong); }
  `];

  @property({ attribute: false }) rows: readonly Row[] = [];
  @property({ attribute: false }) label = '';
  @property({ attribute: false }) end = 0; // what the width stands for, at least
  @property({ attribute: false }) mark: { readonly at: number; readonly text: string } | undefined;
  private readonly size = new WidthController(this);

  protected override render(): TemplateResult {
    const width = this.size.width;
    const height = TOP * (this.mark ? 1 : 0) + this.rows.length * STEP;
    return html`${width > 0 ? svg`<svg height=${height} viewBox="0 0 ${width} ${height}" role="img" aria-label=${`${this.label}: ${this.inWords()}`}>
        ${this.rows.map((row, i) => this.row(row, TOP * (this.mark ? 1 : 0) + i * STEP, width))}
        ${this.mark ? this.card(this.mark, width, height) : nothing}
      </svg>` : html`<div></div>`}
      ${this.legend()}`;
  }

  private scale(width: number): number {
    const most = Math.max(this.end, this.mark?.at ?? 0, ...this.rows.map((row) => row.pieces.reduce((all, piece) => all + piece.size, 0)));
    return most > 0 ? (width - 2) / most : 0;
  }

  private row(row: Row, y: number, width: number): SVGTemplateResult {
    const scale = this.scale(width);
    let from = 0;
    const pieces = row.pieces.filter((piece) => piece.size > 0).map((piece) => {
      const x = 1 + from * scale;
      from += piece.size;
      return this.piece(piece, x, Math.max(piece.size * scale - 1, 1), y + 20);
    });
    return svg`<text x="0" y=${y + 14}>${row.name}</text><text class="sum" x=${width} y=${y + 14} text-anchor="end">${row.sum}</text>${pieces}`;
  }

  private piece({ color, name, text, passing }: Piece, x: number, width: number, y: number): SVGTemplateResult {
    const fits = text.length * 7 + 10 < width;
    return svg`<rect class="c-${color} ${passing ? 'passing' : ''}" x=${x} y=${y} width=${width} height=${BAR}><title>${name}: ${text}</title></rect>
      ${fits ? svg`<text class="on ${passing ? 'passing' : ''}" x=${x + 6} y=${y + 17}>${text}</text>` : nothing}`;
  }

  private card({ at, text }: { at: number; text: string }, width: number, height: number): SVGTemplateResult {
    const x = Math.min(1 + at * this.scale(width), width - 1);
    const end = x > width / 2;
    return svg`<line class="mark" x1=${x} x2=${x} y1="4" y2=${height - 8}></line>
      <text class="card" x=${end ? x - 6 : x + 6} y="12" text-anchor=${end ? 'end' : 'start'}>${text}</text>`;
  }

  // Every piece once, whichever rows it stands in.
  private legend(): TemplateResult {
    const known = new Map<string, Piece>();
    for (const piece of this.rows.flatMap((row) => row.pieces)) if (piece.size > 0) known.set(piece.name, piece);
    return html`<ul>${[...known.values()].map((piece) => html`<li><span class="swatch c-${piece.color} ${piece.passing ? 'passing' : ''}"></span>${piece.name}</li>`)}</ul>`;
  }

  private inWords(): string {
    return this.rows.map((row) => `${row.name} ${row.sum}: ${row.pieces.filter((piece) => piece.size > 0).map((piece) => `${piece.name} ${piece.text}`).join(', ')}`).join('; ');
  }
}
