import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { load } from './load.mjs';

const { digits, Format } = await load('format/format.ts');
const { formulaText, product } = await load('format/formula.ts');
const { ledgerTree, matches, partOf, sum } = await load('format/ledger_tree.ts');
const { barParts } = await load('format/bar_parts.ts');
const moments = await load('format/moments.ts');
const report = JSON.parse(await readFile(new URL('../../tests/fixtures/web/llama-3-8b.report.json', import.meta.url), 'utf8'));
const en = new Format('en', 'gib');

const SIZES = [
  [0, '0 B'], [1, '1 B'], [1023, '1,023 B'], [1024, '1.00 KiB'], [1048576, '1.00 MiB'], [1073741824, '1.00 GiB'],
  [80946473364, '75.39 GiB'], [-3221225472, '−3.00 GiB'], [1073741823, '1,024.00 MiB'], [67108864, '64.00 MiB'], [2 ** 50, '1,048,576.00 GiB'],
];
for (const [bytes, text] of SIZES) test(`${bytes} bytes read ${text}`, () => assert.equal(en.bytes(bytes), text));

test('on demand every size is exact, with its unit', () => {
  assert.equal(new Format('en', 'bytes').bytes(80946473364), '80,946,473,364 B');
  assert.equal(new Format('zh', 'bytes').bytes(80946473364), '80,946,473,364 B');
  assert.equal(en.difference(512), '+512 B');
  assert.equal(en.difference(-512), '−512 B');
  assert.equal(en.percent(1, 0), '0.0%');
});

test('digits are those of Intl, in both languages', () => {
  let seed = 7;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const values = Array.from({ length: 4000 }, (_, i) => [random() * 10 ** (15 * random()), Math.round(random() * 1e4) / 200, Math.round(random() * 1e5) / 1000, Math.round(random() * 1e4) / 8][i % 4] * (i % 7 === 0 ? -1 : 1));
  for (const locale of ['en', 'zh-Hans']) {
    for (const decimals of [0, 1, 2, 3]) {
      const fraction = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
      const [plain, share] = [new Intl.NumberFormat(locale, fraction), new Intl.NumberFormat(locale, { ...fraction, style: 'percent' })];
      for (const value of values.filter((each) => Math.abs(each) * 10 ** decimals < 2 ** 48)) assert.equal(digits(value, decimals), plain.format(value), `${value} ${decimals}`);
      for (const value of values.map((each) => each / 1e6)) if (Math.abs(value) * 10 ** (decimals + 2) < 2 ** 48) assert.equal(`${digits(value, decimals, 2)}%`, share.format(value), `${value} ${decimals} %`);
    }
  }
});

test('a range names its unit once, unless there are two', () => {
  assert.equal(en.range(1.5 * 2 ** 30, 2 ** 31), '1.50–2.00\u00a0GiB');
  assert.equal(en.range(2 ** 29, 2 ** 31), '512.00\u00a0MiB\u00a0–\u00a02.00\u00a0GiB');
});

test('a line is written as the product it is, with the reader’s numbers', () => {
  const line = report.at_peak.tensors.find((row) => row.name === 'model.layers.*.mlp.gate_proj' && row.op === 'mm');
  assert.equal(formulaText(line, en), '32 × b 1 × s 4,096 × ffn 14,336 × 2 B');
});

test('each line’s product is its bytes, and the lines sum to the peak', () => {
  for (const line of report.at_peak.tensors) assert.equal(product(line), line.bytes, line.name);
  assert.equal(report.at_peak.tensor_bytes, 80946473364);
  assert.equal(sum(report.at_peak.tensors), report.at_peak.tensor_bytes + report.at_peak.workspace_bytes);
});

test('the tree loses nothing: branches sum to groups, groups to lines, all to the peak', () => {
  const tree = ledgerTree(report.at_peak.tensors);
  assert.equal(tree.reduce((all, branch) => all + branch.bytes, 0), report.at_peak.tensor_bytes + report.at_peak.workspace_bytes);
  for (const branch of tree) {
    assert.equal(branch.groups.reduce((all, group) => all + group.bytes, 0), branch.bytes);
    assert.equal(branch.bytes, report.at_peak.categories[branch.category]);
    for (const group of branch.groups) assert.equal(sum(group.lines), group.bytes);
  }
});

const PARTS = [
  ['model.layers.*.mlp.gate_proj.weight', 'layers.mlp'], ['model.layers.*.self_attn', 'layers.self_attn'], ['model.layers.*', 'layers'],
  ['model.embed_tokens.weight', 'embed_tokens'], ['lm_head', 'lm_head'], ['', ''], ['layers.*.weight', 'layers'],
];
for (const [name, part] of PARTS) test(`"${name}" belongs to "${part}"`, () => assert.equal(partOf(name), part));

test('a filter finds by name, operator, dtype and shape, all words at once', () => {
  const found = (query) => report.at_peak.tensors.filter((line) => matches(line, query, '')).length;
  assert.ok(found('gate_proj mm') === 1);
  assert.ok(found('fp32') > 0);
  assert.ok(found('4096x128256') > 0);
  assert.equal(found('nothing-like-it'), 0);
});

test('the bar’s stretches lie end to end and fill the card', () => {
  const { parts, end } = barParts(report);
  let from = 0;
  for (const part of parts) {
    assert.equal(part.from, from);
    from += part.bytes;
  }
  assert.equal(from, end);
});

test('keys move the timeline’s cursor by point, by phase, to the ends and to the peak', () => {
  const { timeline } = report;
  const last = timeline.points.length - 1;
  assert.equal(moments.step(timeline, 5, 'ArrowRight'), 6);
  assert.equal(moments.step(timeline, 0, 'ArrowLeft'), 0);
  assert.equal(moments.step(timeline, last, 'ArrowRight'), last);
  assert.equal(moments.step(timeline, 7, 'Home'), 0);
  assert.equal(moments.step(timeline, 7, 'End'), last);
  assert.equal(moments.step(timeline, 7, 'x'), undefined);
  assert.equal(timeline.points[moments.step(timeline, 0, 'p')].event, timeline.peak_event);
  const next = moments.step(timeline, 0, 'PageDown');
  assert.ok(next > 0 && timeline.points[next].event <= timeline.phases[1].event);
});

test('how sure a verdict is: the runs of its kind, and that there are none', async () => {
  const { sureText } = await load('format/sure.ts');
  const { I18n } = await load('i18n/i18n.ts');
  const { en } = await load('i18n/en.ts');
  const { zh } = await load('i18n/zh.ts');
  const { TRACES, PUBLISHED } = await load('state/evidence.ts');
  const english = new I18n('en', 'gib', en);
  const of = (family, recipe, i18n = english) => sureText({ model: { family }, recipe: { stack: 'hf', task: 'training', ...recipe } }, i18n);
  const llama = of('llama', {});
  assert.ok(llama.includes(`${TRACES.llama.runs} runs of llama`), llama);
  assert.ok(llama.includes(`${PUBLISHED['hf one'].runs} published runs of this stack on a GPU`), llama);
  assert.match(llama, /[−-]\d+(\.\d+)?\s?% to \+\d/);
  assert.match(llama, /tensors are less than 0\.01% off/);
  assert.match(of('mistral', {}), /equal to the byte/);
  assert.match(of('llama', { dp: 8 }), /on several GPUs/);
  assert.match(of('opt', {}), /was not run for a model of this kind/);
  assert.match(of('llama', { stack: 'megatron' }), /was not run.*no published run/);
  assert.equal(of('llama', { stack: 'course' }), '');
  const chinese = of('llama', {}, new I18n('zh', 'gib', zh));
  assert.match(chinese, /可信度/);
  assert.doesNotMatch(chinese, /[a-z]{6,} [a-z]+ [a-z]+/);
});
