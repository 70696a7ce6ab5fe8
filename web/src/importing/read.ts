// read.ts - the recipe in a framework's own configuration: which framework it is, and what its table makes of it. Loaded when
// a text is dropped that is none of the page's own; YAML and TOML are read by libraries.

import { parse as parseToml } from 'smol-toml';
import { parse as parseYaml } from 'yaml';
import type { Recipe } from '../core/types.js';
import { readCommand } from './command_line.js';
import { AXOLOTL, LLAMA_FACTORY, TRAINER } from './hugging_face.js';
import { ACCELERATE, DEEPSPEED } from './launchers.js';
import { readMegatron } from './megatron.js';
import { TORCHTITAN, TORCHTUNE } from './pytorch.js';
import { isTable, readAs, type Format, type Imported, type Values } from './rows.js';

export { importedMessage } from './message.js';

// In order: LLaMA-Factory's files hold the Trainer's arguments, too.
export const FORMATS: readonly Format[] = [AXOLOTL, LLAMA_FACTORY, TORCHTUNE, TORCHTITAN, ACCELERATE, DEEPSPEED, TRAINER];

const LARGEST = 256 * 1024; // such files are written by hand
const ALIASES = 50; // anchors that a file may use: more is a bomb

// `present`: the recipe that a file of one part changes.
export function readConfiguration(source: string, present: Recipe = {}): Imported | undefined {
  if (source.length > LARGEST) return undefined;
  const file = tables(source);
  const format = file && FORMATS.find((row) => row.is(file));
  return format ? readAs(format, file, present) : readMegatron(source) ?? readCommand(source, present);
}

function tables(source: string): Values | undefined {
  for (const parse of [asJson, asToml, asYaml]) {
    const file = parse(source);
    if (isTable(file)) return file;
  }
  return undefined;
}

const attempt = (parse: (source: string) => unknown) => (source: string): unknown => {
  try {
    return parse(source);
  } catch {
    return undefined; // not written in this language
  }
};
const asJson = attempt((source) => JSON.parse(source.replace(/^\uFEFF/, '')));
const asToml = attempt((source) => (/^\s*\[/m.test(source) ? parseToml(source) : undefined));
const asYaml = attempt((source) => parseYaml(source, { maxAliasCount: ALIASES, logLevel: 'silent' }));
