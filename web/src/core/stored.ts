// stored.ts - the answer to the question that the page opens with. The build asks the core (build.mjs) and lays the answer beside the
// page: it stands while the core itself, fifteen times as large, is still on its way.

import { PartMissing, type Module } from './module.js';
import { SITE } from './site.js';

export const STORED = 'first_answer.json';

interface StoredAnswer {
  readonly version: string;
  readonly catalogue: string; // this and the answer as the core gives them: JSON
  readonly question: string; // what Core.predict asks, to the letter
  readonly answer: string;
}

const absent = (): never => {
  throw new PartMissing(false);
};

// Knows the one answer; whatever else it is asked, it throws PartMissing.
export async function storedModule(): Promise<Module> {
  const response = await fetch(new URL(STORED, SITE), { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`${STORED}: ${response.status}`);
  const stored = (await response.json()) as StoredAnswer;
  return {
    version: () => stored.version,
    catalogue: () => stored.catalogue,
    predict: (request) => (request === stored.question ? stored.answer : absent()),
    compare: absent,
    advise: absent,
  };
}
