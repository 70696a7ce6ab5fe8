#include "core/training/course.h"

#include <string>

#include "core/trace/tape.h"
#include "core/training/support.h"

namespace ledger {
namespace {

struct PrecisionRow {
  Precision precision;
  std::uint64_t weights, gradients, master_weights, moment, transient_copy;
};

// `bf16` is the chapter's 2 + 2 + 4 + 4 + 4; `amp-bf16` and `fp32` its 4 + 4 + 4 + 4.
constexpr PrecisionRow kPrecisions[] = {
    {Precision::bf16, 2, 2, 4, 4, 0},          {Precision::megatron_bf16_bf16grad, 2, 2, 4, 4, 0},
    {Precision::megatron_bf16, 2, 4, 4, 4, 0}, {Precision::amp_bf16, 4, 4, 0, 4, 2},
    {Precision::amp_fp16, 4, 4, 0, 4, 2},      {Precision::fp32, 4, 4, 0, 4, 0},
};

struct StateRow {
  Optimizer optimizer;
  std::uint64_t moments;
  bool quantised;  // one byte a moment; block scales are left out, as in the chapter
};

constexpr StateRow kStates[] = {
    {Optimizer::adamw_fused, 2, false}, {Optimizer::adamw_foreach, 2, false}, {Optimizer::adamw_forloop, 2, false},
    {Optimizer::adamw_8bit, 2, true},   {Optimizer::sgd, 0, false},           {Optimizer::sgd_momentum, 1, false},
};

const StateRow* find(Optimizer optimizer) {
  for (const StateRow& row : kStates) {
    if (row.optimizer == optimizer) return &row;
  }
  return nullptr;
}

Problem refuse(const Recipe& recipe, const char* key, const char* reason) {
  return {ProblemCode::unsupported_recipe, key, recipe_value(recipe, key), reason, ""};
}

// `count` elements of `bytes` bytes each, as one tensor.
Tensor block(Tape& tape, const char* name, Category category, std::uint64_t count, std::uint64_t bytes) {
  if (count == 0 || bytes == 0) return Tensor();
  const Tape::Scope scope(tape, name);
  const Tape::In in(tape, category);
  Shape shape{{count, Sym::none}, {bytes, Sym::none}};
  return tape.empty(OpKind::workspace, shape, DType::u8);
}

// Trained parameters of which this GPU holds each copy. A copy is whole on every GPU, or cut among the `dp` of them:
// ZeRO 1 cuts states (master weights are among them), 2 gradients, too, 3 and FSDP everything.
struct Sizes {
  std::uint64_t weights, gradients, states;
  Bytes base;  // bytes of the frozen base
  Bytes activations;
  CourseBytes per_parameter;
};

std::uint64_t cut_from(std::uint64_t stage, const Recipe& recipe, std::uint64_t count) {
  const std::uint64_t cut = recipe.fsdp != 0 ? 3 : recipe.zero;
  return cut >= stage ? divide_up(count, recipe.dp) : count;
}

void run_step(Tape& tape, const Sizes& n, const std::string& step, Tensor& states) {
  tape.begin_phase(step + "forward");
  Tensor copy = block(tape, "bf16_copy", Category::activations, n.weights, n.per_parameter.transient_copy);
  Tensor activations = block(tape, "activations", Category::activations, n.activations, 1);
  tape.begin_phase(step + "backward");
  copy.reset();
  Tensor gradients = block(tape, "gradients", Category::gradients, n.gradients, n.per_parameter.gradients);
  activations.reset();
  tape.begin_phase(step + "optimizer");
  if (!states) states = block(tape, "moments", Category::optimizer_states, n.states, n.per_parameter.optimizer_states);
  tape.begin_phase(step + "zero_grad");
}

// Keys and values of `tokens` in bf16.
Bytes cached_bytes(const ModelConfig& c, const Recipe& recipe, std::uint64_t tokens) {
  const std::uint64_t kv_dim = times(c.num_key_value_heads, c.head_dim);
  return times(times(times(4, c.num_hidden_layers), times(recipe.batch, tokens)), kv_dim);
}

Trace generation(const ModelConfig& config, const Recipe& recipe) {
  Tape tape;
  tape.begin_phase("load");
  const Bytes bytes = course_inference_bytes(recipe, parameter_count(config));
  const Tensor weights = block(tape, "weights", Category::weights, bytes, 1);
  tape.begin_phase("prefill");
  Tensor cache = block(tape, "kv_cache", Category::kv_cache, cached_bytes(config, recipe, recipe.seq), 1);
  if (recipe.new_tokens > 1) {
    tape.begin_phase("decode" + std::to_string(recipe.new_tokens - 1));
    cache.reset();
    const std::uint64_t tokens = plus(recipe.seq, recipe.new_tokens - 1);
    cache = block(tape, "kv_cache", Category::kv_cache, cached_bytes(config, recipe, tokens), 1);
  }
  return tape.finish();
}

}  // namespace

Bytes course_inference_bytes(const Recipe& recipe, std::uint64_t parameters) {
  switch (recipe.weights) {
    case Weights::nf4:
      return divide_up(parameters, 2);
    case Weights::int8:
      return parameters;
    default:
      return times(parameters, 2);
  }
}

// r x (in + out) of every linear layer of the decoder: q, k, v, o, gate, up, down.
std::uint64_t course_adapter_parameters(const ModelConfig& c, const Recipe& recipe) {
  const std::uint64_t q = times(c.num_attention_heads, c.head_dim);
  const std::uint64_t kv = times(c.num_key_value_heads, c.head_dim);
  const std::uint64_t attention = plus(times(2, plus(c.hidden_size, q)), times(2, plus(c.hidden_size, kv)));
  const std::uint64_t mlp = times(3, plus(c.hidden_size, c.intermediate_size));
  return times(times(c.num_hidden_layers, recipe.rank), plus(attention, mlp));
}

Bytes course_frozen_bytes(const Recipe& recipe, std::uint64_t parameters) {
  if (recipe.method == Method::full) return 0;
  return recipe.method == Method::qlora ? times(parameters, 55) / 100 : times(parameters, 2);
}

CourseBytes course_bytes(const Recipe& recipe) {
  CourseBytes bytes;
  for (const PrecisionRow& row : kPrecisions) {
    if (row.precision != recipe.precision) continue;
    const StateRow* optimizer = find(recipe.optimizer);
    const std::uint64_t moments = optimizer == nullptr ? 0 : optimizer->moments;
    const std::uint64_t each = optimizer != nullptr && optimizer->quantised ? 1 : row.moment;
    bytes = {row.weights, row.gradients, row.master_weights, moments * each, moments, row.transient_copy};
  }
  return bytes;
}

Bytes course_activations(const ModelConfig& c, const Recipe& recipe) {
  const Bytes tokens = times(recipe.batch, recipe.seq);
  const std::uint64_t width = recipe.checkpointing == Checkpointing::none
                                  ? plus(times(6, c.hidden_size), times(3, c.intermediate_size))
                                  : c.hidden_size;
  return times(times(times(c.num_hidden_layers, tokens), width), 2);
}

Result<Trace> trace_course(const ModelConfig& config, const Recipe& recipe, std::uint32_t steps) {
  if (config.architecture != Architecture::llama && config.architecture != Architecture::plain)
    return refuse(recipe, "stack", "course_needs_a_decoder");
  if (recipe.method != Method::full && config.architecture == Architecture::plain) {
    return refuse(recipe, "method", "adapters_need_a_decoder");
  }
  if (recipe.task == Task::generate) {
    if (config.architecture == Architecture::plain) return refuse(recipe, "task", "plain_stack_generates_nothing");
    if (recipe.method != Method::full) return refuse(recipe, "method", "adapters_not_modelled_in_generation");
    Trace trace = generation(config, recipe);
    if (trace.overflow) return Problem{ProblemCode::overflow, "batch, seq", "", "", ""};
    return trace;
  }
  if (auto problem = only_while_generating(recipe)) return *problem;
  if (find(recipe.optimizer) == nullptr) return refuse(recipe, "optimizer", "optimizer_not_modelled");
  for (const char* key : {"tp", "pp", "cp", "ep"}) {
    if (recipe_value(recipe, key) != "1") return refuse(recipe, key, "course_cuts_by_data_only");
  }
  if (recipe.etp != 0) return refuse(recipe, "etp", "course_cuts_by_data_only");
  const std::uint64_t all = parameter_count(config);
  const bool full = recipe.method == Method::full;
  const std::uint64_t trained = full ? all : course_adapter_parameters(config, recipe);
  const Sizes n{.weights = cut_from(3, recipe, trained),
                .gradients = cut_from(2, recipe, trained),
                .states = cut_from(1, recipe, trained),
                .base = cut_from(3, recipe, course_frozen_bytes(recipe, all)),
                .activations = course_activations(config, recipe),
                .per_parameter = course_bytes(recipe)};
  Tape tape;
  Trace trace;
  {
    tape.begin_phase("load");
    const Tensor base = block(tape, "frozen_base", Category::weights, n.base, 1);
    const Tensor weights = block(tape, "weights", Category::weights, n.weights, n.per_parameter.weights);
    const Tensor master =
        block(tape, "master_weights", Category::master_weights, n.states, n.per_parameter.master_weights);
    Tensor states;
    for (std::uint32_t step = 1; step <= steps; ++step)
      run_step(tape, n, "step" + std::to_string(step) + ".", states);
    trace = tape.finish();
  }
  if (trace.overflow) return Problem{ProblemCode::overflow, "batch, seq", "", "", ""};
  return trace;
}

}  // namespace ledger
