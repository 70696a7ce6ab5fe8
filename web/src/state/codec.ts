// codec.ts - a config.json as URL-safe text: deflate-raw, then base64url. Uses the browser's own CompressionStream.

import { LARGEST_INPUT_BYTES } from '../core/limits.js';

export async function pack(text: string): Promise<string> {
  const compressed = await throughStream(new TextEncoder().encode(text), new CompressionStream('deflate-raw'));
  let binary = '';
  for (const byte of compressed) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

// undefined when it is damaged, or inflates beyond what the page would read from a file.
export async function unpack(packed: string): Promise<string | undefined> {
  if (!/^[A-Za-z0-9_-]+$/.test(packed)) return undefined;
  try {
    const binary = atob(packed.replaceAll('-', '+').replaceAll('_', '/'));
    const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
    const inflated = await throughStream(bytes, new DecompressionStream('deflate-raw'));
    return new TextDecoder('utf-8', { fatal: true }).decode(inflated);
  } catch {
    return undefined; // reported by the caller as a bad link, with the key
  }
}

async function throughStream(input: Uint8Array<ArrayBuffer>, stream: CompressionStream | DecompressionStream): Promise<Uint8Array> {
  const reader = new Blob([input]).stream().pipeThrough(stream).getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > LARGEST_INPUT_BYTES) throw new RangeError('inflates beyond the limit');
    chunks.push(value);
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}
