// catalogue.mjs - a few recipe keys of each kind, for tests of state that need no core.

export const KEYS = [
  { name: 'method', kind: 'choice', choices: ['full', 'lora', 'qlora'] },
  { name: 'batch', kind: 'integer', low: 1, high: 65536 },
  { name: 'seq', kind: 'integer', low: 1, high: 16777216 },
  { name: 'compile', kind: 'flag' },
  { name: 'targets', kind: 'names' },
  { name: 'lora_dropout', kind: 'real' },
  { name: 'units', kind: 'choice', choices: ['layers', 'titan'] },
  { name: 'gpu', kind: 'text', choices: ['h100-80gb', 'a100-80gb'] },
];

export const DEFAULTS = {
  method: 'full', batch: 1, seq: 2048, compile: false, targets: 'all-linear', lora_dropout: 0, units: 'layers', gpu: 'h100-80gb',
};
