// Memory snapshots dropped on the page: shown beside the prediction in both languages, refused when they would run code, and
// read without holding the page up however large they are.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { axe, message, shared, withPage as sharedPage } from './support.mjs';

const open = shared();
const withPage = (hash, run) => sharedPage(open, hash, run);

const fixture = (name) => readFileSync(new URL(`../fixtures/snapshots/${name}`, import.meta.url));
const view = (page) => page.locator('ml-snapshot article');

async function dropBytes(page, name, bytes) {
  await page.evaluate(({ name, base64 }) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], name));
    document.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
  }, { name, base64: bytes.toString('base64') });
}

test('a snapshot is drawn, set beside the prediction, and told by line of code', () => withPage('#v=1&lang=en&model=llama-3-8b', async (page) => {
  const asked = [];
  page.on('request', (request) => asked.push(new URL(request.url()).pathname.split('/').pop()));
  await dropBytes(page, 'snapshot.pickle', fixture('protocol-4.pickle'));
  await message(page).getByText('Read as a memory snapshot').waitFor();
  await view(page).getByText('Alive at the peak, by line of code').waitFor();
  assert.ok(asked.includes('snapshot_view.js') && asked.includes('snapshot_worker.js'), asked.join());
  const text = await view(page).innerText();
  assert.match(text, /112 events; the tensors asked for 184\.0+ MiB at the peak/);
  assert.match(text, /An allocation of 80\.0+ MiB failed with 11\.0+ MiB free/);
  assert.match(text, /adam\.py:175 _init_group/);
  assert.match(text, /Optimizer states\s+6\s+72\.0+ MiB/);
  const chart = view(page).locator('ml-timeline .chart');
  await chart.focus();
  await page.keyboard.press('End');
  assert.match(await chart.getAttribute('aria-valuetext'), /112/);
  assert.deepEqual(await axe(page), []);
  await view(page).getByRole('button', { name: 'Remove this snapshot' }).click();
  await view(page).waitFor({ state: 'detached' });
}));

test('in Chinese', () => withPage('#v=1&lang=zh', async (page) => {
  await dropBytes(page, 'snapshot.json', fixture('snapshot.json'));
  await view(page).getByText('峰值时存活的张量').waitFor();
  assert.match(await view(page).innerText(), /112 个事件/);
  assert.deepEqual(await axe(page), []);
}));

test('a pickle that would run code is not read any further, and one that is cut says so', () => withPage('#v=1&lang=en', async (page) => {
  await dropBytes(page, 'evil.pickle', fixture('runs.pickle'));
  assert.match(await view(page).getByRole('alert').innerText(), /wants to run code \(STACK_GLOBAL at byte 44\)/);
  await dropBytes(page, 'cut.pickle', fixture('cut.pickle'));
  await view(page).getByText('was not copied or saved whole').waitFor();
  await dropBytes(page, 'model.pickle', fixture('other.pickle'));
  await view(page).getByText('holds no memory snapshot').waitFor();
}));

// 34 MB of one history: 159 000 events with thirty frames each. What is read is shared frames and small dicts, so it grows evenly.
test('a large one is read off the main thread', () => withPage('#v=1&lang=en', async (page) => {
  const size = await page.evaluate(async () => {
    const text = (value) => { const bytes = new TextEncoder().encode(value); return [0x8c, bytes.length, ...bytes]; };
    const frame = (i) => [0x7d, 0x28, ...text('filename'), ...text(`/site/torch/nn/modules/m${i}.py`), ...text('line'), 0x4b, i, ...text('name'), ...text('forward'), 0x75, 0x94];
    const head = [0x80, 4, 0x7d, 0x28, ...text('segments'), 0x5d, ...text('device_traces'), 0x5d, 0x28];
    for (let i = 0; i < 30; ++i) head.push(...frame(i), 0x30); // remembered, and off the stack again
    head.push(0x5d, 0x28);
    const i32 = (value) => [value & 255, (value >> 8) & 255, (value >> 16) & 255, value >> 24];
    const frames = [0x5d, 0x28, ...Array.from({ length: 30 }, (_, i) => [0x6a, ...i32(i)]).flat(), 0x65];
    const event = (action, address) => [0x7d, 0x28, ...text('action'), ...text(action), ...text('addr'), 0x4a, ...i32(address), ...text('size'), 0x4a, ...i32(4096), ...text('stream'), 0x4b, 0, ...text('frames'), ...frames, 0x75];
    const parts = [new Uint8Array(head)];
    for (let i = 0; i < 80_000; ++i) {
      parts.push(new Uint8Array(event('alloc', i)));
      if (i >= 1000) parts.push(new Uint8Array(event('free_completed', i - 1000)));
    }
    parts.push(new Uint8Array([0x65, 0x65, 0x75, 0x2e]));
    const file = new File(parts, 'large.pickle');
    parts.length = 0;
    await new Promise((done) => setTimeout(done, 500));
    const tasks = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: 'longtask' });
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(file);
    document.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
    globalThis.tasks = tasks;
    return file.size;
  });
  assert.ok(size > 30e6, String(size));
  await view(page).getByText('159,000 events').waitFor({ timeout: 60_000 });
  const tasks = await page.evaluate(() => globalThis.tasks);
  console.log(`${(size / 1e6).toFixed(0)} MB read; tasks of the page over 50 ms: ${tasks.map((ms) => ms.toFixed(0)).join(' ')}`);
  assert.ok(Math.max(0, ...tasks) < 1000, tasks.join()); // in the page’s own thread it would be one task, as long as all of the reading
  assert.match(await view(page).innerText(), /asked for 3\.91 MiB at the peak/);
}));
