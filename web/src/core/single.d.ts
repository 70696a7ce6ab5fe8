declare module 'ledger-glue' {
  import type { GlueOptions, Module } from './module.js';
  export default function createLedger(options: GlueOptions): Promise<Module>;
}
declare module 'ledger-wasm' {
  const bytes: Uint8Array;
  export default bytes;
}
