#include "core/training/step.h"

#include <memory>
#include <string>

#include "core/models/causal_lm_loss.h"
#include "core/models/dtensor.h"
#include "core/models/model.h"
#include "core/models/qwen_vision.h"
#include "core/models/torchtitan.h"
#include "core/parallel/ddp.h"
#include "core/parallel/deepspeed.h"
#include "core/parallel/fsdp1.h"
#include "core/parallel/fsdp2.h"
#include "core/parallel/mesh_of.h"
#include "core/training/megatron_step.h"
#include "core/training/optimizer.h"
#include "core/training/support.h"

namespace ledger {
namespace {

// Roughly the events of one layer in one step, recomputation included; far below it, memory of the trace is no issue.
constexpr std::uint64_t kEventsPerLayer = 700;
constexpr std::size_t kUsualEventsPerLayer = 480, kUsualStoragesPerLayer = 150;  // full fine-tuning, no recomputation
constexpr std::uint64_t kEventsPerChunk = 60;                                    // of a loss
constexpr std::uint64_t kEventsPerPiece = 90;  // of images, in a layer that sees it alone
constexpr std::uint64_t kMostEvents = 8u << 20;

// Under DeepSpeed: the engine casts every floating-point parameter, whatever dtype it came in (engine.py,
// _cast_module_mixed_precision; fp16 is Trainer's fp16=True).
DType engine_dtype(const Recipe& recipe) {
  return recipe.precision == Precision::amp_fp16 ? DType::f16 : DType::bf16;
}

// QLoRA prepared by PEFT holds what is not quantised in fp32 (prepare_model_for_kbit_training).
DType weight_dtype(const Recipe& recipe) {
  if (recipe.zero != 0) return engine_dtype(recipe);
  if (prepared_for_kbit(recipe)) return DType::f32;
  return recipe.precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

LinearPolicy linear_policy(const Recipe& recipe, const TraceOptions& options) {
  LinearPolicy policy;
  if (recipe.method == Method::full) return policy;
  policy.quantise = recipe.method == Method::qlora;
  policy.int8 = recipe.weights == Weights::int8;
  policy.double_quant = recipe.double_quant;
  policy.rank = recipe.rank;
  policy.alpha = options.lora_alpha;
  policy.targets = recipe.targets;
  policy.adapter_dtype = recipe.adapter_dtype == AdapterDtype::bf16 ? DType::bf16 : DType::f32;
  // With zero.Init parameters stay as they are: adapters, which PEFT adds later, too. (Quantised models know none.)
  const bool init = recipe.zero == 3 && recipe.method != Method::qlora;
  const bool cast = !init || recipe.adapter_dtype == AdapterDtype::bf16;
  if (recipe.zero != 0 && cast) policy.adapter_dtype = engine_dtype(recipe);
  if (options.weights == DType::f64) policy.adapter_dtype = DType::f64;  // PEFT makes adapters in the base's dtype
  policy.dropout = recipe.lora_dropout;
  policy.dora = recipe.dora;
  return policy;
}

ModelOptions model_options(const Recipe& recipe, const TraceOptions& options) {
  ModelOptions model;
  model.weights = options.weights.value_or(weight_dtype(recipe));
  model.batch = recipe.batch;
  model.seq = recipe.seq;
  model.decoder_seq = recipe.decoder_seq;
  model.checkpointing = recipe.checkpointing;
  model.attention = recipe.attention;
  model.linears = linear_policy(recipe, options);
  // PEFT and transformers call enable_input_require_grads() when checkpointing a model whose base is frozen.
  model.input_requires_grad =
      recipe.method != Method::full && recipe.checkpointing != Checkpointing::none && recipe.stack != Stack::native;
  model.keep_outputs = recipe.keep_outputs;
  model.loss = recipe.loss;
  model.liger = recipe.liger;
  model.grad_accum = recipe.grad_accum;
  model.compile = recipe.compile;
  model.float8 = recipe.float8;
  model.tp = recipe.tp;
  model.tp_rank = mesh_of(recipe).place(options.rank, Axis::tensor);
  model.cp = recipe.cp;
  model.cp_rank = mesh_of(recipe).place(options.rank, Axis::context);
  model.cp_gathers = recipe.cp_comm_type != CpComm::p2p;
  model.images = recipe.images;
  model.image_height = recipe.image_height;
  model.image_width = recipe.image_width;
  model.freeze_vision_tower = recipe.freeze_vision_tower;
  model.stack = recipe.stack;
  return model;
}

// Weights in fp64 leave nothing to mixed precision.
DType dtype_of(ShardDtype dtype, const TraceOptions& options) {
  if (options.weights == DType::f64) return DType::f64;
  return dtype == ShardDtype::bf16 ? DType::bf16 : DType::f32;
}

Fsdp1::Options fsdp1_options(const Recipe& recipe, const TraceOptions& options) {
  return {.world = recipe.dp,
          .rank = options.rank,
          .param_dtype = dtype_of(recipe.param_dtype, options),
          .reduce_dtype = dtype_of(recipe.reduce_dtype, options),
          .reshard_after_forward = recipe.reshard_after_forward,
          .adapters = recipe.method != Method::full,
          .offload = recipe.offload == Offload::params};
}

Fsdp2::Options fsdp2_options(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options) {
  const TitanVersion* const titan = titan_version(recipe.stack);
  const bool keeps_last = titan != nullptr && titan->ends_in_root;
  return {.world = times(recipe.dp, recipe.cp),
          .rank = mesh_of(recipe).data_place(options.rank),
          .tensor_ranks = recipe.tp,
          .param_dtype = dtype_of(recipe.param_dtype, options),
          .reduce_dtype = dtype_of(recipe.reduce_dtype, options),
          .reshard_after_forward = recipe.reshard_after_forward,
          .titan_units = recipe.units == Units::titan,
          .offload = recipe.offload == Offload::params,
          .kept_from = keeps_last ? kFirstLayerUnit + static_cast<UnitId>(config.num_hidden_layers - 1) : kNoUnit};
}

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
    for (std::uint32_t step = 1; step <= steps; ++step)
      run_step("step" + std::to_string(step) + ".");
  }

 private:
  PartitionStep partition_step() {
    const std::shared_ptr<OptimizerStep> step = make_optimizer(recipe_.optimizer);
    return [this, step](const std::vector<Tensor>& partitions) { step->step(tape_, partitions); };
  }

  void run_step(const std::string& step) {
    for (std::uint64_t micro = 1; micro <= recipe_.grad_accum; ++micro) {
      const bool last = micro == recipe_.grad_accum;
      if (zero_ != nullptr) zero_->begin_backward(last);
      if (fsdp1_) fsdp1_->set_sync(last);
      run_micro_batch(recipe_.grad_accum == 1 ? step : step + std::to_string(micro) + ".");
    }
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

  // Gradients of what tensor parallelism does not cut are sums over this rank's tokens: DTensor's operators make them
  // whole where they are used. (FSDP does it before it reduces them.)
  static void sum_partial_gradients(const std::vector<Tensor>& parameters) {
    for (const Tensor& parameter : parameters) {
      Tape& tape = parameter.tape();
      if (parameter_of(parameter).cut.piece != 0) continue;
      const Tape::In in(tape, Category::gradients);
      parameter.impl()->grad = dtensor::sum_of_ranks(parameter.grad());
      parameter_of(parameter).gradient = parameter.grad().impl()->storage->id;
    }
  }

  // The stack native has no buckets: each gradient is made the ranks' mean where it lies, once a step.
  static void average_gradients(const std::vector<Tensor>& parameters) {
    for (const Tensor& parameter : parameters)
      all_reduce(parameter.grad(), ReduceOp::mean);
  }

  void run_micro_batch(const std::string& prefix) {
    tape_.begin_phase(prefix + "forward");
    if (!inputs_) inputs_ = model_->make_inputs(tape_);
    if (zero_ != nullptr) zero_->begin_forward();
    Tensor loss = forward();
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
  Tensor inputs_;
};

}  // namespace

Result<Trace> trace_step(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options) {
  if (auto problem = unsupported(config, recipe)) return *problem;
  if (recipe.stack == Stack::megatron) {
    const std::uint64_t stage = mesh_of(recipe).place(options.rank, Axis::pipeline);
    return trace_megatron(config, recipe, stage, megatron_run(options));
  }
  const std::uint64_t layers =
      config.architecture == Architecture::plain
          ? config.layers.size()
          : plus(config.num_hidden_layers, plus(config.t5.decoder_layers, config.vision.layers));
  const bool titan_chunks = is_torchtitan(recipe.stack) && recipe.loss == Loss::chunked;
  const std::uint64_t tokens = times(recipe.batch, recipe.seq);
  const std::uint64_t chunks =
      times(recipe.grad_accum,
            titan_chunks ? kTitanChunks : loss_chunks(recipe.loss, tokens, config.hidden_size, config.vocab_size));
  const std::uint64_t pieces = times(recipe.grad_accum, attention_calls(config.vision, recipe));
  const std::uint64_t parts = plus(times(chunks, kEventsPerChunk), times(pieces, kEventsPerPiece));
  const std::uint64_t ring = recipe.cp == 1 ? 0 : times(recipe.cp, kEventsPerRingStep);
  const std::uint64_t events = times(plus(times(plus(layers, 4), plus(kEventsPerLayer, ring)), parts), options.steps);
  if (events > kMostEvents) {
    const bool long_batch = parts > times(layers, kEventsPerLayer);
    const char* const many = ring > kEventsPerLayer ? "cp" : "num_hidden_layers";
    return Problem{ProblemCode::too_large_to_trace, long_batch ? "batch, seq" : many, std::to_string(events),
                   std::to_string(kMostEvents), ""};
  }
  // Growing by doubling would copy them over and over, into memory that the system has to hand out anew each time.
  const auto layer_steps = static_cast<std::size_t>(times(plus(layers, 4), options.steps));
  Tape tape({.operands = options.operands,
             .cublas_workspace_bytes = options.cublas_workspace_bytes,
             .accumulate_in_place = recipe.stack == Stack::native,
             .cpu_statistics = options.cpu_statistics,
             .cudnn_forward_bytes = options.cudnn_forward_bytes,
             .cudnn_backward_bytes = options.cudnn_backward_bytes});
  tape.trace().events.reserve(layer_steps * kUsualEventsPerLayer);
  tape.trace().storages.reserve(layer_steps * kUsualStoragesPerLayer);
  Trace trace;
  {
    tape.trace().adamw = options.adamw;
    tape.trace().mesh = mesh_of(recipe);
    TrainingLoop loop(tape, config, recipe, options);
    loop.run(options.steps);
    trace = tape.finish();
  }
  if (trace.overflow) return Problem{ProblemCode::overflow, "batch, seq", "", "", ""};
  return trace;
}

}  // namespace ledger
