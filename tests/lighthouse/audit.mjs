// audit.mjs - Lighthouse (mobile) on pages of the built site, which a small server sends as static hosts do: in brotli.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join, relative } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';
import { listen, TYPES } from '../../web/serve.mjs';
import { launch, SITE } from '../browser/support.mjs';
import { inOwnTime } from './own_time.mjs';

export const PAGES = ['', 'course/'];
export const BAR = 95; // of 100, in each category

// lighthouse: the function of the package, which is not there before scripts/common.sh installed it.
export async function withAudits(run) {
  const { default: lighthouse } = await import('lighthouse');
  const server = compressedSite(SITE);
  const port = await listen(server, 0, '127.0.0.1');
  const debugPort = await freePort();
  const browser = await launch([`--remote-debugging-port=${debugPort}`]);
  try {
    await run(async (path, { ownTime = false, ...settings }) => {
      const url = `http://127.0.0.1:${port}/${path}`;
      const all = { port: debugPort, logLevel: 'error', ...settings };
      const { lhr } = ownTime ? await audited(lighthouse, url, all) : await lighthouse(url, all);
      if (lhr.runtimeError) throw new Error(`${lhr.runtimeError.code}: ${lhr.runtimeError.message}`);
      return lhr;
    });
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
}

// Gathers, and audits what was gathered with the main thread's own time in the place of the clock's.
async function audited(lighthouse, url, settings) {
  const folder = mkdtempSync(join(tmpdir(), 'lighthouse-'));
  try {
    await lighthouse(url, { ...settings, gatherMode: folder });
    const path = join(folder, 'defaultPass.trace.json');
    writeFileSync(path, JSON.stringify(inOwnTime(JSON.parse(readFileSync(path, 'utf8')))));
    return await lighthouse(url, { ...settings, auditMode: folder });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

// All files are compressed before the first is asked for, so that no load waits for that.
function compressedSite(root) {
  const files = new Map();
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || entry.name.startsWith('memory-ledger')) continue;
    const path = join(entry.parentPath ?? entry.path, entry.name);
    files.set(`/${relative(root, path)}`, brotliCompressSync(readFileSync(path), { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }));
  }
  return createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    const name = pathname.endsWith('/') ? `${pathname}index.html` : pathname;
    const body = files.get(name);
    if (!body) return response.writeHead(404).end();
    response.writeHead(200, { 'Content-Type': TYPES[extname(name)] ?? 'application/octet-stream', 'Content-Encoding': 'br', 'Cache-Control': 'no-cache' }).end(body);
  });
}

async function freePort() {
  const server = createServer();
  const port = await listen(server, 0, '127.0.0.1');
  await new Promise((done) => server.close(done));
  return port;
}

// What pulls a category down: "color-contrast: 3 elements".
export function complaints(lhr, category) {
  return lhr.categories[category].auditRefs.filter(({ id, weight }) => weight > 0 && lhr.audits[id].score !== null && lhr.audits[id].score < 1)
    .map(({ id }) => `${id}: ${lhr.audits[id].displayValue ?? lhr.audits[id].title}`);
}
