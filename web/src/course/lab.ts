// lab.ts - what figures ask the core: lessons (rules of thumb, number formats), answered at once, and predictions of real steps, which
// are traced in a thread of their own (core/apart.ts).
//
// Requests of the course are fixed but for numbers within the fields' bounds, so that a Problem is a fault of the page
// and is thrown; figures show it instead of themselves.

import { predictApart, prepareApart } from '../core/apart.js';
import { loadFirst, type Core } from '../core/loader.js';
import type { Outcome, Recipe, Report } from '../core/types.js';
import { createLessonModule, type LessonModule } from './lesson_module.js';
import type { CourseLedger, Cut, FormatRow, Scaling, Stored, TensorBytes, Update } from './lesson_types.js';

export class Lab {
  readonly formats: readonly FormatRow[];
  private readonly traced = new Map<string, Outcome<Report> | Promise<void>>();

  constructor(readonly core: Core, private readonly module: LessonModule) {
    this.formats = this.ask<{ formats: readonly FormatRow[] }>({ about: 'formats' }).formats;
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

  // A real step, traced: the report of the stack `hf` unless the recipe says otherwise; or when it will be known.
  predict(config: object, recipe: Recipe): Report | Promise<void> {
    const text = JSON.stringify(config);
    const key = JSON.stringify([text, recipe]);
    const known = this.traced.get(key);
    if (known instanceof Promise) return known;
    if (known?.ok) return known.value;
    if (known) throw new Error(JSON.stringify(known.problem));
    const asked = predictApart(this.core, text, recipe, 1).then((outcome) => void this.traced.set(key, outcome));
    this.traced.set(key, asked);
    return asked;
  }

  private ask<T>(request: object): T {
    const answer = JSON.parse(this.module.lesson(JSON.stringify(request))) as { lesson?: T; problem?: unknown };
    if (answer.lesson === undefined) throw new Error(JSON.stringify(answer.problem));
    return answer.lesson;
  }
}

export async function openLab(): Promise<Lab> {
  const [core, module] = await Promise.all([loadFirst(), createLessonModule()]);
  prepareApart(core);
  return new Lab(core, module);
}
