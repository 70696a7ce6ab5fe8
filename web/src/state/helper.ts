// helper.ts - asks the core what would help, one thing after the other. A newer question drops what is left of the older one.

import { ABOUT, type About, type Advice } from '../core/advice.js';
import type { Outcome, Recipe } from '../core/types.js';

export interface Question {
  readonly config: string;
  readonly recipe: Recipe;
  readonly about: readonly About[];
}

export class Helper {
  private serial = 0;

  constructor(private readonly ask: (request: object) => Promise<Outcome<Advice>>, private readonly told: (advice: Advice) => void, private readonly done: () => void) {}

  async put({ config, recipe, about }: Question): Promise<void> {
    const serial = ++this.serial;
    for (const one of ABOUT.filter((name) => about.includes(name))) {
      const advice = await this.ask({ config, recipe, about: one });
      if (serial !== this.serial) return;
      if (advice.ok) this.told(advice.value);
    }
    this.done();
  }

  drop(): void {
    this.serial += 1;
  }
}
