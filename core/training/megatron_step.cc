#include "core/training/megatron_step.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include "core/parallel/mesh_of.h"
#include "core/training/megatron_buffers.h"
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
  o.cut = stage_cut(r);
  const Mesh mesh = mesh_of(r);
  o.tp_rank = mesh.place(run.rank, Axis::tensor);
  o.cp_rank = mesh.place(run.rank, Axis::context);
  o.cp_gathers = r.cp_comm_type == CpComm::all_gather;
  o.cp_exchanging = mesh.exchanging;
  o.ep = mesh.expert;
  o.etp = mesh.expert_tensor;
  o.expert = mesh.expert_place(run.rank);
  o.weights = run.weights;
  o.chunks = chunks;
  o.sequence_parallel = r.sequence_parallel;
  o.attention = r.attention;
  o.checkpointing = r.checkpointing;
  o.recompute_method = r.recompute_method;
  o.recompute_num_layers = r.recompute_num_layers;
  o.te_workspace = run.te_workspace_bytes;
  o.rope_fusion = run.rope_fusion;
  o.deterministic = run.deterministic;
  o.fused_loss = r.loss == Loss::vocab_parallel_fused;
  o.local = r.transformer_impl == TransformerImpl::local;
  return o;
}

// Roughly the events of a layer's forward and backward, and the most that all stages together may have.
constexpr std::uint64_t kEventsPerLayerPass = 150, kMostPipelineEvents = 128u << 20, kMostEventsPlayed = 8u << 20;

class StageLoop {
 public:
  StageLoop(Tape& tape, const ModelConfig& config, const Recipe& recipe, std::uint64_t stage, const MegatronRun& run)
      : tape_(tape), recipe_(recipe), run_(run), buffers_(tape, config, recipe, run) {
    tape.begin_phase("load");
    // One chunk alone is no interleaving: virtual_pipeline_model_parallel_size is None.
    const std::uint64_t chunks = chunks_of_stage(config, stage_cut(recipe), stage);
    const bool interleaved = chunks != 1;
    stage_.emplace(tape, config, options_of(recipe, stage, chunks, run), buffers_);
    chunks_.resize(static_cast<std::size_t>(chunks));
    // get_pp_rank_microbatches. The steady state repeats itself, and with it what it needs: a turn of it is enough.
    const std::uint64_t behind = recipe.pp - stage - 1;
    const std::uint64_t warm_up = interleaved ? plus(2 * behind, times(chunks - 1, recipe.pp)) : behind;
    const std::uint64_t enough = interleaved ? times(2, recipe.pp) : plus(warm_up, 2);
    micro_batches_ = run.every_micro_batch ? recipe.micro_batches : std::min(recipe.micro_batches, enough);
    turns_ = times(micro_batches_, chunks);
    warm_up_ = std::min(warm_up, turns_);
    buffers_.make();
  }

  // Phases as of gradient accumulation: step1.2.forward is the second micro-batch's (with chunks, the second turn's).
  void run_step(const std::string& step) {
    step_ = step;
    begun_.assign(chunks_.size(), 0);
    if (chunks_.size() != 1) {
      interleaved();
    } else {
      one_forward_one_backward();
    }
    input_gradient_.reset();
    output_gradient_.reset();
    tape_.begin_phase(step + "optimizer");
    buffers_.step({stage_->shared_embedding(), !stage_->is_first(0)});
    tape_.begin_phase(step + "zero_grad");
    buffers_.zero();
  }

 private:
  // Of one chunk: micro-batches that have begun and not ended, and what was received for them.
  struct Chunk {
    std::deque<Tensor> inputs, outputs, gradients;
  };

  // --- forward_backward_pipelining_without_interleaving
  // ----------------------------------------------------------------------
  // Its variables hold their tensors until they get others: the last output's gradient, and the input's.

  void one_forward_one_backward() {
    for (std::uint64_t k = 0; k < turns_; ++k) {
      phase(k, "forward");
      if (k <= warm_up_) take_input(0);
      const Tensor output = forward(0);
      if (k < warm_up_) {
        pass_on(output, 0);
        continue;
      }
      send_and_take_gradient(output);
      phase(k - warm_up_, "backward");
      const Tensor input = backward(0, output_gradient_);
      input_gradient_ = gradient_of(input);
      if (k + 1 < turns_) take_input(0);
    }
    for (std::uint64_t k = turns_ - warm_up_; k < turns_; ++k) {
      phase(k, "backward");
      if (!stage_->is_last(0)) output_gradient_ = stage_->receive_gradient();
      input_gradient_ = gradient_of(backward(0, output_gradient_));
    }
  }

  // send_forward_recv_backward: the gradient has its memory before the output gives up its own.
  void send_and_take_gradient(const Tensor& output) {
    if (stage_->is_last(0)) return;
    stage_->send_output(output);
    output_gradient_ = stage_->receive_gradient();
    stage_->release(output);
  }

  // --- forward_backward_pipelining_with_interleaving, with overlap_p2p_comm
  // -----------------------------------------------------
  // What comes next has its memory as soon as a pass is over, and what was sent has its own until the next forward.

  void interleaved() {
    phase(0, "forward");
    take_input(0);
    if (warm_up_ == 0) take_gradient(0);  // of the last stage, which has one chunk: none
    Tensor output;
    for (std::uint64_t k = 0; k < turns_; ++k) {
      if (k != 0) phase(k, "forward");
      const std::size_t chunk = chunk_of(k);
      if (output) stage_->release(output);
      output = forward(chunk);
      if (!stage_->is_last(chunk)) stage_->send_output(output);
      if (k + 1 < turns_) take_input(chunk_of(k + 1));
      if (stage_->is_last(chunk)) output.reset();
      if (k < warm_up_) {
        if (output) stage_->release(output);
        output.reset();
        if (k + 1 == warm_up_ && warm_up_ < turns_) take_gradient(chunks_.size() - 1);
        continue;
      }
      backward_turn(k - warm_up_);
    }
    if (output) stage_->release(output);
    output.reset();
    if (warm_up_ == turns_) take_gradient(chunks_.size() - 1);
    for (std::uint64_t k = turns_ - warm_up_; k < turns_; ++k)
      backward_turn(k);
  }

  void backward_turn(std::uint64_t k) {
    phase(k, "backward");
    const auto chunk_at = [&](std::uint64_t turn) { return chunks_.size() - 1 - chunk_of(turn); };
    const std::size_t chunk = chunk_at(k);
    Tensor input_gradient;
    {
      const Tensor gradient = taken(chunks_[chunk].gradients);
      input_gradient = gradient_of(backward(chunk, gradient));
    }
    if (k + 1 < turns_) take_gradient(chunk_at(k + 1));
    input_gradient_ = std::move(input_gradient);
  }

  // --- passes
  // ------------------------------------------------------------------------------------------------------------------

  void phase(std::uint64_t turn, const char* pass) {
    tape_.begin_phase(turns_ == 1 ? step_ + pass : step_ + std::to_string(turn + 1) + "." + pass);
  }

  // get_schedule_table: groups of as many micro-batches as stages, through one chunk after the other.
  std::size_t chunk_of(std::uint64_t turn) const {
    return static_cast<std::size_t>(turn % times(recipe_.pp, chunks_.size()) / recipe_.pp);
  }

  static Tensor taken(std::deque<Tensor>& tensors) {
    Tensor first = std::move(tensors.front());
    tensors.pop_front();
    return first;
  }

  void take_input(std::size_t chunk) {
    chunks_[chunk].inputs.push_back(stage_->is_first(chunk) ? Tensor() : stage_->receive());
  }

  void take_gradient(std::size_t chunk) {
    chunks_[chunk].gradients.push_back(stage_->is_last(chunk) ? Tensor() : stage_->receive_gradient());
  }

  void pass_on(const Tensor& output, std::size_t chunk) {
    if (stage_->is_last(chunk)) return;
    stage_->send_output(output);
    stage_->release(output);
  }

  Tensor forward(std::size_t chunk) {
    Tensor output = stage_->forward(chunk, chunks_[chunk].inputs.back(), begun_[chunk]++);
    if (stage_->is_last(chunk)) {
      if (run_.operands) tape_.trace().losses.push_back(output.impl()->storage->id);
      if (micro_batches_ != 1) output = output / static_cast<double>(micro_batches_);
    }
    chunks_[chunk].outputs.push_back(output);
    return output;
  }

  // The chunk's input, whose gradient is sent.
  Tensor backward(std::size_t chunk, const Tensor& gradient) {
    const Tensor output = taken(chunks_[chunk].outputs);
    Tensor input = taken(chunks_[chunk].inputs);
    buffers_.before_backward();
    {
      const Tape::Scope scope(tape_, "loss");
      if (gradient) {
        tape_.backward(output, gradient);
      } else {
        tape_.backward(output);
      }
    }
    if (input) stage_->send_gradient(input);
    return input;
  }

  static Tensor gradient_of(const Tensor& input) { return input ? input.grad() : Tensor(); }

  Tape& tape_;
  const Recipe& recipe_;
  const MegatronRun& run_;
  std::uint64_t warm_up_ = 0, micro_batches_ = 0, turns_ = 0;
  MegatronBuffers buffers_;
  std::optional<MegatronStage> stage_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> begun_;         // micro-batches of this step, by chunk
  Tensor input_gradient_, output_gradient_;  // the schedule's variables
  std::string step_;
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
  const std::uint64_t ring = recipe.cp == 1 ? 0 : times(recipe.cp, kEventsPerRingStep);
  const std::uint64_t rows = times(turns, recipe.batch);  // positions are made for each sequence
  const std::uint64_t events = times(plus(times(passes, plus(kEventsPerLayerPass, ring)), rows), run.steps);
  if (events > most) {
    const char* const many = ring > kEventsPerLayerPass ? "cp" : "pp";
    return Problem{ProblemCode::too_large_to_trace, all ? "micro_batches" : many, std::to_string(events),
                   std::to_string(most), ""};
  }
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
