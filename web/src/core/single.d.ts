declare module 'ledger-glue' {
  import type { GlueOptions, Module } from './module.js';
  export default function createLedger(options: GlueOptions & { wasmBinary: Uint8Array }): Promise<Module>;
}
declare module 'ledger-wasm' {
  const bytes: Uint8Array;
  export default bytes;
}
declare module 'checkpoints' {
  import type { Preset } from '../state/presets.js';
  const rows: readonly Preset[];
  export default rows;
}
declare module 'lesson-glue' {
  import type { LessonFactory } from '../course/lesson_module.js';
  const createLesson: LessonFactory;
  export default createLesson;
}
declare module 'lesson-wasm' {
  const bytes: Uint8Array;
  export default bytes;
}
declare module 'oom-glue' {
  import type { OomFactory } from './oom_module.js';
  const createOom: OomFactory;
  export default createOom;
}
declare module 'oom-wasm' {
  const bytes: Uint8Array;
  export default bytes;
}
declare module 'snapshot-worker-code' {
  const code: string;
  export default code;
}
declare module '*.css' {
  const text: string;
  export default text;
}
