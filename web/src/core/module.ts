// module.ts - the glue that emscripten wrote, and where its WASM is: files beside the page. module_single.ts has them inside
// the page.
//
// The core comes whole, and in two parts (wasm/split.mjs): the first answers what embeds usually ask, the rest everything
// else. Both parts are a little larger than the whole.

import { SITE } from './site.js';

export interface Module {
  advise(request: string): string;
  predict(request: string): string;
  catalogue(): string;
  compare(request: string): string;
  version(): string;
}

export interface GlueOptions {
  print?: () => void;
  printErr?: (line: string) => void;
}

type Glue = (options: GlueOptions & {
  wasmBinary?: Uint8Array;
  instantiateWasm?: (imports: WebAssembly.Imports, done: (instance: WebAssembly.Instance, module: WebAssembly.Module) => void) => object;
}) => Promise<Module>;

// Thrown where an answer needs what is not loaded. halfWay: out of the middle of it; the instance must not be used again.
export class PartMissing extends Error {
  constructor(readonly halfWay: boolean) {
    super('a part of the core that is not loaded');
  }
}

const missing: WebAssembly.ModuleImports = new Proxy({}, {
  get: () => () => { throw new PartMissing(true); },
});
const PLACEHOLDERS: WebAssembly.Imports = { placeholder: missing, 'placeholder.deferred': missing }; // wasm-split's names, before and since it cuts in more than two

const beside = (name: string): string => new URL(name, SITE).href;

// Hosts that serve .wasm under another type cannot stream it into the compiler.
async function compiled(name: string): Promise<WebAssembly.Module> {
  const response = await fetch(beside(name), { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
  const typed = response.headers.get('Content-Type')?.startsWith('application/wasm') ?? false;
  return typed ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

// Compiling ends on the main thread, and starting begins there: a turn for each.
const nextTurn = (): Promise<void> => new Promise((next) => setTimeout(next));

// The rest finds memory, table and functions among the first part's exports, and puts its own functions into the table.
async function instance(first: WebAssembly.Module, rest: WebAssembly.Module | undefined, imports: WebAssembly.Imports): Promise<WebAssembly.Instance> {
  const primary = await WebAssembly.instantiate(first, { ...imports, ...PLACEHOLDERS });
  if (rest) await WebAssembly.instantiate(rest, { primary: primary.exports as WebAssembly.ModuleImports });
  return primary;
}

export type Extent = 'first' | 'parts' | 'whole'; // first: throws PartMissing at questions that are not usual

const FILES: Readonly<Record<Extent, readonly [string, string?]>> = { first: ['ledger_first.wasm'], parts: ['ledger_first.wasm', 'ledger_rest.wasm'], whole: ['ledger.wasm'] };

export async function createModule(options: GlueOptions, extent: Extent): Promise<Module> {
  const [main, other] = FILES[extent];
  const [{ default: glue }, first, rest] = await Promise.all([
    import(beside('ledger.js')) as Promise<{ default: Glue }>, compiled(main), other === undefined ? undefined : compiled(other),
  ]);
  await nextTurn();
  return new Promise((resolve, reject) => {
    const instantiateWasm: Parameters<Glue>[0]['instantiateWasm'] = (imports, done) => {
      instance(first, rest, imports).then((started) => done(started, first), reject);
      return {}; // it comes later
    };
    glue({ ...options, instantiateWasm }).then(resolve, reject);
  });
}
