// offline.ts - after the page is at rest, keeps its files for later visits without a network (sw.js). Not in frames, whose
// host decides, and not for pages opened as files.

import { SINGLE, SITE } from '../core/site.js';

export function keepOffline(): void {
  if (SINGLE || !('serviceWorker' in navigator) || window.top !== window.self || !/^https?:$/.test(location.protocol)) return;
  navigator.serviceWorker.register(new URL('sw.js', SITE)).catch(() => {}); // storage may be off: the page works online
}
