// The page as a reader meets it: loads under its policy, answers, takes files, keeps state in the link.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drop, loadLedger, message, openPage, openSite, paste, pick, preset, presets, problemIn, ready, shared, verdict, withPage as sharedPage } from './support.mjs';

const open = shared();

const withPage = (hash, run, options) => sharedPage(open, hash, run, options);

test('loads under the strict policy without a violation, and answers', () => withPage('', async (page) => {
  assert.match(await verdict(page), /GiB/);
  assert.equal(await page.locator('html').getAttribute('lang'), 'en');
  const policy = await page.locator('meta[http-equiv]').getAttribute('content');
  assert.match(policy, /default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'/);
  await page.waitForFunction(async () => (await navigator.serviceWorker.getRegistration())?.active); // and keeps itself for later
}, { serviceWorkers: 'allow' }));

test('works below a sub-path', async () => {
  const deep = await openSite({ base: '/some/where/deep/' });
  const { page, context, faults } = await openPage(open.browser, deep.url);
  await ready(page);
  await context.close();
  await deep.close();
  assert.deepEqual(faults, []);
});

test('Llama-3-8B at 4096 tokens shows the reference peak to the byte, and lines that sum to it', () => withPage('#v=1&model=llama-3-8b&seq=4096&show=bytes', async (page) => {
  assert.equal(await page.locator('ml-figures .value').first().innerText(), '80,946,473,364 B');
  assert.match(await page.locator('ml-ledger .total').innerText(), /the peak to the byte/);
}));

// Families whose step is not modelled are refused by name; the facts stand all the same.
test('every model that is known by name answers with the parameters of its source, or says why not', async () => {
  const core = await loadLedger();
  let answered = 0;
  for (const { name, params, id } of presets()) {
    const { report, problem } = JSON.parse(core.predict(JSON.stringify({ config: preset(id), recipe: { seq: 64 } })));
    assert.ok(report || problem.where, `${name}: ${JSON.stringify(problem)}`);
    if (!report) continue;
    assert.equal(report.model.params, params, name);
    answered++;
  }
  assert.ok(answered >= 60, `${answered} of ${presets().length} answered`);
});

test('a model of each family is found by its name, and the page says its parameters', () => withPage('#v=1&seq=64', async (page) => {
  const field = page.locator('#model input');
  const families = new Map(presets().map((entry) => [JSON.parse(preset(entry.id)).model_type, entry]));
  assert.ok(families.size >= 40, `${families.size} families`);
  for (const { name, params, id } of families.values()) {
    await pick(page, name);
    assert.equal(await field.inputValue(), name);
    assert.match(page.url(), new RegExp(`model=${id.replaceAll('.', '\\.')}(&|$)`));
    if (await page.locator('ml-recipe-form ml-problem, ml-problem.instead').count() > 0) continue;
    const facts = await page.locator('ml-model-box .facts').innerText();
    assert.ok(facts.startsWith(`${params.toLocaleString('en')} parameters`), `${name}: ${facts}`);
  }
}));

test('the model is searched for by keyboard alone, in any spelling', () => withPage('', async (page) => {
  const field = page.locator('#model input');
  await field.focus();
  await page.keyboard.press('ArrowDown');
  assert.equal(await field.getAttribute('aria-expanded'), 'true');
  assert.equal(await page.locator('#models [aria-selected=true]').innerText().then((text) => text.split('\n')[0]), 'Llama-3-8B');
  await page.keyboard.press('Escape');
  assert.equal(await field.getAttribute('aria-expanded'), 'false');
  await field.pressSequentially('qwen 2.5 72');
  const active = page.locator(`#${await field.getAttribute('aria-activedescendant')}`);
  assert.match(await active.innerText(), /Qwen2\.5-72B/);
  await page.keyboard.press('Enter');
  assert.match(page.url(), /model=qwen2\.5-72b/);
  await page.keyboard.press('Escape');
  await field.fill('no such model');
  assert.equal(await page.locator('#models [role=option]').count(), 0);
  assert.match(await page.locator('ml-model-picker .none').innerText(), /org\/model/);
  await field.fill('someone/else');
  assert.match(await page.locator('#models [role=option]').innerText(), /someone\/else from the Hugging Face hub/);
  await page.keyboard.press('Tab');
  assert.equal(await field.inputValue(), 'Qwen2.5-72B', 'what was typed and not chosen is gone');
}));

test('a link to a model that did not come with the page opens it', () => withPage('#v=1&model=gemma-2-9b&seq=64', async (page) => {
  assert.match(await verdict(page), /[GM]iB/);
  assert.equal(await page.locator('#model input').inputValue(), 'Gemma-2-9B');
  assert.match(await page.locator('ml-model-box .facts').innerText(), /^9,241,705,984 parameters/);
}));

test('each scenario answers at one click, is marked, and keeps the card', () => withPage('#v=1&gpu=rtx4090-24gb', async (page) => {
  const buttons = page.locator('ml-scenarios button');
  for (const button of await buttons.all()) {
    await button.click();
    assert.equal(await button.getAttribute('aria-pressed'), 'true');
    assert.equal(await page.locator('ml-scenarios [aria-pressed=true]').count(), 1);
    assert.equal(await page.locator('#gpu').inputValue(), 'rtx4090-24gb');
    assert.match(await page.locator('ml-ledger .total').innerText(), /the peak to the byte/);
  }
  await page.locator('#batch').fill('3');
  await page.locator('ml-scenarios [aria-pressed=true]').waitFor({ state: 'detached' });
}));

test('the form shows the keys that the recipe makes use of, and drops the others', () => withPage('', async (page) => {
  const shown = async (...names) => Promise.all(names.map((name) => page.locator(`#${name}`).count()));
  assert.deepEqual(await shown('rank', 'dora', 'double_quant'), [0, 0, 0]);
  await page.locator('#method').selectOption('lora');
  assert.deepEqual(await shown('rank', 'dora', 'double_quant'), [1, 1, 0]);
  await page.locator('#dora').check();
  await page.locator('#method').selectOption('qlora');
  assert.deepEqual(await shown('rank', 'dora', 'double_quant', 'prepare_kbit'), [1, 1, 1, 1]);
  assert.match(page.url(), /dora=true/);
  await page.locator('#method').selectOption('full');
  assert.doesNotMatch(page.url(), /dora/);
  await pick(page, '8 × Linear(2048, 2048)');
  assert.deepEqual(await shown('seq', 'attention', 'method', 'batch'), [0, 0, 0, 1]);
  assert.match(page.url(), /precision=fp32/);
  await pick(page, 'Llama-3-8B');
  assert.doesNotMatch(page.url(), /precision/);
}));

test('a combination that cannot run is told from one that is not computed yet', () => withPage('#v=1&precision=fp32', async (page) => {
  await page.locator('#attention option').filter({ hasText: 'flash (cannot run here)' }).waitFor({ state: 'attached' });
  await page.locator('#attention').selectOption('flash');
  const note = await problemIn(page.locator('ml-recipe-form'));
  assert.match(note, /cannot run/);
  assert.match(note, /16-bit tensors only/);
  assert.equal(await page.locator('#attention').getAttribute('aria-invalid'), 'true');
}));

test('a key that a link sets out of place is shown, so that it can be mended', () => withPage('#v=1&model=llama-3-8b', async (page) => {
  await page.evaluate(() => { location.hash = '#v=1&model=llama-3-8b&dora=true'; });
  await page.locator('ml-recipe-form ml-problem').waitFor();
  await page.locator('#dora').click();
  await ready(page);
}));

test('a dropped config.json is recognised and computed, and lives in the link', () => withPage('', async (page, context) => {
  const config = { ...JSON.parse(preset('tinyllama-1.1b')), num_hidden_layers: 3 };
  await drop(page, 'config.json', JSON.stringify(config));
  await message(page).getByText('Read as a model configuration').waitFor();
  assert.match(page.url(), /#v=1&config=[\w-]+$/);
  const again = await context.newPage();
  await again.goto(page.url());
  await ready(again);
  assert.equal(await verdict(again), await verdict(page));
}));

test('a pasted recipe sets the form', () => withPage('', async (page) => {
  await paste(page, '{"batch": 3, "seq": 1024}');
  await message(page).getByText('Read as a recipe: batch, seq').waitFor();
  assert.equal(await page.locator('#batch').inputValue(), '3');
  assert.match(page.url(), /batch=3&seq=1024/);
}));

const REFUSED = [
  ['garbage', '{"hidden_size": 12,,}', /not valid JSON.*line 1/s],
  ['a tokenizer configuration', '{"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096}', /tokenizer_config\.json.*config\.json/s],
  ['a list', '[1, 2, 3]', /JSON/],
  ['an unknown family', '{"model_type": "frobnicator", "hidden_size": 64}', /frobnicator/],
  ['a recipe with a misspelt key', '{"batch": 2, "sequ": 1}', /sequ.*Did you mean.*seq/s],
  ['a measurement of a later format', '{"kind": "measured", "schema_version": "9.0"}', /9\.0/],
];
test('what is no use is refused in words, and the page stays as it was', () => withPage('', async (page) => {
  const [before, hash] = [await verdict(page), page.url()];
  for (const [what, text, expected] of REFUSED) {
    await drop(page, 'file.json', text);
    const note = message(page).locator('ml-problem .note').filter({ hasText: expected });
    await note.first().waitFor().catch((cause) => { throw new Error(what, { cause }); });
    assert.equal(await verdict(page), before, what);
    assert.equal(page.url(), hash, what);
  }
}));

test('a file of 50 MB is refused before it is read', () => withPage('', async (page) => {
  await page.evaluate(() => {
    const text = Blob.prototype.text; // of a large file a tail may be read, in search of an error; never the whole
    Blob.prototype.text = function () {
      if (this.size > 8 * 1024 * 1024) throw new Error('it was read');
      return text.call(this);
    };
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([new Uint8Array(50 * 1024 * 1024)], 'model.safetensors'));
    document.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
  });
  assert.match(await problemIn(message(page)), /50\.00 MiB.*8\.00 MiB.*not read/s);
}));

test('the file picker reads the same files', () => withPage('', async (page) => {
  await page.locator('ml-model-box input[type=file]').setInputFiles({ name: 'r.json', mimeType: 'application/json', buffer: Buffer.from('{"batch": 2}') });
  await message(page).getByText('r.json').waitFor();
  assert.equal(await page.locator('#batch').inputValue(), '2');
}));

test('typing keeps the field, its focus and its caret', () => withPage('', async (page) => {
  const seq = page.locator('#seq');
  await seq.evaluate((field) => { field.mark = 'same'; });
  await seq.click();
  await seq.press('Control+a');
  for (const key of '1536') await page.keyboard.press(key);
  assert.equal(await seq.evaluate((field) => field.mark), 'same');
  assert.equal(await seq.evaluate((field) => field.getRootNode().activeElement === field), true);
  assert.equal(await seq.inputValue(), '1536');
  assert.match(page.url(), /seq=1536/);
  await page.keyboard.press('ArrowUp');
  assert.equal(await seq.inputValue(), '2048');
  assert.doesNotMatch(page.url(), /seq=/);
  await seq.fill('');
  await page.locator('ml-recipe-form .error').waitFor();
  assert.match(await page.locator('ml-recipe-form .error').innerText(), /1 to 16777216/);
}));

test('a recipe that is not computed yet is said beside the form, and can be undone', () => withPage('', async (page) => {
  const before = await verdict(page);
  const marked = page.locator('ml-recipe-form option').filter({ hasText: 'not computed yet' });
  await marked.first().waitFor({ state: 'attached' });
  const [select, value] = await marked.first().evaluate((option) => [option.parentElement.id, option.value]);
  await page.locator(`#${select}`).selectOption(value);
  assert.match(await problemIn(page.locator('ml-recipe-form')), /does not compute/);
  assert.equal(await page.locator('ml-verdict').count(), 0);
  await page.getByRole('button', { name: 'Undo the last change' }).click();
  assert.equal(await verdict(page), before);
}));

test('a link opens as it was shared, and is written the same again', () => withPage('#v=1&model=llama-3.2-1b&batch=2&seq=512&gpu=rtx4090-24gb&show=bytes&lang=zh', async (page, context) => {
  const [hash, text] = [new URL(page.url()).hash, await verdict(page)];
  const again = await context.newPage();
  await again.goto(open.site.url + hash);
  await ready(again);
  assert.equal(new URL(again.url()).hash, hash);
  assert.equal(await verdict(again), text);
  assert.equal(await again.locator('#batch').inputValue(), '2');
  assert.equal(await again.locator('#gpu').inputValue(), 'rtx4090-24gb');
}));

test('a page that opens with a link asks the core once, and for nothing but the link', async () => {
  const { page, context } = await openPage(open.browser, 'about:blank');
  await page.addInitScript(() => {
    globalThis.drawn = []; // reports with a whole timeline, as they are read
    const { parse } = JSON;
    JSON.parse = (text, ...more) => {
      const value = parse(text, ...more);
      if (value?.report?.timeline?.points.length > 2) globalThis.drawn.push(value.report.recipe.batch);
      return value;
    };
  });
  await page.goto(`${open.site.url}#v=1&model=llama-3-8b&batch=3`);
  await ready(page);
  const drawn = await page.evaluate(() => globalThis.drawn);
  await context.close();
  assert.deepEqual(drawn, [3]);
});

test('a bad link is reported on the page and the rest is used', () => withPage('#v=1&model=llama-3-8b&batch=many&foo=1&seq=512', async (page) => {
  const issues = page.locator('main > ml-problem');
  assert.equal(await issues.count(), 2);
  assert.match(await issues.first().locator('.note').innerText(), /batch = many/);
  assert.equal(await page.locator('#seq').inputValue(), '512');
}));

test('a changed hash changes the page', () => withPage('', async (page) => {
  await page.evaluate(() => { location.hash = '#v=1&model=llama-2-7b&batch=5'; });
  await page.locator('ml-model-box .facts').getByText('6,738,415,616').waitFor();
  assert.equal(await page.locator('#batch').inputValue(), '5');
}));

test('the language changes in place, with the document’s lang, and stays in the link', () => withPage('', async (page) => {
  await page.getByRole('button', { name: '中文' }).click();
  await page.locator('ml-verdict h2').getByText(/放|紧|临界/).waitFor();
  assert.equal(await page.locator('html').getAttribute('lang'), 'zh-Hans');
  assert.match(page.url(), /lang=zh/);
  await page.getByRole('button', { name: 'English' }).click();
  await page.locator('html[lang=en]').waitFor();
}));

test('a Chinese browser gets Chinese at first', () => withPage('', async (page) => {
  assert.equal(await page.locator('html').getAttribute('lang'), 'zh-Hans');
}, { locale: 'zh-CN' }));

test('copies the link, the ledger and the command', () => withPage('', async (page, context) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const copied = async (name, place = page) => {
    await place.getByRole('button', { name, exact: true }).click();
    await page.locator('ml-copy .status').getByText('Copied.').first().waitFor();
    return page.evaluate(() => navigator.clipboard.readText());
  };
  assert.equal(await copied('Copy link'), page.url());
  assert.match(await copied('Copy as Markdown'), /\| Sum \|/);
  assert.match(await copied('Copy', page.locator('ml-share .command').filter({ hasText: 'probe --model' })), /^probe --model llama-3-8b /);
}));

test('the report downloads as JSON that the page takes again', () => withPage('#v=1&model=tinyllama-1.1b&batch=2', async (page) => {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Report as JSON' }).click()]);
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  const report = JSON.parse(Buffer.concat(chunks).toString());
  assert.equal(report.kind, 'predicted');
  const before = await verdict(page);
  await drop(page, 'report.json', JSON.stringify(report));
  await message(page).getByText('saved prediction').waitFor();
  assert.equal(await verdict(page), before);
}));

test('a framework’s own configuration becomes the recipe, and says what of it was used', () => withPage('#v=1&gpu=rtx4090-24gb', async (page) => {
  await drop(page, 'qlora.yml', 'base_model: Qwen/Qwen2.5-7B-Instruct\nadapter: qlora\nload_in_4bit: true\nlora_r: 64\nsequence_len: 1024\nmicro_batch_size: 4\nbf16: auto\nlora_modules_to_save: [lm_head]\nwandb_name: <b>x</b>\n');
  await message(page).getByText('axolotl').waitFor();
  const said = await message(page).innerText();
  for (const part of ['qlora.yml', 'axolotl', 'Qwen/Qwen2.5-7B-Instruct, is taken for Qwen2.5-7B', 'lora_r', 'do not contain them: lora_modules_to_save', 'wandb_name']) assert.ok(said.includes(part), `${part} in ${said}`);
  for (const part of ['model=qwen2.5-7b', 'method=qlora', 'rank=64', 'seq=1024', 'batch=4', 'gpu=rtx4090-24gb']) assert.ok(page.url().includes(part), `${part} in ${page.url()}`);
  assert.match(await verdict(page), /[GM]iB/);
  await paste(page, '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 8}');
  await page.locator('ml-model-box .message').getByText('DeepSpeed').waitFor();
  assert.match(page.url(), /method=qlora.*batch=8|batch=8.*method=qlora/);
}));
