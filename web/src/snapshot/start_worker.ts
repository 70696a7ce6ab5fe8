// start_worker.ts - the reader's thread, from the file beside the page; start_worker_single.ts has it inside the page.

import { SITE } from '../core/site.js';

export function startWorker(): Worker {
  return new Worker(new URL('snapshot_worker.js', SITE), { type: 'module' });
}
