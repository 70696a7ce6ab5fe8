// module.ts - the glue that emscripten wrote, and where its WASM is: two files beside the page. module_single.ts has both
// inside the page.

import { SITE } from './site.js';

export interface Module {
  advise(request: string): string;
  predict(request: string): string;
  catalogue(): string;
  compare(request: string): string;
  version(): string;
}

export interface GlueOptions {
  locateFile?: (name: string) => string;
  wasmBinary?: Uint8Array;
  print?: () => void;
  printErr?: (line: string) => void;
}

export async function createModule(options: GlueOptions): Promise<Module> {
  const beside = (name: string): string => new URL(name, SITE).href;
  const glue = (await import(beside('ledger.js'))) as { default: (options: GlueOptions) => Promise<Module> };
  return glue.default({ locateFile: beside, ...options });
}
