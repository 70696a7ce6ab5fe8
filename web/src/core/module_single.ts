// module_single.ts - module.ts for the page as one file; the build knows where the two modules are. All of the core is there.

import createLedger from 'ledger-glue';
import wasmBinary from 'ledger-wasm';
import type { GlueOptions, Module } from './module.js';

export type Extent = 'first' | 'parts' | 'whole';

export class PartMissing extends Error {
  readonly halfWay = false;
}

export function createModule(options: GlueOptions): Promise<Module> {
  return createLedger({ wasmBinary, ...options });
}
