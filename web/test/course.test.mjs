// The course's pure parts: the address, reading a reader's number, numbers as text, the order of claims.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { load, WEB } from './load.mjs';

const { readPlace, writePlace } = await load('course/place.ts');
const { isRight, readAnswer } = await load('course/questions.ts');
const { numberText, power } = await load('course/number_text.ts');
const { PARTS } = await load('course/claims.ts');
const { courseEn } = await load('i18n/course_en.ts');

test('an address names a figure and a language, in any order, and never throws', () => {
  assert.deepEqual(readPlace('#c5&lang=zh'), { at: 'c5', lang: 'zh' });
  assert.deepEqual(readPlace('#lang=en&c5'), { at: 'c5', lang: 'en' });
  assert.deepEqual(readPlace(''), { at: undefined, lang: undefined });
  assert.deepEqual(readPlace('#%&=x&lang=fr&"><script>'), { at: undefined, lang: undefined });
  assert.equal(writePlace({ at: 'c5', lang: 'zh' }), '#c5&lang=zh');
  assert.equal(writePlace({ at: undefined, lang: undefined }), '#');
});

test('a reader’s number is read with units, groups, decimal commas and fractions', () => {
  const cases = [['1120', 1120], ['1,120 GB', 1120], ['33,3 %', 33.3], ['16.06', 16.06], ['64×', 64], ['4/3', 4 / 3], ['１', undefined], ['', undefined], ['many', undefined], ['1.0', 1], ['8 B', 8], ['132 GiB', 132]];
  for (const [text, value] of cases) assert.equal(readAnswer(text), value, text);
});

test('an answer is right within its tolerance, an exact one only exactly', () => {
  const about = { answer: 1120, within: 0.02 };
  assert.ok(isRight(about, 1120) && isRight(about, 1130) && !isRight(about, 1150));
  const exact = { answer: 8, within: 0 };
  assert.ok(isRight(exact, 8) && !isRight(exact, 8.01));
});

test('numbers read back equal, powers of two are shown as such', () => {
  assert.equal(numberText(1.0078125, '–'), '1.0078125');
  assert.equal(numberText(-0, '–'), '−0');
  assert.equal(numberText(1e-8, '–'), '1e-8');
  assert.equal(numberText(null, '–'), '–');
  assert.equal(power(2 ** -7), '2⁻⁷ = 0.0078125');
  assert.equal(power(65536), '2¹⁶ = 65536');
  assert.equal(power(0.3), '0.3');
});

test('all twenty-five claims stand on the page, each once, with a figure of its own and a row in docs/course.md', async () => {
  const claims = PARTS.flatMap(({ claims }) => claims);
  const ids = claims.flatMap(({ ids }) => ids);
  const all = Array.from({ length: 25 }, (_, i) => `C${i + 1}`);
  assert.deepEqual([...ids].sort(), [...all].sort());
  const sources = await Promise.all(['bytes_figures', 'activation_figures', 'data_path', 'measure_figure', 'number_lab', 'oom_figure', 'precision_figures', 'ranks_figure', 'self_test']
    .map((name) => readFile(`${WEB}/src/course/${name}.ts`, 'utf8')));
  for (const { figure, title, text } of claims) {
    assert.ok(sources.some((source) => source.includes(`@customElement('${figure}')`)), figure);
    assert.ok(title in courseEn && text in courseEn, title);
  }
  const rows = await readFile(`${WEB}/../docs/course.md`, 'utf8');
  for (const id of all) assert.match(rows, new RegExp(`^\\| ${id} \\|`, 'm'));
});
