#include "core/training/titan_pipeline.h"

#include <algorithm>
#include <memory>
#include <string>

#include "core/models/torchtitan.h"
#include "core/parallel/mesh_of.h"
#include "core/training/optimizer.h"
#include "core/training/step_parts.h"

namespace ledger {
namespace {

// Turns of one kind: groups of as many micro-batches as a round has, through one of the rank's stages after the other.
PipelineTurn turn_of(bool backward, std::uint64_t count, std::uint64_t stages, std::uint64_t round) {
  const std::uint64_t place = count / round % stages, stage = backward ? stages - 1 - place : place;
  const std::uint64_t micro_batch = count / times(round, stages) * round + count % round;
  return {backward, static_cast<std::size_t>(stage), static_cast<std::size_t>(micro_batch)};
}

// PipelineStage.
class TitanStage {
 public:
  TitanStage(Tape& tape, const ModelConfig& config, const Recipe& recipe, const TraceOptions& options,
             std::uint64_t index, std::uint64_t stages)
      : tape_(tape),
        recipe_(recipe),
        version_(*titan_version(recipe.stack)),
        index_(index),
        stages_(stages),
        optimizer_(make_optimizer(recipe.optimizer)),
        forward_cache_(static_cast<std::size_t>(recipe.micro_batches)) {
    ModelOptions model = model_options(recipe, options);
    if (recipe.fsdp == 2) units_ = std::make_unique<Fsdp2>(tape, fsdp2_options(config, recipe, options));
    model.units = units_.get();
    const TitanPart part = titan_parts(config, version_, stages)[static_cast<std::size_t>(index)];
    model_ = std::make_unique<TorchtitanDecoder>(tape, config, model, part);
    message_ = {{recipe.batch, Sym::b},
                {recipe.seq / recipe.tp, recipe.tp == 1 ? Sym::s : Sym::none},
                {config.hidden_size, Sym::h}};
    dtype_ = recipe.fsdp == 2 ? fsdp2_options(config, recipe, options).param_dtype : model.weights;
  }

  bool is_first() const { return index_ == 0; }
  bool is_last() const { return index_ + 1 == stages_; }
  const std::vector<Tensor>& parameters() const { return model_->trainable(); }

  // _prepare_forward_infra and _prepare_backward_infra: memory for all that will be received, from the first step on.
  void make_buffers() {
    for (std::uint64_t i = 0; !is_first() && i < recipe_.micro_batches; ++i) {
      inputs_.push_back(buffer());
      tape_.require_grad(inputs_.back());
    }
    for (std::uint64_t i = 0; !is_last() && i < recipe_.micro_batches; ++i)
      gradients_.push_back(buffer());
  }

  // clear_runtime_states: what the step before left.
  void clear() {
    output_chunks_.clear();
    for (Tensor& input : inputs_)
      input.clear_grad();
  }

  Tensor forward(std::size_t micro_batch, const Tensor& tokens) {
    if (!is_first()) receive(inputs_[micro_batch], index_ - 1, 0);
    Tensor output = model_->forward_part(is_first() ? tokens : inputs_[micro_batch]);
    const bool kept = version_.pipeline_outputs == TitanOutputs::every_stage ||
                      (is_last() && version_.pipeline_outputs == TitanOutputs::last_stage);
    if (kept) output_chunks_.push_back(tape_.detach(output));
    forward_cache_[micro_batch] = output;
    if (!is_last()) send(output, index_ + 1, 0);
    return output;
  }

  Tensor loss(const Tensor& output, const Tensor& labels) const { return model_->loss_of(output, labels); }

  // backward_one_chunk: its names hold the stage's output until the pass is over. `loss`: of the last stage.
  void backward(std::size_t micro_batch, const Tensor& loss, Tape::Pass pass) {
    const Tensor output = std::move(forward_cache_[micro_batch]);
    const Tape::Scope scope(tape_, "loss");
    const Tape::In in(tape_, Category::logits);
    if (is_last()) {
      tape_.backward(loss, pass);
    } else {
      receive(gradients_[micro_batch], index_ + 1, 1);
      tape_.backward(output, gradients_[micro_batch], pass);
    }
    if (units_ != nullptr) units_->end_micro_batch();
    if (++backwards_ == recipe_.micro_batches) {
      backwards_ = 0;
      using Final = Fsdp2::FinalCallback;
      if (units_ != nullptr) units_->reduce_all(version_.keeps_reduced ? Final::missed : Final::called);
    }
    if (!is_first()) send(inputs_[micro_batch].grad(), index_ - 1, 1);
  }

  // _merge_outputs, whose result the trainer takes no notice of.
  void merge_outputs() const {
    if (!is_last() || output_chunks_.empty()) return;
    const Tape::Scope scope(tape_, "pipeline.merged", Tape::Scope::Below::nothing);
    const Tape::In in(tape_, Category::logits);
    const Tape::NoGrad no_grad(tape_);
    cat(output_chunks_, 0, {times(recipe_.batch, recipe_.micro_batches), Sym::none});
  }

  void step(const std::vector<Tensor>& updated) { optimizer_->step(tape_, updated); }

 private:
  Tensor buffer() const {
    const Tape::Scope scope(tape_, "pipeline.received", Tape::Scope::Below::nothing);
    const Tape::In in(tape_, Category::communication);
    return tape_.empty(OpKind::receive, message_, dtype_);
  }

  // Stages of a rank have each their own numbers of messages: activations are even, gradients odd.
  Attr envelope(std::uint64_t other, std::uint64_t gradient) const {
    const std::uint64_t number = 2 * std::max(index_, other) + gradient;
    return {0, {static_cast<std::int64_t>(other % recipe_.pp), static_cast<std::int64_t>(number)}};
  }

  void receive(const Tensor& into, std::uint64_t from, std::uint64_t gradient) const {
    const Tape::Among ranks(tape_, RankGroup::pipeline);
    tape_.run(OpKind::receive, {}, {&into}, envelope(from, gradient));
  }

  void send(const Tensor& tensor, std::uint64_t to, std::uint64_t gradient) const {
    const Tape::Among ranks(tape_, RankGroup::pipeline);
    tape_.run(OpKind::send, {&tensor}, {}, envelope(to, gradient));
  }

  Tape& tape_;
  const Recipe& recipe_;
  const TitanVersion& version_;
  std::uint64_t index_, stages_, backwards_ = 0;
  std::unique_ptr<Fsdp2> units_;
  std::unique_ptr<TorchtitanDecoder> model_;
  std::unique_ptr<OptimizerStep> optimizer_;
  Shape message_;
  DType dtype_ = DType::bf16;
  std::vector<Tensor> inputs_, gradients_;  // received, a micro-batch each
  std::vector<Tensor> forward_cache_, output_chunks_;
};

// train.py with a pipeline's schedule.
class TitanLoop {
 public:
  TitanLoop(Tape& tape, const ModelConfig& config, const Recipe& recipe, const TraceOptions& options)
      : tape_(tape), recipe_(recipe), options_(options) {
    const std::uint64_t stages = titan_stages(recipe), of_rank = stages / recipe.pp;
    const std::uint64_t rank = mesh_of(recipe).place(options.rank, Axis::pipeline);
    for (std::uint64_t i = 0; i < of_rank; ++i)
      stages_.push_back(std::make_unique<TitanStage>(tape, config, recipe, options, i * recipe.pp + rank, stages));
    turns_ = pipeline_turns(rank, recipe.pp, of_rank, recipe.micro_batches);
    losses_.resize(static_cast<std::size_t>(recipe.micro_batches));
  }

  void run_step(const std::string& step) {
    begin_schedule(step);
    std::uint64_t forwards = 0, backwards = 0;
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const PipelineTurn& turn = turns_[i];
      const std::uint64_t number = turn.backward ? ++backwards : ++forwards;
      phase(step, number, turn.backward ? "backward" : "forward");
      if (turn.backward) {
        backward(turn, i + 1 == turns_.size() ? Tape::Pass::whole : Tape::Pass::within);
      } else {
        forward(turn);
      }
    }
    output_.reset();
    stages_.back()->merge_outputs();
    tape_.begin_phase(step + "optimizer");
    update();
    tape_.begin_phase(step + "zero_grad");
    for (const auto& stage : stages_) {
      for (Tensor parameter : stage->parameters())
        parameter.clear_grad();
    }
  }

 private:
  // Every rank has its batch's tokens and labels, whichever it reads; they are made once, as without a pipeline.
  void begin_schedule(const std::string& step) {
    phase(step, 1, "forward");
    if (tokens_) {
      for (const auto& stage : stages_)
        stage->clear();
      return;
    }
    const Tape::Among ranks(tape_, RankGroup::batches);
    const Dim rows{times(recipe_.batch, recipe_.micro_batches), Sym::none};
    labels_ = load_token_ids(tape_, rows, {recipe_.seq, Sym::s}, "labels");
    tokens_ = load_token_ids(tape_, rows, {recipe_.seq, Sym::s});
    for (const auto& stage : stages_)
      stage->make_buffers();
  }

  void phase(const std::string& step, std::uint64_t number, const char* pass) {
    const std::string name = turns_.size() == 2 ? step + pass : step + std::to_string(number) + "." + pass;
    if (tape_.trace().phases.empty() || tape_.trace().phases.back() != name) tape_.begin_phase(name);
  }

  // torch.tensor_split.
  Tensor rows_of(const Tensor& all, std::size_t micro_batch) const {
    return slice(all, 0, times(micro_batch, recipe_.batch), {recipe_.batch, Sym::b});
  }

  // The last pass's output is bound to a name until there is another, or the schedule is over.
  void forward(const PipelineTurn& turn) {
    TitanStage& stage = *stages_[turn.stage];
    output_ = stage.forward(turn.micro_batch, rows_of(tokens_, turn.micro_batch));
    if (!stage.is_last()) return;
    Tensor loss = stage.loss(output_, rows_of(labels_, turn.micro_batch));
    if (options_.operands) tape_.trace().losses.push_back(loss.impl()->storage->id);
    // The mean over all micro-batches. Up to 0.1 it is gradients that are divided, in place (stage.scale_grads).
    if (recipe_.micro_batches != 1) loss = loss / static_cast<double>(recipe_.micro_batches);
    losses_[turn.micro_batch] = loss;
  }

  void backward(const PipelineTurn& turn, Tape::Pass pass) {
    TitanStage& stage = *stages_[turn.stage];
    const Tensor loss = stage.is_last() ? std::move(losses_[turn.micro_batch]) : Tensor();
    stage.backward(turn.micro_batch, loss, pass);
  }

  // One norm for all of a rank's stages, an optimizer for each.
  void update() {
    std::vector<Tensor> all;
    for (const auto& stage : stages_)
      all.insert(all.end(), stage->parameters().begin(), stage->parameters().end());
    if (recipe_.tp > 1 && recipe_.fsdp == 0) sum_partial_gradients(all);
    const NormOver over = recipe_.fsdp != 0 ? NormOver::shards : NormOver::gradients;
    if (options_.max_grad_norm > 0) clip_grad_norm(tape_, all, options_.max_grad_norm, over, NormOf::stage);
    for (const auto& stage : stages_)
      stage->step(stage->parameters());
  }

  Tape& tape_;
  const Recipe& recipe_;
  const TraceOptions& options_;
  std::vector<std::unique_ptr<TitanStage>> stages_;
  std::vector<PipelineTurn> turns_;
  Tensor tokens_, labels_, output_;
  std::vector<Tensor> losses_;
};

}  // namespace

std::vector<PipelineTurn> pipeline_turns(std::uint64_t rank, std::uint64_t ranks, std::uint64_t stages_of_rank,
                                         std::uint64_t micro_batches) {
  const bool looped = stages_of_rank > 1;
  const std::uint64_t rounds = looped ? std::max<std::uint64_t>(1, micro_batches / ranks) : 1;
  if (micro_batches % rounds != 0) return {};
  const std::uint64_t round = micro_batches / rounds, all = times(micro_batches, stages_of_rank);
  const std::uint64_t behind = ranks - 1 - rank;
  const std::uint64_t warm_up = looped ? plus(times(stages_of_rank - 1, round), times(2, behind)) : behind;
  const std::uint64_t ahead = std::min(warm_up, all);
  std::vector<PipelineTurn> turns;
  for (std::uint64_t i = 0; i < plus(all, ahead); ++i) {
    if (i < all) turns.push_back(turn_of(false, i, stages_of_rank, round));
    if (i >= ahead) turns.push_back(turn_of(true, i - ahead, stages_of_rank, round));
  }
  return turns;
}

Trace trace_titan_pipeline(Tape& tape, const ModelConfig& config, const Recipe& recipe, const TraceOptions& options) {
  tape.begin_phase("load");
  TitanLoop loop(tape, config, recipe, options);
  for (std::uint32_t step = 1; step <= options.steps; ++step)
    loop.run_step("step" + std::to_string(step) + ".");
  return tape.finish();
}

}  // namespace ledger
