// snapshot_worker.ts - reads one snapshot in a thread of its own, so that half a gigabyte does not hold the page up.

import { readSnapshot, type SnapshotRead } from './snapshot/read.js';

export type SnapshotNews = { readonly progress: number } | { readonly read: SnapshotRead };

interface Scope {
  onmessage: ((event: MessageEvent<Blob>) => void) | null;
  postMessage(news: SnapshotNews): void;
}

const scope = globalThis as unknown as Scope;
let told = 0;

scope.onmessage = ({ data: file }) => {
  const progress = (share: number): void => {
    if (share < told + 0.01 && share < 1) return;
    told = share;
    scope.postMessage({ progress: share });
  };
  void readSnapshot(file, progress).then((read) => scope.postMessage({ read }));
};
