// plans_view.ts - <ml-plans>: ways of spreading a step over many GPUs that fit, found by the core in a worker when the reader asks.

import { css, html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import { SEARCHED, type Cards, type Plan, type Plans, type Searched, type StepTime } from '../core/advice.js';
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
// What of the recipe another answer depends on. Who shards what, the micro-batch and recomputation are the search's own.
const OWN: ReadonlySet<string> = new Set(['stack', 'dp', 'tp', 'pp', 'cp', 'ep', 'etp', 'batch', 'grad_accum', 'micro_batches', 'checkpointing', 'zero', 'fsdp', 'offload', 'reshard_after_forward', 'sequence_parallel',
  'pipeline_schedule', 'ddp_bucket_view', 'precision', 'autocast', 'param_dtype', 'loss']);
const PARTS = ['compute', 'tensor', 'context', 'pipeline', 'bubble', 'data'] as const;

@customElement('ml-plans')
export class PlansView extends LedgerElement {
  static override styles = [base, controls, tables, css`
    form { display: flex; flex-wrap: wrap; gap: 0.7rem 1rem; align-items: end; margin: 0.6rem 0; }
    label { display: flex; flex-direction: column; gap: 0.2rem; }
    input { width: 9rem; }
    table { font-size: 0.88rem; }
    td, th { vertical-align: baseline; }
    tbody th { min-width: 8.5rem; }
    .error { color: var(--bad); margin: 0; font-size: 0.85rem; }
  `];

  @property({ attribute: false }) core!: Core;
  @property({ attribute: false }) config = '';
  @property({ attribute: false }) report!: Report;
  @state() private fields: Readonly<Record<Field, string>> = { gpus: '', global_batch: '' };
  @state() private stack: Searched | undefined; // undefined: that of the recipe
  @state() private busy = false;
  @state() private answer: Outcome<Plans | Cards> | undefined;
  private serial = 0;

  // Another model, card or sequence makes what was found stale.
  protected override willUpdate(changed: PropertyValues): void {
    if (this.fields.gpus === '') this.fields = first(this.report.recipe);
    if (!changed.has('report') || !changed.get('report')) return;
    const before = changed.get('report') as Report;
    const every = this.answer?.ok && this.answer.value.about === 'cards'; // of all methods
    const same = Object.keys(before.recipe).every((key) => OWN.has(key) || (every && key === 'method') || sameValue(before.recipe[key], this.report.recipe[key]));
    if (same && !changed.has('config')) return;
    this.serial += 1;
    this.busy = false;
    this.answer = undefined;
  }

  private get searched(): Searched {
    return this.stack ?? (this.report.recipe['stack'] === 'megatron' ? 'megatron' : 'hf');
  }

  private async search(event: Event): Promise<void> {
    event.preventDefault();
    const about = (event as SubmitEvent).submitter?.id === 'cards' ? 'cards' : 'plans';
    if ((about === 'plans' && this.wrong('gpus')) || this.wrong('global_batch')) return;
    const serial = ++this.serial;
    this.busy = true;
    const { recipe } = this.report;
    const size = about === 'plans' ? { gpus: Number(this.fields.gpus), stack: this.searched } : {};
    const answer = await adviceApart(this.core, { config: this.config, recipe, about, global_batch: Number(this.fields.global_batch), ...size });
    if (serial !== this.serial) return;
    this.busy = false;
    this.answer = answer as Outcome<Plans | Cards>;
  }

  private wrong(name: Field): boolean {
    return !/^\d+$/.test(this.fields[name].trim()) || Number(this.fields[name]) < 1 || Number(this.fields[name]) > MOST[name];
  }

  protected override render(): TemplateResult {
    const { i18n } = this;
    return html`<div aria-busy=${this.busy ? 'true' : 'false'}><h2>${i18n.t('plans.heading')}</h2>
      <p class="soft">${i18n.t('plans.intro')}</p>
      <form @submit=${this.search} novalidate><label>${i18n.t('plans.with')}<select id="with" @change=${this.choose}>${SEARCHED.map((name) => html`<option value=${name} ?selected=${name === this.searched}>${i18n.t(`plans.with.${name}`)}</option>`)}</select></label>
        ${this.field('gpus', i18n.t('plans.gpus'))}${this.field('global_batch', i18n.t('plans.batch'))}
        <button ?disabled=${this.busy}>${i18n.t(this.busy ? 'plans.searching' : 'plans.search')}</button>
        ${this.searched === 'hf' ? html`<button id="cards" ?disabled=${this.busy}>${i18n.t('plans.cards')}</button>` : nothing}</form>
      <div role="status">${this.answer ? this.answerView(this.answer) : nothing}</div></div>`;
  }

  private field(name: Field, text: string): TemplateResult {
    const wrong = this.wrong(name);
    const change = (event: Event): void => { this.fields = { ...this.fields, [name]: (event.target as HTMLInputElement).value }; };
    return html`<label>${text}<input id=${name} inputmode="numeric" autocomplete="off" .value=${this.fields[name]} @input=${change}
      aria-invalid=${wrong ? 'true' : 'false'} aria-describedby=${wrong ? `${name}-error` : nothing} />
      ${wrong ? html`<span class="error" id="${name}-error">${this.i18n.t('plans.invalid', { low: 1, high: this.i18n.format.count(MOST[name]) })}</span>` : nothing}</label>`;
  }

  private choose(event: Event): void {
    this.stack = (event.target as HTMLSelectElement).value as Searched;
    this.serial += 1;
    this.busy = false;
    this.answer = undefined;
  }

  private answerView(answer: Outcome<Plans | Cards>): TemplateResult {
    if (!answer.ok) return html`<ml-problem .i18n=${this.i18n} .problem=${answer.problem}></ml-problem>`;
    return answer.value.about === 'cards' ? this.cardsView(answer.value) : this.plansView(answer.value);
  }

  private plansView(found: Plans): TemplateResult {
    const { i18n } = this;
    const counts = { valid: i18n.format.count(found.valid), traced: i18n.format.count(found.traced) };
    const none = found.valid === 0 ? i18n.t('plans.none.valid', { gpus: i18n.format.count(found.gpus), batch: i18n.format.count(found.global_batch) })
      : i18n.t(found.complete ? 'plans.none' : 'plans.given_up', counts);
    return html`${found.plans.length === 0 ? html`<p>${none}</p>` : html`
      ${this.table(i18n.t('plans.table'), i18n.t('plans.cut'), found.plans.map((plan) => this.row(this.cut(plan.recipe), plan, found)))}
      <p class="small soft">${i18n.t(found.complete ? 'plans.found' : 'plans.given_up', counts)} ${this.hint(found)}</p>`}
      ${found.left_out.map(({ problem, combinations }) => html`<p class="small">${i18n.t('plans.left_out', { count: i18n.format.count(combinations) })}</p>
        <ml-problem .i18n=${i18n} .problem=${problem}></ml-problem>`)}`;
  }

  private cardsView(found: Cards): TemplateResult {
    const { i18n } = this;
    const none = i18n.t('plans.cards.none', { most: i18n.format.count(found.most) });
    return html`${this.table(i18n.t('plans.cards.table'), i18n.t('plans.method'), found.methods.map(({ method, gpus, plan, offloaded, problem }) => {
      const name = i18n.t(`method.${method}`);
      const on = (n: number, of: Plan): TemplateResult => this.row(`${name}: ${n === 1 ? '' : `${i18n.t('plans.on', { n: i18n.format.count(n) })}, `}${this.cut(of.recipe)}`, of, found);
      const less = offloaded ? on(Number(offloaded.recipe['dp']), offloaded) : nothing; // on fewer cards
      if (plan && gpus) return html`${on(gpus, plan)}${less}`;
      return html`${less}<tr><th scope="row">${name}</th><td colspan="6">${problem ? html`<ml-problem .i18n=${i18n} .problem=${problem}></ml-problem>` : none}</td></tr>`;
    }))}<p class="small soft">${this.hint(found)}</p>`;
  }

  private table(label: string, first: string, rows: readonly TemplateResult[]): TemplateResult {
    const { i18n } = this;
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table>
        <thead><tr><th scope="col">${first}</th>${(['plans.micro', 'plans.recompute', 'plans.time', 'plans.sends', 'plans.peak'] as const).map((key, at) => html`<th scope="col" class=${at > 1 ? 'right' : ''}>${i18n.t(key)}</th>`)}<td></td></tr></thead>
        <tbody>${rows}</tbody></table></div>`;
  }

  private hint({ measured_over_computed: [low, high], machine }: Plans | Cards): string {
    return this.i18n.t('plans.hint', { low, high, node: machine.gpus, within: machine.within_gb_per_s, between: machine.between_gb_per_s });
  }

  // Megatron's cuts, or who shards what among all of them.
  private cut(recipe: Recipe): string {
    const { i18n } = this;
    if (recipe['stack'] !== 'megatron') {
      const offload = String(recipe['offload']), parts = [Number(recipe['dp']) > 1 || offload !== 'none' ? this.sharding(recipe) : i18n.t('plans.on.one')];
      if (offload === 'optimizer' || offload === 'params') parts.push(i18n.t(`plans.offload.${offload}`));
      return parts.join(', ');
    }
    const parts = SHOWN.filter((key) => Number(recipe[key]) > 1).map((key) => i18n.t(`plans.cut.${key}`, { n: i18n.format.count(Number(recipe[key])) }));
    if (parts.length === 0) parts.push(i18n.t('plans.on.one'));
    if (recipe['pipeline_schedule'] === 'interleaved') parts.push(i18n.t('plans.interleaved'));
    return parts.join(', ');
  }

  private sharding(recipe: Recipe): string {
    if (Number(recipe['zero']) > 0) return `ZeRO-${recipe['zero']}`;
    if (Number(recipe['fsdp']) === 0) return 'DDP';
    return `FSDP${recipe['fsdp']}${recipe['reshard_after_forward'] ? '' : `, ${this.i18n.t('plans.kept')}`}`;
  }

  private row(cut: string, { time, allocated_bytes: peak, host_bytes: host, recipe }: Plan, { measured_over_computed: [low, high] }: Plans | Cards): TemplateResult {
    const { i18n } = this;
    const micro = i18n.format.count(Number(recipe['micro_batches']) * Number(recipe['grad_accum']));
    const second = (value: number): string => Number(value.toPrecision(2)).toLocaleString(i18n.lang);
    return html`<tr><th scope="row">${cut}</th>
      <td>${i18n.t('plans.micro.of', { count: micro, batch: i18n.format.count(Number(recipe['batch'])) })}</td><td>${String(recipe['checkpointing'])}</td>
      <td class="right" title=${this.parts(time)}>${host > 0 ? i18n.t('plans.seconds.host', { low: second(time.seconds * low) }) : i18n.t('plans.seconds', { low: second(time.seconds * low), high: second(time.seconds * high) })}</td>
      <td class="right">${i18n.bytes(time.tensor_bytes + time.context_bytes + time.pipeline_bytes + time.data_bytes)}</td>
      <td class="right" title=${i18n.format.exact(peak)}>${i18n.bytes(peak)}${host > 0 ? html`<br /><span class="small soft">${i18n.t('plans.host', { size: i18n.bytes(host) })}</span>` : nothing}</td>
      <td class="right"><button type="button" aria-label=${i18n.t('plans.apply.this', { plan: cut })} @click=${() => this.apply(recipe)}>${i18n.t('plans.apply')}</button></td></tr>`;
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
