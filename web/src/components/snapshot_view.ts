// snapshot_view.ts - <ml-snapshot>: a memory snapshot as a timeline, beside the prediction, and by line of code. A bundle of its own
// (snapshot_view.js) with its worker, loaded with the first snapshot. <ml-timeline> comes with the page's lower half.

import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { AtPeak, Drawn, Report } from '../core/types.js';
import type { I18n, Key } from '../i18n/i18n.js';
import { fill } from '../i18n/oom_texts.js';
import { snapshotTexts, type SnapshotKey, type SnapshotTexts } from '../i18n/snapshot_texts.js';
import { KINDS, type DeviceDigest, type Group, type Kind } from '../snapshot/digest.js';
import type { SnapshotRead } from '../snapshot/read.js';
import { startWorker } from '../snapshot/start_worker.js';
import type { SnapshotNews } from '../snapshot_worker.js';
import type { SnapshotFile } from '../state/session.js';
import { article } from '../styles/article.js';
import { base, controls, tables } from '../styles/shared.js';

const SHOWN_GROUPS = 20;
const FRAGMENTED = 0.1; // of what is reserved, idle in pieces
// What the prediction tells apart and a call stack does not.
const FOLDED: Readonly<Partial<Record<string, Kind>>> = {
  master_weights: 'weights', buffers: 'weights', inputs: 'unknown', kv_cache: 'activations', activation_gradients: 'temporaries', workspace: 'temporaries',
};

@customElement('ml-snapshot')
export class SnapshotView extends LitElement {
  static override styles = [base, controls, tables, article, css`
    h3 { margin: 1.1rem 0 0.3rem; }
    table { font-size: 0.85rem; }
    td code { font-size: 0.8rem; }
    progress { width: 100%; }
  `];

  @property({ attribute: false }) i18n!: I18n;
  @property({ attribute: false }) snapshot!: SnapshotFile;
  @property({ attribute: false }) report: Report | undefined;

  @state() private progress = 0;
  @state() private read: SnapshotRead | undefined;
  @state() private chosen = 0; // index of the device
  private worker: Worker | undefined;

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has('snapshot')) this.start();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.worker?.terminate();
  }

  private start(): void {
    this.worker?.terminate();
    [this.progress, this.read, this.chosen] = [0, undefined, 0];
    const worker = startWorker();
    this.worker = worker;
    const end = (read: SnapshotRead): void => {
      this.read = read;
      worker.terminate();
    };
    worker.onmessage = ({ data }: MessageEvent<SnapshotNews>) => {
      if ('progress' in data) this.progress = data.progress;
      else end(data.read);
    };
    worker.onerror = (event) => end({ ok: false, fault: { kind: 'unreadable', read: event.message || 'snapshot_worker.js' } });
    worker.postMessage(this.snapshot.file);
  }

  private close(): void {
    this.dispatchEvent(new CustomEvent('change-request', { detail: { kind: 'snapshot', snapshot: undefined }, bubbles: true, composed: true }));
  }

  protected override render(): TemplateResult {
    const texts = snapshotTexts(this.i18n.lang);
    return html`<article>
      <header><h2>${texts.heading}${this.snapshot.name ? html` <span class="soft small">${this.snapshot.name}</span>` : nothing}</h2>
        <button class="quiet" aria-label=${texts.close} @click=${this.close}>✕</button></header>
      ${this.body(texts)}
    </article>`;
  }

  private body(texts: SnapshotTexts): TemplateResult {
    const { read } = this;
    if (!read) {
      const share = this.i18n.format.percent(this.progress, 1);
      return html`<p role="status">${fill(texts.reading, { share })}</p><progress aria-label=${texts.heading} max="1" value=${this.progress}></progress>`;
    }
    if (!read.ok) return html`<p role="alert">${fill(texts[`fault.${read.fault.kind}`], read.fault as unknown as Record<string, string>)}</p>`;
    const device = read.devices[this.chosen];
    if (!device) return html`<p>${texts.empty}</p>`;
    return html`${read.devices.length > 1 ? this.devices(read.devices, texts) : nothing}
      ${this.sentences(device, texts)}
      <ml-timeline .i18n=${this.i18n.with({ 'category.unknown': texts['category.unknown'] } as Partial<Record<Key, string>>)} .caption=${texts.timeline} .report=${this.drawn(device)}></ml-timeline>
      ${this.report ? this.beside(device, this.report, texts) : nothing}
      ${this.groups(device.groups, texts)}`;
  }

  private devices(devices: readonly DeviceDigest[], texts: SnapshotTexts): TemplateResult {
    const choose = (event: Event): void => { this.chosen = (event.target as HTMLSelectElement).selectedIndex; };
    return html`<label>${texts.devices} <select @change=${choose}>${devices.map(({ device }, at) => html`<option ?selected=${at === this.chosen}>${fill(texts.device, { device })}</option>`)}</select></label>`;
  }

  private sentences(device: DeviceDigest, texts: SnapshotTexts): TemplateResult {
    const b = (bytes: number): string => this.i18n.bytes(bytes);
    const { end, peak } = device;
    const idle = end.reserved - end.allocated;
    const unknown = sumOf(device.groups, 'unknown');
    return html`<p>${fill(texts.says, { events: this.i18n.format.count(device.events), requested: b(peak.requested), reserved: b(peak.reserved) })}
        ${fill(texts.at_end, { allocated: b(end.allocated), reserved: b(end.reserved), free: b(end.largest_free) })}</p>
      ${device.failed.map(({ requested, free }) => html`<p class="says">${fill(texts.failed, { requested: b(requested), free: b(free) })}</p>`)}
      ${idle > FRAGMENTED * end.reserved && end.largest_free < idle / 2 ? html`<p class="says">${fill(texts.fragmented, { idle: b(idle), free: b(end.largest_free) })}</p>` : nothing}
      ${device.recorded ? (unknown > 0 ? html`<p class="small soft">${fill(texts.earlier, { bytes: b(unknown) })}</p>` : nothing) : html`<p class="says">${texts.no_frames}</p>`}`;
  }

  private drawn({ peak, most_reserved, events, points }: DeviceDigest): Drawn {
    return {
      peaks: { tensor_bytes: peak.requested, workspace_bytes: 0, reserved_bytes: most_reserved },
      verdict: { usable_bytes: this.report?.verdict.usable_bytes ?? Number.MAX_SAFE_INTEGER },
      timeline: { events: Math.max(events, 1), points, categories: KINDS, phases: [], peak_event: peak.event },
      phases: [],
    };
  }

  private beside(device: DeviceDigest, report: Report, texts: SnapshotTexts): TemplateResult {
    const { at_peak, peaks } = report;
    const predicted = folded(at_peak);
    const kinds = KINDS.map((kind) => ({ name: this.kindName(kind, texts), predicted: predicted.get(kind) ?? 0, seen: sumOf(device.groups, kind) })).filter((row) => row.predicted + row.seen > 0);
    const rows = [
      { name: texts['row.peak'], predicted: at_peak.tensor_bytes + at_peak.workspace_bytes, seen: device.peak.requested },
      ...kinds, { name: texts['row.reserved'], predicted: peaks.reserved_bytes, seen: device.most_reserved },
    ];
    return html`<h3>${texts.beside}</h3><p class="small soft">${texts.beside_hint}</p><table>
      <thead><tr><th scope="col">${texts.what}</th>${[texts.predicted, texts.snapshot, texts.difference].map((text) => html`<th scope="col" class="right">${text}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr><th scope="row">${row.name}</th>${this.cell(row.predicted)}${this.cell(row.seen)}
        <td class="right">${row.seen === row.predicted ? '=' : this.i18n.format.difference(row.seen - row.predicted)}</td></tr>`)}</tbody></table>`;
  }

  private groups(groups: readonly Group[], texts: SnapshotTexts): TemplateResult {
    const shown = groups.slice(0, SHOWN_GROUPS);
    const others = groups.slice(SHOWN_GROUPS);
    const total = (of: (group: Group) => number): number => others.reduce((all, group) => all + of(group), 0);
    const row = (place: TemplateResult, kind: string, count: number, bytes: number): TemplateResult => html`<tr><th scope="row">${place}</th><td>${kind}</td><td class="right">${this.i18n.format.count(count)}</td>${this.cell(bytes)}</tr>`;
    return html`<h3>${texts.groups}</h3><div class="scroll" tabindex="0" role="region" aria-label=${texts.groups}><table>
      <thead><tr><th scope="col">${texts.place}</th><th scope="col">${texts.what}</th><th scope="col" class="right">${texts.count}</th><th scope="col" class="right">${texts.bytes}</th></tr></thead>
      <tbody>${shown.map((group) => row(group.place ? html`<code>${group.place}</code>` : html`${texts.none}`, this.kindName(group.kind, texts), group.count, group.bytes))}
        ${others.length > 0 ? row(html`${fill(texts.others, { count: others.length })}`, '', total((group) => group.count), total((group) => group.bytes)) : nothing}</tbody></table></div>`;
  }

  private kindName(kind: Kind, texts: SnapshotTexts): string {
    return texts[`kind.${kind}` as SnapshotKey] ?? this.i18n.category(kind);
  }

  private cell(bytes: number): TemplateResult {
    return html`<td class="right" title=${this.i18n.format.exact(bytes)}>${this.i18n.bytes(bytes)}</td>`;
  }
}

function folded({ categories }: AtPeak): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const [name, bytes] of Object.entries(categories)) {
    const kind = FOLDED[name] ?? name;
    sums.set(kind, (sums.get(kind) ?? 0) + (bytes ?? 0));
  }
  return sums;
}

function sumOf(groups: readonly Group[], kind: Kind): number {
  return groups.reduce((all, group) => all + (group.kind === kind ? group.bytes : 0), 0);
}
