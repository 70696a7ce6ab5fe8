// sw.js - keeps the site for offline use. The build writes the list of files and the version, which names the cache: a new
// build is fetched whole before it takes over, so that files of two builds never mix.

const VERSION = '@version@';
const FILES = ['@files@'];
const CACHE = `memory-ledger-${VERSION}`;

self.addEventListener('install', (event) => {
  const fresh = FILES.map((name) => new Request(name, { cache: 'no-cache' }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(fresh)));
});

self.addEventListener('activate', (event) => {
  const old = (name) => name.startsWith('memory-ledger-') && name !== CACHE;
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter(old).map((name) => caches.delete(name)))));
});

// Ours from the cache; what is not in it (measurements beside the site, models asked for by name) from the network.
self.addEventListener('fetch', (event) => {
  if (event.request.method !== 'GET') return;
  const url = new URL(event.request.url);
  if (url.origin !== location.origin) return;
  const page = url.href.split(/[?#]/)[0];
  const folder = page.startsWith(self.registration.scope) && page.endsWith('/');
  const file = folder ? new URL('index.html', page).href : event.request;
  event.respondWith(caches.open(CACHE).then((cache) => cache.match(file, { ignoreSearch: true })).then((found) => found ?? fetch(event.request)));
});
