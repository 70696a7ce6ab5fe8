// lesson_module_single.ts - lesson_module.ts for the course as one file; the build knows where the module is.

import createLesson from 'lesson-glue';
import wasmBinary from 'lesson-wasm';
import type { LessonModule } from './lesson_module.js';

export function createLessonModule(): Promise<LessonModule> {
  return createLesson({ wasmBinary });
}
