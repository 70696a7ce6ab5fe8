// checks.ts - what must hold of a reader's answer, whatever it was given.

import type { Recipe, RecipeKey } from '../../../web/src/core/types.js';

export function must(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what);
}

export function mustBePlain(value: unknown, what: string): void {
  must(value === undefined || typeof value === 'string', `${what} is no text: ${typeof value}`);
}

export function mustBeTexts(values: readonly unknown[], what: string): void {
  values.forEach((value) => must(typeof value === 'string', `${what} holds what is no text: ${typeof value}`));
  must(new Set(values).size === values.length, `${what} names something twice`);
}

// Keys that recipes have, with values that JSON and the page's link can hold.
export function mustBeRecipe(recipe: unknown, keys: readonly RecipeKey[]): asserts recipe is Recipe {
  must(typeof recipe === 'object' && recipe !== null && Object.getPrototypeOf(recipe) === Object.prototype, `no recipe: ${typeof recipe}`);
  for (const [name, value] of Object.entries(recipe)) {
    must(keys.some((key) => key.name === name), `${name} is no key of a recipe`);
    const plain = typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value) || (Array.isArray(value) && value.every((each) => typeof each === 'string'));
    must(plain, `${name} is ${String(value)}`);
  }
}

const PROTOTYPES = [Object.prototype, Array.prototype, Function.prototype, String.prototype, Number.prototype].map((prototype) => ({ prototype, names: Object.getOwnPropertyNames(prototype).join() }));

export function mustLeaveTheWorldAlone(): void {
  for (const { prototype, names } of PROTOTYPES) must(Object.getOwnPropertyNames(prototype).join() === names, 'a prototype was written to');
  must(!Object.keys(globalThis).includes('ran'), 'something of the input was run');
}
