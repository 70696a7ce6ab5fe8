// Every report that the core writes agrees with docs/schema, and adds up where it says it does. What the probe writes, and the core's
// other answers, are validate.py's. Needs build/bin/predict_cli.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { requests } from '../requests.mjs';

const requireWeb = createRequire(new URL('../../web/package.json', import.meta.url));
const { Ajv2020 } = requireWeb('ajv/dist/2020.js');

const root = new URL('../../', import.meta.url);
const schemaOf = (name) => JSON.parse(readFileSync(new URL(`docs/schema/${name}.schema.json`, root), 'utf8'));
const recipeSchema = schemaOf('recipe');
// `strict` would also refuse what the standard allows, e.g. a `then` whose keys are listed a level higher.
const ajv = new Ajv2020({ strict: false, allErrors: false });
ajv.addSchema(recipeSchema);
const isReport = ajv.compile(schemaOf('report'));
const isRecipe = ajv.getSchema(recipeSchema.$id);

const asked = requests();
const input = ['catalogue', ...asked.map(({ request }) => `predict ${request}`)].join('\n');
const [catalogue, ...answers] = execFileSync(fileURLToPath(new URL('build/bin/predict_cli', root)), { input, maxBuffer: 2 ** 30 })
  .toString('utf8').split('\n').slice(0, -1).map((line) => JSON.parse(line));
const named = (kind) => asked.flatMap(({ name }, i) => (answers[i][kind] ? [[name, answers[i][kind]]] : []));
const reports = named('report');

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

function addsUp({ at_peak, peaks }) {
  const alive = at_peak.tensor_bytes + at_peak.workspace_bytes;
  assert.equal(sum(Object.values(at_peak.categories)), alive);
  assert.equal(sum(at_peak.tensors.map(({ bytes }) => bytes)), alive);
  assert.equal(alive + at_peak.allocator_rounding_bytes, at_peak.allocated_bytes);
  assert.equal(at_peak.allocated_bytes + at_peak.cached_bytes, at_peak.reserved_bytes);
  assert.equal(at_peak.tensor_bytes, peaks.tensor_bytes);
  for (const { bytes, count, element_bytes, factors } of at_peak.tensors) {
    assert.equal(factors.reduce((product, { value }) => product * value, count * element_bytes), bytes);
  }
}

test('every request has one answer, a report or a problem', () => {
  assert.equal(answers.length, asked.length);
  assert.ok(reports.length >= 10 && named('problem').length >= 5);
  assert.equal(reports.length + named('problem').length, asked.length);
});

test('reports and their recipes are what the schemas say, and lines sum to the peak', () => {
  for (const [name, report] of reports) {
    assert.ok(isReport(report), `${name}: ${ajv.errorsText(isReport.errors)}`);
    assert.ok(isRecipe(report.recipe), `${name}: ${ajv.errorsText(isRecipe.errors)}`);
    addsUp(report);
  }
});

test('problems have a code and say what was read and expected', () => {
  for (const [name, problem] of named('problem')) {
    assert.deepEqual(Object.keys(problem).sort(), ['code', 'expected', 'nearest', 'read', 'where'], name);
    assert.match(problem.code, /^[a-z_]+$/);
  }
});

test('defaults are the schema’s', () => {
  const [, { recipe }] = reports.find(([name]) => name.endsWith(', default'));
  for (const [key, value] of Object.entries(recipe)) {
    const expected = recipeSchema.$defs[key].default;
    assert.deepEqual(value, Array.isArray(value) && typeof expected === 'string' ? [expected] : expected, key);
  }
});

test('recipe keys are the schema’s', () => {
  assert.deepEqual(catalogue.recipe_keys.map(({ name }) => name), Object.keys(recipeSchema.$defs.resolved.properties));
  for (const { name, kind, choices } of catalogue.recipe_keys) {
    if (kind === 'choice') assert.deepEqual(choices, recipeSchema.$defs[name].enum, name);
  }
});

test('a report that lost any one key, or has a wrong type, is refused', () => {
  const [, report] = reports[0];
  const without = (object, key) => Object.fromEntries(Object.entries(object).filter(([each]) => each !== key));
  for (const key of Object.keys(report)) assert.ok(!isReport(without(report, key)), `without ${key}`);
  for (const parent of ['peaks', 'at_peak', 'tool']) {
    for (const key of Object.keys(report[parent])) {
      assert.ok(!isReport({ ...report, [parent]: without(report[parent], key) }), `without ${parent}.${key}`);
    }
  }
  assert.ok(!isReport({ ...report, peaks: { ...report.peaks, tensor_bytes: '1' } }));
});
