// The documents for users say the same in Chinese: the same headings, the same code, the same rows of the same tables.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const DOCS = fileURLToPath(new URL('../../docs', import.meta.url));
const pages = (folder) => readdirSync(folder).filter((name) => name.endsWith('.md'));
const CHINESE = pages(join(DOCS, 'zh'));
// For those who change the project or read its files with a program; cli.md and accuracy.md are generated.
const ENGLISH_ONLY = ['accuracy', 'adding-a-model', 'adding-an-optimizer-or-a-gpu', 'architecture', 'cli', 'design', 'file-formats', 'probe-cuda'].map((name) => `${name}.md`);

const FENCED = /^(```|~~~)[^\n]*\n[\s\S]*?^\1$/gm;
const english = (name) => readFileSync(join(DOCS, name), 'utf8');
const chinese = (name) => readFileSync(join(DOCS, 'zh', name), 'utf8');
const spans = (text) => [...text.matchAll(/`([^`\n]+)`/g)].map((match) => match[1]);

const headingLevels = (text) => [...text.replace(FENCED, '').matchAll(/^#+(?= )/gm)].map((match) => match[0].length);

// What code says to its reader may be in the reader's language: comments, titles, and the language asked for.
const IN_THE_READERS_LANGUAGE = [/\s+(#|\/\/) .*$/gm, /\s*\/\* .*? \*\//g, / lang="zh"/g, /&lang=zh/g, / ?title="[^"]*"/g];
function codeBlocks(text) {
  const fenced = text.match(FENCED) ?? [];
  const indented = text.replace(FENCED, '').match(/(?<=^\n)(?: {4}.*\n?)+/gm) ?? [];
  return [...fenced, ...indented].map((block) => IN_THE_READERS_LANGUAGE.reduce((code, said) => code.replace(said, ''), block).trim());
}

// Each row by the code in it: keys, values and codes are no words. The order within a row is the language's.
const tableRows = (text) => [...text.replace(FENCED, '').matchAll(/^\|.*\|$/gm)].map(([row]) => ({ cells: row.split(/(?<!\\)\|/).length, code: [...new Set(spans(row))].sort() }));

const codeInProse = (text) => [...new Set(spans(text.replace(FENCED, '').replace(/^\|.*\|$/gm, '')))].sort();

test('every page is in Chinese, or among those that stay English', () => {
  assert.deepEqual([...CHINESE, ...ENGLISH_ONLY].sort(), pages(DOCS).sort());
  assert.ok(CHINESE.length > 10);
});

for (const name of CHINESE) {
  test(`${name}: the two languages link to each other at the top`, () => {
    assert.equal(english(name).split('\n')[2], `[中文](zh/${name})`);
    assert.equal(chinese(name).split('\n')[2], `[English](../${name})`);
  });

  test(`${name}: links of the Chinese page lead to Chinese pages where there are any`, () => {
    for (const [, target] of chinese(name).split('\n').slice(3).join('\n').matchAll(/\]\(\.\.\/([\w-]+\.md)/g)) assert.ok(ENGLISH_ONLY.includes(target), target);
  });

  test(`${name}: headings, code and tables are the same in both languages`, () => {
    for (const part of [headingLevels, codeBlocks, tableRows, codeInProse]) assert.deepEqual(part(chinese(name)), part(english(name)), part.name);
  });
}
