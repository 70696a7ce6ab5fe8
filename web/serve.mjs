// serve.mjs - serves the static site on this machine: node web/serve.mjs [--dir DIR] [--port N] [--host H] [--base /path/]
//
// No dependencies. Prints the address when it listens; says so when the port is taken. Port 0 takes any free port.

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, resolve, sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

export const TYPES = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8',
  '.wasm': 'application/wasm', '.json': 'application/json; charset=utf-8', '.svg': 'image/svg+xml', '.txt': 'text/plain; charset=utf-8',
};

export function createSite(dir, base = '/') {
  const root = resolve(dir);
  return createServer(async (request, response) => {
    const path = await fileFor(root, base, request.url ?? '/');
    if (request.method !== 'GET' && request.method !== 'HEAD') return end(response, 405, 'Only GET and HEAD.');
    if (path === undefined) return end(response, 404, 'Not found.');
    response.writeHead(200, {
      'Content-Type': TYPES[extname(path)] ?? 'application/octet-stream', 'Cache-Control': 'no-cache', 'X-Content-Type-Options': 'nosniff',
    });
    if (request.method === 'HEAD') return response.end();
    createReadStream(path).on('error', () => response.destroy()).pipe(response);
  });
}

async function fileFor(root, base, url) {
  let path;
  try {
    path = decodeURIComponent(new URL(url, 'http://localhost').pathname);
  } catch {
    return undefined; // a malformed path names no file
  }
  if (!path.startsWith(base)) return undefined;
  const file = join(root, path.slice(base.length) || 'index.html');
  if (file !== root && !file.startsWith(root + sep)) return undefined;
  const info = await stat(file).catch(() => undefined);
  if (info?.isDirectory()) return fileFor(root, '/', '/' + join(path.slice(base.length), 'index.html'));
  return info?.isFile() ? file : undefined;
}

function end(response, status, text) {
  response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' }).end(`${text}\n`);
}

export function listen(server, port, host) {
  return new Promise((done, failed) => {
    server.once('error', failed);
    server.listen(port, host, () => done(server.address().port));
  });
}

async function main() {
  const { values: flags } = parseArgs({
    options: {
      dir: { type: 'string', default: join(new URL('.', import.meta.url).pathname, '../build/site') }, port: { type: 'string', default: '8080' },
      host: { type: 'string', default: '127.0.0.1' }, base: { type: 'string', default: '/' },
    },
  });
  const base = `/${flags.base.replace(/^\/+|\/+$/g, '')}/`.replace('//', '/');
  const port = Number(flags.port);
  if (!Number.isInteger(port) || port < 0 || port > 65535) return fail(`--port ${flags.port}: expected 0..65535`);
  if (!(await stat(join(flags.dir, 'index.html')).catch(() => undefined))) return fail(`${flags.dir} has no index.html; build the site first.`);
  try {
    const taken = await listen(createSite(flags.dir, base), port, flags.host);
    console.log(`Memory Ledger: http://${flags.host.includes(':') ? `[${flags.host}]` : flags.host}:${taken}${base}`);
  } catch (error) {
    if (error.code === 'EADDRINUSE') return fail(`port ${port} is already in use; choose another with --port N (0 takes any free one).`);
    if (error.code === 'EACCES') return fail(`port ${port} may not be used by this account; choose one above 1023 with --port N.`);
    return fail(error.message);
  }
}

function fail(message) {
  console.error(`serve.mjs: ${message}`);
  process.exitCode = 1;
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) await main();
