// views_single.ts - views.ts for the page as one file: what they bring with them is decoded with the first use.

import type { Late } from './views.js';

export function loadView(name: Late): Promise<unknown> {
  return name === 'oom_view' ? import('../components/oom_view.js') : import('../components/snapshot_view.js');
}
