// mutate.mjs - inputs made of inputs: bytes, words of a dictionary, lines, numbers, values of a JSON tree, two inputs joined.

const LARGEST = 8192;

// What breaks readers: limits, other languages' literals, nesting, names that every object has, markup.
const PIECES = [
  '-1', '0', '1e308', '1e999', '9007199254740993', '18446744073709551616', '-0', '0.1', 'NaN', '.nan', '.inf', '1_000', '0x10', 'null', '~', 'true', 'off', '"', "'", '\\', '\\u0000', '\ud800', '{', '}', '[', ']', ',',
  ':', ': ', '- ', '=', '&a ', '*a', '<<: *a', '!!js/function ', '!!binary ', '? ', '|', '>', '---\n', '%YAML 1.1\n---\n', '#', '\n', '\n  ', '\t', '\r\n', '\u2028', '\ufeff', '[[[[[[[[', '{"a":', '__proto__', 'constructor', 'toString',
  'valueOf', 'prototype', 'hasOwnProperty', '<img src=x onerror=ran=1>', '</script>', '${globalThis.ran=1}', '--', '%00', '%E0%A4%A', '&', '../', '2026-11-30', '{"toString":1,"valueOf":1}',
].map((text) => Buffer.from(text));

export class Mutator {
  constructor(seed, words) {
    this.state = seed >>> 0;
    this.words = [...PIECES, ...words.map((word) => Buffer.from(word))];
    this.known = new Set(this.words.map(String));
  }

  // mulberry32
  below(end) {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * end);
  }

  pick(list) {
    return list[this.below(list.length)];
  }

  // The dictionary grows by the words of what reached something new.
  learn(input) {
    for (const word of input.toString('latin1').match(/[\w.-]{3,32}/g) ?? []) {
      if (this.known.size > 4000 || this.known.has(word)) continue;
      this.known.add(word);
      this.words.push(Buffer.from(word, 'latin1'));
    }
  }

  mutate(input, other) {
    let result = input;
    for (let edits = 1 + this.below(5); edits > 0; --edits) result = this.pick(EDITS)(this, result, other);
    return result.subarray(0, LARGEST);
  }
}

const put = (input, at, piece, removed = 0) => Buffer.concat([input.subarray(0, at), piece, input.subarray(at + removed)]);

function asLines(m, input, edit) {
  const lines = input.toString('latin1').split('\n');
  edit(lines, m.below(lines.length));
  return Buffer.from(lines.join('\n'), 'latin1');
}

// One value of a JSON text becomes another; what is no JSON stays as it is.
function inTree(m, input) {
  let root;
  try {
    root = JSON.parse(input.toString());
  } catch {
    return input;
  }
  let [holder, key] = [{ root }, 'root'];
  while (holder[key] !== null && typeof holder[key] === 'object' && Object.keys(holder[key]).length > 0 && m.below(4) > 0) {
    holder = holder[key];
    key = m.pick(Object.keys(holder));
  }
  const values = [null, true, false, 0, -1, 0.5, 1e308, 2 ** 53, '', 'auto', '1', [], {}, [[]], [1], ['q_proj'], { toString: 1, valueOf: 1 }, { __proto__: null }, 'constructor', '__proto__', m.pick(m.words).toString()];
  if (m.below(5) === 0) delete holder[key];
  else holder[key] = m.below(6) === 0 ? { ...holder } : m.pick(values);
  return Buffer.from(JSON.stringify(holder === undefined || !('root' in holder) ? root : holder.root) ?? '');
}

const EDITS = [
  (m, input) => put(input, m.below(input.length + 1), Buffer.from([m.below(256)]), m.below(2)),
  (m, input) => put(input, m.below(input.length + 1), m.pick(m.words), m.below(2) * m.below(12)),
  (m, input) => put(input, m.below(input.length + 1), m.pick(m.words)),
  (m, input) => put(input, m.below(input.length + 1), Buffer.alloc(0), 1 + m.below(16)),
  (m, input) => { const at = m.below(input.length + 1); return put(input, m.below(input.length + 1), input.subarray(at, at + m.below(64))); },
  (m, input, other) => Buffer.concat([input.subarray(0, m.below(input.length + 1)), other.subarray(m.below(other.length + 1))]),
  (m, input) => asLines(m, input, (lines, at) => lines.splice(at, 1)),
  (m, input, other) => asLines(m, input, (lines, at) => lines.splice(at, 0, m.pick(other.toString('latin1').split('\n')))),
  (m, input) => asLines(m, input, (lines, at) => { lines[at] = lines[at].replace(/([:=]\s*).*/, (_, sign) => sign + m.pick(m.words).toString('latin1')); }),
  (m, input) => Buffer.from(input.toString('latin1').replace(/\d+/g, (digits) => (m.below(6) === 0 ? m.pick(PIECES).toString('latin1') : digits)), 'latin1'),
  inTree, inTree,
];
