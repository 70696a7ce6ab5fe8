// types.ts - the documents of docs/file-formats.md as TypeScript: report, comparison, catalogue, problem.
//
// External formats keep their spelling (snake_case, bytes as integers); nothing here is computed.

export type Bytes = number; // integers below 2^53

export const CATEGORIES = [
  'weights', 'master_weights', 'buffers', 'optimizer_states', 'gradients', 'inputs', 'activations', 'logits',
  'kv_cache', 'activation_gradients', 'temporaries', 'communication', 'workspace',
] as const;
export type Category = (typeof CATEGORIES)[number];

export const PROBLEM_CODES = [
  'json_syntax', 'json_too_large', 'json_too_deep', 'not_an_object', 'missing_key', 'wrong_type', 'out_of_range',
  'not_one_of', 'unknown_key', 'wrong_file', 'unknown_model_type', 'inconsistent_config', 'unsupported_recipe',
  'too_large_to_trace', 'overflow', 'schema_version',
] as const;
export type ProblemCode = (typeof PROBLEM_CODES)[number];

// Failures that arise on the page itself, before or around the core.
export const PAGE_PROBLEM_CODES = [
  'no_wasm', 'wasm_blocked', 'wasm_missing', 'wasm_timeout', 'core_crashed', 'core_incomplete', 'file_unreadable', 'bad_link', 'unknown_preset', 'hub_refused', 'part_missing',
] as const;
export type PageProblemCode = (typeof PAGE_PROBLEM_CODES)[number];

export interface Problem {
  readonly code: ProblemCode | PageProblemCode;
  readonly where: string;
  readonly read: string;
  readonly expected: string;
  readonly nearest: string;
}

export function problem(code: Problem['code'], facts: Partial<Omit<Problem, 'code'>> = {}): Problem {
  return { code, where: '', read: '', expected: '', nearest: '', ...facts };
}

export type RecipeValue = string | number | boolean | readonly string[];
export type Recipe = Readonly<Record<string, RecipeValue>>;

export interface Factor { readonly symbol: string; readonly value: number }

export interface Line {
  readonly name: string;
  readonly op: string;
  readonly category: Category;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly factors: readonly Factor[];
  readonly element_bytes: number;
  readonly count: number;
  readonly bytes: Bytes;
  readonly source?: string;
}

export interface Peaks {
  readonly tensor_bytes: Bytes;
  readonly workspace_bytes: Bytes;
  readonly allocated_bytes: Bytes;
  readonly reserved_bytes: Bytes;
  readonly device_bytes: Bytes | null;
  readonly device_band_bytes?: readonly [Bytes, Bytes];
  readonly phase: string;
  readonly op: string;
}

export interface Phase {
  readonly name: string;
  readonly start_bytes: Bytes;
  readonly peak_bytes: Bytes;
  readonly end_bytes: Bytes;
  readonly allocated_peak_bytes: Bytes;
  readonly reserved_peak_bytes: Bytes;
  readonly op: string;
}

export interface AtPeak {
  readonly event: number;
  readonly phase: string;
  readonly op: string;
  readonly tensor_bytes: Bytes;
  readonly workspace_bytes: Bytes;
  readonly allocator_rounding_bytes: Bytes;
  readonly allocated_bytes: Bytes;
  readonly cached_bytes: Bytes;
  readonly reserved_bytes: Bytes;
  readonly categories: Readonly<Partial<Record<Category, Bytes>>>;
  readonly tensors: readonly Line[];
}

export interface Point {
  readonly event: number;
  readonly tensor_bytes: Bytes;
  readonly allocated_bytes: Bytes;
  readonly reserved_bytes: Bytes;
  readonly categories: readonly Bytes[];
}

export interface Timeline {
  readonly events: number;
  readonly points: readonly Point[];
  readonly categories: readonly Category[];
  readonly phases: readonly { readonly name: string; readonly event: number }[];
  readonly peak_event: number;
}

export type Answer = 'fits' | 'tight' | 'does_not_fit';

export interface Verdict {
  readonly gpu: string;
  readonly gpu_name?: string;
  readonly capacity_bytes: Bytes;
  readonly usable_bytes: Bytes;
  readonly answer: Answer;
  readonly headroom_bytes: Bytes; // usable less the allocated peak
  readonly fragmentation?: boolean; // it fails although the allocated peak would fit
  readonly out_of_memory?: OutOfMemory | null;
  readonly largest_category: Category;
  readonly largest_line: string;
}

// The allocation at which the run would fail on this card.
export interface OutOfMemory {
  readonly phase: string;
  readonly name: string;
  readonly op: string;
  readonly bytes: Bytes;
  readonly layer: number; // -1 outside the layers
}

export interface Model {
  readonly family: string;
  readonly params: number;
  readonly trainable: number;
  readonly config: unknown;
  readonly dims?: Readonly<Record<string, number>>;
}

// With pp > 1: the stage that the rest of the report is told of, and the most that each needs.
export interface Pipeline {
  readonly stage: number; // from 0
  readonly stages: readonly { readonly tensor_bytes: Bytes; readonly allocated_bytes: Bytes }[];
}

// Host memory of an offloading framework, for one rank.
export interface HostMemory {
  readonly tensor_bytes: Bytes;
  readonly tensors: readonly { readonly name: string; readonly category: string; readonly dtype: string; readonly count: number; readonly bytes: Bytes }[];
}

export interface Report {
  readonly schema_version: string;
  readonly kind: 'predicted';
  readonly tool: { readonly name: string; readonly version: string };
  readonly model: Model;
  readonly recipe: Recipe;
  readonly peaks: Peaks;
  readonly pipeline?: Pipeline;
  readonly phases: readonly Phase[];
  readonly at_peak: AtPeak;
  readonly host_memory?: HostMemory;
  readonly timeline: Timeline;
  readonly verdict: Verdict;
  readonly not_modelled: readonly string[];
  readonly notes: readonly { readonly id: string; readonly detail: string }[];
}

// What a timeline is drawn from: a report, or a recorded history, whose categories are its own.
export interface Drawn {
  readonly peaks: Pick<Peaks, 'tensor_bytes' | 'workspace_bytes' | 'reserved_bytes'>;
  readonly verdict: Pick<Verdict, 'usable_bytes'>;
  readonly timeline: Omit<Timeline, 'categories'> & { readonly categories: readonly string[] };
  readonly phases: readonly Phase[];
  readonly measured?: readonly MeasuredPoint[]; // laid over it, at its own events
}

export interface MeasuredPoint {
  readonly event: number;
  readonly allocated_bytes: Bytes;
  readonly reserved_bytes: Bytes;
}

export interface ComparedRow {
  readonly name: string;
  readonly predicted_bytes: Bytes | null;
  readonly measured_bytes: Bytes | null;
  readonly difference_bytes: Bytes | null;
  readonly lines?: readonly ComparedRow[]; // add up to the row
}

export interface Comparison {
  readonly schema_version: string;
  readonly kind: 'comparison';
  readonly environment?: Readonly<Record<string, unknown>>;
  readonly model?: Partial<Model>;
  readonly recipe: Recipe;
  readonly status: string;
  readonly peaks: readonly ComparedRow[];
  readonly phases: readonly ComparedRow[];
  readonly categories: readonly ComparedRow[];
  readonly ranks?: readonly ComparedRow[]; // where several ran
  readonly timeline?: Timeline; // the prediction's; both where the file has one that can be laid over it
  readonly measured_points?: readonly MeasuredPoint[];
  readonly notes: readonly (string | { readonly id: string; readonly detail: string })[];
}

export interface Gpu {
  readonly id: string;
  readonly name: string;
  readonly label_bytes?: Bytes;
  readonly usable_bytes: Bytes;
  readonly source?: string; // of usable_bytes: "owner/repository#number", or words
}

export type KeyKind = 'choice' | 'flag' | 'integer' | 'real' | 'names' | 'text';

export interface RecipeKey {
  readonly name: string;
  readonly kind: KeyKind;
  readonly choices?: readonly string[];
  readonly low?: number;
  readonly high?: number;
  readonly default: string; // as text
}

export interface Catalogue {
  readonly version: string;
  readonly gpus: readonly Gpu[];
  readonly recipe_keys: readonly RecipeKey[];
}

// Every call of the core answers with one of the two.
export type Outcome<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly problem: Problem };
