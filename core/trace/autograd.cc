// autograd.cc - the graph and the engine: PyTorch's order of evaluation and its moments of release.
//
// Sources: torch/csrc/autograd/engine.cpp (compute_dependencies, evaluate_function, validate_outputs),
// input_buffer.cpp, functions/accumulate_grad.h, saved_variable.cpp.

#include <algorithm>
#include <limits>

#include "core/trace/backward_rules.h"
#include "core/trace/operators.h"
#include "core/trace/tape.h"

namespace ledger {
namespace {

// The ready queue is a heap by sequence number: later operators first, gradient accumulation before all.
bool runs_later(const Node* a, const Node* b) {
  return a->sequence < b->sequence;
}

}  // namespace

// --- building the graph
// -----------------------------------------------------------------------------------------------

Node* Tape::accumulator_of(const Tensor& leaf) {
  TensorImpl* impl = leaf.impl();
  if (impl->accumulator == nullptr) {
    Node* node = nodes_.take();
    node->refs = 0;
    node->rule = nullptr;
    node->sequence = std::numeric_limits<std::uint64_t>::max();
    node->tape = this;
    node->scope = scope_;
    node->layer = layer_;
    node->category = Category::gradients;
    node->edge_count = node->saved_count = 0;
    node->output_count = 1;
    node->outputs[0] = {impl->shape, impl->dtype};
    node->variable = leaf;
    node->dependencies = node->visited = 0;
    node->hook = -1;
    impl->accumulator = node;
  }
  return impl->accumulator;
}

Node* Tape::edge_target(const Tensor& input) {
  if (!input.requires_grad()) return nullptr;
  Node* target = input.impl()->grad_fn != nullptr ? input.impl()->grad_fn : accumulator_of(input);
  ++target->refs;
  return target;
}

Node* Tape::node(BackwardRule rule, std::initializer_list<const Tensor*> inputs) {
  return node(rule, std::span(inputs.begin(), inputs.size()));
}

Node* Tape::node(BackwardRule rule, std::span<const Tensor* const> inputs) {
  if (!grad_enabled_ || muted_) return nullptr;
  const bool needed =
      std::any_of(inputs.begin(), inputs.end(), [](const Tensor* t) { return *t && t->requires_grad(); });
  if (!needed) return nullptr;
  if (recomputing_ != nullptr) return &recompute_node_;
  Node* node = nodes_.take();
  node->refs = 0;
  node->rule = rule;
  node->sequence = sequence_++;
  node->tape = this;
  node->scope = scope_;
  node->layer = layer_;
  node->category = category_ == Category::logits ? Category::logits : Category::activation_gradients;
  node->saved_count = node->output_count = 0;
  node->edge_count = static_cast<std::uint8_t>(inputs.size());
  node->attr = {};
  node->dependencies = node->visited = 0;
  node->hook = -1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = *inputs[i];
    node->edges[i] = {input ? edge_target(input) : nullptr, input ? input.impl()->output_nr : std::uint8_t{0}};
  }
  node->input_shape = inputs[0]->shape();
  node->input_dtype = inputs[0]->dtype();
  return node;
}

void Tape::save(Node* node, const Tensor& tensor) {
  if (node == nullptr) return;
  if (recomputing_ != nullptr) {
    if (muted_) return;
    const bool wanted = recomputing_->dropped[recomputing_->tensors.size()] == 0;
    recomputing_->tensors.push_back(wanted ? detach(tensor) : Tensor());
    if (recomputing_->tensors.size() == recomputing_->saved) muted_ = true;
    return;
  }
  SavedTensor& slot = node->saved[node->saved_count++];
  if (recording_ != nullptr) {
    ++recording_->refs;
    recording_->dropped.push_back(0);
    slot = {Tensor(), recording_, recording_->saved++};
  } else if (CheckpointFrame* frame = tensor.impl()->storage->remake) {
    ++frame->refs;
    slot = {geometry_of(tensor), frame, 0};
  } else {
    slot = {tensor, nullptr, 0};
  }
}

void Tape::attach(Node* node, Tensor& output) {
  if (node == nullptr) return;
  output.impl()->requires_grad = true;
  if (node == &recompute_node_) return;
  ++node->refs;
  output.impl()->grad_fn = node;
  output.impl()->output_nr = node->output_count;
  node->outputs[node->output_count++] = {output.shape(), output.dtype()};
}

Tensor Tape::unpack(Node& node, std::size_t index) {
  SavedTensor& saved = node.saved[index];
  if (saved.frame == nullptr) return saved.tensor;
  if (saved.frame->again) return made_again(saved);
  if (!saved.frame->recomputed) recompute(*saved.frame);
  return std::move(saved.frame->tensors[saved.slot]);
}

void Tape::release_saved(Node& node) {
  for (std::size_t i = 0; i < node.saved_count; ++i) {
    node.saved[i].tensor.reset();
    if (CheckpointFrame* frame = std::exchange(node.saved[i].frame, nullptr)) {
      if (!frame->recomputed) frame->dropped[node.saved[i].slot] = 1;
      release_frame(frame);
    }
  }
  node.saved_count = 0;
}

void Tape::release_frame(CheckpointFrame* frame) {
  if (--frame->refs != 0) return;
  frame->tensors.clear();
  frame->dropped.clear();
  frame->kept.clear();
  frame->kept_after.clear();
  frame->recompute = nullptr;
  frame->region = nullptr;
  frame->again = nullptr;
  frames_.give(frame);
}

// Destruction is a work list, not recursion: graphs are as deep as the model, and wasm stacks are small.
void Tape::release_node(Node* node) {
  if (--node->refs != 0) return;
  dying_.push_back(node);
  if (destroying_) return;
  destroying_ = true;
  while (!dying_.empty()) {
    Node* next = dying_.back();
    dying_.pop_back();
    destroy(next);
  }
  destroying_ = false;
}

void Tape::destroy(Node* node) {
  if (node->variable) {
    node->variable.impl()->accumulator = nullptr;
    node->variable.reset();
  }
  release_saved(*node);
  if (CheckpointFrame* frame = std::exchange(node->frame, nullptr)) release_frame(frame);
  for (std::size_t i = 0; i < node->edge_count; ++i) {
    if (Node* target = std::exchange(node->edges[i].node, nullptr)) release_node(target);
  }
  node->edge_count = 0;
  for (Tensor& gradient : node->pending)
    gradient.reset();
  node->parts.clear();
  nodes_.give(node);
}

void Tape::require_grad(const Tensor& tensor) {
  if (grad_enabled_ || in_backward_) tensor.impl()->requires_grad = true;
}

// --- the engine
// ------------------------------------------------------------------------------------------------------------

std::vector<Tape::Suspended> Tape::count_dependencies(Node* root) {
  ++backward_passes_;
  std::vector<Suspended> suspended;
  std::vector<Node*> stack = {root};
  root->visited = backward_passes_;
  root->dependencies = 0;
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    for (std::size_t i = 0; i < node->edge_count; ++i) {
      Node* target = node->edges[i].node;
      if (target == nullptr) continue;
      if (target->visited != backward_passes_) {
        if (target->dependencies != 0) {
          suspended.push_back({target, std::move(target->pending), target->dependencies, target->visited});
        }
        target->visited = backward_passes_;
        target->dependencies = 0;
        stack.push_back(target);
      }
      ++target->dependencies;
    }
  }
  return suspended;
}

void Tape::backward(const Tensor& root, Pass pass) {
  Node* const root_node = root.impl()->grad_fn;
  if (root_node == nullptr) return;
  const NoGrad no_grad(*this);
  in_backward_ = true;
  Tensor seed;  // torch.autograd.backward holds it until the engine returns
  {
    const In in(*this, root_node->category);
    const NameId scope = std::exchange(scope_, root_node->scope);
    seed = ones_like(root);
    scope_ = scope;
  }
  backward_from(root, seed);
  if (pass == Pass::whole) end_backward();
  in_backward_ = false;
}

void Tape::backward(const Tensor& root, const Tensor& gradient, Pass pass) {
  const NoGrad no_grad(*this);
  in_backward_ = true;
  backward_from(root, gradient);
  if (pass == Pass::whole) end_backward();
  in_backward_ = false;
}

void Tape::end_backward() {
  // A callback may add none, but it may hold tensors that die with it.
  const std::vector<std::function<void()>> callbacks = std::exchange(at_backward_end_, {});
  for (const std::function<void()>& callback : callbacks)
    callback();
  hooks_.clear();
}

void Tape::backward_from(const Tensor& root, const Tensor& seed) {
  Node* const root_node = root.impl()->grad_fn;
  if (root_node == nullptr) return;
  const NameId scope = scope_;
  const std::int32_t layer = layer_;
  const Category category = category_;
  std::vector<Suspended> suspended = count_dependencies(root_node);
  std::vector<Node*> ready = {root_node};
  root_node->pending[root.impl()->output_nr] = seed;
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), runs_later);
    Node* node = ready.back();
    ready.pop_back();
    scope_ = node->scope;
    layer_ = node->layer;
    category_ = node->category;
    evaluate(node, ready);
  }
  for (Suspended& outer : suspended) {
    outer.node->pending = std::move(outer.pending);
    outer.node->dependencies = outer.dependencies;
    outer.node->visited = outer.visited;
  }
  scope_ = scope;
  layer_ = layer;
  category_ = category;
}

void Tape::evaluate(Node* node, std::vector<Node*>& ready) {
  if (node->variable) {
    accumulate_grad(*node, std::move(node->pending[0]));
    return;
  }
  for (std::size_t i = 0; i < node->edge_count; ++i) {  // validate() reads them when the rule has run
    if (const Node* target = node->edges[i].node) __builtin_prefetch(&target->outputs[node->edges[i].input_nr]);
  }
  Gradients outputs;
  {
    const Gradients inputs = std::move(node->pending);
    if (node->hook >= 0) call_hook(static_cast<std::size_t>(node->hook));
    node->rule(*node, inputs, outputs);
    validate(*node, outputs);
  }
  release_saved(*node);  // a reentrant node's frame stays: its function is an attribute of the node, not a saved tensor
  for (std::size_t i = 0; i < node->edge_count; ++i) {
    if (node->edges[i].node != nullptr) deliver(node->edges[i], std::move(outputs[i]), ready);
  }
}

// A gradient takes the shape and dtype of what it belongs to: broadcast dimensions are summed, casts undone.
void Tape::validate(Node& node, Gradients& gradients) {
  for (std::size_t i = 0; i < node.edge_count; ++i) {
    Tensor& gradient = gradients[i];
    if (!gradient) continue;
    if (node.edges[i].node == nullptr) {
      gradient.reset();
      continue;
    }
    const OutputMeta& meta = node.edges[i].node->outputs[node.edges[i].input_nr];
    if (!gradient.shape().same_sizes(meta.shape)) gradient = sum_to(gradient, meta.shape);
    if (gradient.dtype() != meta.dtype) gradient = to(gradient, meta.dtype);
  }
}

void Tape::deliver(Edge& edge, Tensor gradient, std::vector<Node*>& ready) {
  Node* target = edge.node;
  if (gradient) {
    Tensor& pending = target->pending[edge.input_nr];
    if (!pending) {
      pending = std::move(gradient);
    } else if (options_.accumulate_in_place && pending.impl()->refs == 1 && pending.impl()->storage->refs == 1) {
      add_inplace(pending, gradient);
    } else {
      pending = add(pending, gradient);
    }
  }
  if (--target->dependencies == 0) {
    ready.push_back(target);
    std::push_heap(ready.begin(), ready.end(), runs_later);
  }
}

void Tape::after_accumulation(const Tensor& leaf, std::function<void(Tensor&)> hook) {
  leaf.impl()->accumulated = static_cast<std::int32_t>(leaf_hooks_.size());
  leaf_hooks_.push_back(std::move(hook));
}

void Tape::accumulate_grad(Node& node, Tensor gradient) {
  if (!gradient) return;
  TensorImpl* leaf = node.variable.impl();
  add_to_grad(*leaf, std::move(gradient));
  if (leaf->accumulated >= 0) leaf_hooks_[static_cast<std::size_t>(leaf->accumulated)](leaf->grad);
}

void Tape::add_to_grad(TensorImpl& leaf, Tensor gradient) {
  if (leaf.grad) {
    add_inplace(leaf.grad, gradient);
    return;
  }
  const bool steal = gradient.impl()->refs == 1 && gradient.is_contiguous();
  // A gradient in another layout is copied into the parameter's (clone_obey_contract).
  if (steal) {
    leaf.grad = std::move(gradient);
  } else {
    leaf.grad = gradient.is_contiguous() ? clone(gradient) : contiguous(gradient);
  }
  if (leaf.parameter >= 0) {
    relabel(leaf.grad, Category::gradients);
    trace_.parameters[static_cast<std::size_t>(leaf.parameter)].gradient = leaf.grad.impl()->storage->id;
  }
}

}  // namespace ledger
