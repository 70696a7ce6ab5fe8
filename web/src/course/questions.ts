// questions.ts - the self-test: each question with the number that the core computes for it. Nothing is typed in but the
// question's own terms.

import type { Recipe } from '../core/types.js';
import type { CourseLedger } from './lesson_types.js';
import type { Lab } from './lab.js';
import { LLAMA_3_8B } from './models.js';

const { num_hidden_layers: layers, hidden_size: width, intermediate_size: ffn } = LLAMA_3_8B;

export type QuestionId = 'full' | 'lora' | 'linear' | 'scores' | 'ddp' | 'fsdp' | 'sgd' | 'recompute' | 'swallow' | 'activations';

export interface Question {
  readonly id: QuestionId;
  readonly unit: 'GB' | 'GiB' | '×' | '%' | 'B' | '';
  readonly answer: number; // in the unit
  readonly within: number; // relative; 0: exact
  readonly values: Readonly<Record<string, string | number>>;
}

// `round` varies the models and lengths, so that a second try is not a memory.
export function questions(lab: Lab, round: number): Question[] {
  const billions = [70, 34, 13, 180][round % 4] as number;
  const to = [32, 16, 64, 128][round % 4] as number;
  const gpus = [8, 16, 4, 32][round % 4] as number;
  const params = billions * 1e9;
  const ledger = (recipe: Recipe, more = {}): CourseLedger => lab.ledger(LLAMA_3_8B, recipe, more);
  const [short, long] = [ledger({ seq: 4096 }).activations, ledger({ seq: to * 1024 }).activations];
  const compute = (checkpointing: string): number => ledger({ checkpointing }).compute.total;
  return [
    { id: 'full', unit: 'GB', within: 0.02, values: { billions }, answer: ledger({}, { params }).states_bytes / 1e9 },
    { id: 'lora', unit: 'GB', within: 0.03, values: { billions, share: 1.3 }, answer: ledger({ method: 'lora' }, { params, trained_per_mille: 13 }).states_bytes / 1e9 },
    { id: 'linear', unit: '×', within: 0, values: { to }, answer: long.all / short.all },
    { id: 'scores', unit: '×', within: 0, values: { to }, answer: long.scores / short.scores },
    { id: 'ddp', unit: 'GB', within: 0.03, values: { gpus }, answer: ledger({ method: 'lora', dp: gpus }).ranks.ddp.bytes / 1e9 },
    { id: 'fsdp', unit: 'GB', within: 0.03, values: { gpus, params: (ledger({}).params / 1e9).toFixed(2) }, answer: ledger({ dp: gpus }).ranks.fsdp.bytes / 1e9 },
    { id: 'sgd', unit: 'B', within: 0, values: {}, answer: ledger({ optimizer: 'sgd', precision: 'megatron-bf16-bf16grad' }).per_parameter.resident },
    { id: 'recompute', unit: '%', within: 0.06, values: {}, answer: 100 * (compute('full') / compute('none') - 1) },
    { id: 'swallow', unit: '', within: 0, values: {}, answer: lab.stored('bf16', { value: 1 + 1e-5 }).value ?? NaN },
    { id: 'activations', unit: 'GiB', within: 0.03, values: { batch: 8, seq: 4096, layers, width, ffn }, answer: ledger({ batch: 8, seq: 4096 }).activations.all / 2 ** 30 },
  ];
}

// "1,120", "1120 GB", "33,3" -> a number; undefined when there is none.
export function readAnswer(text: string): number | undefined {
  const digits = text.trim().replace(/[\s\u00a0]|GiB|GB|[%×xB字节倍]/gi, '').replace(/,(?=\d{3}(\D|$))/g, '').replace(',', '.').replace('−', '-');
  if (/^-?\d+\/\d+$/.test(digits)) return Number(digits.split('/')[0]) / Number(digits.split('/')[1]);
  return digits !== '' && Number.isFinite(Number(digits)) ? Number(digits) : undefined;
}

export function isRight({ answer, within }: Question, read: number): boolean {
  return Math.abs(read - answer) <= Math.max(Math.abs(answer) * within, 1e-9);
}
