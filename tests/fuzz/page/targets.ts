// targets.ts - one function for each door of the page that reads what people bring; run.mjs calls them with bytes (scripts/fuzz).
//
// A reader ends in a value or in its own problem. What the WASM core reads itself has targets in C++ (tests/fuzz/*_fuzz.cc).

import { join } from 'node:path';
import { parse as parseToml } from 'smol-toml';
import { parse as parseYaml } from 'yaml';
import { Core } from '../../../web/src/core/loader.js';
import type { Recipe } from '../../../web/src/core/types.js';
import { flagsOf, readCommand } from '../../../web/src/importing/command_line.js';
import { AXOLOTL, LLAMA_FACTORY, TRAINER } from '../../../web/src/importing/hugging_face.js';
import { ACCELERATE, DEEPSPEED } from '../../../web/src/importing/launchers.js';
import { megatronFlags, readMegatron } from '../../../web/src/importing/megatron.js';
import { importedMessage } from '../../../web/src/importing/message.js';
import { TORCHTITAN, TORCHTUNE } from '../../../web/src/importing/pytorch.js';
import { readConfiguration } from '../../../web/src/importing/read.js';
import { at, isTable, readAs, type Format, type Imported, type Values } from '../../../web/src/importing/rows.js';
import { KINDS, type DeviceDigest } from '../../../web/src/snapshot/digest.js';
import { readSnapshot } from '../../../web/src/snapshot/read.js';
import { refusedValues } from '../../../web/src/state/availability.js';
import { readHash, writeHash } from '../../../web/src/state/hash.js';
import { knownModel } from '../../../web/src/state/model_search.js';
import { configText } from '../../../web/src/state/request.js';
import { Session } from '../../../web/src/state/session.js';
import { loadParts } from '../../wasm/parts.mjs';
import { must, mustBePlain, mustBeRecipe, mustBeTexts, mustLeaveTheWorldAlone } from './checks.js';

// Every session asks the first question first.
class QuickCore extends Core {
  private readonly first = new Map<string, ReturnType<Core['predict']>>();

  override predict(config: string, recipe: Recipe, points?: number): ReturnType<Core['predict']> {
    if (points !== undefined || Object.keys(recipe).length > 0) return super.predict(config, recipe, points);
    const known = this.first.get(config) ?? super.predict(config, recipe);
    if (this.first.size === 0) this.first.set(config, known);
    return known;
  }
}

const started = (async () => new QuickCore(await loadParts(join(process.env['LEDGER_WASM'] ?? 'build/wasm'), ['ledger.wasm']), undefined))();

type Target = (data: Uint8Array) => Promise<void>;

const textOf = (data: Uint8Array): string => new TextDecoder().decode(data);

// Importers.

// "table.key" is a key of a table, or spelt so.
function has(file: Values, key: string): boolean {
  return Object.hasOwn(file, key) || Object.entries(file).some(([name, table]) => key.startsWith(`${name}.`) && isTable(table) && has(table, key.slice(name.length + 1)));
}

async function holds(imported: Imported, file: Values, format?: Format): Promise<void> {
  const keys = (await started).catalogue.recipe_keys;
  mustBeRecipe(imported.recipe, keys);
  mustBePlain(imported.model, 'the model');
  mustBePlain(imported.config, 'the configuration');
  mustBeTexts(imported.used, 'used');
  mustBeTexts(imported.notModelled, 'not modelled');
  mustBeTexts(imported.notRead, 'not read');
  must(imported.notRead.every((key) => has(file, key)), 'a key that the file does not have');
  must(imported.used.every((key) => !imported.notRead.includes(key)), 'a key both used and not read');
  for (const row of format?.rows ?? []) {
    const value = at(file, row.key);
    const said = value === undefined || value === null ? undefined : row.says(value, file, {});
    if (said !== undefined && said !== 'not_modelled') mustBeRecipe(said, keys);
  }
  if (imported.config !== undefined) must(isTable(JSON.parse(imported.config)), 'the configuration is no object');
  if (imported.model !== undefined) await knownModel(imported.model);
  for (const lang of ['en', 'zh'] as const) must(importedMessage(imported, undefined, lang).startsWith(lang === 'en' ? 'Read as' : '识别为'), 'the message');
  mustLeaveTheWorldAlone();
}

function tables(source: string): Values | undefined {
  for (const parse of [(text: string): unknown => JSON.parse(text), parseToml, (text: string): unknown => parseYaml(text, { maxAliasCount: 50, logLevel: 'silent' })]) {
    try {
      const file = parse(source);
      if (isTable(file)) return file;
    } catch {
      continue; // not in this language
    }
  }
  return undefined;
}

const FLAGS = ['Megatron-LM', 'SFTTrainer (command line)']; // whose keys are flags, whatever else the text could be read as

// The table of one format on whatever parses, whether or not it is taken for that format; and the door itself.
const importer = (format: Format): Target => async (data) => {
  const source = textOf(data);
  const file = tables(source);
  if (file) await holds(readAs(format, file), file, format);
  const read = readConfiguration(source);
  if (read && file && !FLAGS.includes(read.format)) await holds(read, file);
};

export const axolotl = importer(AXOLOTL);
export const llama_factory = importer(LLAMA_FACTORY);
export const trl = importer(TRAINER);
export const deepspeed = importer(DEEPSPEED);
export const accelerate = importer(ACCELERATE);
export const torchtune = importer(TORCHTUNE);
export const torchtitan = importer(TORCHTITAN);

export const megatron: Target = async (data) => {
  const source = textOf(data);
  const [file, read] = [megatronFlags(source), readMegatron(source)];
  must((file === undefined) === (read === undefined), 'flags without an answer');
  if (file && read) await holds(read, file);
};

export const command: Target = async (data) => {
  const source = textOf(data);
  const read = readCommand(source, {});
  if (read) await holds(read, flagsOf(source, ['lora_target_modules']));
};

// Memory snapshots: pickle, and JSON.

function sums(device: DeviceDigest): void {
  const peak = device.groups.reduce((all, group) => all + group.bytes, 0);
  must(peak === device.peak.requested, `groups sum to ${peak}, the peak is ${device.peak.requested}`);
  for (const point of device.points) {
    must(point.categories.length === KINDS.length, 'a kind is missing');
    const all = point.categories.reduce((sum, bytes) => sum + bytes, 0);
    must(all === point.tensor_bytes, `event ${point.event}: kinds sum to ${all} of ${point.tensor_bytes}`);
    must(point.tensor_bytes <= device.peak.requested, 'a point above the peak');
  }
  for (const value of [device.end.requested, device.end.allocated, device.end.reserved, device.end.largest_free]) must(Number.isSafeInteger(value) && value >= 0, `${value} bytes`);
  device.groups.forEach(({ place }) => mustBePlain(place, 'a place'));
}

const snapshotOf = (type: (data: Uint8Array) => BlobPart): Target => async (data) => {
  const read = await readSnapshot(new Blob([type(data)]), () => {});
  if (read.ok) read.devices.forEach(sums);
  else must(read.fault.kind !== 'unreadable' || /^(SyntaxError)/.test(read.fault.read), `not a fault of the reader's own: ${JSON.stringify(read.fault)}`);
  mustLeaveTheWorldAlone();
};

export const snapshot = snapshotOf((data) => data as Uint8Array<ArrayBuffer>);
export const snapshot_json = snapshotOf((data) => `{${textOf(data).replace(/^\{/, '')}`);

// Links.

export const link: Target = async (data) => {
  const core = await started;
  const session = new Session(core, () => {});
  const hash = textOf(data);
  const { recipe_keys: keys } = core.catalogue;
  const { request } = await readHash(hash, keys, session.defaults);
  mustBeRecipe(request.recipe, keys);
  const written = writeHash(request);
  const again = await readHash(written, keys, session.defaults);
  must(again.problems.length === 0, `its own link has problems: ${written} ${JSON.stringify(again.problems)}`);
  must(writeHash(again.request) === written, `${written} became ${writeHash(again.request)}`);
  await session.open(hash);
  await refusedValues(core, {}, configText(session.request.model), () => false);
  mustLeaveTheWorldAlone();
};

// Whatever is dropped on the page: measured.json, reports, recipes, adapters, models.

export const dropped: Target = async (data) => {
  const core = await started;
  const session = new Session(core, () => {});
  await session.readText(textOf(data), 'file.json', false);
  must(session.said !== undefined || session.snapshot !== undefined, 'nothing was said');
  mustBeRecipe(session.request.recipe, core.catalogue.recipe_keys);
  const again = await readHash(session.hash, core.catalogue.recipe_keys, session.defaults);
  must(writeHash(again.request) === session.hash, `${session.hash} became ${writeHash(again.request)}`);
  await refusedValues(core, {}, configText(session.request.model), () => false);
  mustLeaveTheWorldAlone();
};
