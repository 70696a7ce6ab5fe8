// unpickle.ts - reads a pickle of plain values, chunk by chunk, without ever running what it says.
//
// A pickle is a program for a small stack machine (CPython Lib/pickletools.py lists its opcodes). Those that only build dicts,
// lists, tuples, sets, strings, bytes and numbers are here; those that import or call something are refused by name. Chunks may end
// anywhere: an opcode that is not all there yet waits for the next one.

export type Value = null | boolean | number | bigint | string | Uint8Array | readonly Value[] | Dict;
export interface Dict { readonly [key: string]: Value }

export type PickleFault =
  | { readonly kind: 'runs_code'; readonly opcode: string; readonly at: number } // of the file, in bytes
  | { readonly kind: 'unknown_opcode' | 'damaged'; readonly opcode: string; readonly at: number }
  | { readonly kind: 'cut_short'; readonly at: number };

export class PickleError extends Error {
  constructor(readonly fault: PickleFault) {
    super(fault.kind);
  }
}

class Incomplete extends Error {}

const MARK = Symbol('mark');
type Item = Value | typeof MARK;

// What imports or calls: c GLOBAL, i INST, o OBJ, R REDUCE, b BUILD, 0x81 NEWOBJ, 0x92 NEWOBJ_EX, 0x93 STACK_GLOBAL, P and Q PERSID,
// 0x82 to 0x84 EXT.
const RUNS_CODE: Readonly<Record<number, string>> = {
  0x63: 'GLOBAL', 0x69: 'INST', 0x6f: 'OBJ', 0x52: 'REDUCE', 0x62: 'BUILD', 0x81: 'NEWOBJ', 0x92: 'NEWOBJ_EX', 0x93: 'STACK_GLOBAL',
  0x50: 'PERSID', 0x51: 'BINPERSID', 0x82: 'EXT1', 0x83: 'EXT2', 0x84: 'EXT4',
};

export class Unpickler {
  result: Value | undefined; // there once STOP has been read
  private bytes: Uint8Array = new Uint8Array(0);
  private view = new DataView(this.bytes.buffer);
  private at = 0;
  private before = 0; // bytes of the chunks that are done with
  private readonly stack: Item[] = [];
  private readonly memo: Value[] = [];
  private readonly text = new TextDecoder();

  get done(): boolean {
    return this.result !== undefined;
  }

  // Throws PickleError.
  feed(chunk: Uint8Array): void {
    this.append(chunk);
    while (!this.done && this.at < this.bytes.length) {
      const start = this.at;
      try {
        this.step();
      } catch (error) {
        if (!(error instanceof Incomplete)) throw error;
        this.at = start;
        return;
      }
    }
  }

  finish(): Value {
    if (this.result === undefined) throw new PickleError({ kind: 'cut_short', at: this.before + this.bytes.length });
    return this.result;
  }

  private append(chunk: Uint8Array): void {
    const rest = this.bytes.subarray(this.at);
    this.before += this.at;
    this.bytes = rest.length === 0 ? chunk : joined(rest, chunk);
    this.view = new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length);
    this.at = 0;
  }

  private step(): void {
    const at = this.at;
    const code = this.u8();
    const run = OPCODES[code];
    if (run) return run(this);
    const opcode = RUNS_CODE[code];
    if (opcode !== undefined) throw new PickleError({ kind: 'runs_code', opcode, at: this.before + at });
    throw new PickleError({ kind: 'unknown_opcode', opcode: `0x${code.toString(16).padStart(2, '0')}`, at: this.before + at });
  }

  // Reading.

  private skip(count: number): number {
    if (this.at + count > this.bytes.length) throw new Incomplete();
    this.at += count;
    return this.at - count;
  }

  u8(): number {
    return this.bytes[this.skip(1)] as number;
  }

  u16(): number {
    return this.view.getUint16(this.skip(2), true);
  }

  i32(): number {
    return this.view.getInt32(this.skip(4), true);
  }

  u32(): number {
    return this.view.getUint32(this.skip(4), true);
  }

  u64(): number {
    const value = this.view.getBigUint64(this.skip(8), true);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) this.damaged('length');
    return Number(value);
  }

  f64(): number {
    return this.view.getFloat64(this.skip(8), false);
  }

  raw(count: number): Uint8Array {
    const from = this.skip(count);
    return this.bytes.subarray(from, from + count);
  }

  string(count: number): string {
    return this.text.decode(this.raw(count));
  }

  line(): string {
    const end = this.bytes.indexOf(0x0a, this.at);
    if (end < 0) throw new Incomplete();
    const line = this.string(end - this.at);
    this.at += 1;
    return line;
  }

  damaged(opcode: string): never {
    throw new PickleError({ kind: 'damaged', opcode, at: this.before + this.at });
  }

  // The stack.

  push(value: Value): void {
    this.stack.push(value);
  }

  pop(): Value {
    const value = this.stack.pop();
    if (value === undefined || value === MARK) this.damaged('pop');
    return value;
  }

  top(): Value {
    const value = this.stack.at(-1);
    if (value === undefined || value === MARK) this.damaged('top');
    return value;
  }

  mark(): void {
    this.stack.push(MARK);
  }

  toMark(): Value[] {
    const at = this.stack.lastIndexOf(MARK);
    if (at < 0) this.damaged('mark');
    const values = this.stack.splice(at) as Value[];
    values.shift();
    return values;
  }

  drop(): void {
    if (this.stack.pop() === undefined) this.damaged('pop');
  }

  remember(key: number = this.memo.length): void {
    if (key > 0xffff_ffff) this.damaged('memo');
    this.memo[key] = this.top();
  }

  recall(key: number): void {
    const value = this.memo[key];
    if (value === undefined) this.damaged('memo');
    this.push(value);
  }

  extend(values: readonly Value[]): void {
    const list = this.top();
    if (!Array.isArray(list)) this.damaged('append');
    for (const value of values) (list as Value[]).push(value);
  }

  // Keys of other plain kinds are kept as their text. Tuples as keys all share one text: a few bytes can say one that is as long as
  // memory. A key that would reach the prototype of every object is left out.
  assign(values: readonly Value[]): void {
    const dict = this.top();
    if (!isDict(dict)) this.damaged('setitem');
    for (let i = 0; i + 1 < values.length; i += 2) {
      const key = isHolder(values[i]) ? '(…)' : String(values[i]);
      if (key !== '__proto__') (dict as Record<string, Value>)[key] = values[i + 1] as Value;
    }
  }

  stop(): void {
    this.result = this.pop();
  }
}

export function isDict(value: Value | undefined): value is Dict {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
}

function isHolder(value: Value | undefined): boolean {
  return typeof value === 'object' && value !== null;
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

const LONGEST_INTEGER = 256; // bytes: sizes and addresses have eight, and the time that a long one takes grows with its square

// Little-endian two's complement, as LONG1 and LONG4 hold it; a number where one is exact.
function long(machine: Unpickler, length: number): number | bigint {
  if (length > LONGEST_INTEGER) machine.damaged('number');
  const bytes = machine.raw(length);
  let value = 0n;
  for (let i = bytes.length - 1; i >= 0; --i) value = (value << 8n) | BigInt(bytes[i] as number);
  if (bytes.length > 0 && (bytes.at(-1) as number) >= 0x80) value -= 1n << BigInt(8 * bytes.length);
  return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

function number(machine: Unpickler, text: string): number {
  const value = text.trim() === '' ? Number.NaN : Number(text.replace(/L$/, ''));
  return Number.isNaN(value) && text !== 'nan' ? machine.damaged('number') : value;
}

function tuple(machine: Unpickler, length: number): void {
  const values = Array.from({ length }, () => machine.pop()).reverse();
  machine.push(values);
}

const setOf = (machine: Unpickler): void => machine.push(machine.toMark());

const OPCODES: Readonly<Record<number, (machine: Unpickler) => void>> = {
  0x80: (m) => void m.u8(), // PROTO
  0x95: (m) => void m.u64(), // FRAME: its length, which chunks make idle
  0x2e: (m) => m.stop(),
  0x28: (m) => m.mark(),
  0x30: (m) => m.drop(),
  0x31: (m) => void m.toMark(), // POP_MARK
  0x32: (m) => m.push(m.top()), // DUP
  0x4e: (m) => m.push(null),
  0x88: (m) => m.push(true),
  0x89: (m) => m.push(false),
  0x4b: (m) => m.push(m.u8()),
  0x4d: (m) => m.push(m.u16()),
  0x4a: (m) => m.push(m.i32()),
  0x8a: (m) => m.push(long(m, m.u8())),
  0x8b: (m) => m.push(long(m, m.u32())),
  0x47: (m) => m.push(m.f64()),
  0x49: (m) => { const line = m.line(); m.push(line === '01' ? true : line === '00' ? false : number(m, line)); }, // INT
  0x4c: (m) => m.push(number(m, m.line())), // LONG
  0x46: (m) => m.push(number(m, m.line())), // FLOAT
  0x8c: (m) => m.push(m.string(m.u8())),
  0x58: (m) => m.push(m.string(m.u32())),
  0x8d: (m) => m.push(m.string(m.u64())),
  0x56: (m) => m.push(m.line()), // UNICODE
  0x43: (m) => m.push(m.raw(m.u8()).slice()),
  0x42: (m) => m.push(m.raw(m.u32()).slice()),
  0x8e: (m) => m.push(m.raw(m.u64()).slice()),
  0x96: (m) => m.push(m.raw(m.u64()).slice()), // BYTEARRAY8
  0x55: (m) => m.push(m.string(m.u8())), // SHORT_BINSTRING
  0x54: (m) => m.push(m.string(m.u32())), // BINSTRING
  0x5d: (m) => m.push([]),
  0x29: (m) => m.push([]),
  0x7d: (m) => m.push({}),
  0x8f: (m) => m.push([]), // EMPTY_SET
  0x91: setOf, // FROZENSET
  0x74: setOf, // TUPLE
  0x6c: setOf, // LIST
  0x85: (m) => tuple(m, 1),
  0x86: (m) => tuple(m, 2),
  0x87: (m) => tuple(m, 3),
  0x61: (m) => { const value = m.pop(); m.extend([value]); },
  0x65: (m) => { const values = m.toMark(); m.extend(values); },
  0x90: (m) => { const values = m.toMark(); m.extend(values); }, // ADDITEMS
  0x64: (m) => { const values = m.toMark(); m.push({}); m.assign(values); }, // DICT
  0x73: (m) => { const value = m.pop(); const key = m.pop(); m.assign([key, value]); },
  0x75: (m) => { const values = m.toMark(); m.assign(values); },
  0x94: (m) => m.remember(),
  0x71: (m) => m.remember(m.u8()),
  0x72: (m) => m.remember(m.u32()),
  0x70: (m) => m.remember(number(m, m.line())),
  0x68: (m) => m.recall(m.u8()),
  0x6a: (m) => m.recall(m.u32()),
  0x67: (m) => m.recall(number(m, m.line())),
};
