// module_single.ts - module.ts for the page as one file; the build knows where the two modules are.

import createLedger from 'ledger-glue';
import wasmBinary from 'ledger-wasm';
import type { GlueOptions, Module } from './module.js';

export function createModule(options: GlueOptions): Promise<Module> {
  return createLedger({ wasmBinary, ...options });
}
