// start_worker_single.ts - start_worker.ts for the page as one file: a thread starts from an address, and the code gets one of its own.

import code from 'snapshot-worker-code';

export function startWorker(): Worker {
  const address = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  try {
    return new Worker(address);
  } finally {
    setTimeout(() => URL.revokeObjectURL(address), 10_000); // it is read when the thread starts
  }
}
