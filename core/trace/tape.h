// tape.h - the tracer: owns tensors, storages and the autograd graph, and writes the trace.
//
// It plays PyTorch's eager mode: operators (operators.h) run one after the other, each allocating its result, saving
// what its backward rule needs and releasing what nobody refers to any more. backward() plays
// torch/csrc/autograd/engine.cpp. The tape knows nothing of models or recipes.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/trace/module_hooks.h"
#include "core/trace/node.h"
#include "core/trace/slab.h"
#include "core/trace/tensor.h"
#include "core/trace/trace.h"

namespace ledger {

struct TapeOptions {
  bool operands = false;             // record runs and views, for executors
  Bytes cublas_workspace_bytes = 0;  // one is allocated at the first matrix product of each thread (forward, autograd)
  // Sum gradients that meet at one node into the first one's memory when nobody else holds it (plain CUDA tensors),
  // instead of into a new tensor (tensor subclasses, which is how the reference traces were taken). See
  // docs/accuracy.md.
  bool accumulate_in_place = false;
  // Layer norm's mean and rstd in its input's dtype (the CPU kernel, with which the reference traces were taken)
  // instead of fp32 (CUDA).
  bool cpu_statistics = false;
  Bytes limit = kOverflow;  // Trace::over_limit says whether more than this was alive at any time
  // What cuDNN's plans for attention ask for, where they are known (probe/cuda): its scratch memory in the allocator.
  Bytes cudnn_forward_bytes = 0, cudnn_backward_bytes = 0;
};

class Tape {
 public:
  explicit Tape(TapeOptions options = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // --- the trace -----------------------------------------------------------------------------------------------------
  void begin_phase(std::string_view name);
  Trace finish();  // ends tracing: handles that die later leave no events
  Trace& trace() { return trace_; }

  // --- creating tensors ----------------------------------------------------------------------------------------------
  // Fresh memory in the current scope and category. `strides` of a dense tensor, or contiguous by default.
  Tensor empty(OpKind op, const Shape& shape, DType dtype, const Strides* strides = nullptr);
  Tensor parameter(std::string_view name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable);
  Tensor view_of(const Tensor& base, const Shape& shape, const Strides& strides, std::uint64_t offset);
  Tensor detach(const Tensor& tensor);
  // A tensor that has no memory yet, and memory taken and given up while handles and views stay: storage().resize_().
  Tensor unbacked(const Shape& shape, DType dtype);
  void alloc_storage(const Tensor& tensor, const Shape& flat, OpKind op);
  void free_storage(const Tensor& tensor);
  void empty_cache();
  void set_limit(Bytes limit) { options_.limit = limit; }  // TapeOptions::limit
  // tensor.data = source: the handle stays, its old memory goes unless somebody else holds it.
  void set_data(const Tensor& tensor, const Tensor& source);

  // Records that `op` ran. Call after its outputs were allocated.
  void run(OpKind op, std::span<const Tensor* const> inputs, std::span<const Tensor* const> outputs, Attr attr = {});
  void run(OpKind op, std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> outputs,
           Attr attr = {}) {
    run(op, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()), attr);
  }

  void relabel(const Tensor& tensor, Category category);
  void ensure_cublas_workspace();
  Tensor scratch(const Shape& shape, DType dtype);  // library workspace inside the allocator

  // --- autograd ------------------------------------------------------------------------------------------------------
  // The node of an operator on `inputs`, or null when nothing needs a gradient. Save inputs, allocate and run, save
  // outputs, then attach the result: PyTorch's order, on which early stopping of a recomputation depends.
  Node* node(BackwardRule rule, std::initializer_list<const Tensor*> inputs);
  Node* node(BackwardRule rule, std::span<const Tensor* const> inputs);
  void save(Node* node, const Tensor& input);
  void save_output(Node* node, const Tensor& output) { save(node, detach(output)); }
  void attach(Node* node, Tensor& output);
  Tensor unpack(Node& node, std::size_t index);

  // Recomputing a region that kept what `op` made: what leads to it need not be run again.
  bool hands_out(OpKind op) const;

  // What nodes save of `tensor` from here on is not kept: the first that asks for it in backward has `again` make it,
  // once for all of them. Fused frameworks do so with what is quick to compute from tensors that are saved anyway.
  void remake(const Tensor& tensor, std::function<Tensor()> again);

  // d(root)/d(leaves), added to their .grad. Source: engine.cpp (evaluate_function, validate_outputs),
  // input_buffer.cpp. `within` a forward pass, or while others have yet to come: hooks wait for a later one.
  enum class Pass : std::uint8_t { whole, within };
  void backward(const Tensor& root, Pass pass = Pass::whole);
  // The same from the gradient of `root`, whose own memory may be gone.
  void backward(const Tensor& root, const Tensor& gradient, Pass pass = Pass::whole);

  // Runs `region` so that its saved tensors are recomputed in backward. `region` is kept, with all it captures, until
  // then.
  Tensor checkpoint(const std::function<Tensor()>& region, Keep keep = {});
  CheckpointOutputs checkpoint_many(const std::function<CheckpointOutputs()>& region, Keep keep = {});

  // torch.utils.checkpoint, use_reentrant=True: forward without a graph; the node's backward runs `region` again and a
  // nested backward pass. Only `input` is saved; what else the region captures lives as long.
  Tensor checkpoint_reentrant(const std::function<Tensor(const Tensor&)>& region, const Tensor& input);

  // The same with `input` in host memory between forward and backward. Source: axolotl monkeypatch/
  // gradient_checkpointing/offload_cpu.py, CPU_Offloaded_Gradient_Checkpointer (after unsloth).
  Tensor checkpoint_offloaded(const std::function<Tensor(const Tensor&)>& region, const Tensor& input);
  Tensor rerun(CheckpointFrame& frame, const Tensor& input, const Tensor& gradient);

  // --- hooks ---------------------------------------------------------------------------------------------------------
  // For parallelism: called when the gradient of `output` is there and before its node runs (Tensor.register_hook),
  // when that of `input` is (an identity node, whose result is used in its place), and when a backward pass is over
  // (engine.queue_callback). They are forgotten with the pass.
  // Several of one output: in the order of their making, as hooks of a tensor run; or the newest first, as functions
  // that modules put around their outputs do, the outer one's after the inner one's.
  enum class HookOrder : std::uint8_t { oldest_first, newest_first };
  void before_gradient_of(const Tensor& output, std::function<void()> hook, HookOrder order = HookOrder::oldest_first);
  Tensor after_gradient_of(const Tensor& input, std::function<void()> hook);
  void at_backward_end(std::function<void()> callback) { at_backward_end_.push_back(std::move(callback)); }
  // For the rest of the trace: called with .grad of a leaf when a gradient was added
  // (register_post_accumulate_grad_hook).
  void after_accumulation(const Tensor& leaf, std::function<void(Tensor&)> hook);
  void call_hook(std::size_t index) { hooks_[index](); }

  // tensor.requires_grad_(): makes a leaf of a tensor that no graph leads to.
  void require_grad(const Tensor& tensor);

  // Around the call of every module that has parameters (call_module in modules.h); null: nobody asks.
  void set_module_hooks(ModuleHooks* hooks) { module_hooks_ = hooks; }
  ModuleHooks* module_hooks() const { return muted_ ? nullptr : module_hooks_; }

  // --- modes ---------------------------------------------------------------------------------------------------------
  bool grad_enabled() const { return grad_enabled_; }
  bool in_backward() const { return in_backward_; }
  bool autocast_enabled() const { return autocast_; }
  DType autocast_dtype() const { return autocast_dtype_; }
  // `tensor` as autocast hands it to an operator of the low-precision or the fp32 list; itself outside autocast.
  Tensor autocast_low(const Tensor& tensor);
  Tensor autocast_fp32(const Tensor& tensor);

  // Scratch memory of cuDNN's attention, forward or backward; empty where nobody asked its plans.
  Tensor cudnn_scratch();

  // Plain CUDA tensors; else tensor subclasses, for which PyTorch writes some gradients out of place.
  bool plain_tensors() const { return options_.accumulate_in_place; }

  // dtype in which layer norm keeps the statistics of an input of `dtype`.
  DType statistics_dtype(DType dtype) const {
    return options_.cpu_statistics || dtype == DType::f64 ? dtype : DType::f32;
  }

  class NoGrad {
   public:
    explicit NoGrad(Tape& tape) : tape_(tape), before_(tape.grad_enabled_) { tape.grad_enabled_ = false; }
    ~NoGrad() { tape_.grad_enabled_ = before_; }

   private:
    Tape& tape_;
    bool before_;
  };

  class Autocast {
   public:
    Autocast(Tape& tape, bool enabled, DType dtype = DType::bf16)
        : tape_(tape), before_(tape.autocast_), outermost_(tape.autocast_depth_++ == 0) {
      tape.autocast_ = enabled;
      if (enabled) tape.autocast_dtype_ = dtype;
    }
    ~Autocast() {
      tape_.autocast_ = before_;
      --tape_.autocast_depth_;
      if (outermost_) tape_.clear_autocast_cache();
    }

   private:
    Tape& tape_;
    bool before_;
    bool outermost_;
  };

  class Scope {
   public:
    enum class Below : std::uint8_t { current, nothing };  // nothing: what belongs to no module, whichever runs
    Scope(Tape& tape, const char* name, Below below = Below::current) : tape_(tape), before_(tape.scope_) {
      tape.scope_ = tape.intern(below == Below::current ? before_ : 0, name);
    }
    ~Scope() { tape_.scope_ = before_; }

   private:
    Tape& tape_;
    NameId before_;
  };

  class Layer {
   public:
    Layer(Tape& tape, std::int32_t layer) : tape_(tape), before_(tape.layer_) { tape.layer_ = layer; }
    ~Layer() { tape_.layer_ = before_; }

   private:
    Tape& tape_;
    std::int32_t before_;
  };

  class In {  // what is allocated from here on is of this category
   public:
    In(Tape& tape, Category category) : tape_(tape), before_(tape.category_) { tape.category_ = category; }
    ~In() { tape_.category_ = before_; }

   private:
    Tape& tape_;
    Category before_;
  };

  // What is allocated from here on lies in host memory. Operators run there as they would on the GPU.
  class OnHost {
   public:
    explicit OnHost(Tape& tape) : tape_(tape), before_(tape.on_host_) { tape.on_host_ = true; }
    ~OnHost() { tape_.on_host_ = before_; }

   private:
    Tape& tape_;
    bool before_;
  };

  // How far a trace has come.
  struct Mark {
    std::size_t event = 0;
    StorageId storage = 0;
    std::size_t alive = 0;  // storages
    Bytes live_bytes = 0;   // on the GPU
  };
  struct Span {
    Mark begin, end;
  };

  class Once {  // what is made here stays: a pass over the model that comes again finds it (repeat.h)
   public:
    explicit Once(Tape& tape) : tape_(tape), begin_(tape.mark()), within_(tape.once_.size()) {}
    ~Once() {
      tape_.once_.resize(within_);  // those within this one
      tape_.once_.push_back({begin_, tape_.mark()});
    }

   private:
    Tape& tape_;
    Mark begin_;
    std::size_t within_;
  };

  class Among {  // collectives are among the ranks of this group
   public:
    Among(Tape& tape, RankGroup group) : tape_(tape), before_(tape.group_) { tape.group_ = group; }
    ~Among() { tape_.group_ = before_; }

   private:
    Tape& tape_;
    RankGroup before_;
  };

 private:
  friend class Tensor;
  friend class Repeated;

  Mark mark() const {
    return {trace_.events.size(), static_cast<StorageId>(trace_.storages.size()), alive_, live_bytes_};
  }

  NameId intern(NameId parent, const char* name);
  TensorImpl* new_impl(DType dtype, const Shape& shape);
  StorageId add_storage(OpKind op, const Shape& shape, DType dtype);
  StorageRef* new_storage(OpKind op, const Shape& shape, DType dtype);
  void release_storage(StorageRef* storage);
  void end_of(StorageId id);
  void release_impl(TensorImpl* impl);
  void release_node(Node* node);
  void release_saved(Node& node);
  void release_frame(CheckpointFrame* frame);
  void destroy(Node* node);
  void add_view(const Tensor& tensor);
  void clear_autocast_cache();
  Node* accumulator_of(const Tensor& leaf);
  Node* edge_target(const Tensor& input);
  void recompute(CheckpointFrame& frame);
  Tensor geometry_of(const Tensor& tensor);
  Tensor made_again(const SavedTensor& saved);
  CheckpointFrame* new_frame();
  Tensor without_graph(const std::function<Tensor(const Tensor&)>& region, const Tensor& input, Node* node);
  bool take_kept(OpKind op, Tensor& result);

  void backward_from(const Tensor& root, const Tensor& seed);
  // What an outer backward pass still waits for at a node that a nested one reaches, too: the accumulator of a leaf
  // used inside and outside a reentrant checkpoint. PyTorch keeps this in a table per pass (GraphTask).
  struct Suspended {
    Node* node;
    Gradients pending;
    std::uint32_t dependencies;
    std::uint32_t visited;
  };
  std::vector<Suspended> count_dependencies(Node* root);
  void evaluate(Node* node, std::vector<Node*>& ready);
  void end_backward();
  void validate(Node& node, Gradients& gradients);
  void deliver(Edge& edge, Tensor gradient, std::vector<Node*>& ready);
  void accumulate_grad(Node& node, Tensor gradient);
  void add_to_grad(TensorImpl& leaf, Tensor gradient);

  Trace trace_;
  TapeOptions options_;
  Slab<TensorImpl> impls_;
  Slab<StorageRef> storages_;
  Slab<Node> nodes_;
  Slab<CheckpointFrame> frames_;

  NameId scope_ = 0;
  std::int32_t layer_ = -1;
  Category category_ = Category::activations;
  bool on_host_ = false;
  RankGroup group_ = RankGroup::data;
  bool grad_enabled_ = true;
  bool autocast_ = false;
  DType autocast_dtype_ = DType::bf16;
  int autocast_depth_ = 0;
  bool muted_ = false;  // finished, or the recomputation has all it needs: nothing is allocated or recorded
  bool finished_ = false;
  bool in_backward_ = false;
  std::uint64_t sequence_ = 0;
  std::uint32_t backward_passes_ = 0;
  std::uint32_t run_count_ = 0;
  CheckpointFrame* recording_ = nullptr;
  CheckpointFrame* recomputing_ = nullptr;
  bool was_kept_ = false;  // the operator being recomputed takes its result from the frame: it does not run
  std::int64_t offloaded_ = 0;
  std::vector<std::function<void()>> hooks_, at_backward_end_;
  std::vector<std::function<void(Tensor&)>> leaf_hooks_;
  ModuleHooks* module_hooks_ = nullptr;
  Node recompute_node_;  // stands in for nodes of a recomputation, whose graph is thrown away
  std::vector<TensorImpl*> autocast_cached_;
  std::vector<Node*> dying_;
  bool destroying_ = false;
  Tensor forward_workspace_, backward_workspace_;
  std::size_t alive_ = 0;  // storages, in host memory too
  Bytes live_bytes_ = 0;
  // Of a pass that may come again:
  std::vector<Span> once_;
  Bytes most_live_bytes_ = 0;
  StorageId oldest_changed_ = kNoStorage;  // that died or got another label

  struct Name {
    NameId parent;
    const char* literal;
    NameId first_child;
    NameId next_sibling;
  };
  std::vector<Name> names_;
};

// What the trace says of the parameter that `leaf` is.
inline Parameter& parameter_of(const Tensor& leaf) {
  return leaf.tape().trace().parameters[static_cast<std::size_t>(leaf.impl()->parameter)];
}

}  // namespace ledger
