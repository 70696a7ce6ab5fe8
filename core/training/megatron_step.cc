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
  const Mesh mesh = mesh_of(r);
  o.tp_rank = mesh.place(run.rank, Axis::tensor);
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
  return o;
}

// Roughly the events of a layer's forward and backward, and the most that all stages together may have.
constexpr std::uint64_t kEventsPerLayerPass = 150, kMostPipelineEvents = 128u << 20, kMostEventsPlayed = 8u << 20;

class StageLoop {
 public:
  StageLoop(Tape& tape, const ModelConfig& config, const Recipe& recipe, std::uint64_t stage, const MegatronRun& run)
      : tape_(tape), recipe_(recipe), run_(run), buffers_(tape, config, recipe, run) {
    tape.begin_phase("load");
    // num_layers_per_virtual_pipeline_stage 1, or all of the stage's layers in one chunk.
    const bool interleaved = recipe.pipeline_schedule == PipelineSchedule::interleaved;
    chunks_ = interleaved ? layers_of_stage(config, recipe.pp) : 1;
    stage_.emplace(tape, config, options_of(recipe, stage, chunks_, run), buffers_);
    in_flight_.resize(static_cast<std::size_t>(chunks_));
    // get_pp_rank_microbatches. The steady state repeats itself, and with it what it needs: a turn of it is enough.
    const std::uint64_t behind = recipe.pp - stage - 1;
    const std::uint64_t warm_up = interleaved ? plus(2 * behind, times(chunks_ - 1, recipe.pp)) : behind;
    const std::uint64_t enough = interleaved ? times(2, recipe.pp) : plus(warm_up, 2);
    micro_batches_ = run.every_micro_batch ? recipe.micro_batches : std::min(recipe.micro_batches, enough);
    turns_ = times(micro_batches_, chunks_);
    warm_up_ = std::min(warm_up, turns_);
    buffers_.make();
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
    buffers_.step({stage_->shared_embedding(), !stage_->is_first(0)});
    tape_.begin_phase(step + "zero_grad");
    buffers_.zero();
  }

 private:
  struct MicroBatch {
    Tensor input, root;
  };

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
    buffers_.before_backward();
    {
      const Tape::Scope scope(tape_, "loss");
      tape_.backward(micro.root);
    }
    if (micro.input) stage_->send_gradient(micro.input);
  }

  Tape& tape_;
  const Recipe& recipe_;
  const MegatronRun& run_;
  std::uint64_t chunks_ = 1, warm_up_ = 0, micro_batches_ = 0, turns_ = 0;
  MegatronBuffers buffers_;
  std::optional<MegatronStage> stage_;
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
