// plans_view.ts - <ml-plans>: ways of spreading a step over many GPUs that fit, found by the core in a worker when the reader asks.

import { css, html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { Plan, Plans, StepTime } from '../core/advice.js';
import { adviceApart } from '../core/apart.js';
import type { Core } from '../core/loader.js';
import type { Outcome, Recipe, Report } from '../core/types.js';
import { sameValue } from '../state/request.js';
import { base, controls, tables } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import './problem_note.js';

const MOST = { gpus: 2 ** 20, global_batch: 2 ** 24 } as const; // core/answer/plans.cc
type Field = keyof typeof MOST;
const CUTS = ['tp', 'pp', 'cp', 'dp'] as const;
const SHOWN = [...CUTS, 'ep'] as const; // experts are spread over the same GPUs once more
const PARTS = ['compute', 'tensor', 'context', 'pipeline', 'bubble', 'data'] as const;

@customElement('ml-plans')
export class PlansView extends LedgerElement {
  static override styles = [base, controls, tables, css`
    form { display: flex; flex-wrap: wrap; gap: 0.7rem 1rem; align-items: end; margin: 0.6rem 0; }
    label { display: flex; flex-direction: column; gap: 0.2rem; }
    input { width: 9rem; }
    table { font-size: 0.88rem; }
    td, th { vertical-align: baseline; }
    .error { color: var(--bad); margin: 0; font-size: 0.85rem; }
  `];

  @property({ attribute: false }) core!: Core;
  @property({ attribute: false }) config = '';
  @property({ attribute: false }) report!: Report;
  @state() private fields: Readonly<Record<Field, string>> = { gpus: '', global_batch: '' };
  @state() private busy = false;
  @state() private answer: Outcome<Plans> | undefined;
  private serial = 0;

  // Another model, card or sequence makes what was found stale.
  protected override willUpdate(changed: PropertyValues): void {
    if (this.fields.gpus === '') this.fields = first(this.report.recipe);
    if (!changed.has('report') || !changed.get('report')) return;
    const before = changed.get('report') as Report;
    if (['seq', 'gpu', 'memory_limit_bytes', 'allocator'].every((key) => before.recipe[key] === this.report.recipe[key]) && !changed.has('config')) return;
    this.serial += 1;
    this.busy = false;
    this.answer = undefined;
  }

  private async search(event: Event): Promise<void> {
    event.preventDefault();
    if (this.wrong('gpus') || this.wrong('global_batch')) return;
    const serial = ++this.serial;
    this.busy = true;
    const { recipe } = this.report;
    const answer = await adviceApart(this.core, { config: this.config, recipe, about: 'plans', gpus: Number(this.fields.gpus), global_batch: Number(this.fields.global_batch) });
    if (serial !== this.serial) return;
    this.busy = false;
    this.answer = answer as Outcome<Plans>;
  }

  private wrong(name: Field): boolean {
    return !/^\d+$/.test(this.fields[name].trim()) || Number(this.fields[name]) < 1 || Number(this.fields[name]) > MOST[name];
  }

  protected override render(): TemplateResult {
    const { i18n } = this;
    return html`<div aria-busy=${this.busy ? 'true' : 'false'}><h2>${i18n.t('plans.heading')}</h2>
      <p class="soft">${i18n.t('plans.intro')}</p>
      <form @submit=${this.search} novalidate>${this.field('gpus', i18n.t('plans.gpus'))}${this.field('global_batch', i18n.t('plans.batch'))}
        <button ?disabled=${this.busy}>${i18n.t(this.busy ? 'plans.searching' : 'plans.search')}</button></form>
      <div role="status">${this.answer ? this.answerView(this.answer) : nothing}</div></div>`;
  }

  private field(name: Field, text: string): TemplateResult {
    const wrong = this.wrong(name);
    const change = (event: Event): void => { this.fields = { ...this.fields, [name]: (event.target as HTMLInputElement).value }; };
    return html`<label>${text}<input id=${name} inputmode="numeric" autocomplete="off" .value=${this.fields[name]} @input=${change}
      aria-invalid=${wrong ? 'true' : 'false'} aria-describedby=${wrong ? `${name}-error` : nothing} />
      ${wrong ? html`<span class="error" id="${name}-error">${this.i18n.t('plans.invalid', { low: 1, high: this.i18n.format.count(MOST[name]) })}</span>` : nothing}</label>`;
  }

  private answerView(answer: Outcome<Plans>): TemplateResult {
    const { i18n } = this;
    if (!answer.ok) return html`<ml-problem .i18n=${i18n} .problem=${answer.problem}></ml-problem>`;
    const found = answer.value;
    const counts = { valid: i18n.format.count(found.valid), traced: i18n.format.count(found.traced) };
    if (found.valid === 0) return html`<p>${i18n.t('plans.none.valid', { gpus: i18n.format.count(found.gpus), batch: i18n.format.count(found.global_batch) })}</p>`;
    if (found.plans.length === 0) return html`<p>${i18n.t(found.complete ? 'plans.none' : 'plans.given_up', counts)}</p>`;
    const [low, high] = found.measured_over_computed;
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${i18n.t('plans.table')}><table>
        <thead><tr>${(['plans.cut', 'plans.micro', 'plans.recompute', 'plans.time', 'plans.sends', 'plans.peak'] as const).map((key, at) => html`<th scope="col" class=${at > 2 ? 'right' : ''}>${i18n.t(key)}</th>`)}<td></td></tr></thead>
        <tbody>${found.plans.map((plan) => this.row(plan, found))}</tbody></table></div>
      <p class="small soft">${i18n.t(found.complete ? 'plans.found' : 'plans.given_up', counts)}
        ${i18n.t('plans.hint', { low, high, node: found.machine.gpus, within: found.machine.within_gb_per_s, between: found.machine.between_gb_per_s })}</p>`;
  }

  private row({ time, allocated_bytes: peak, recipe }: Plan, { measured_over_computed: [low, high] }: Plans): TemplateResult {
    const { i18n } = this;
    const count = (key: string): string => i18n.format.count(Number(recipe[key]));
    const cut = SHOWN.filter((key) => Number(recipe[key]) > 1).map((key) => i18n.t(`plans.cut.${key}`, { n: count(key) })).join(', ');
    const schedule = recipe['pipeline_schedule'] === 'interleaved' ? `, ${i18n.t('plans.interleaved')}` : '';
    const second = (value: number): string => Number(value.toPrecision(2)).toLocaleString(i18n.lang);
    return html`<tr><th scope="row">${cut}${schedule}</th>
      <td>${i18n.t('plans.micro.of', { count: count('micro_batches'), batch: count('batch') })}</td><td>${String(recipe['checkpointing'])}</td>
      <td class="right" title=${this.parts(time)}>${i18n.t('plans.seconds', { low: second(time.seconds * low), high: second(time.seconds * high) })}</td>
      <td class="right">${i18n.bytes(time.tensor_bytes + time.context_bytes + time.pipeline_bytes + time.data_bytes)}</td>
      <td class="right" title=${i18n.format.exact(peak)}>${i18n.bytes(peak)}</td>
      <td class="right"><button aria-label=${i18n.t('plans.apply.this', { plan: cut })} @click=${() => this.apply(recipe)}>${i18n.t('plans.apply')}</button></td></tr>`;
  }

  // Where the time goes, largest first: "compute 3.41 s, data 0.0942 s".
  private parts(time: StepTime): string {
    const all = PARTS.map((name) => ({ name, seconds: time[`${name}_s`] })).filter(({ seconds }) => seconds > 0);
    return all.sort((a, b) => b.seconds - a.seconds).map(({ name, seconds }) => `${this.i18n.t(`plans.part.${name}`)} ${seconds.toPrecision(3)} s`).join(', ');
  }

  private apply(recipe: Recipe): void {
    const before = this.report.recipe;
    this.ask({ kind: 'recipe', patch: Object.fromEntries(Object.entries(recipe).filter(([key, value]) => !sameValue(value, before[key]))) });
  }
}

// What is open now; one GPU asks for no plan, a machine may.
function first(recipe: Recipe): Record<Field, string> {
  const of = (key: string): number => Number(recipe[key] ?? 1);
  const gpus = CUTS.reduce((all, key) => all * of(key), 1);
  const batch = of('dp') * of('batch') * of('grad_accum') * of('micro_batches');
  return gpus > 1 ? { gpus: String(gpus), global_batch: String(batch) } : { gpus: '8', global_batch: '64' };
}
