// session.ts - one open page: the request, the core's answer to it, measurements, and messages. All change goes through
// here; `changed` is called after each, and views draw what they find. Knows nothing of the DOM but the File type.

import type { Core } from '../core/loader.js';
import type { importedMessage } from '../importing/message.js';
import type { Imported } from '../importing/rows.js';
import { LARGEST_INPUT_BYTES, LOG_TAIL_BYTES } from '../core/limits.js';
import { questionOf } from '../core/question.js';
import { problem, type Comparison, type Outcome, type Problem, type Recipe, type Report } from '../core/types.js';
import { pack } from './codec.js';
import { defaultsOf } from './defaults.js';
import { withoutUnused } from './form_keys.js';
import { readHash, writeHash } from './hash.js';
import { fetchConfig, hubId } from './hub.js';
import { knownModel } from './model_search.js';
import { findPreset } from './presets.js';
import { importable, looksLikeError, looksLikeSnapshot, recognise } from './recognise.js';
import { configText, FIRST_REQUEST, isPlain, seesImages, withRecipe, wrongKind, type Defaults, type Lang, type ModelChoice, type Request } from './request.js';
import { begin, type Scenario } from './scenarios.js';

export type Said =
  | { readonly kind: 'config'; readonly name: string; readonly family: string; readonly params: number }
  | { readonly kind: 'recipe'; readonly name: string; readonly keys: readonly string[] }
  | { readonly kind: 'imported'; readonly name: string; readonly say: (lang: Lang) => string }
  | { readonly kind: 'measured' | 'report' | 'error' | 'snapshot'; readonly name: string }
  | { readonly kind: 'problem'; readonly name: string; readonly problem: Problem };

export interface MeasuredFile {
  readonly name: string;
  readonly sample: boolean;
  readonly comparison: Comparison;
}

export interface PastedError {
  readonly name: string;
  readonly text: string;
}

// Read by its own view, in a worker.
export interface SnapshotFile {
  readonly name: string;
  readonly file: Blob;
}

export class Session {
  readonly defaults: Defaults;
  request: Request = FIRST_REQUEST;
  private answered: Outcome<Report> | undefined;
  measured: readonly MeasuredFile[] = [];
  said: Said | undefined;
  error: PastedError | undefined;
  snapshot: SnapshotFile | undefined;
  linkProblems: readonly Problem[] = [];
  private lastGood: Request | undefined;
  lastChange = ''; // what the reader changed last; '' when a link was opened

  constructor(readonly core: Core, private readonly changed: () => void) {
    this.defaults = defaultsOf(core.catalogue);
  }

  // Of a page that opens with a link, the link's question is the first.
  get answer(): Outcome<Report> {
    return (this.answered ??= this.core.predict(configText(this.request.model), this.request.recipe));
  }

  get hash(): string {
    return writeHash(this.request);
  }

  get canUndo(): boolean {
    return !this.answer.ok && this.lastGood !== undefined;
  }

  async open(hash: string): Promise<void> {
    const { request, problems } = await readHash(hash, this.core.catalogue.recipe_keys, this.defaults);
    this.linkProblems = problems;
    this.lastChange = '';
    this.set(request);
    this.lastGood = undefined; // a link is a beginning: there is no change to undo
  }

  // Takes the keys along that choosing this preset sets, and takes those back that the last one did.
  setPreset(id: string): void {
    this.said = undefined;
    this.lastChange = `model ${id}`;
    const { model, recipe } = this.request;
    const last = model.kind === 'preset' ? findPreset(model.id)?.recipe ?? {} : {};
    const kept = Object.fromEntries(Object.entries(recipe).filter(([key, value]) => last[key] !== value));
    this.setTidy({ ...this.request, model: { kind: 'preset', id }, recipe: kept }, findPreset(id)?.recipe ?? {});
  }

  setRecipe(patch: Recipe): void {
    this.lastChange = Object.keys(patch).join();
    this.setTidy(this.request, patch);
  }

  setScenario(scenario: Scenario): void {
    this.said = undefined;
    this.lastChange = `scenario ${scenario.id}`;
    this.set(begin(scenario, this.request, this.defaults));
  }

  setView(view: Partial<Pick<Request, 'lang' | 'units'>>): void {
    this.lastChange = '';
    this.request = { ...this.request, ...view };
    this.changed();
  }

  setPins(change: (request: Request) => Request): void {
    this.lastChange = `pins ${this.request.pins.length}`;
    this.request = change(this.request);
    this.changed();
  }

  openPin(at: number): void {
    const pin = this.request.pins[at];
    this.lastChange = `open ${at}`;
    if (pin) this.set({ ...this.request, ...pin });
  }

  reset(): void {
    this.lastChange = 'reset';
    this.set({ ...this.request, recipe: {} });
  }

  undo(): void {
    this.lastChange = 'undo';
    if (this.lastGood) this.set(this.lastGood);
  }

  forget(name: string): void {
    this.measured = this.measured.filter((entry) => entry.name !== name);
    this.changed();
  }

  async readFile(file: File): Promise<void> {
    if (await looksLikeSnapshot(file).catch(() => false)) return this.setSnapshot({ name: file.name, file });
    const large = file.size > LARGEST_INPUT_BYTES;
    let text: string;
    try {
      text = await (large ? file.slice(-LOG_TAIL_BYTES) : file).text();
    } catch {
      return this.say({ kind: 'problem', name: file.name, problem: problem('file_unreadable', { where: file.name }) });
    }
    if (large && !looksLikeError(text)) return this.tooLarge(file.size, file.name);
    return this.readText(text, file.name);
  }

  // inBox: put into the box that takes models' names; what is pasted elsewhere is never sent anywhere.
  async readText(text: string, name: string, inBox = true): Promise<void> {
    const file = new Blob([text]);
    if (await looksLikeSnapshot(file)) return this.setSnapshot({ name, file });
    if (text.length > LARGEST_INPUT_BYTES) {
      const end = text.slice(-LOG_TAIL_BYTES);
      return looksLikeError(end) ? this.setError({ name, text: end }) : this.tooLarge(text.length, name);
    }
    const id = inBox ? hubId(text) : undefined;
    if (id !== undefined) return this.takeHub(id);
    const found = recognise(text, this.core.catalogue.recipe_keys);
    const known = await importable(text, found, this.request.recipe);
    if (known) return this.takeImported(known.imported, name, known.say);
    switch (found.kind) {
      case 'measured': return this.addMeasured(found.text, name || 'measured.json', false);
      case 'recipe': return this.takeRecipe(found.recipe, name);
      case 'error': return this.setError({ name, text: found.text });
      case 'report': return this.takeModel(found.config, name, found.recipe);
      case 'config': return this.takeModel(found.text, name);
    }
  }

  private async takeHub(id: string): Promise<void> {
    const fetched = await fetchConfig(id);
    if (!fetched.ok) return this.say({ kind: 'problem', name: id, problem: fetched.problem });
    return this.takeModel(fetched.value, id);
  }

  // The last one pasted; undefined takes it away.
  setError(error: PastedError | undefined): void {
    this.error = error;
    this.said = error && { kind: 'error', name: error.name };
    this.changed();
  }

  setSnapshot(snapshot: SnapshotFile | undefined): void {
    this.snapshot = snapshot;
    this.said = snapshot && { kind: 'snapshot', name: snapshot.name };
    this.changed();
  }

  addMeasured(text: string, name: string, sample: boolean): void {
    const outcome = this.core.compare(text);
    if (!outcome.ok) {
      if (!sample) this.say({ kind: 'problem', name, problem: outcome.problem });
      return;
    }
    const others = this.measured.filter((entry) => entry.name !== name);
    this.measured = [...others, { name, sample, comparison: outcome.value }];
    if (sample) this.changed();
    else this.say({ kind: 'measured', name });
  }

  // A recipe file says everything: what it does not name is at its default.
  private takeRecipe(recipe: Recipe, name: string): void {
    const refused = this.unreadable(configText(this.request.model), recipe);
    if (refused) return this.say({ kind: 'problem', name, problem: refused });
    this.lastChange = `recipe ${name}`;
    this.said = { kind: 'recipe', name, keys: Object.keys(recipe) };
    this.set(withRecipe({ ...this.request, recipe: {} }, recipe, this.defaults));
  }

  private async takeImported(imported: Imported, name: string, say: typeof importedMessage): Promise<void> {
    const known = imported.model === undefined ? undefined : await knownModel(imported.model);
    const model: ModelChoice | undefined = imported.config !== undefined ? { kind: 'custom', text: imported.config, packed: await pack(imported.config) }
      : known && { kind: 'preset', id: known.id };
    this.lastChange = `file ${name}`;
    this.said = { kind: 'imported', name, say: (lang) => say(imported, known?.name, lang) };
    const request = { ...this.request, ...(model && { model }) };
    this.set(withRecipe(imported.whole ? { ...request, recipe: kept(this.request.recipe) } : request, imported.recipe, this.defaults));
  }

  private async takeModel(config: string, name: string, recipe?: Recipe): Promise<void> {
    const outcome = this.core.predict(config, {}, 1);
    if (!outcome.ok) return this.say({ kind: 'problem', name, problem: outcome.problem });
    const refused = recipe && this.unreadable(config, recipe);
    if (refused) return this.say({ kind: 'problem', name, problem: refused });
    const text = JSON.stringify(JSON.parse(config.replace(/^\uFEFF/, '')));
    const model: ModelChoice = { kind: 'custom', text, packed: await pack(text) };
    const { family, params } = outcome.value.model;
    this.lastChange = `file ${name}`;
    this.said = recipe ? { kind: 'report', name } : { kind: 'config', name, family, params };
    this.set(recipe ? withRecipe({ ...this.request, model, recipe: {} }, recipe, this.defaults) : { ...this.request, model });
  }

  // What is wrong with a recipe that came as a file; a good one that is not computed yet is shown, and the form says so.
  private unreadable(config: string, recipe: Recipe): Problem | undefined {
    const wrong = wrongKind(recipe);
    if (wrong) return wrong;
    const outcome = this.core.predict(config, recipe, 1);
    return outcome.ok || outcome.problem.code === 'unsupported_recipe' ? undefined : outcome.problem;
  }

  private tooLarge(size: number, name: string): void {
    const facts = { read: String(size), expected: String(LARGEST_INPUT_BYTES) };
    this.say({ kind: 'problem', name, problem: problem('json_too_large', facts) });
  }

  private say(said: Said): void {
    this.said = said;
    this.changed();
  }

  private setTidy(request: Request, patch: Recipe): void {
    const next = withRecipe(request, patch, this.defaults);
    this.set({ ...next, recipe: withoutUnused(next.recipe, isPlain(next.model), seesImages(next.model)) });
  }

  private set(request: Request): void {
    if (this.answered?.ok) this.lastGood = this.request;
    const question = ({ model, recipe }: Request): string => questionOf(configText(model), recipe);
    const asked = question(this.request);
    this.request = request;
    if (!this.answered || question(request) !== asked) this.answered = this.core.predict(configText(request.model), request.recipe); // else with the same bytes
    this.changed();
  }
}

// The card is the reader's, whatever file comes.
function kept({ gpu, memory_limit_bytes: limit }: Recipe): Recipe {
  return { ...(gpu !== undefined && { gpu }), ...(limit !== undefined && { memory_limit_bytes: limit }) };
}
