#include "core/training/step.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "core/models/causal_lm_loss.h"
#include "core/models/model.h"
#include "core/models/qwen_vision.h"
#include "core/models/torchtitan.h"
#include "core/parallel/ddp.h"
#include "core/parallel/deepspeed.h"
#include "core/parallel/fsdp1.h"
#include "core/parallel/fsdp2.h"
#include "core/parallel/mesh_of.h"
#include "core/trace/repeat.h"
#include "core/training/megatron_step.h"
#include "core/training/optimizer.h"
#include "core/training/step_parts.h"
#include "core/training/support.h"
#include "core/training/titan_pipeline.h"

namespace ledger {
namespace {

// Roughly the events of one layer in one step, recomputation included; far below it, memory of the trace is no issue.
constexpr std::uint64_t kEventsPerLayer = 700;
constexpr std::uint64_t kUsualPasses = 3;  // of a step: those that searches of plans trace
constexpr std::size_t kUsualEventsPerLayer = 480, kUsualStoragesPerLayer = 150;  // full fine-tuning, no recomputation
constexpr std::uint64_t kEventsPerChunk = 60;                                    // of a loss
constexpr std::uint64_t kEventsPerPiece = 90;  // of images, in a layer that sees it alone
constexpr std::uint64_t kMostEvents = 8u << 20;

bool autocasts(const Recipe& recipe) {
  if (recipe.zero != 0) return false;  // accelerate leaves precision to DeepSpeed
  return recipe.precision == Precision::amp_bf16 || recipe.precision == Precision::amp_fp16 || recipe.autocast;
}

DType autocast_dtype(const Recipe& recipe) {
  return recipe.precision == Precision::amp_fp16 ? DType::f16 : DType::bf16;
}

// torch.amp.GradScaler: two scalars that stay, one a step that does not. Source: torch/amp/grad_scaler.py.
// Not here: scaler.update(), which doubles the scale after 2000 steps and halves it after a step with an infinite
// gradient, which it skips; no byte depends on it.
struct GradScaler {
  static constexpr double kInitialScale = 65536;

  Tensor scale, growth_tracker;

  explicit GradScaler(Tape& tape) {
    const Tape::Scope scope(tape, "grad_scaler");
    const Tape::In in(tape, Category::optimizer_states);
    scale = full(tape, Shape{}, kInitialScale, DType::f32);
    growth_tracker = full(tape, Shape{}, 0, DType::i32);
  }

  // scaler.unscale_: found_inf, and the gradients in place.
  void unscale(Tape& tape, const std::vector<Tensor>& parameters) const {
    const Tape::Scope scope(tape, "grad_scaler");
    const Tape::In in(tape, Category::temporaries);
    const Tape::NoGrad no_grad(tape);
    const Tensor inverse = reciprocal(scale);
    const Tensor found_inf = zeros(tape, Shape{}, DType::f32);
    for (const Tensor& parameter : parameters)
      mul_inplace(parameter.grad(), inverse);
  }
};

class TrainingLoop {
 public:
  TrainingLoop(Tape& tape, const ModelConfig& config, const Recipe& recipe, const TraceOptions& options)
      : tape_(tape), recipe_(recipe), options_(options), optimizer_(make_optimizer(recipe.optimizer)) {
    tape_.begin_phase("load");
    ModelOptions model = model_options(recipe, options);
    if (recipe.fsdp == 2) units_ = std::make_unique<Fsdp2>(tape_, fsdp2_options(config, recipe, options));
    if (recipe.fsdp == 1) fsdp1_.emplace(tape_, fsdp1_options(recipe, options));
    model.units = fsdp1_ ? &*fsdp1_ : units_.get();
    if (recipe.zero != 0) {
      ZeroOptions zero = zero_options(recipe, config.hidden_size, model.weights);
      zero.rank = options.rank;
      zero.clips = options.max_grad_norm > 0;
      zero.loads_whole = recipe.method == Method::qlora;
      zero_ = make_zero(tape_, zero, [this] { return partition_step(); });
      model.units = zero_->units();
    }
    model_ = build_model(tape_, config, model);
    trained_ = fsdp1_ ? fsdp1_->wrap() : model_->trainable();
    if (zero_ != nullptr) {
      zero_->wrap(model_->trainable());
      return;
    }
    if (recipe.dp > 1 && recipe.fsdp == 0 && recipe.stack != Stack::native)
      ddp_.emplace(tape_, model_->trainable(), recipe.ddp_bucket_view);
    if (recipe.precision == Precision::amp_fp16) scaler_.emplace(tape_);
  }

  void run(std::uint32_t steps) {
    for (std::uint32_t step = 1; step <= steps && !over_limit(); ++step) {
      // What the first optimizer step leaves behind is there in the next one's passes, which are the same otherwise.
      if (step == 1) tape_.set_limit(options_.limit - std::min(options_.limit, options_.states_to_come));
      run_step("step" + std::to_string(step) + ".");
    }
  }

 private:
  bool over_limit() const { return tape_.trace().over_limit; }

  PartitionStep partition_step() {
    const std::shared_ptr<OptimizerStep> step = make_optimizer(recipe_.optimizer);
    return [this, step](const std::vector<Tensor>& partitions) { step->step(tape_, partitions); };
  }

  void run_step(const std::string& step) {
    for (std::uint64_t micro = 1; micro <= recipe_.grad_accum; ++micro) {
      const bool last = micro == recipe_.grad_accum;
      if (zero_ != nullptr) zero_->begin_backward(last);
      if (fsdp1_) fsdp1_->set_sync(last);
      run_micro_batch(recipe_.grad_accum == 1 ? step : step + std::to_string(micro) + ".", micro);
      if (over_limit()) return;
    }
    tape_.set_limit(options_.limit);
    tape_.begin_phase(step + "optimizer");
    if (zero_ != nullptr) {
      zero_->step();
    } else {
      update();
    }
    tape_.begin_phase(step + "zero_grad");
    for (Tensor parameter : trained_)
      parameter.clear_grad();
  }

  void update() {
    std::optional<Tape::OnHost> on_host;
    if (recipe_.fsdp != 0 && recipe_.offload == Offload::params) on_host.emplace(tape_);
    std::vector<Tensor> updated = trained_;  // without what no loss depended on
    std::erase_if(updated, [](const Tensor& parameter) { return !parameter.grad(); });
    if (scaler_) scaler_->unscale(tape_, updated);
    if (recipe_.tp > 1 && recipe_.fsdp == 0) sum_partial_gradients(updated);
    if (recipe_.dp > 1 && recipe_.stack == Stack::native) average_gradients(updated);
    const bool clips = recipe_.stack != Stack::torchtune;  // clip_grad_norm: null in nearly all of its configs
    if (clips && options_.max_grad_norm > 0) {
      const NormOver over = recipe_.fsdp != 0 ? NormOver::shards : NormOver::gradients;
      clip_grad_norm(tape_, updated, options_.max_grad_norm, over);
    }
    optimizer_->step(tape_, updated);
  }

  // The stack native has no buckets: each gradient is made the ranks' mean where it lies, once a step.
  static void average_gradients(const std::vector<Tensor>& parameters) {
    for (const Tensor& parameter : parameters)
      all_reduce(parameter.grad(), ReduceOp::mean);
  }

  // The first micro-batch makes gradients, others add to them; FSDP1 reduces them behind the last.
  void run_micro_batch(const std::string& prefix, std::uint64_t micro) {
    if (zero_ != nullptr || ddp_) return trace_micro_batch(prefix);  // they learn from the first pass
    const bool syncs = fsdp1_ && micro == recipe_.grad_accum;
    Repeated& pass = passes_[micro == 1 ? 0 : syncs ? 2 : 1];
    if (pass.again(prefix, trained_)) return;
    pass.begin(prefix, trained_);
    trace_micro_batch(prefix);
    if (!over_limit()) pass.end(trained_);
  }

  void trace_micro_batch(const std::string& prefix) {
    tape_.begin_phase(prefix + "forward");
    if (!inputs_) {
      const Tape::Once once(tape_);
      inputs_ = model_->make_inputs(tape_);
    }
    if (zero_ != nullptr) zero_->begin_forward();
    Tensor loss = forward();
    if (over_limit()) return;
    if (options_.operands) tape_.trace().losses.push_back(loss.impl()->storage->id);
    tape_.begin_phase(prefix + "backward");
    {
      const Tape::Scope scope(tape_, "loss");
      const Tape::In in(tape_, Category::logits);
      if (recipe_.grad_accum != 1) loss = loss / static_cast<double>(recipe_.grad_accum);
      if (scaler_) loss = loss * scaler_->scale;
      tape_.backward(loss);
      if (zero_ != nullptr) zero_->end_backward();
    }
    // A loop that lets go after backward; torchtitan's old one held on until it had the next ones.
    if (!is_torchtitan(recipe_.stack)) model_->replace_outputs(Tensor());
  }

  Tensor forward() {
    if (!autocasts(recipe_)) return model_->forward(inputs_);
    Tensor loss;
    {
      const Tape::Autocast autocast(tape_, true, autocast_dtype(recipe_));
      loss = model_->forward(inputs_);
    }
    // accelerate's convert_outputs_to_fp32 makes an fp32 copy of the logits that the loop then holds instead.
    if (model_->outputs()) {
      const Tape::NoGrad no_grad(tape_);
      const Tape::Scope scope(tape_, "lm_head");
      const Tape::In in(tape_, Category::logits);
      const Tensor logits = to(model_->outputs(), DType::f32);
      const Tensor seen = model_->image_outputs() ? to(model_->image_outputs(), DType::f32) : Tensor();
      model_->replace_outputs(logits, seen);
    }
    return loss;
  }

  Tape& tape_;
  const Recipe& recipe_;
  const TraceOptions& options_;
  std::unique_ptr<ParameterUnits> units_;
  std::optional<Fsdp1> fsdp1_;
  std::unique_ptr<Zero> zero_;
  std::unique_ptr<Model> model_;
  std::vector<Tensor> trained_;  // what the optimizer updates
  std::optional<Ddp> ddp_;
  std::unique_ptr<OptimizerStep> optimizer_;
  std::optional<GradScaler> scaler_;
  std::array<Repeated, 3> passes_{Repeated(tape_), Repeated(tape_), Repeated(tape_)};  // first, between, last
  Tensor inputs_;
};

}  // namespace

Result<Trace> trace_step(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options) {
  if (auto problem = unsupported(config, recipe)) return *problem;
  if (recipe.stack == Stack::megatron) {
    const std::uint64_t stage = mesh_of(recipe).place(options.rank, Axis::pipeline);
    return trace_megatron(config, recipe, stage, megatron_run(options));
  }
  std::uint64_t layers = config.architecture == Architecture::plain
                             ? config.layers.size()
                             : plus(config.num_hidden_layers, plus(config.t5.decoder_layers, config.vision.layers));
  const bool titan_chunks = is_torchtitan(recipe.stack) && recipe.loss == Loss::chunked;
  const std::uint64_t tokens = times(recipe.batch, recipe.seq);
  const std::uint64_t chunks =
      times(recipe.grad_accum,
            titan_chunks ? kTitanChunks : loss_chunks(recipe.loss, tokens, config.hidden_size, config.vocab_size));
  const std::uint64_t pieces = times(recipe.grad_accum, attention_calls(config.vision, recipe));
  const std::uint64_t parts = plus(times(chunks, kEventsPerChunk), times(pieces, kEventsPerPiece));
  // Of a pipeline's rank: its layers, once for each micro-batch.
  const bool pipeline = recipe.pp != 1;
  if (pipeline) layers = times(divide_up(plus(layers, 2), recipe.pp), recipe.micro_batches);
  const std::uint64_t ring = recipe.cp == 1 ? 0 : times(recipe.cp, kEventsPerRingStep);
  const std::uint64_t events = times(plus(times(plus(layers, 4), plus(kEventsPerLayer, ring)), parts), options.steps);
  if (events > kMostEvents) {
    const bool long_batch = parts > times(layers, kEventsPerLayer);
    const char* const many = ring > kEventsPerLayer ? "cp" : pipeline ? "micro_batches" : "num_hidden_layers";
    return Problem{ProblemCode::too_large_to_trace, long_batch ? "batch, seq" : many, std::to_string(events),
                   std::to_string(kMostEvents), ""};
  }
  // Growing by doubling would copy them over and over, into memory that the system has to hand out anew each time.
  const std::uint64_t passes = times(options.steps, std::min(recipe.grad_accum, kUsualPasses));
  const auto layer_steps = static_cast<std::size_t>(times(plus(layers, 4), passes));
  Tape tape({.operands = options.operands,
             .cublas_workspace_bytes = options.cublas_workspace_bytes,
             .accumulate_in_place = recipe.stack == Stack::native,
             .cpu_statistics = options.cpu_statistics,
             .limit = options.limit,
             .cudnn_forward_bytes = options.cudnn_forward_bytes,
             .cudnn_backward_bytes = options.cudnn_backward_bytes});
  tape.trace().events.reserve(layer_steps * kUsualEventsPerLayer);
  tape.trace().storages.reserve(layer_steps * kUsualStoragesPerLayer);
  Trace trace;
  {
    tape.trace().adamw = options.adamw;
    tape.trace().mesh = mesh_of(recipe);
    if (pipeline) {
      trace = trace_titan_pipeline(tape, config, recipe, options);
    } else {
      TrainingLoop loop(tape, config, recipe, options);
      loop.run(options.steps);
      trace = tape.finish();
    }
  }
  if (trace.overflow) return Problem{ProblemCode::overflow, "batch, seq", "", "", ""};
  return trace;
}

}  // namespace ledger
