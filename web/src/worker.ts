// worker.ts - the core in a thread of its own (core/apart.ts). One question, one answer; which of them is still of interest is the
// page's to know.

import type { Call } from './core/apart.js';
import { startModule } from './core/loader.js';

interface Scope {
  onmessage: ((event: MessageEvent<{ readonly serial: number; readonly call: Call; readonly request: string }>) => void) | null;
  postMessage(message: unknown): void;
}

const scope = globalThis as unknown as Scope;
const module = startModule('whole');

scope.onmessage = ({ data: { serial, call, request } }) => {
  module.then(
    (core) => scope.postMessage({ serial, answer: core[call](request) }),
    (error: unknown) => scope.postMessage({ serial, failure: String(error) }),
  );
};
