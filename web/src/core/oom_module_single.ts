// oom_module_single.ts - oom_module.ts for the page as one file; the build knows where the module is.

import createOom from 'oom-glue';
import wasmBinary from 'oom-wasm';
import type { OomModule } from './oom_module.js';

export function createOomModule(): Promise<OomModule> {
  return createOom({ wasmBinary });
}
