#include "core/training/step.h"

#include <memory>
#include <string>

#include "core/models/model.h"
#include "core/training/optimizer.h"
#include "core/training/support.h"

namespace ledger {
namespace {

// Roughly the events of one layer in one step, recomputation included; far below it, memory of the trace is no issue.
constexpr std::uint64_t kEventsPerLayer = 700;
constexpr std::uint64_t kMostEvents = 8u << 20;

DType weight_dtype(const Recipe& recipe) {
  return recipe.precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

bool autocasts(const Recipe& recipe) {
  return recipe.precision == Precision::amp_bf16 || recipe.autocast;
}

class TrainingLoop {
 public:
  TrainingLoop(Tape& tape, const ModelConfig& config, const Recipe& recipe, const TraceOptions& options)
      : tape_(tape), options_(options), autocast_(autocasts(recipe)) {
    tape_.begin_phase("load");
    const ModelOptions model_options{
        .weights = options.weights.value_or(weight_dtype(recipe)),
        .batch = recipe.batch,
        .seq = recipe.seq,
        .checkpoint_layers = recipe.checkpointing == Checkpointing::full,
    };
    model_ = build_model(tape_, config, model_options);
  }

  void run(std::uint32_t steps) {
    for (std::uint32_t step = 1; step <= steps; ++step) run_step("step" + std::to_string(step) + ".");
  }

 private:
  void run_step(const std::string& step) {
    tape_.begin_phase(step + "forward");
    if (!inputs_) inputs_ = model_->make_inputs(tape_);
    {
      Tensor loss = forward();
      if (options_.operands) tape_.trace().losses.push_back(loss.impl()->storage->id);
      tape_.begin_phase(step + "backward");
      tape_.backward(loss);
    }
    tape_.begin_phase(step + "optimizer");
    if (options_.max_grad_norm > 0) clip_grad_norm(tape_, model_->parameters(), options_.max_grad_norm);
    optimizer_.step(tape_, model_->parameters());
    tape_.begin_phase(step + "zero_grad");
    for (Tensor& parameter : model_->parameters()) parameter.clear_grad();
  }

  Tensor forward() {
    if (!autocast_) return model_->forward(inputs_);
    const Tape::Autocast autocast(tape_, true, DType::bf16);
    return model_->forward(inputs_);
  }

  Tape& tape_;
  const TraceOptions& options_;
  bool autocast_;
  std::unique_ptr<Model> model_;
  FusedAdamW optimizer_;
  Tensor inputs_;
};

}  // namespace

Result<Trace> trace_step(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options) {
  if (auto problem = unsupported(config, recipe)) return *problem;
  const std::uint64_t layers = config.architecture == Architecture::plain ? config.layers.size() : config.num_hidden_layers;
  const std::uint64_t events = times(times(plus(layers, 4), kEventsPerLayer), options.steps);
  if (events > kMostEvents) {
    return Problem{ProblemCode::too_large_to_trace, "num_hidden_layers", std::to_string(events), std::to_string(kMostEvents), ""};
  }
  Tape tape({.operands = options.operands, .cublas_workspace_bytes = options.cublas_workspace_bytes});
  Trace trace;
  {
    tape.trace().adamw = options.adamw;
    TrainingLoop loop(tape, config, recipe, options);
    loop.run(options.steps);
    trace = tape.finish();
  }
  if (trace.overflow) return Problem{ProblemCode::overflow, "batch, seq", "", "", ""};
  return trace;
}

}  // namespace ledger
