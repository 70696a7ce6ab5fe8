// checkpoint.cc - regions whose saved tensors are dropped in forward and made again in backward, and hooks on
// gradients.
//
// Sources: torch/utils/checkpoint.py (_checkpoint_without_reentrant_generator, CheckpointFunction,
// create_selective_checkpoint_contexts); axolotl monkeypatch/gradient_checkpointing/offload_cpu.py.

#include "core/trace/backward_rules.h"
#include "core/trace/operators.h"
#include "core/trace/tape.h"

namespace ledger {

CheckpointFrame* Tape::new_frame() {
  CheckpointFrame* frame = frames_.take();
  frame->refs = 1;
  frame->saved = 0;
  frame->recomputed = false;
  frame->keep = {};
  frame->autocast = autocast_;
  frame->scope = scope_;
  frame->layer = layer_;
  frame->products = 0;
  frame->next_kept = 0;
  return frame;
}

Tensor Tape::checkpoint(const std::function<Tensor()>& region, Keep keep) {
  return std::move(checkpoint_many([region] { return CheckpointOutputs{region()}; }, keep)[0]);
}

CheckpointOutputs Tape::checkpoint_many(const std::function<CheckpointOutputs()>& region, Keep keep) {
  if (!grad_enabled_ || recomputing_ != nullptr) return region();
  CheckpointFrame* frame = new_frame();
  frame->keep = keep;
  frame->recompute = [region] { region(); };
  CheckpointFrame* const outer = std::exchange(recording_, frame);
  CheckpointOutputs outputs = region();
  recording_ = outer;
  if (keep.needed_alone) {
    // Recomputation stops at the last saved tensor and never asks for what was made after it.
    while (!frame->kept.empty() && frame->kept_after.back() == frame->saved) {
      frame->kept.pop_back();
      frame->kept_after.pop_back();
    }
  }
  release_frame(frame);
  return outputs;
}

void Tape::recompute(CheckpointFrame& frame) {
  const NameId scope = std::exchange(scope_, frame.scope);
  const Layer layer(*this, frame.layer);
  const In in(*this, Category::activations);
  const bool grad_enabled = std::exchange(grad_enabled_, true);
  recomputing_ = &frame;
  frame.tensors.reserve(frame.saved);
  frame.products = 0;
  {
    const Autocast autocast(*this, frame.autocast, autocast_dtype_);
    frame.recompute();
  }
  recomputing_ = nullptr;
  was_kept_ = false;
  muted_ = finished_;
  frame.recomputed = true;
  frame.tensors.resize(frame.saved);
  grad_enabled_ = grad_enabled;
  scope_ = scope;
}

// --- tensors made again one by one
// ---------------------------------------------------------------------------------------------------

// Checkpointed regions keep nothing anyway, and what a recomputation makes is needed at once.
void Tape::remake(const Tensor& tensor, std::function<Tensor()> again) {
  if (!grad_enabled_ || muted_ || recording_ != nullptr || recomputing_ != nullptr) return;
  if (tensor.impl()->storage->remake != nullptr) return;
  CheckpointFrame* frame = new_frame();
  frame->recomputed = true;  // no slots to drop
  frame->again = std::move(again);
  tensor.impl()->storage->remake = frame;
}

Tensor Tape::geometry_of(const Tensor& tensor) {
  Tensor result = unbacked(tensor.shape(), tensor.dtype());
  result.impl()->strides = tensor.impl()->strides;
  result.impl()->offset = tensor.impl()->offset;
  return result;
}

Tensor Tape::made_again(const SavedTensor& saved) {
  CheckpointFrame& frame = *saved.frame;
  if (frame.tensors.empty()) {
    const NameId scope = std::exchange(scope_, frame.scope);
    const Layer layer(*this, frame.layer);
    const In in(*this, Category::activations);
    frame.tensors.push_back(frame.again());
    scope_ = scope;
  }
  const TensorImpl& like = *saved.tensor.impl();
  return view_of(frame.tensors.front(), like.shape, like.strides, like.offset);
}

namespace {

// Of the lists of operators, what these models run; mm is decided by its number.
bool keeps(const Keep& keep, OpKind op) {
  switch (op) {
    case OpKind::mm:
    case OpKind::addmm:
      return keep.every_other_product;
    case OpKind::bmm:
      return keep.every_other_product && keep.batched;
    case OpKind::all_to_all:
      return keep.exchanged;
    case OpKind::flash_attention:
    case OpKind::efficient_attention:
      return keep.attention;
    case OpKind::cudnn_attention:
      return keep.cudnn;
    case OpKind::reduce_scatter:
      return keep.sums;
    case OpKind::largest:
      return keep.largest;
    case OpKind::absolute:
      return keep.absolute;
    default:
      return false;
  }
}

}  // namespace

bool Tape::hands_out(OpKind op) const {
  return recomputing_ != nullptr && !muted_ && keeps(recomputing_->keep, op);
}

// In forward: keeps `result`, which `op` is about to make. In recomputation: hands out what was kept.
bool Tape::take_kept(OpKind op, Tensor& result) {
  const bool forward = recomputing_ == nullptr;
  CheckpointFrame* frame = forward ? recording_ : recomputing_;
  if (frame == nullptr || muted_ || !keeps(frame->keep, op)) return false;
  if (op == OpKind::mm && ++frame->products % 2 == 0) return false;
  if (forward) {
    frame->kept.push_back(detach(result));
    frame->kept_after.push_back(frame->saved);
    return false;
  }
  result = std::move(frame->kept[frame->next_kept++]);
  return was_kept_ = true;
}

// The region's first run, of which `node` remembers the way to run it again.
Tensor Tape::without_graph(const std::function<Tensor(const Tensor&)>& region, const Tensor& input, Node* node) {
  node->frame = new_frame();
  node->frame->region = region;
  Tensor output;
  {
    const NoGrad no_grad(*this);
    output = region(input);
  }
  attach(node, output);
  return output;
}

Tensor Tape::checkpoint_reentrant(const std::function<Tensor(const Tensor&)>& region, const Tensor& input) {
  if (!grad_enabled_ || !input.requires_grad()) return region(input);
  Node* graph_node = node(backward::reentrant, {&input});
  save(graph_node, input);
  return without_graph(region, input, graph_node);
}

Tensor Tape::checkpoint_offloaded(const std::function<Tensor(const Tensor&)>& region, const Tensor& input) {
  if (!grad_enabled_ || !input.requires_grad()) return region(input);
  Node* graph_node = node(backward::offloaded, {&input});
  graph_node->attr.i[0] = offloaded_++;
  run(OpKind::copy_to_host, {&input}, {}, graph_node->attr);
  return without_graph(region, input, graph_node);
}

Tensor Tape::rerun(CheckpointFrame& frame, const Tensor& input, const Tensor& gradient) {
  const NameId scope = std::exchange(scope_, frame.scope);
  const Layer layer(*this, frame.layer);
  const Tensor detached = detach(input);
  require_grad(detached);
  Tensor output;
  {
    const In in(*this, Category::activations);
    const Autocast autocast(*this, frame.autocast, autocast_dtype_);
    grad_enabled_ = true;
    output = frame.region(detached);
    grad_enabled_ = false;
  }
  backward_from(output, gradient);
  scope_ = scope;
  Tensor result = detached.grad();
  return result;
}

void Tape::before_gradient_of(const Tensor& output, std::function<void()> hook, HookOrder order) {
  Node* node = output.impl()->grad_fn;
  if (node == nullptr) return;
  if (node->hook >= 0) {
    std::function<void()>& known = hooks_[static_cast<std::size_t>(node->hook)];
    if (order == HookOrder::newest_first) std::swap(known, hook);
    known = [first = std::move(known), then = std::move(hook)] {
      first();
      then();
    };
    return;
  }
  node->hook = static_cast<std::int32_t>(hooks_.size());
  hooks_.push_back(std::move(hook));
}

Tensor Tape::after_gradient_of(const Tensor& input, std::function<void()> hook) {
  Node* graph_node = node(backward::hooked, {&input});
  if (graph_node == nullptr || graph_node == &recompute_node_) return input;
  Tensor output = detach(input);
  graph_node->attr.i[0] = static_cast<std::int64_t>(hooks_.size());
  hooks_.push_back(std::move(hook));
  attach(graph_node, output);
  return output;
}

}  // namespace ledger
