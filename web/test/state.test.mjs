import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { DEFAULTS, KEYS } from './catalogue.mjs';
import { load } from './load.mjs';

const { recognise } = await load('state/recognise.ts');
const { probeCommand } = await load('state/command.ts');
const { FIRST_REQUEST, readValue, withRecipe, wrongKind } = await load('state/request.ts');
const { PRESETS, findPreset, loadPresets } = await load('state/presets.ts');
const { keysOf, isUsed, withoutUnused } = await load('state/form_keys.ts');
const { begin, isShown, SCENARIOS } = await load('state/scenarios.ts');

const TEXTS = [
  ['{"model_type": "llama", "hidden_size": 64}', 'config'], ['{"layers": [{"linear": [4, 4]}]}', 'config'], ['{"method": "lora", "batch": 2}', 'recipe'],
  ['{"batch": 2, "tyop": 1}', 'recipe'], ['{"kind": "measured", "schema_version": "1.0"}', 'measured'], ['{"kind": "predicted", "model": {"config": {}}}', 'report'],
  ['\uFEFF{"seq": 5}', 'recipe'], ['{"tokenizer_class": "X"}', 'config'], ['not json', 'config'], ['[1, 2]', 'config'], ['', 'config'], ['null', 'config'],
  ['{"peft_type": "LORA", "r": 8}', 'recipe'],
];
const ERRORS = [
  'RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB', 'CUDA out of memor\ny. Tried', '> C**UDA out of memory', 'exits with return code = -9',
  'Traceback (most recent call last):\n  File "a.py"', 'RESOURCE_EXHAUSTED: Out of memory', 'CUBLAS_STATUS_ALLOC_FAILED', '单卡 32G 提示显存不足', 'it OOMs, why is that an OOM?',
];
for (const text of ERRORS) test(`${text} is taken as an error`, () => assert.equal(recognise(text, KEYS).kind, 'error'));
test('JSON about memory is no error', () => assert.equal(recognise('{"model_type": "out of memory"}', KEYS).kind, 'config'));

for (const [text, kind] of TEXTS) test(`${text || '(nothing)'} is taken as ${kind}`, () => assert.equal(recognise(text, KEYS).kind, kind));

test('an adapter_config.json becomes the recipe it says', () => {
  const found = recognise('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "lora_dropout": 0.1, "use_dora": null, "bias": "none"}', KEYS);
  assert.deepEqual(found.recipe, { method: 'lora', rank: 8, targets: ['q_proj'], lora_dropout: 0.1 });
});

test('a key set back to its default leaves the request', () => {
  const changed = withRecipe(FIRST_REQUEST, { batch: 4, targets: ['all-linear'] }, DEFAULTS);
  assert.deepEqual(changed.recipe, { batch: 4 });
  assert.deepEqual(withRecipe(changed, { batch: 1 }, DEFAULTS).recipe, {});
});

test('values are read by their kind, or not at all', () => {
  const key = (name) => KEYS.find((row) => row.name === name);
  assert.equal(readValue(key('batch'), ' 12 '), 12);
  assert.equal(readValue(key('batch'), '1.5'), undefined);
  assert.equal(readValue(key('batch'), '99999999999999999999'), undefined);
  assert.equal(readValue(key('compile'), 'true'), true);
  assert.deepEqual(readValue(key('targets'), 'q_proj, v_proj'), ['q_proj', 'v_proj']);
  assert.equal(readValue(key('lora_dropout'), '0.05'), 0.05);
  assert.equal(readValue(key('gpu'), 'toaster'), undefined);
});

test('the command line measures what is shown', () => {
  const request = withRecipe(FIRST_REQUEST, { method: 'lora', lora_dropout: 0.1, gpu: 'a100-80gb', targets: ['q_proj', 'v_proj'] }, DEFAULTS);
  assert.equal(probeCommand(request), 'probe --model llama-3-8b --method lora --lora-dropout 0.1 --gpu a100-80gb --targets q_proj,v_proj --json measured.json');
});

test('presets have distinct ids, a source and a config', () => {
  assert.equal(new Set(PRESETS.map((preset) => preset.id)).size, PRESETS.length);
  for (const { source, config, params } of PRESETS) assert.ok(source && Object.keys(config).length > 0 && params > 0);
});

test('the other checkpoints come when asked for, after those that came with the page', async () => {
  assert.equal(findPreset('qwen2.5-72b'), undefined);
  const all = await loadPresets();
  assert.deepEqual(all.slice(0, PRESETS.length), PRESETS);
  assert.ok(all.length >= 100 && new Set(all.map((preset) => preset.id)).size === all.length);
  assert.equal(findPreset('qwen2.5-72b')?.params, 72706203648);
});

test('adapters have their keys under LoRA and QLoRA, 4-bit weights under QLoRA, decoders what plain stacks have not', () => {
  const used = (method, plain = false) => ['rank', 'dora', 'double_quant', 'seq', 'batch'].filter((name) => isUsed(name, { method }, plain));
  assert.deepEqual(used('full'), ['seq', 'batch']);
  assert.deepEqual(used('lora'), ['rank', 'dora', 'seq', 'batch']);
  assert.deepEqual(used('qlora'), ['rank', 'dora', 'double_quant', 'seq', 'batch']);
  assert.deepEqual(used('full', true), ['batch']);
});

test('generating has keys of its own, and none that only training reads', () => {
  const used = (recipe) => ['task', 'optimizer', 'method', 'rank', 'double_quant', 'new_tokens', 'kv_cache', 'seq'].filter((name) => isUsed(name, recipe, false));
  assert.deepEqual(used({}), ['task', 'optimizer', 'method', 'seq']);
  assert.deepEqual(used({ task: 'generate' }), ['task', 'new_tokens', 'kv_cache', 'seq']);
  assert.deepEqual(used({ task: 'generate', weights: 'nf4' }), ['task', 'double_quant', 'new_tokens', 'kv_cache', 'seq']);
  assert.deepEqual(withoutUnused({ task: 'generate', method: 'lora', rank: 8, new_tokens: 5 }, false), { task: 'generate', new_tokens: 5 });
});

test('what a recipe makes no use of leaves it', () => {
  assert.deepEqual(withoutUnused({ rank: 8, dora: true, batch: 2 }, false), { batch: 2 });
  assert.deepEqual(withoutUnused({ method: 'lora', rank: 8, double_quant: false }, false), { method: 'lora', rank: 8 });
  assert.deepEqual(withoutUnused({ method: 'qlora', rank: 8, seq: 64, batch: 2 }, true), { batch: 2 });
});

test('every key stands in one group of the form, one of a newer core too', () => {
  const keys = [...KEYS, { name: 'brand_new', kind: 'flag' }];
  const placed = ['main', 'adapter', 'more', 'gpus'].flatMap((group) => keysOf(group, keys).map((key) => key.name));
  assert.deepEqual([...placed].sort(), keys.map((key) => key.name).sort());
  assert.ok(keysOf('more', keys).some((key) => key.name === 'brand_new'));
});

test('a scenario sets model and recipe, and leaves the card to the reader', () => {
  const mine = withRecipe(FIRST_REQUEST, { gpu: 'a100-80gb', batch: 7 }, DEFAULTS);
  for (const scenario of SCENARIOS) {
    assert.ok(PRESETS.some((preset) => preset.id === scenario.preset));
    const request = begin(scenario, mine, DEFAULTS);
    assert.equal(request.recipe.gpu, 'a100-80gb');
    assert.equal(request.recipe.batch, undefined);
    assert.deepEqual(SCENARIOS.filter((other) => isShown(other, request)), [scenario]);
  }
  assert.ok(!SCENARIOS.some((scenario) => isShown(scenario, mine)));
});

const { hubId } = await load('state/hub.ts');

test('names on the hub are told from other text', () => {
  const named = [
    ['meta-llama/Llama-3.1-8B', 'meta-llama/Llama-3.1-8B'], [' Qwen/Qwen2.5-7B ', 'Qwen/Qwen2.5-7B'],
    ['https://huggingface.co/Qwen/Qwen2.5-7B', 'Qwen/Qwen2.5-7B'], ['https://huggingface.co/Qwen/Qwen2.5-7B/', 'Qwen/Qwen2.5-7B'],
    ['https://huggingface.co/Qwen/Qwen2.5-7B/blob/main/config.json?x=1#L3', 'Qwen/Qwen2.5-7B'],
  ];
  for (const [text, id] of named) assert.equal(hubId(text), id, text);
  for (const text of ['{"a": 1}', 'llama', 'a/b/c', 'and / or', '../x', 'https://example.org/a/b', 'https://huggingface.co/docs', 'a/../b', '']) assert.equal(hubId(text), undefined, text);
});

const { Trail } = await load('state/trail.ts');

test('the history has a step for each change, but one for what is typed in a row', () => {
  const steps = [];
  const place = {
    location: { hash: '#0' },
    history: {
      pushState: (_, __, hash) => { steps.push(`push ${hash}`); place.location.hash = hash; },
      replaceState: (_, __, hash) => { steps.push(`replace ${hash}`); place.location.hash = hash; },
    },
  };
  let now = 0;
  const trail = new Trail(place, () => now);
  trail.follow('#1', '');
  for (const [hash, what, at] of [['#2', 'seq', 10], ['#3', 'seq', 500], ['#4', 'seq', 1900], ['#5', 'batch', 2000], ['#5', 'batch', 2100], ['#6', 'seq', 9000]]) {
    now = at;
    trail.follow(hash, what);
  }
  assert.deepEqual(steps, ['replace #1', 'push #2', 'replace #3', 'replace #4', 'push #5', 'push #6']);
});

const pins = await load('state/pins.ts');
const { readHash, writeHash } = await load('state/hash.ts');

test('four scenarios are pinned, none twice, and live in the link', async () => {
  let { request } = await readHash('#v=1&model=llama-3-8b', KEYS, DEFAULTS);
  for (const batch of [1, 2, 2, 3, 4, 5]) request = pins.pinned({ ...request, recipe: batch === 1 ? {} : { batch } });
  assert.deepEqual(request.pins.map((pin) => pin.recipe), [{}, { batch: 2 }, { batch: 3 }, { batch: 4 }]);
  const hash = writeHash(request);
  const again = await readHash(hash, KEYS, DEFAULTS);
  assert.deepEqual(again.problems, []);
  assert.deepEqual(again.request, request);
  assert.equal(writeHash(again.request), hash);
  assert.deepEqual(pins.unpinned(request, 1).pins.map((pin) => pin.recipe), [{}, { batch: 3 }, { batch: 4 }]);
  assert.deepEqual(pins.unpinned(request, undefined).pins, []);
});

test('a bad pin is reported, the others are used; more than four are too many', async () => {
  const bad = await readHash('#v=1&pin=batch%3D0&pin=batch%3D2', KEYS, DEFAULTS);
  assert.deepEqual(bad.problems.map((one) => one.where), ['batch']);
  assert.deepEqual(bad.request.pins.map((pin) => pin.recipe), [{}, { batch: 2 }]);
  const many = await readHash(`#v=1${'&pin=batch%3D2'.repeat(6)}`, KEYS, DEFAULTS);
  assert.equal(many.request.pins.length, 4);
  assert.deepEqual(many.problems.map((one) => one.where), ['pin']);
});

test('the course’s table is full, LoRA and QLoRA of the present model, card, batch and sequence', async () => {
  const { request } = await readHash('#v=1&model=llama-2-7b&batch=2&gpu=a100-80gb&compile=true', KEYS, DEFAULTS);
  const table = pins.courseTable(request).pins;
  assert.deepEqual(table.map((pin) => pin.recipe.method ?? 'full'), ['full', 'lora', 'qlora']);
  for (const { model, recipe } of table) {
    assert.equal(model.id, 'llama-2-7b');
    assert.deepEqual([recipe.batch, recipe.gpu, recipe.compile], [2, 'a100-80gb', undefined]);
  }
});

const { Helper } = await load('state/helper.ts');

test('a newer question drops what is left of the older one', async () => {
  const asked = [];
  const told = [];
  let done = 0;
  const waiting = [];
  const helper = new Helper(({ recipe, about }) => {
    asked.push(`${recipe.batch} ${about}`);
    return new Promise((settle) => waiting.push(() => settle({ ok: true, value: { about, value: recipe.batch } })));
  }, (advice) => told.push(`${advice.value} ${advice.about}`), () => { done += 1; });
  const about = ['batch', 'changes', 'gpu'];
  const turn = () => new Promise((settle) => setTimeout(settle));
  const put = (batch) => helper.put({ config: '{}', recipe: { batch }, about });
  const first = put(1);
  waiting.shift()();
  await turn();
  const others = [put(2), put(3), put(4)];
  await turn();
  assert.equal(waiting.length, 1, 'the answer in hand is waited for: a thread cannot be told to forget a question');
  while (waiting.length > 0) { waiting.shift()(); await turn(); }
  await Promise.all([first, ...others]);
  assert.deepEqual(asked, ['1 changes', '1 batch', '4 changes', '4 batch', '4 gpu']);
  assert.deepEqual(told, ['1 changes', '4 changes', '4 batch', '4 gpu']);
  assert.equal(done, 1);

  void put(5);
  helper.drop();
  waiting.shift()();
  await turn();
  assert.deepEqual([told.length, done, waiting.length], [4, 1, 0], 'what was dropped is not told, and nothing more is asked');
});

const { ledgerCsv } = await load('format/exports.ts');

test('the CSV has the ledger’s lines under the report’s names, bytes as integers', async () => {
  const report = JSON.parse(await readFile(new URL('../../tests/fixtures/web/llama-3-8b.report.json', import.meta.url), 'utf8'));
  const [head, ...rows] = ledgerCsv(report).trimEnd().split('\r\n');
  assert.equal(head, 'category,name,op,dtype,shape,count,element_bytes,bytes');
  assert.equal(rows.length, report.at_peak.tensors.length);
  assert.equal(rows.reduce((all, row) => all + Number(row.split(',').at(-1)), 0), report.at_peak.tensors.reduce((all, line) => all + line.bytes, 0));
});

test('the snippet for other pages says what the link says, with every value escaped', async () => {
  const { embedSnippet } = await load('state/embed.ts');
  const request = { model: { kind: 'preset', id: 'llama-3-8b' }, recipe: { method: 'lora', lora_dropout: 0.05, targets: ['q_proj', 'v_proj'] }, lang: 'zh', units: 'gib', pins: [] };
  assert.equal(embedSnippet(request, 'https://x.example/a/'), '<script type="module" src="https://x.example/a/embed.js"></script>\n'
    + '<memory-ledger model="llama-3-8b" method="lora" lora-dropout="0.05" targets="q_proj,v_proj" view="verdict bar" lang="zh"></memory-ledger>');
  const odd = embedSnippet({ ...request, model: { kind: 'custom', text: '{"model_type":"</script>"}', packed: '' }, recipe: { targets: '"><b>' } }, '/');
  assert.ok(odd.includes('targets="&quot;>&lt;b>"'), odd);
  assert.equal(odd.split('</script>').length, 3, 'a config cannot close its element');
});

test('a value that no key can have is named, in a recipe that came as a file', () => {
  assert.equal(wrongKind({ batch: 2, dora: true, targets: ['q_proj'], gpu: 'x', lora_dropout: 0.5 }), undefined);
  for (const value of [null, { toString: 1 }, [1], [['a']]]) {
    const found = wrongKind({ batch: 2, seq: value });
    assert.equal(found.code, 'wrong_type');
    assert.equal(found.where, 'seq');
  }
});
