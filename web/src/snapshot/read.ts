// read.ts - a snapshot file, a mebibyte at a time: the file is never in memory as a whole.

import { digest, NotASnapshot, type DeviceDigest } from './digest.js';
import { PickleError, Unpickler, type PickleFault, type Value } from './unpickle.js';

export type SnapshotFault =
  | PickleFault
  | { readonly kind: 'not_a_snapshot' }
  | { readonly kind: 'unreadable'; readonly read: string };

export type SnapshotRead = { readonly ok: true; readonly devices: readonly DeviceDigest[] } | { readonly ok: false; readonly fault: SnapshotFault };

const CHUNK = 1 << 20;

// progress: of the file's bytes, from 0 to 1.
export async function readSnapshot(file: Blob, progress: (share: number) => void): Promise<SnapshotRead> {
  try {
    const json = (await file.slice(0, 1).text()) === '{';
    const root = json ? (JSON.parse(await file.text()) as Value) : await unpickled(file, progress);
    return { ok: true, devices: digest(root) };
  } catch (error) {
    return { ok: false, fault: faultOf(error) };
  }
}

async function unpickled(file: Blob, progress: (share: number) => void): Promise<Value> {
  const machine = new Unpickler();
  for (let at = 0; at < file.size && !machine.done; at += CHUNK) {
    machine.feed(new Uint8Array(await file.slice(at, at + CHUNK).arrayBuffer()));
    progress(Math.min(1, (at + CHUNK) / file.size));
  }
  return machine.finish();
}

function faultOf(error: unknown): SnapshotFault {
  if (error instanceof PickleError) return error.fault;
  if (error instanceof NotASnapshot) return { kind: 'not_a_snapshot' };
  return { kind: 'unreadable', read: String(error).slice(0, 200) };
}
