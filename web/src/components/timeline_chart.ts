// timeline_chart.ts - the picture: live bytes stacked by category over the events, phases named above, the peak marked.

import { css, nothing, svg, type SVGTemplateResult } from 'lit';
import { guard } from 'lit/directives/guard.js';
import { scaleLinear, type ScaleLinear } from 'd3-scale';
import type { Drawn, MeasuredPoint, Point } from '../core/types.js';
import { GIB, MIB } from '../format/format.js';
import { peakPoint, phaseSpans, type Span } from '../format/moments.js';
import { splitPhase, type I18n } from '../i18n/i18n.js';
import type { Units } from '../state/request.js';

export interface ChartFrame {
  readonly width: number;
  readonly height: number;
  readonly left: number;
  readonly top: number;
  readonly bottom: number;
  readonly x: ScaleLinear<number, number>;
  readonly y: ScaleLinear<number, number>; // of bytes
  readonly unit: { readonly name: string; readonly bytes: number };
}

const TOP = 46;
const BOTTOM = 8;
const LEFT = 46;
const LABEL_HEIGHT = 15;

export function chartFrame(report: Drawn, width: number, units: Units): ChartFrame {
  const height = Math.round(Math.min(Math.max(width * 0.42, 230), 360));
  const measured = (report.measured ?? []).reduce((most, point) => Math.max(most, point.allocated_bytes), 0);
  const most = Math.max(report.peaks.reserved_bytes, report.peaks.tensor_bytes + report.peaks.workspace_bytes, measured, 1);
  const usable = report.verdict.usable_bytes;
  const top = usable < most * 1.6 ? Math.max(most, usable) * 1.04 : most * 1.08;
  const unit = axisUnit(top, units);
  return {
    width, height, left: LEFT, top: TOP, bottom: height - BOTTOM, unit,
    x: scaleLinear([0, Math.max(report.timeline.events, 1)], [LEFT, width - 1]).clamp(true),
    y: scaleLinear([0, top], [height - BOTTOM, TOP]),
  };
}

function axisUnit(top: number, units: Units): ChartFrame['unit'] {
  if (units === 'gb') return top >= 1e9 ? { name: 'GB', bytes: 1e9 } : { name: 'MB', bytes: 1e6 };
  return top >= GIB ? { name: 'GiB', bytes: GIB } : { name: 'MiB', bytes: MIB };
}

export const chartStyles = css`
  .chart svg { display: block; width: 100%; overflow: visible; }
  .chart text { font: 12px var(--sans); fill: var(--ink); font-variant-numeric: tabular-nums; }
  .chart .axis text { fill: var(--ink-soft); font: 11.5px var(--sans); }
  .chart .axis line { stroke: var(--rule); }
  .band { stroke: var(--paper); stroke-width: 0.5; }
  .reserved { fill: none; stroke: var(--ink); stroke-width: 1.25; }
  .reserved { stroke-dasharray: 4 3; }
  .measured { fill: none; stroke: var(--ink); stroke-width: 1.5; }
  .measured-halo { fill: none; stroke: var(--paper); stroke-width: 4; stroke-opacity: 0.8; }
  .usable { stroke: var(--bad); stroke-width: 1.5; }
  .chart text.usable-text { fill: var(--bad); stroke: var(--paper); stroke-width: 3px; paint-order: stroke; }
  .boundary { stroke: var(--rule-strong); stroke-width: 0.75; }
  .chart text.phase { fill: var(--ink-soft); font-size: 11.5px; }
  .chart text.step { font-weight: 600; }
  .chart text.inside { fill: var(--c-text); pointer-events: none; }
  .cursor { stroke: var(--ink); stroke-width: 1; }
  .dot { fill: var(--ink); stroke: var(--paper); stroke-width: 2; }
  .chart text.peak { font-weight: 600; stroke: var(--paper); stroke-width: 4px; paint-order: stroke; }
  .edge { stroke: var(--rule-strong); }
`;

export function drawTimeline(report: Drawn, frame: ChartFrame, i18n: I18n, at: number): SVGTemplateResult {
  return svg`<svg height=${frame.height} viewBox="0 0 ${frame.width} ${frame.height}" aria-hidden="true">
    ${guard([report, frame.width, i18n], () => still(report, frame, i18n))}
    ${cursor(report, frame, at)}
    ${peakMark(report, frame, i18n)}
  </svg>`;
}

// All that does not move with the cursor.
function still(report: Drawn, frame: ChartFrame, i18n: I18n): SVGTemplateResult {
  return svg`${axis(frame)}
    ${bands(report, frame, i18n)}
    ${curves(report, frame)}
    ${phases(phaseSpans(report.timeline), frame, i18n)}
    ${usableLine(report, frame, i18n)}`;
}

function axis(frame: ChartFrame): SVGTemplateResult {
  const scale = scaleLinear(frame.y.domain().map((bytes) => bytes / frame.unit.bytes), frame.y.range());
  const ticks = scale.ticks(Math.round((frame.bottom - frame.top) / 60));
  return svg`<g class="axis">${ticks.map((value) => svg`
      <line x1=${frame.left} x2=${frame.width} y1=${scale(value)} y2=${scale(value)}></line>
      <text x=${frame.left - 6} y=${scale(value) + 4} text-anchor="end">${value}</text>`)}</g>
    <text class="phase" x="0" y=${frame.top - 8}>${frame.unit.name}</text>`;
}

// Each band reaches down to the axis and is covered by those below it, so that an edge between two bands is written once.
function bands(report: Drawn, frame: ChartFrame, i18n: I18n): SVGTemplateResult[] {
  const { categories } = report.timeline;
  const points = withEnd(report);
  const x = points.map((point) => frame.x(point.event));
  const below = points.map(() => 0);
  const drawn = categories.flatMap((name, column) => {
    if (!points.some((point) => (point.categories[column] ?? 0) > 0)) return [];
    const cells = points.map((point, i): Cell => {
      const floor = below[i] ?? 0;
      const ceiling = floor + (point.categories[column] ?? 0);
      below[i] = ceiling;
      return { x: x[i] ?? 0, floor: frame.y(floor), ceiling: frame.y(ceiling) };
    });
    return [{ name, cells }];
  });
  return [
    ...[...drawn].reverse().map(({ name, cells }) => svg`<path class="band c-${name}" d=${bandPath(cells, frame.bottom)}></path>`),
    ...drawn.map(({ name, cells }) => bandLabel(withoutRepeats(cells), i18n.category(name))),
  ];
}

function bandPath(cells: readonly Cell[], bottom: number): string {
  const first = cells[0];
  return first ? `M${tenth(first.x)},${bottom}V${stepPath(cells.map(({ x, ceiling }) => [x, ceiling]))}V${bottom}Z` : '';
}

// A curve of steps, "Y H X V Y H X ...", to be begun with M or V: a value holds until the next, and what only holds on is not written.
function stepPath(points: readonly (readonly [x: number, y: number])[]): string {
  let path = '';
  let last: number | undefined;
  for (const [at, [x, y]] of points.entries()) {
    const height = tenth(y);
    if (last === undefined) path = `${height}`;
    else if (height !== last) path += `H${tenth(x)}V${height}`;
    else if (at === points.length - 1) path += `H${tenth(x)}`;
    last = height;
  }
  return path;
}

const tenth = (pixels: number): number => Math.round(pixels * 10) / 10;

// The last point holds to the end of the run.
function withEnd(report: Drawn): Point[] {
  const last = report.timeline.points.at(-1);
  return last ? [...report.timeline.points, { ...last, event: report.timeline.events }] : [];
}

// A band from one point to the next, in the chart's coordinates: y grows downwards.
interface Cell { readonly x: number; readonly floor: number; readonly ceiling: number }

// A step holds until the next: what only holds on, to a twentieth of a pixel, is no step. The last one ends the band.
function withoutRepeats(cells: readonly Cell[]): Cell[] {
  let last: Cell | undefined;
  return cells.filter((cell, i) => {
    const repeats = last && i < cells.length - 1 && Math.abs(cell.floor - last.floor) < 0.05 && Math.abs(cell.ceiling - last.ceiling) < 0.05;
    if (!repeats) last = cell;
    return !repeats;
  });
}

// A name inside the band, where it is thick and holds still for long enough. Runs of cells, each scored by its width and height as far
// as a name makes use of them; a run is followed only while it may still be the best.
function bandLabel(cells: readonly Cell[], name: string): SVGTemplateResult {
  const need = textWidth(name) + 12;
  let best = { score: 0, x: 0, y: 0 };
  const score = (width: number, height: number): number => Math.min(width, 2 * need) * Math.min(height, 4 * LABEL_HEIGHT);
  for (const [i, { x: from }] of cells.entries()) {
    let [floor, ceiling] = [Infinity, -Infinity];
    for (let j = i; j + 1 < cells.length; ++j) {
      const cell = cells[j] as Cell;
      floor = Math.min(floor, cell.floor);
      ceiling = Math.max(ceiling, cell.ceiling);
      const height = floor - ceiling;
      if (height < LABEL_HEIGHT || score(Infinity, height) <= best.score) break;
      const to = cells[j + 1]?.x ?? 0;
      const reached = score(to - from, height);
      if (to - from > need && reached > best.score) best = { score: reached, x: (from + to) / 2, y: (floor + ceiling) / 2 };
    }
  }
  return best.score > 0 ? svg`<text class="inside" x=${best.x} y=${best.y + 4} text-anchor="middle">${name}</text>` : svg``;
}

function curves(report: Drawn, frame: ChartFrame): SVGTemplateResult {
  const points = withEnd(report);
  if (points.length === 0) return svg``;
  return svg`<path class="reserved" d=${linePath(points, frame, (point) => point.reserved_bytes)}></path>${measured(report.measured ?? [], frame)}`;
}

function measured(points: readonly MeasuredPoint[], frame: ChartFrame): SVGTemplateResult {
  if (points.length === 0) return svg``;
  const path = linePath(points, frame, (point) => point.allocated_bytes);
  return svg`<path class="measured-halo" d=${path}></path><path class="measured" d=${path}></path>`;
}

function linePath<P extends { readonly event: number }>(points: readonly P[], frame: ChartFrame, of: (point: P) => number): string {
  return `M${tenth(frame.x(points[0]?.event ?? 0))},${stepPath(points.map((point) => [frame.x(point.event), frame.y(of(point))]))}`;
}

function phases(spans: readonly Span[], frame: ChartFrame, i18n: I18n): SVGTemplateResult[] {
  const steps = [...new Set(spans.map((span) => splitPhase(span.name).step))];
  const headings = steps.filter((step) => step !== '').map((step) => {
    const first = spans.find((span) => splitPhase(span.name).step === step) as Span;
    return svg`<text class="step" x=${frame.x(first.from) + 5} y="12">${i18n.t('phase.step', { step })}</text>
      <line class="edge" x1=${frame.x(first.from)} x2=${frame.x(first.from)} y1="2" y2=${frame.bottom}></line>`;
  });
  return [...headings, ...spans.map((span) => phaseLabel(span, frame, i18n))];
}

function phaseLabel(span: Span, frame: ChartFrame, i18n: I18n): SVGTemplateResult {
  const [left, right] = [frame.x(span.from), frame.x(span.to)];
  const { name } = splitPhase(span.name);
  const text = i18n.maybe(`phase.${name}`, name);
  const short = [...text][0] ?? '';
  const room = right - left - 8;
  const shown = textWidth(text) < room ? text : textWidth(short) + 2 < room ? short : '';
  return svg`<line class="boundary" x1=${left} x2=${left} y1="20" y2=${frame.bottom}></line>
    ${shown ? svg`<text class="phase" x=${left + 5} y="30">${shown}</text>` : nothing}`;
}

function usableLine(report: Drawn, frame: ChartFrame, i18n: I18n): SVGTemplateResult {
  const usable = report.verdict.usable_bytes;
  if (usable > (frame.y.domain()[1] ?? 0)) return svg``;
  const y = frame.y(usable);
  const text = i18n.t('timeline.usable', { bytes: i18n.bytes(usable) });
  return svg`<line class="usable" x1=${frame.left} x2=${frame.width} y1=${y} y2=${y}></line>
    <text class="usable-text" x=${frame.left + 6} y=${y - 5}>${text}</text>`;
}

function heightAt(report: Drawn, at: number): number {
  return report.timeline.points[at]?.categories.reduce((all, bytes) => all + bytes, 0) ?? 0;
}

function cursor(report: Drawn, frame: ChartFrame, at: number): SVGTemplateResult {
  const x = frame.x(report.timeline.points[at]?.event ?? 0);
  return svg`<line class="cursor" x1=${x} x2=${x} y1=${frame.top - 6} y2=${frame.bottom}></line>
    <circle class="dot" cx=${x} cy=${frame.y(heightAt(report, at))} r="4.5"></circle>`;
}

function peakMark(report: Drawn, frame: ChartFrame, i18n: I18n): SVGTemplateResult {
  const at = peakPoint(report.timeline);
  const x = frame.x(report.timeline.points[at]?.event ?? 0);
  const y = frame.y(heightAt(report, at));
  const text = i18n.t('timeline.peak', { bytes: i18n.bytes(heightAt(report, at)) });
  const room = frame.width - x > textWidth(text) + 12;
  const reserved = frame.y(report.timeline.points[at]?.reserved_bytes ?? 0);
  const clear = y - reserved > 2 * LABEL_HEIGHT; // beside the dot, or above the line of reserved memory
  return svg`<circle class="dot" cx=${x} cy=${y} r="3.5"></circle>
    <text class="peak" x=${room ? x + 9 : x - 9} y=${Math.max(clear ? y + 4 : reserved - 6, frame.top - 4)} text-anchor=${room ? 'start' : 'end'}>${text}</text>`;
}

function textWidth(text: string): number {
  let units = 0;
  for (const char of text) units += char > '\u2e80' ? 12.5 : 6.9;
  return units;
}
