#include "core/training/megatron_step.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include "core/models/megatron.h"
#include "core/parallel/mesh_of.h"
#include "core/trace/strides.h"
#include "core/training/step.h"
#include "core/training/support.h"

namespace ledger {
namespace {

// get_cublas_workspace_size_bytes: of Transformer Engine's products.
Bytes te_workspace_bytes(Bytes cublas) {
  if (cublas == 0) return 0;
  return cublas >= 32 * kMiB ? 32 * kMiB : 4 * kMiB;
}

MegatronOptions options_of(const Recipe& r, std::uint64_t stage, std::uint64_t chunks, const MegatronRun& run) {
  MegatronOptions o;
  o.batch = r.batch;
  o.seq = r.seq;
  o.cp = r.cp;
  o.tp = r.tp;
  o.pp = r.pp;
  o.stage = stage;
  o.tp_rank = mesh_of(r).place(run.rank, Axis::tensor);
  o.weights = run.weights;
  o.chunks = chunks;
  o.sequence_parallel = r.sequence_parallel;
  o.attention = r.attention;
  o.checkpointing = r.checkpointing;
  o.te_workspace = run.te_workspace_bytes;
  return o;
}

// Roughly the events of a layer's forward and backward, and the most that all stages together may have.
constexpr std::uint64_t kEventsPerLayerPass = 150, kMostPipelineEvents = 128u << 20, kMostEventsPlayed = 8u << 20;

class StageLoop : private MainGradients {
 public:
  StageLoop(Tape& tape, const ModelConfig& config, const Recipe& recipe, std::uint64_t stage, const MegatronRun& run)
      : tape_(tape), recipe_(recipe), run_(run), fused_(run.gradient_accumulation_fusion) {
    tape.begin_phase("load");
    // num_layers_per_virtual_pipeline_stage 1, or all of the stage's layers in one chunk.
    const bool interleaved = recipe.pipeline_schedule == PipelineSchedule::interleaved;
    chunks_ = interleaved ? layers_of_stage(config, recipe.pp) : 1;
    stage_.emplace(tape, config, options_of(recipe, stage, chunks_, run), static_cast<MainGradients&>(*this));
    in_flight_.resize(static_cast<std::size_t>(chunks_));
    // get_pp_rank_microbatches. The steady state repeats itself, and with it what it needs: a turn of it is enough.
    const std::uint64_t behind = recipe.pp - stage - 1;
    const std::uint64_t warm_up = interleaved ? plus(2 * behind, times(chunks_ - 1, recipe.pp)) : behind;
    const std::uint64_t enough = interleaved ? times(2, recipe.pp) : plus(warm_up, 2);
    micro_batches_ = run.every_micro_batch ? recipe.micro_batches : std::min(recipe.micro_batches, enough);
    turns_ = times(micro_batches_, chunks_);
    warm_up_ = std::min(warm_up, turns_);
    make_buffers();
  }

  // Phases as of gradient accumulation: step1.2.forward is the second micro-batch's (with chunks, the second turn's).
  void run_step(const std::string& step) {
    std::uint64_t forwards = 0, backwards = 0;
    const auto phase = [&](std::uint64_t turn, const char* pass) {
      tape_.begin_phase(turns_ == 1 ? step + pass : step + std::to_string(turn + 1) + "." + pass);
    };
    begun_.assign(in_flight_.size(), 0);
    while (backwards < turns_) {
      if (forwards < turns_) {
        phase(forwards, "forward");
        forward(chunk_of(forwards++));
      }
      if (forwards <= warm_up_ && forwards < turns_) continue;
      phase(backwards, "backward");
      backward(in_flight_.size() - 1 - chunk_of(backwards++));
    }
    tape_.begin_phase(step + "optimizer");
    update();
    tape_.begin_phase(step + "zero_grad");
    tape_.run(OpKind::zeros, {}, {&main_gradients_});
    main_gradients_copy_.reset();
  }

 private:
  struct MicroBatch {
    Tensor input, root;
  };
  struct Member {  // of the buffers of all parameters
    Tensor parameter;
    std::uint64_t offset = 0;
    bool by_tokens = false;
  };

  // DDP's hook: the gradient is added to the main one and given up.
  void add(const Tensor& parameter, bool by_tokens) override {
    const std::size_t number = members_.size();
    members_.push_back({parameter, elements_, by_tokens});
    elements_ = plus(elements_, parameter.shape().numel());
    tape_.after_accumulation(parameter, [this, number](Tensor& gradient) {
      add_inplace(window(main_gradients_, members_[number]), gradient);
      gradient.reset();
    });
  }

  Tensor of(const Tensor& parameter) const override {
    if (!fused_) return Tensor();
    return window(main_gradients_, members_[static_cast<std::size_t>(parameter.impl()->parameter)]);
  }

  Tensor window(const Tensor& buffer, const Member& member) const {
    const Shape& shape = member.parameter.shape();
    return tape_.view_of(buffer, shape, contiguous_strides(shape), member.offset);
  }

  std::uint64_t data_ranks() const { return times(recipe_.dp, recipe_.cp); }

  // The distributed optimizer: each rank of those with the same parameters, and those of one sequence with them, has
  // main weights and moments of an equal share of all.
  bool shares() const { return recipe_.zero == 1 && data_ranks() != 1; }
  std::uint64_t own_count() const { return shares() ? divide_up(elements_, data_ranks()) : elements_; }
  std::uint64_t own_first() const { return shares() ? times(own_count(), mesh_of(recipe_).data_place(run_.rank)) : 0; }
  Shape share() const { return {{own_count(), Sym::none}}; }
  Shape whole() const { return {{shares() ? times(own_count(), data_ranks()) : elements_, Sym::none}}; }
  Tensor own_part(const Tensor& buffer) const { return tape_.view_of(buffer, share(), {1}, own_first()); }

  // What of `member` lies in this rank's share, on a buffer of that share.
  Tensor own_window(const Tensor& own, const Member& member) const {
    const std::uint64_t first = own_first(), end = plus(first, own_count());
    const std::uint64_t from = std::max(member.offset, first);
    const std::uint64_t to = std::min(plus(member.offset, member.parameter.shape().numel()), end);
    if (from >= to) return Tensor();
    return tape_.view_of(own, {{to - from, Sym::none}}, {1}, from - first);
  }

  void make_buffers() {
    const DType gradients = recipe_.precision == Precision::megatron_bf16 ? DType::f32 : DType::bf16;
    if (shares()) {
      const Tape::Scope scope(tape_, "param_data");
      const Tape::In in(tape_, Category::weights);
      parameters_ = zeros(tape_, whole(), members_.front().parameter.dtype());
    }
    {
      const Tape::Scope scope(tape_, "main_grads");
      const Tape::In in(tape_, Category::gradients);
      main_gradients_ = zeros(tape_, whole(), gradients);
    }
    if (shares()) move_parameters();
    const Tape::Scope scope(tape_, "main_params");
    const Tape::In in(tape_, Category::master_weights);
    main_parameters_ = tape_.empty(OpKind::to_copy, share(), DType::f32);
    if (shares()) return copy_into(main_parameters_, own_part(parameters_));
    for (const Member& member : members_)
      copy_into(window(main_parameters_, member), member.parameter);
  }

  // param_data: parameters become views of one buffer, which an all-gather fills in place.
  void move_parameters() {
    for (const Member& member : members_) {
      const Tensor view = window(parameters_, member);
      copy_into(view, member.parameter);
      tape_.set_data(member.parameter, view);
      Parameter& parameter = parameter_of(member.parameter);
      parameter.storage = parameters_.impl()->storage->id;
      parameter.elements = parameter.held = view.shape().numel();
      parameter.offset = member.offset;
    }
  }

  // get_schedule_table: groups of as many micro-batches as stages, through one chunk after the other.
  std::size_t chunk_of(std::uint64_t turn) const {
    return static_cast<std::size_t>(turn % times(recipe_.pp, chunks_) / recipe_.pp);
  }

  void forward(std::size_t chunk) {
    MicroBatch micro;
    if (!stage_->is_first(chunk)) micro.input = stage_->receive();
    micro.root = stage_->forward(chunk, micro.input, begun_[chunk]++);
    if (stage_->is_last(chunk)) {
      if (run_.operands) tape_.trace().losses.push_back(micro.root.impl()->storage->id);
      if (micro_batches_ != 1) micro.root = micro.root / static_cast<double>(micro_batches_);
    }
    in_flight_[chunk].push_back(std::move(micro));
  }

  void backward(std::size_t chunk) {
    const MicroBatch micro = std::move(in_flight_[chunk].front());
    in_flight_[chunk].pop_front();
    {
      const Tape::Scope scope(tape_, "loss");
      tape_.backward(micro.root);
    }
    if (micro.input) stage_->send_gradient(micro.input);
  }

  // finalize_model_grads. What is reduced and scattered stays in place. Megatron adds up the shared embedding's
  // gradient last, which it gives a bucket of its own so that both of its stages cut it alike; here it comes first.
  void reduce_gradients() {
    if (stage_->shared_embedding()) {  // _allreduce_word_embedding_grads
      const Tape::Among ranks(tape_, RankGroup::pipeline_ends);
      all_reduce(window(main_gradients_, member_of(stage_->shared_embedding())), ReduceOp::sum);
    }
    if (shares()) {
      const Tensor own = own_part(main_gradients_);
      tape_.run(OpKind::reduce_scatter, {&main_gradients_}, {&own},
                {0, {static_cast<std::int64_t>(ReduceOp::mean), 0}});
    } else if (data_ranks() != 1) {
      all_reduce(main_gradients_, ReduceOp::mean);
    }
    std::vector<Tensor> gradients;  // _allreduce_non_tensor_model_parallel_grads, flattened into one
    std::uint64_t total = 0;
    for (const Member& member : members_) {
      if (!member.by_tokens) continue;
      gradients.push_back(as_row(window(main_gradients_, member)));
      total = plus(total, gradients.back().shape().numel());
    }
    if (!gradients.empty()) sum_over_tensor_ranks(gradients, total);
  }

  void sum_over_tensor_ranks(const std::vector<Tensor>& gradients, std::uint64_t total) {
    const Tape::In in(tape_, Category::communication);
    const Tensor flat = cat(gradients, 0, {total, Sym::none});
    {
      const Tape::Among ranks(tape_, RankGroup::tensor);
      all_reduce(flat, ReduceOp::sum);
    }
    std::uint64_t offset = 0;
    for (const Tensor& gradient : gradients) {
      copy_into(gradient, tape_.view_of(flat, gradient.shape(), {1}, offset));
      offset += gradient.shape().numel();
    }
  }

  const Member& member_of(const Tensor& parameter) const {
    return members_[static_cast<std::size_t>(parameter.impl()->parameter)];
  }

  // What every tensor-parallel rank has counts once, and so does an embedding that two stages have.
  bool counts(const Member& member) const {
    const bool first_has_it = stage_->shared_embedding() && !stage_->is_first(0) &&
                              member.parameter.impl() == stage_->shared_embedding().impl();
    const bool everywhere = recipe_.tp > 1 && parameter_of(member.parameter).cut.piece == 0;
    return !first_has_it && (!everywhere || mesh_of(recipe_).place(run_.rank, Axis::tensor) == 0);
  }

  // clip_grads.py, get_grad_norm_fp32 and clip_grad_by_total_norm_fp32.
  void clip(const Tensor& gradients) {
    const Tape::Scope scope(tape_, "clip_grad_norm");
    const Tape::In in(tape_, Category::temporaries);
    std::vector<Tensor> counted;
    for (const Member& member : members_) {
      Tensor own = counts(member) ? own_window(gradients, member) : Tensor();
      if (own) counted.push_back(std::move(own));
    }
    const Tensor norms = tape_.empty(OpKind::vector_norm, {{counted.size(), Sym::none}}, gradients.dtype());
    for (std::size_t i = 0; i < counted.size(); ++i) {
      const Tensor norm = tape_.view_of(norms, Shape{}, {}, i);
      tape_.run(OpKind::vector_norm, {&counted[i]}, {&norm});
    }
    const Tensor total = vector_norm(norms);
    {
      const Tape::Among ranks(tape_, shares() ? RankGroup::everyone : RankGroup::model);
      all_reduce(total, ReduceOp::norm);
    }
    Tensor coefficient = reciprocal(total + 1e-6) * run_.max_grad_norm;
    coefficient = clamp_max(coefficient, 1.0);
    mul_inplace(gradients, coefficient);
  }

  // The optimizer works in fp32: 16-bit gradients are copied. Moments are made in the first step.
  void update() {
    const Tape::NoGrad no_grad(tape_);
    const Tape::Scope scope(tape_, "optimizer");
    reduce_gradients();
    Tensor gradients = own_part(main_gradients_);
    if (gradients.dtype() != DType::f32) {
      const Tape::In in(tape_, Category::gradients);
      main_gradients_copy_ = tape_.empty(OpKind::to_copy, share(), DType::f32);
      copy_into(main_gradients_copy_, gradients);
      gradients = main_gradients_copy_;
    }
    if (run_.max_grad_norm > 0) clip(gradients);
    {
      const Tape::In in(tape_, Category::optimizer_states);
      for (Tensor* moment : {&exp_avg_, &exp_avg_sq_}) {
        if (!*moment) *moment = zeros(tape_, share(), DType::f32);
      }
    }
    tape_.run(OpKind::adamw, {&gradients}, {&main_parameters_, &exp_avg_, &exp_avg_sq_}, {0, {++steps_, 0}});
    update_parameters();
  }

  void update_parameters() {
    if (!shares()) {
      for (const Member& member : members_)
        copy_into(member.parameter, window(main_parameters_, member));
      return;
    }
    copy_into(own_part(parameters_), main_parameters_);
    tape_.run(OpKind::all_gather, {}, {&parameters_});
  }

  Tape& tape_;
  const Recipe& recipe_;
  const MegatronRun& run_;
  bool fused_;
  std::vector<Member> members_;  // by the parameters' numbers
  std::int64_t steps_ = 0;
  std::uint64_t elements_ = 0, chunks_ = 1, warm_up_ = 0, micro_batches_ = 0, turns_ = 0;
  std::optional<MegatronStage> stage_;
  Tensor parameters_, main_gradients_, main_gradients_copy_, main_parameters_, exp_avg_, exp_avg_sq_;
  std::vector<std::deque<MicroBatch>> in_flight_;  // by chunk
  std::vector<std::uint64_t> begun_;               // micro-batches of this step, by chunk
};

}  // namespace

std::uint64_t micro_batches_in_flight(std::uint64_t stage, std::uint64_t stages, std::uint64_t micro_batches) {
  return std::min(stages - stage, micro_batches);
}

MegatronRun megatron_run(const TraceOptions& options) {
  return {.steps = options.steps,
          .cublas_workspace_bytes = options.cublas_workspace_bytes,
          .te_workspace_bytes = te_workspace_bytes(options.cublas_workspace_bytes),
          .rank = options.rank,
          .operands = options.operands,
          .every_micro_batch = options.operands || options.every_pass,
          .weights = options.weights.value_or(DType::bf16),
          .adamw = options.adamw,
          .max_grad_norm = options.max_grad_norm};
}

Result<Trace> trace_megatron(const ModelConfig& config, const Recipe& recipe, std::uint64_t stage,
                             const MegatronRun& run) {
  if (recipe.task != Task::training) return *unsupported_in_megatron(config, recipe);
  if (auto problem = unsupported(config, recipe)) return *problem;
  // Of every stage up to twice the layers of the whole model are in flight; or one stage has all micro-batches.
  const bool all = run.every_micro_batch;
  const std::uint64_t turns = all ? plus(recipe.micro_batches, 1) : plus(times(2, recipe.pp), 3);
  const std::uint64_t passes = times(config.num_hidden_layers, turns),
                      most = all ? kMostEventsPlayed : kMostPipelineEvents;
  const std::uint64_t events = times(times(passes, kEventsPerLayerPass), run.steps);
  if (events > most)
    return Problem{ProblemCode::too_large_to_trace, all ? "micro_batches" : "pp", std::to_string(events),
                   std::to_string(most), ""};
  Tape tape({.operands = run.operands,
             .cublas_workspace_bytes = run.cublas_workspace_bytes,
             .accumulate_in_place = true,
             .cpu_statistics = false});
  tape.trace().mesh = mesh_of(recipe);
  tape.trace().adamw = run.adamw;
  tape.trace().vocab_size = config.vocab_size;
  Trace trace;
  {
    StageLoop loop(tape, config, recipe, stage, run);
    for (std::uint32_t step = 1; step <= run.steps; ++step)
      loop.run_step("step" + std::to_string(step) + ".");
    trace = tape.finish();
  }
  if (trace.overflow) return Problem{ProblemCode::overflow, "batch, seq", "", "", ""};
  return trace;
}

}  // namespace ledger
