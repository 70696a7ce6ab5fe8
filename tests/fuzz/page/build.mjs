// build.mjs - what run.mjs runs: node tests/fuzz/page/build.mjs OUT
//
// Writes OUT/page.cjs (the page's readers and targets.ts in one file, whose blocks are counted) and OUT/seeds/<target>/.

import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { checkpoints } from '../../../web/checkpoints.mjs';

const WEB = new URL('../../../web/', import.meta.url);
const { build } = createRequire(new URL('package.json', WEB))('esbuild');
const fixture = (name) => fileURLToPath(new URL(`../../fixtures/${name}`, import.meta.url));
const [out] = process.argv.slice(2);

await build({
  entryPoints: [fileURLToPath(new URL('targets.ts', import.meta.url))], outfile: join(out, 'page.cjs'), bundle: true, format: 'cjs', platform: 'node', target: 'node20',
  nodePaths: [fileURLToPath(new URL('node_modules', WEB))], plugins: [checkpoints], logLevel: 'warning', define: { __SINGLE__: 'false', 'import.meta.url': '"http://localhost/page.js"' },
});
const SEEDS = {
  snapshot: () => readdirSync(fixture('snapshots')).filter((name) => name.endsWith('.pickle')).map((name) => readFileSync(join(fixture('snapshots'), name))),
  snapshot_json: () => [smallSnapshot()],
  link: () => JSON.parse(readFileSync(fixture('web/permalinks.json'), 'utf8')).map((row) => row.link),
  dropped: () => [readFileSync(fixture('configs/tinyllama-1.1b.json')), '{"batch": 2, "method": "lora", "targets": ["q_proj"]}', '{"method": "lora", "targets": ["\\u2028q_proj"]}', '{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"]}', report()],
};

function smallSnapshot() {
  const { segments, device_traces: traces } = JSON.parse(readFileSync(fixture('snapshots/snapshot.json'), 'utf8'));
  return JSON.stringify({ segments: segments.slice(0, 1), device_traces: traces.map((events) => events.slice(0, 12)) });
}

function report() {
  const { kind, schema_version, model, recipe } = JSON.parse(readFileSync(fixture('web/llama-3-8b.report.json'), 'utf8'));
  return JSON.stringify({ kind, schema_version, model, recipe });
}

const own = fileURLToPath(new URL('seeds', import.meta.url));
const source = readFileSync(new URL('targets.ts', import.meta.url), 'utf8');
const targets = [...source.matchAll(/^export const (\w+)/gm)].map(([, name]) => name);
for (const target of targets) {
  const folder = join(out, 'seeds', target);
  mkdirSync(folder, { recursive: true });
  (SEEDS[target]?.() ?? []).forEach((seed, at) => writeFileSync(join(folder, `seed-${at}`), seed));
  if (readdirSync(own).includes(target)) cpSync(join(own, target), folder, { recursive: true });
}
cpSync(fileURLToPath(new URL('../seeds/measured', import.meta.url)), join(out, 'seeds/dropped'), { recursive: true });
