import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { createSite, listen } from '../serve.mjs';
import { WEB } from './load.mjs';

let dir;
let server;
let port;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'site-'));
  await mkdir(join(dir, 'public/texts'), { recursive: true });
  await writeFile(join(dir, 'public/index.html'), 'page');
  await writeFile(join(dir, 'public/ledger.wasm'), 'wasm');
  await writeFile(join(dir, 'secret.txt'), 'secret');
  server = createSite(join(dir, 'public'), '/sub/');
  port = await listen(server, 0, '127.0.0.1');
});
after(async () => {
  server.close();
  await rm(dir, { recursive: true });
});

// node:http sends the path as it is; fetch would tidy it up first.
function get(path, method = 'GET') {
  return new Promise((done, failed) => {
    request({ host: '127.0.0.1', port, path, method }, (response) => {
      response.resume().on('end', () => done({ status: response.statusCode, type: response.headers['content-type'] }));
    }).on('error', failed).end();
  });
}

const ANSWERS = [
  ['/sub/', 200, 'text/html; charset=utf-8'], ['/sub/index.html?x=1', 200, 'text/html; charset=utf-8'], ['/sub/ledger.wasm', 200, 'application/wasm'],
  ['/', 404], ['/sub/none.js', 404], ['/sub/texts/', 404], ['/sub/../secret.txt', 404], ['/sub/..%2fsecret.txt', 404], ['/sub/%2e%2e/secret.txt', 404], ['/sub/%E0%A4%A', 404],
];
for (const [path, status, type] of ANSWERS) {
  test(`${path} answers ${status}`, async () => {
    const answer = await get(path);
    assert.equal(answer.status, status);
    if (type) assert.equal(answer.type, type);
  });
}

test('only reading is allowed', async () => assert.equal((await get('/sub/', 'POST')).status, 405));

function serve(...flags) {
  return new Promise((done) => {
    const child = spawn(process.execPath, [join(WEB, 'serve.mjs'), ...flags]);
    let text = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (data) => {
        text += data;
        if (text.includes('http://')) child.kill();
      });
    }
    child.on('exit', (code) => done({ code, text }));
  });
}

test('says which port is taken, and where it listens', async () => {
  const taken = await serve('--dir', join(dir, 'public'), '--port', String(port));
  assert.equal(taken.code, 1);
  assert.match(taken.text, new RegExp(`port ${port} is already in use`));
  assert.match((await serve('--dir', join(dir, 'public'), '--port', '0', '--base', 'a/b')).text, /http:\/\/127\.0\.0\.1:\d+\/a\/b\/\n/);
  assert.match((await serve('--dir', join(dir, 'none'))).text, /build the site first/);
});
