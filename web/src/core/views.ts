// views.ts - views that most visits need not: bundles of their own beside the page. views_single.ts has them inside it.

import { SITE } from './site.js';

export type Late = 'oom_view' | 'snapshot_view';

export function loadView(name: Late): Promise<unknown> {
  return import(new URL(`${name}.js`, SITE).href);
}
