// samples.ts - measurements that lie beside the page: measured/index.json lists them, if the site has any.
//
//   {"samples": ["host.json", ...]}   file names in measured/

import { SINGLE } from '../core/site.js';

export interface Sample { readonly name: string; readonly text: string }

export async function fetchSamples(base: URL): Promise<Sample[]> {
  if (SINGLE) return [];
  const index = await fetchText(new URL('measured/index.json', base));
  const names = index === undefined ? [] : sampleNames(index);
  const samples = await Promise.all(names.map(async (name) => ({ name, text: await fetchText(new URL(`measured/${name}`, base)) })));
  return samples.filter((sample): sample is Sample => sample.text !== undefined);
}

function sampleNames(index: string): string[] {
  try {
    const root = JSON.parse(index) as { samples?: unknown } | unknown[];
    const names = Array.isArray(root) ? root : root.samples;
    return Array.isArray(names) ? names.filter((name): name is string => typeof name === 'string' && /^[\w.-]+\.json$/.test(name)) : [];
  } catch {
    return []; // a site without a valid index has no samples
  }
}

async function fetchText(url: URL): Promise<string | undefined> {
  try {
    const response = await fetch(url);
    return response.ok ? await response.text() : undefined;
  } catch {
    return undefined; // offline: the page works without samples
  }
}
