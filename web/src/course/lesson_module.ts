// lesson_module.ts - lesson.js and lesson.wasm, two files beside the page; lesson_module_single.ts has both inside it.

import { SITE } from '../core/site.js';

export interface LessonModule { lesson(request: string): string }
export type LessonFactory = (options: { locateFile?: (name: string) => string; wasmBinary?: Uint8Array }) => Promise<LessonModule>;

export async function createLessonModule(): Promise<LessonModule> {
  const beside = (name: string): string => new URL(name, SITE).href;
  const glue = (await import(beside('lesson.js'))) as { default: LessonFactory };
  return glue.default({ locateFile: beside });
}
