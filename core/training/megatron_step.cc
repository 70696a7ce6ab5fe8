#include "core/training/megatron_step.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>

#include "core/models/megatron.h"
#include "core/training/support.h"

namespace ledger {
namespace {

MegatronOptions options_of(const Recipe& r, std::uint64_t stage, std::uint64_t chunks, const MegatronRun& run) {
  MegatronOptions o;
  o.batch = r.batch;
  o.seq = r.seq;
  o.cp = r.cp;
  o.tp = r.tp;
  o.pp = r.pp;
  o.stage = stage;
  o.chunks = chunks;
  o.sequence_parallel = r.sequence_parallel;
  o.attention = r.attention;
  o.checkpointing = r.checkpointing;
  o.fusion = run.gradient_accumulation_fusion;
  o.te_workspace = run.te_workspace_bytes;
  return o;
}

// Roughly the events of a layer's forward and backward, and the most that all stages together may have.
constexpr std::uint64_t kEventsPerLayerPass = 150, kMostPipelineEvents = 128u << 20;

class StageLoop {
 public:
  StageLoop(Tape& tape, const ModelConfig& config, const Recipe& recipe, std::uint64_t stage, const MegatronRun& run)
      : tape_(tape), recipe_(recipe), made_([this](const Tensor& parameter) { remember(parameter); }) {
    tape.begin_phase("load");
    // num_layers_per_virtual_pipeline_stage 1, or all of the stage's layers in one chunk.
    const bool interleaved = recipe.pipeline_schedule == PipelineSchedule::interleaved;
    chunks_ = interleaved ? layers_of_stage(config, recipe.pp) : 1;
    stage_.emplace(tape, config, options_of(recipe, stage, chunks_, run), made_);
    in_flight_.resize(static_cast<std::size_t>(chunks_));
    // get_pp_rank_microbatches. The steady state repeats itself, and with it what it needs: a turn of it is enough.
    const std::uint64_t behind = recipe.pp - stage - 1;
    const std::uint64_t warm_up = interleaved ? plus(2 * behind, times(chunks_ - 1, recipe.pp)) : behind;
    micro_batches_ = std::min(recipe.micro_batches, interleaved ? times(2, recipe.pp) : plus(warm_up, 2));
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
    main_gradients_copy_.reset();
  }

 private:
  struct MicroBatch {
    Tensor input, root;
  };

  // DDP's hook: the gradient is added to the main one and given up.
  void remember(const Tensor& parameter) {
    elements_ = plus(elements_, parameter.shape().numel());
    tape_.after_accumulation(parameter, [this](Tensor& gradient) {
      tape_.run(OpKind::add_inplace, {&main_gradients_, &gradient}, {&main_gradients_});
      gradient.reset();
    });
  }

  // Of every parameter, or of this rank's share with the distributed optimizer; the ranks of one sequence share, too.
  Shape share() const {
    return {{recipe_.zero == 1 ? divide_up(elements_, times(recipe_.dp, recipe_.cp)) : elements_, Sym::none}};
  }

  void make_buffers() {
    const DType gradients = recipe_.precision == Precision::megatron_bf16 ? DType::f32 : DType::bf16;
    {
      const Tape::Scope scope(tape_, "main_grads");
      const Tape::In in(tape_, Category::gradients);
      main_gradients_ = zeros(tape_, {{elements_, Sym::none}}, gradients);
    }
    const Tape::Scope scope(tape_, "main_params");
    const Tape::In in(tape_, Category::master_weights);
    main_parameters_ = tape_.empty(OpKind::to_copy, share(), DType::f32);
  }

  // get_schedule_table: groups of as many micro-batches as stages, through one chunk after the other.
  std::size_t chunk_of(std::uint64_t turn) const {
    return static_cast<std::size_t>(turn % times(recipe_.pp, chunks_) / recipe_.pp);
  }

  void forward(std::size_t chunk) {
    MicroBatch micro;
    if (!stage_->is_first(chunk)) micro.input = stage_->receive();
    micro.root = stage_->forward(chunk, micro.input);
    in_flight_[chunk].push_back(std::move(micro));
  }

  void backward(std::size_t chunk) {
    const MicroBatch micro = std::move(in_flight_[chunk].front());
    in_flight_[chunk].pop_front();
    const Tape::Scope scope(tape_, "loss");
    tape_.backward(micro.root);
  }

  // The optimizer works in fp32: 16-bit gradients are copied. Moments are made in the first step.
  void update() {
    const Tape::NoGrad no_grad(tape_);
    const Tape::Scope scope(tape_, "optimizer");
    if (main_gradients_.dtype() != DType::f32) {
      const Tape::In in(tape_, Category::gradients);
      main_gradients_copy_ = tape_.empty(OpKind::to_copy, share(), DType::f32);
    }
    const Tape::In in(tape_, Category::optimizer_states);
    for (Tensor* moment : {&exp_avg_, &exp_avg_sq_}) {
      if (!*moment) *moment = zeros(tape_, share(), DType::f32);
    }
  }

  Tape& tape_;
  const Recipe& recipe_;
  const MegatronStage::OnParameter made_;
  std::uint64_t elements_ = 0, chunks_ = 1, warm_up_ = 0, micro_batches_ = 0, turns_ = 0;
  std::optional<MegatronStage> stage_;
  Tensor main_gradients_, main_gradients_copy_, main_parameters_, exp_avg_, exp_avg_sq_;
  std::vector<std::deque<MicroBatch>> in_flight_;  // by chunk
};

}  // namespace

std::uint64_t micro_batches_in_flight(std::uint64_t stage, std::uint64_t stages, std::uint64_t micro_batches) {
  return std::min(stages - stage, micro_batches);
}

Result<Trace> trace_megatron(const ModelConfig& config, const Recipe& recipe, std::uint64_t stage,
                             const MegatronRun& run) {
  if (recipe.task != Task::training) return *unsupported_in_megatron(config, recipe);
  if (auto problem = unsupported(config, recipe)) return *problem;
  // Of every stage up to twice the layers of the whole model are in flight.
  const std::uint64_t passes = times(config.num_hidden_layers, plus(times(2, recipe.pp), 3));
  const std::uint64_t events = times(times(passes, kEventsPerLayerPass), run.steps);
  if (events > kMostPipelineEvents)
    return Problem{ProblemCode::too_large_to_trace, "pp", std::to_string(events), std::to_string(kMostPipelineEvents),
                   ""};
  Tape tape({.operands = false,
             .cublas_workspace_bytes = run.cublas_workspace_bytes,
             .accumulate_in_place = true,
             .cpu_statistics = false});
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
