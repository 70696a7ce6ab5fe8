// lab.ts - what figures ask the core: lessons (rules of thumb, number formats) and predictions of real steps.
//
// Requests of the course are fixed but for numbers within the fields' bounds, so that a Problem is a fault of the page
// and is thrown; figures show it instead of themselves.

import { loadCore, type Core } from '../core/loader.js';
import type { Recipe, Report } from '../core/types.js';
import { defaultsOf } from '../state/defaults.js';
import type { Defaults } from '../state/request.js';
import { createLessonModule, type LessonModule } from './lesson_module.js';
import type { CourseLedger, Cut, FormatRow, Scaling, Stored, TensorBytes, Update } from './lesson_types.js';

export class Lab {
  readonly formats: readonly FormatRow[];
  readonly defaults: Defaults;

  constructor(readonly core: Core, private readonly module: LessonModule) {
    this.formats = this.ask<{ formats: readonly FormatRow[] }>({ about: 'formats' }).formats;
    this.defaults = defaultsOf(core.catalogue);
  }

  tensor(shape: readonly number[]): TensorBytes {
    return this.ask({ about: 'tensor', shape });
  }

  ledger(config: object, recipe: Recipe, more: { params?: number; trained_per_mille?: number } = {}): CourseLedger {
    return this.ask({ about: 'ledger', config, recipe, ...more });
  }

  cut(kind: 'tensor' | 'pipeline' | 'expert', config: object, recipe: Recipe, ways: number): Cut {
    return this.ask({ about: 'cut', kind, config, recipe, ways });
  }

  stored(format: string, what: { value: number } | { bits: number }): Stored {
    return this.ask({ about: 'number', format, ...what });
  }

  update(weight: number, update: number, steps: number): Update {
    return this.ask({ about: 'update', weight, update, steps });
  }

  scaling(gradients: readonly number[], scale: number): Scaling {
    return this.ask({ about: 'scaling', gradients, scale });
  }

  // A real step, traced: the report of the stack `hf` unless the recipe says otherwise.
  predict(config: object, recipe: Recipe): Report {
    const outcome = this.core.predict(JSON.stringify(config), recipe, 1);
    if (!outcome.ok) throw new Error(JSON.stringify(outcome.problem));
    return outcome.value;
  }

  private ask<T>(request: object): T {
    const answer = JSON.parse(this.module.lesson(JSON.stringify(request))) as { lesson?: T; problem?: unknown };
    if (answer.lesson === undefined) throw new Error(JSON.stringify(answer.problem));
    return answer.lesson;
  }
}

export async function openLab(): Promise<Lab> {
  const [core, module] = await Promise.all([loadCore(), createLessonModule()]);
  return new Lab(core, module);
}
