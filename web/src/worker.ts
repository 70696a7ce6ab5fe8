// worker.ts - the core in a thread of its own, for questions that take the recipe some tens of runs. One question, one
// answer; which of them is still of interest is the page's to know (state/helper.ts).

import { startModule } from './core/loader.js';

interface Scope {
  onmessage: ((event: MessageEvent<{ readonly serial: number; readonly request: string }>) => void) | null;
  postMessage(message: unknown): void;
}

const scope = globalThis as unknown as Scope;
const module = startModule('whole');

scope.onmessage = ({ data: { serial, request } }) => {
  module.then(
    (core) => scope.postMessage({ serial, answer: core.advise(request) }),
    (error: unknown) => scope.postMessage({ serial, failure: String(error) }),
  );
};
