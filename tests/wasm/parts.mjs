// parts.mjs - the core in node, from one file or from the two parts that the page loads (web/src/core/module.ts).

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

export class PartMissing extends Error {}

// folder: holds ledger.js and the named files, the first part first.
export async function loadParts(folder, names) {
  const [first, ...others] = await Promise.all(names.map((name) => WebAssembly.compile(readFileSync(join(folder, name)))));
  const placeholder = new Proxy({}, { get: () => () => { throw new PartMissing(); } });
  const { default: createLedger } = await import(pathToFileURL(join(folder, 'ledger.js')).href);
  return createLedger({
    instantiateWasm(imports, done) {
      const instance = new WebAssembly.Instance(first, { ...imports, placeholder, 'placeholder.deferred': placeholder });
      for (const other of others) new WebAssembly.Instance(other, { primary: instance.exports });
      done(instance, first);
      return instance.exports;
    },
  });
}
