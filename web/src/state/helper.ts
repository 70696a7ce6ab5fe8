// helper.ts - asks the core what would help, one thing after the other. A newer question drops what is left of the older one, and
// is put when the answer in hand is here: questions that wait in the core's thread would all be answered, wanted or not.

import { ABOUT, type About, type Advice } from '../core/advice.js';
import type { Outcome, Recipe } from '../core/types.js';

export interface Question {
  readonly config: string;
  readonly recipe: Recipe;
  readonly about: readonly About[];
}

export class Helper {
  private newest: Question | undefined;
  private running: Promise<void> | undefined;

  constructor(private readonly ask: (request: object) => Promise<Outcome<Advice>>, private readonly told: (advice: Advice) => void, private readonly done: () => void) {}

  // Until neither this question nor a newer one is left.
  put(question: Question): Promise<void> {
    this.newest = question;
    return (this.running ??= this.run());
  }

  drop(): void {
    this.newest = undefined;
  }

  private async run(): Promise<void> {
    try {
      while (this.newest) {
        const question = this.newest;
        await this.askAll(question);
        if (this.newest !== question) continue;
        this.newest = undefined;
        this.done();
      }
    } finally {
      this.running = undefined; // in the same turn in which the loop saw no question left: the next one starts it again
    }
  }

  private async askAll(question: Question): Promise<void> {
    const { config, recipe, about } = question;
    for (const one of ABOUT.filter((name) => about.includes(name))) {
      const advice = await this.ask({ config, recipe, about: one });
      if (this.newest !== question) return;
      if (advice.ok) this.told(advice.value);
    }
  }
}
