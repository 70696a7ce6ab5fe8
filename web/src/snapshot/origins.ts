// origins.ts - what an allocation is for, told by the frames it was recorded with.
//
// A snapshot knows addresses and call stacks, not tensors. From the innermost frame outwards, the first row that knows a frame
// decides. Backward passes run on threads of the engine without Python frames: an allocation with none, in a history that has
// them, was made there.

import type { Category } from '../core/types.js';
import { isDict, type Value } from './unpickle.js';

export interface Frame {
  readonly filename: string;
  readonly line: number;
  readonly name: string;
}

// backward: gradients or temporaries, as long as they live says which; unknown: no frames, or none that any row knows.
export type Origin = Category | 'backward' | 'unknown';

interface Row {
  readonly file?: RegExp;
  readonly name?: RegExp;
  readonly origin: Origin;
}

const OPTIMIZER = /\/(optim|optimizers?|ops\/adam|ops\/lion)\/[\w./-]*\.py$/;
const ROWS: readonly Row[] = [
  { file: OPTIMIZER, name: /^(_?init_group|_?init_states?|state_init|initialize_optimizer_states|get_state_buffer|_new_buffer)$/, origin: 'optimizer_states' },
  { file: OPTIMIZER, origin: 'temporaries' },
  { file: /torch\/(distributed\/(fsdp|_composable|algorithms)|nn\/parallel)\/|deepspeed\/runtime\/(zero|comm)|torch\/distributed\/distributed_c10d\.py$/, origin: 'communication' },
  { name: /^torch::autograd::(Engine|generated::\w+Backward\w*)|Backward\w*::apply/, origin: 'backward' },
  { file: /torch\/autograd\/(function|graph|__init__)\.py$/, name: /^(backward|apply|_engine_run_backward)$/, origin: 'backward' },
  { file: /modeling_utils\.py$|core_model_loading\.py$|safetensors\/torch\.py$|accelerate\/(utils\/modeling|big_modeling)\.py$|torch\/nn\/(init|parameter)\.py$/, origin: 'weights' },
  { name: /^(load_state_dict|_load_from_state_dict|_load_state_dict_into_\w+|set_module_tensor_to_device|from_pretrained)$/, origin: 'weights' },
  { file: /torch\/nn\/modules\/module\.py$/, name: /^(_apply|convert|to|cuda|to_empty)$/, origin: 'weights' },
  { name: /^reset_parameters$|^__init__$/, file: /\/modules?\/|modeling_\w+\.py$|torch\/nn\//, origin: 'weights' },
  { file: /torch\/nn\/functional\.py$/, name: /^(cross_entropy|nll_loss)$/, origin: 'logits' },
  { file: /torch\/utils\/checkpoint\.py$|torch\/nn\/(functional|modules\/\w+)\.py$/, origin: 'activations' },
  { name: /^(forward|_call_impl)$/, origin: 'activations' },
];

// Machinery that stands between a line of a model and the allocation.
const UNTOLD = /torch\/(nn\/(modules\/module|functional|modules\/\w+)|_tensor|utils\/_\w+|utils\/checkpoint|autograd\/\w+|_ops|_compile|_dynamo\/\w+|optim\/optimizer)\.py$|\/(contextlib|functools|accelerate\/utils\/operations|accelerate\/hooks)\.py$/;

export function framesOf(value: Value | undefined): readonly Frame[] {
  if (!Array.isArray(value)) return [];
  return (value as readonly Value[]).filter(isDict).map(({ filename, line, name }) => ({ filename: told(filename).slice(-LONGEST_PATH), line: typeof line === 'number' ? line : 0, name: told(name).slice(0, LONGEST_NAME) }));
}

// The rows' patterns take time that grows with the square of what they look at.
const LONGEST_PATH = 512;
const LONGEST_NAME = 1024;

function told(value: Value | undefined): string {
  return typeof value === 'string' ? value : '';
}

// recorded: whether the history has frames at all.
export function originOf(frames: readonly Frame[], recorded: boolean): Origin {
  for (const frame of frames) {
    const row = ROWS.find(({ file, name }) => (!file || file.test(frame.filename)) && (!name || name.test(frame.name)));
    if (row) return row.origin;
  }
  return frames.length === 0 && recorded ? 'backward' : 'unknown';
}

// The line that a reader knows: the innermost frame that is not the framework's machinery; '' when there are no frames.
export function placeOf(frames: readonly Frame[]): string {
  const frame = frames.find(({ filename }) => filename.endsWith('.py') && !UNTOLD.test(filename)) ?? frames[0];
  if (!frame) return '';
  return `${frame.filename.split(/[\\/]/).slice(-2).join('/')}:${frame.line} ${frame.name}`;
}
