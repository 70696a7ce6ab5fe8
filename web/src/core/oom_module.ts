// oom_module.ts - oom.js and oom.wasm, two files beside the page; oom_module_single.ts has both inside it.

export interface OomModule { explain(request: string): string }
export type OomFactory = (options: { locateFile?: (name: string) => string; wasmBinary?: Uint8Array }) => Promise<OomModule>;

export async function createOomModule(): Promise<OomModule> {
  const beside = (name: string): string => new URL(name, import.meta.url).href;
  const glue = (await import(beside('oom.js'))) as { default: OomFactory };
  return glue.default({ locateFile: beside });
}
