// load.mjs - imports a module of src/ as the page's bundle would hold it: load('state/hash.ts').

import { build } from 'esbuild';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { checkpoints } from '../checkpoints.mjs';

export const WEB = fileURLToPath(new URL('..', import.meta.url));

export async function load(module) {
  const result = await build({
    entryPoints: [join(WEB, 'src', module)], bundle: true, write: false, format: 'esm', target: 'node18', logLevel: 'silent', plugins: [checkpoints], define: { __SINGLE__: 'false', 'import.meta.url': '"http://localhost/page.js"' },
  });
  return import(`data:text/javascript;base64,${Buffer.from(result.outputFiles[0].contents).toString('base64')}`);
}
