// modules.h - the building blocks of models, composed as Hugging Face transformers composes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/models/linear.h"
#include "core/models/parameter_units.h"
#include "core/trace/operators.h"

namespace ledger {

// How linear layers are made: which get an adapter, and whether their base is 4-bit.
struct LinearPolicy {
  bool quantise = false;
  bool int8 = false;
  bool double_quant = true;
  std::uint64_t rank = 0;  // 0: no adapters
  double alpha = 8;        // the adapter's output is scaled by alpha / rank; PEFT's default
  std::vector<std::string> targets;
  DType adapter_dtype = DType::f32;
  double dropout = 0;
  bool dora = false;
  bool frozen = false;  // no parameter needs a gradient

  bool adapts(std::string_view name) const;  // of a module, with those around it or without
};

// Liger-Kernel's modules in the place of a family's, as Trainer patches a model that is there already.
struct Liger {
  bool on = false;
  bool norms_in_place = true;   // the layers' norms
  bool norms_of_heads = false;  // those of queries and keys, too
};

// Creates a model's parameters in the framework's order and remembers those that are trained.
class ModuleBuilder {
 public:
  ModuleBuilder(Tape& tape, DType dtype, LinearPolicy policy = {}, ParameterUnits* units = nullptr, Liger liger = {})
      : tape_(tape), dtype_(dtype), policy_(std::move(policy)), units_(units), liger_(liger) {}

  void open(UnitId unit) {
    if (units_ != nullptr) units_->open(unit);
  }

  // `path` is the module's name in state dicts; the scope of ledger lines is the tape's, with layer numbers starred
  // out. Frozen when adapters are trained instead.
  Tensor parameter(const std::string& path, const Shape& shape, Parameter::Role role, const char* leaf = "weight");
  Weight8bit weight_8bit(const std::string& path, Dim out, Dim in);
  Weight4bit weight_4bit(const std::string& path, Dim out, Dim in);
  Adapter adapter(const std::string& path, Dim in, Dim out) {
    return adapter(path, in, out, {policy_.rank, Sym::r}, 1);
  }
  // Of `count` matrices of one parameter, r of the rows of A for each.
  Adapter adapter(const std::string& path, Dim in, Dim out, Dim rank, std::uint64_t count);

  // Whether the linear layer of this name or path gets an adapter.
  bool adapts(std::string_view name) const { return !without_adapters_ && policy_.adapts(name); }

  // What is made while this lives gets no adapters: PEFT looks for its names among other modules.
  class WithoutAdapters {
   public:
    WithoutAdapters(ModuleBuilder& builder, bool applies) : builder_(builder), before_(builder.without_adapters_) {
      builder.without_adapters_ = before_ || applies;
    }
    ~WithoutAdapters() { builder_.without_adapters_ = before_; }

   private:
    ModuleBuilder& builder_;
    bool before_;
  };

  // What is made while this lives is not trained and gets no adapters, whatever the recipe trains elsewhere.
  class Frozen {
   public:
    Frozen(ModuleBuilder& builder, bool applies)
        : without_adapters_(builder, applies), builder_(builder), before_(builder.frozen_) {
      builder.frozen_ = before_ || applies;
    }
    ~Frozen() { builder_.frozen_ = before_; }

   private:
    WithoutAdapters without_adapters_;
    ModuleBuilder& builder_;
    bool before_;
  };

  Tape& tape() { return tape_; }
  // Whether Liger-Kernel's modules take the place of those that it has a replacement for.
  const Liger& liger() const { return liger_; }
  const LinearPolicy& policy() const { return policy_; }
  std::vector<Tensor> take_trainable() { return std::move(trainable_); }

 private:
  Tensor make(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable);
  Tensor piece(const char* name, const Shape& shape, DType dtype);
  void make_quant_state(Weight4bit& weight, std::uint64_t blocks);
  static void quantise(const Weight4bit& weight, const Tensor& codes, const Attr& attr);

  Tape& tape_;
  DType dtype_;
  LinearPolicy policy_;
  ParameterUnits* units_;
  std::vector<Tensor> trainable_;
  bool without_adapters_ = false, frozen_ = false;
  Liger liger_;
};

// module(input): forward(input) between the hooks of whoever has the module's parameters (trace/module_hooks.h).
template <typename Forward>
Tensor call_module(const void* module, std::initializer_list<const Tensor*> parameters, const Tensor& input,
                   Forward forward) {
  Tape& tape = input.tape();
  if (tape.module_hooks() == nullptr) return forward(input);
  const ModuleCall call{module, std::span(parameters.begin(), parameters.size())};
  const Tensor seen = tape.module_hooks()->before_module(call, input);
  Tensor output = forward(seen);
  // A recomputation that has all it wants is left by an exception: nothing after it runs.
  if (tape.module_hooks() != nullptr) tape.module_hooks()->after_module(call, output);
  return output;
}

// The same for a module that calls others and is called by keyword: no hook sees its input. `own`: its one parameter.
inline ModuleCall call_by_keyword(const void* module, const Tensor* const& own) {
  return {module, std::span(&own, own != nullptr && *own ? 1 : 0)};
}
inline void enter_module(const void* module, const Tensor& input, const Tensor* own = nullptr) {
  if (ModuleHooks* const hooks = input.tape().module_hooks()) hooks->before_module(call_by_keyword(module, own), input);
}
inline void leave_module(const void* module, const Tensor& output, const Tensor* own = nullptr) {
  if (ModuleHooks* const hooks = output.tape().module_hooks())
    hooks->after_module(call_by_keyword(module, own), output);
}

// nn.Embedding. weight [V, h].
struct Embedding {
  const char* name = "";
  Tensor weight;

  static Embedding make(ModuleBuilder& builder, const std::string& path, const char* name, Dim count, Dim size,
                        Parameter::Role role = Parameter::Role::embedding);
  Tensor forward(const Tensor& ids) const;  // [b, s] -> [b, s, h]
};

}  // namespace ledger
