#include "core/inference/generate.h"

#include <memory>
#include <string>

#include "core/models/model.h"

namespace ledger {
namespace {

// Roughly the events of one layer in one pass; far below it, memory of the trace is no issue.
constexpr std::uint64_t kEventsPerLayer = 150;
constexpr std::uint64_t kMostEvents = 8u << 20;

ModelOptions model_options(const Recipe& recipe, const TraceOptions& options) {
  ModelOptions model;
  model.weights = options.weights.value_or(recipe.precision == Precision::fp32 ? DType::f32 : DType::bf16);
  model.batch = recipe.batch;
  model.seq = recipe.seq;
  model.attention = recipe.attention;
  model.linears.quantise = recipe.weights == Weights::nf4;
  model.linears.double_quant = recipe.double_quant;
  model.linears.int8 = recipe.weights == Weights::int8;
  model.linears.frozen = recipe.no_grad;
  return model;
}

CacheOptions cache_options(const ModelConfig& config, const Recipe& recipe) {
  // generate() sizes a static cache for all but the last token: max_length - 1.
  const std::uint64_t capacity = plus(recipe.seq, recipe.new_tokens - 1);
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  return {recipe.kv_cache, layers, config.sliding_window, capacity};
}

class GenerationLoop {
 public:
  GenerationLoop(Tape& tape, const ModelConfig& config, const Recipe& recipe, const TraceOptions& options)
      : tape_(tape), recipe_(recipe), every_pass_(options.every_pass), b_{recipe.batch, Sym::b} {
    tape_.begin_phase("load");
    model_ = build_model(tape_, config, model_options(recipe, options));
    cache_ = make_cache(tape_, cache_options(config, recipe));
  }

  void run() {
    tape_.begin_phase("prefill");
    prepare_prompt();
    next_token({recipe_.seq, Sym::s}, recipe_.prefill_logits == PrefillLogits::last);
    std::uint64_t done = 0;
    for (const std::uint64_t step : traced_steps(recipe_, every_pass_)) {
      if (step != done + 1) skip(done + 1, step - 1);
      tape_.begin_phase("decode" + std::to_string(step));
      next_token({1, Sym::none}, true);
      done = step;
    }
  }

 private:
  void prepare_prompt() {
    input_ids_ = model_->make_inputs(tape_);
    const Tape::Scope scope(tape_, "attention_mask");
    const Tape::In in(tape_, Category::inputs);
    attention_mask_ = ones(tape_, input_ids_.shape(), DType::i64);
  }

  // One turn of _sample's loop. What it calls outputs dies at its end; the fp32 logits of the last position stay until
  // the next turn has made its own.
  void next_token(Dim n, bool last_only) {
    prepare_inputs(n);
    const Tensor logits = model_->next_logits(ids_, positions_, *cache_, last_only);
    attention_mask_ = extended(attention_mask_);
    {
      const Tape::Scope scope(tape_, "next_token_logits");
      const Tape::In in(tape_, Category::logits);
      const Dim last{1, Sym::none};
      const Tensor row = view(slice(logits, 1, logits.dim(1).size - 1, last), {b_, logits.dim(2)});
      next_token_logits_ = row.dtype() == DType::f32 ? clone(row) : to(row, DType::f32);
    }
    const Tape::Scope scope(tape_, "input_ids");
    const Tape::In in(tape_, Category::inputs);
    const Tensor next_tokens = argmax_last(next_token_logits_);
    input_ids_ = cat(input_ids_, unsqueeze(next_tokens, 1), 1, Sym::cached);
  }

  // prepare_inputs_for_generation: the new tokens and their positions, which come from the padding mask.
  void prepare_inputs(Dim n) {
    const Tape::In in(tape_, Category::inputs);
    {
      const Tape::Scope scope(tape_, "position_ids");
      Tensor all = cumsum_last(attention_mask_);
      all = add(all, -1.0);
      positions_ = clone(slice(all, 1, all.dim(1).size - n.size, n));
    }
    const Tape::Scope scope(tape_, "input_ids");
    ids_ = clone(slice(input_ids_, 1, input_ids_.dim(1).size - n.size, n));
  }

  // attention_mask or input_ids, one token longer.
  Tensor extended(const Tensor& mask) {
    const Tape::Scope scope(tape_, "attention_mask");
    const Tape::In in(tape_, Category::inputs);
    return cat(mask, ones(tape_, {b_, {1, Sym::none}}, DType::i64), 1, Sym::cached);
  }

  void skip(std::uint64_t first, std::uint64_t last) {
    tape_.begin_phase(kSkippedPhase + std::to_string(first));
    const std::uint64_t seen = plus(recipe_.seq, last);
    model_->skip_tokens(*cache_, seen);
    const Tape::In in(tape_, Category::inputs);
    for (Tensor* tokens : {&attention_mask_, &input_ids_})
      *tokens = tape_.empty(OpKind::cat, {b_, {plus(seen, 1), Sym::cached}}, DType::i64);
  }

  Tape& tape_;
  const Recipe& recipe_;
  bool every_pass_;
  Dim b_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  Tensor input_ids_, attention_mask_;  // prompt and what was generated
  Tensor ids_, positions_;             // of the current turn
  Tensor next_token_logits_;
};

// Before any list of steps is made, which could itself be too long.
std::uint64_t event_estimate(const ModelConfig& config, const Recipe& recipe, bool every_pass) {
  const std::uint64_t passes = recipe.no_grad && !every_pass ? kStepsPlayedInFull + 1 : recipe.new_tokens;
  return times(times(plus(config.num_hidden_layers, 4), kEventsPerLayer), passes);
}

}  // namespace

std::vector<std::uint64_t> traced_steps(const Recipe& recipe, bool every_pass) {
  const std::uint64_t steps = recipe.new_tokens - 1;  // the prompt's own pass makes the first token
  std::vector<std::uint64_t> played;
  if (steps <= kStepsPlayedInFull || !recipe.no_grad || every_pass) {
    for (std::uint64_t step = 1; step <= steps; ++step)
      played.push_back(step);
    return played;
  }
  played.push_back(1);
  const std::uint64_t quantising = steps - steps % kResidualLength;
  if (recipe.kv_cache == KvCacheKind::quantized && quantising > 1 && quantising < steps) played.push_back(quantising);
  played.push_back(steps);
  return played;
}

Result<Trace> trace_generation(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options) {
  if (auto problem = unsupported_generation(config, recipe)) return *problem;
  const std::uint64_t events = event_estimate(config, recipe, options.every_pass);
  if (events > kMostEvents) {
    return Problem{ProblemCode::too_large_to_trace, "num_hidden_layers", std::to_string(events),
                   std::to_string(kMostEvents), ""};
  }
  Tape tape({.operands = options.operands, .cublas_workspace_bytes = options.cublas_workspace_bytes});
  Trace trace;
  {
    std::optional<Tape::NoGrad> no_grad;
    if (recipe.no_grad) no_grad.emplace(tape);
    GenerationLoop loop(tape, config, recipe, options);
    loop.run();
    trace = tape.finish();
  }
  if (trace.overflow) return Problem{ProblemCode::overflow, "batch, seq", "", "", ""};
  return trace;
}

}  // namespace ledger
