// checkpoints.mjs - the module 'checkpoints' for esbuild: every row of core/config/checkpoints, in the order of their ids.

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const FOLDER = fileURLToPath(new URL('../core/config/checkpoints/', import.meta.url));

export async function readCheckpoints() {
  const names = (await readdir(FOLDER)).filter((name) => name.endsWith('.json')).sort();
  return Promise.all(names.map(async (name) => JSON.parse(await readFile(join(FOLDER, name), 'utf8'))));
}

export const checkpoints = {
  name: 'checkpoints',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^checkpoints$/ }, ({ path }) => ({ path, namespace: 'checkpoints' }));
    onLoad({ filter: /.*/, namespace: 'checkpoints' }, async () => ({ contents: JSON.stringify(await readCheckpoints()), loader: 'json' }));
  },
};
