import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { load, WEB } from './load.mjs';

const { I18n, browserLang } = await load('i18n/i18n.ts');
const TEXTS = {
  en: { ...(await load('i18n/en.ts')).en, ...(await load('i18n/below_en.ts')).belowEn, ...(await load('i18n/course_en.ts')).courseEn, ...(await load('i18n/problems_en.ts')).problemsEn },
  zh: { ...(await load('i18n/zh.ts')).zh, ...(await load('i18n/below_zh.ts')).belowZh, ...(await load('i18n/course_zh.ts')).courseZh, ...(await load('i18n/problems_zh.ts')).problemsZh },
};
const { problemText } = await load('i18n/problem_text.ts');
const types = await load('core/types.ts');
const core = (path) => readFile(`${WEB}/../core/${path}`, 'utf8');
const names = (text) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).sort();
const voices = ['en', 'zh'].map((lang) => new I18n(lang, 'gib', TEXTS[lang]));

test('both languages have the same keys, and each text the same values', () => {
  assert.deepEqual(Object.keys(TEXTS.zh).sort(), Object.keys(TEXTS.en).sort());
  for (const [key, text] of Object.entries(TEXTS.en)) assert.deepEqual(names(TEXTS.zh[key]), names(text), key);
});

test('no text is empty, and no Chinese text was forgotten', () => {
  const alike = new Set();
  for (const [key, text] of Object.entries(TEXTS.en)) {
    assert.notEqual(text.trim(), '', key);
    if (TEXTS.zh[key] === text) alike.add(key);
  }
  for (const key of alike) assert.match(TEXTS.en[key], /^[\w.{}()/ -]+$/, `${key} reads alike in both languages`);
});

test('every problem code of the core and of the page has sentences in both languages', async () => {
  const header = await core('base/problem.h');
  const codes = header.slice(header.indexOf('enum class'), header.indexOf('count_')).match(/^ {2}(\w+),/gm).map((line) => line.trim().slice(0, -1));
  assert.deepEqual([...types.PROBLEM_CODES], codes);
  for (const code of [...codes, ...types.PAGE_PROBLEM_CODES]) {
    for (const i18n of voices) {
      const text = problemText({ code, where: 'seq', read: '0', expected: '1..9', nearest: 'batch' }, i18n);
      assert.ok(text.length > 12 && !text.includes('{'), text);
      assert.ok(text.includes('batch'), `${code} names the nearest`);
    }
  }
});

test('every category and recipe key of the core has a name', async () => {
  const trace = await core('trace/trace.h');
  const categories = trace.slice(trace.indexOf('enum class Category'), trace.indexOf('count_')).match(/^ {2}(\w+),/gm).map((line) => line.trim().slice(0, -1));
  assert.deepEqual([...types.CATEGORIES].sort(), [...categories].sort());
  const keys = [...(await core('config/recipe.cc')).matchAll(/(?:choice|flag|integer)<&Recipe::\w+>\("(\w+)"|Row\{\{"(\w+)"/g)].map((match) => match[1] ?? match[2]);
  assert.ok(keys.length > 30);
  for (const key of keys) assert.ok(`key.${key}` in TEXTS.en, key);
  for (const category of categories) assert.ok(`category.${category}` in TEXTS.en, category);
});

test('every file that the core recognises has a name', async () => {
  const source = await core('config/wrong_file.cc');
  const ids = new Set([...source.matchAll(/(?:Magic\{"[^}]*?"(?:sv)?, |Telltale\{|return )"(\w+)"/g)].map((match) => match[1]));
  assert.ok(ids.size > 20, [...ids].join());
  for (const id of ids) assert.ok(`file.${id}` in TEXTS.en, id);
});

// The ids in the first column of a table in the core's sources.
async function tableIds(path, table, column = /^\s*\{"(\w+)",/gm) {
  const source = await core(path);
  const start = source.indexOf(`${table}[] = {`);
  assert.ok(start > 0, `${table} in ${path}`);
  return [...source.slice(start, source.indexOf('\n};', start)).matchAll(column)].map((match) => match[1]);
}

function inBothLanguages(prefix, ids) {
  assert.ok(ids.length > 0, prefix);
  for (const id of ids) assert.ok(`${prefix}.${id}` in TEXTS.en && `${prefix}.${id}` in TEXTS.zh, `${prefix}.${id}`);
}

test('every limit and note of the core has words in both languages', async () => {
  inBothLanguages('limit', await tableIds('answer/remarks.cc', 'kNotModelled'));
  inBothLanguages('note', await tableIds('answer/remarks.cc', 'kNotes'));
  inBothLanguages('note', [...(await core('answer/remarks.cc')).matchAll(/member\("id", "(\w+)"\)/g)].map((match) => match[1]));
  for (const file of ['model_config', 'rope_keys', 'other_models']) {
    inBothLanguages('note', [...(await core(`config/${file}.cc`)).matchAll(/notes\.emplace_back\("(\w+)"/g)].map((match) => match[1]));
  }
  inBothLanguages('reason', [...(await core('config/decoder_keys.cc')).matchAll(/untraced = "(\w+)"/g)].map((match) => match[1]));
});

test('every reason for which the core refuses a recipe has sentences in both languages', async () => {
  const refused = await tableIds('training/support.cc', 'kRefusals', /\{"\w+", "(\w+)",/g);
  const course = [...(await core('training/course.cc')).matchAll(/refuse\(recipe, "\w+", "(\w+)"\)/g)].map((match) => match[1]);
  const task = [
    ...(await tableIds('training/support.cc', 'kOnlyWhileGenerating', /\{"\w+", "(\w+)",/g)),
    ...(await tableIds('inference/support.cc', 'kRefusals', /\{"\w+", "(\w+)",/g)),
  ];
  assert.ok(refused.length > 20 && course.length > 0 && task.length > 10);
  inBothLanguages('reason', [...refused, ...course, ...task]);
  for (const expected of [...refused, ...course, ...task]) {
    for (const i18n of voices) {
      const text = problemText({ code: 'unsupported_recipe', where: 'loss', read: 'cut', expected, nearest: '' }, i18n);
      assert.ok(!text.includes(expected) && !text.includes('{'), text);
    }
  }
});

test('every letter of the core’s products is explained', async () => {
  const source = await core('trace/shape.cc');
  inBothLanguages('symbol', [...source.matchAll(/\{"([^"*]+)", \{none, none\}\}/g)].map((match) => match[1]));
});

test('problems say positions, lists and ranges in words', () => {
  const [en, zh] = voices;
  const facts = { where: '', read: '', expected: '', nearest: '' };
  assert.match(problemText({ ...facts, code: 'json_syntax', where: '3:14', read: "'}'" }, en), /line 3, column 14/);
  assert.match(problemText({ ...facts, code: 'not_one_of', where: 'loss', read: 'x', expected: 'full|cut' }, en), /full, cut/);
  assert.match(problemText({ ...facts, code: 'out_of_range', where: 'seq', read: '0', expected: '1..16777216' }, zh), /1 至 16777216/);
  assert.match(problemText({ ...facts, code: 'json_too_large', read: '52428800', expected: '8388608' }, en), /50\.00 MiB/);
  assert.match(problemText({ ...facts, code: 'wrong_file', read: 'tokenizer_config' }, zh), /分词器配置/);
});

test('phases and categories are named, unknown ids shown as they are', () => {
  const [en, zh] = voices;
  assert.equal(en.phase('step2.backward'), 'backward of step 2');
  assert.equal(zh.phase('step1.2.forward'), '第 1.2 步前向');
  assert.equal(en.category('[allocator rounding]'), 'Allocator rounding');
  assert.equal(en.phase('prefill'), 'prefill');
  assert.equal(en.phase('decode127'), 'decode of step 127');
  assert.equal(zh.phase('skipped2'), '略去的步');
  assert.equal(en.phase('step3.sing'), 'sing of step 3');
});

test('the language follows the browser’s list', () => {
  assert.equal(browserLang(['fr-FR', 'zh-CN', 'en']), 'zh');
  assert.equal(browserLang(['de', 'en-GB', 'zh']), 'en');
  assert.equal(browserLang([]), 'en');
});

test('every id of the OOM reader has a text in both languages', async () => {
  const { oomEn } = await load('i18n/oom_en.ts');
  const { oomZh } = await load('i18n/oom_zh.ts');
  assert.deepEqual(Object.keys(oomZh), Object.keys(oomEn));
  for (const [key, text] of Object.entries(oomEn)) assert.deepEqual(names(oomZh[key]), names(text), key);
  const schema = JSON.parse(await readFile(`${WEB}/../docs/schema/oom.schema.json`, 'utf8'));
  const plain = (id) => id.replaceAll(' ', '_');
  const advice = [...(await core('oom/advice.cc')).matchAll(/\{Cause::\w+, "(\w+)"/g)].map((match) => match[1]);
  assert.deepEqual([...new Set(advice)].sort(), [...schema.properties.advice.items.properties.id.enum].sort());
  for (const id of advice) assert.ok(`advice.${id}` in oomEn, id);
  for (const id of schema.$defs.cause.enum) assert.ok(`cause.${plain(id)}` in oomEn, id);
  for (const id of schema.properties.stage.enum) assert.ok(`stage.${plain(id)}` in oomEn, id);
  const conclusions = [...(await core('oom/against_report.cc')).matchAll(/"((?:prediction|other_process|sharding|longer|above)_\w+)"/g)].map((match) => match[1]);
  assert.deepEqual([...new Set(conclusions)].filter((id) => !id.endsWith('_bytes')).sort(), [...schema.$defs.prediction.properties.conclusions.items.enum].sort());
  for (const id of schema.$defs.prediction.properties.conclusions.items.enum) assert.ok(`conclusion.${id}` in oomEn, id);
  // Frames, log lines and words are shown by their kind; what is arithmetic has a sentence of its own.
  const numeric = [...`${await core('oom/numeric.cc')}${await core('oom/counters.cc')}`.matchAll(/add_evidence\(\s*d(?:iagnosis)?,\s*"(\w+)"/g)].map((match) => match[1]);
  assert.ok(numeric.length > 12);
  const kinds = ['stage_', 'frame_', 'log_', 'words_', 'device_'];
  for (const id of numeric) assert.ok(`evidence.${id}` in oomEn || kinds.some((kind) => id.startsWith(kind)), id);
  for (const kind of kinds) assert.ok(`evidence.${kind}` in oomEn, kind);
});

test('every change that the core advises has a name and a price in both languages, and a source unless it needs none', async () => {
  const ids = await tableIds('answer/advice.cc', 'kRows');
  assert.ok(ids.length > 20);
  inBothLanguages('advice', ids);
  inBothLanguages('cost', ids);
  const { ADVICE_SOURCES } = await load('state/advice_sources.ts');
  const without = ['drop_outputs', 'seq_half', 'prefill_logits_last', 'no_grad']; // facts of the recipe itself
  assert.deepEqual(Object.keys(ADVICE_SOURCES).sort(), ids.filter((id) => !without.includes(id)).sort());
});

test('every recipe key has a line of help in both languages, and a link', async () => {
  const keys = [...(await core('config/recipe.cc')).matchAll(/(?:choice|flag|integer)<&Recipe::\w+>\("(\w+)"|Row\{\{"(\w+)"/g)].map((match) => match[1] ?? match[2]);
  const { helpEn } = await load('i18n/help_en.ts');
  const { helpZh } = await load('i18n/help_zh.ts');
  const { KEY_DOCS } = await load('state/key_docs.ts');
  for (const [what, table] of Object.entries({ helpEn, helpZh, KEY_DOCS })) assert.deepEqual(Object.keys(table).sort(), [...keys].sort(), what);
});
