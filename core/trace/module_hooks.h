// module_hooks.h - for whoever must have a module's parameters in place before it runs, and may take them away after:
// what nn.Module.register_forward_pre_hook and register_forward_hook are to DeepSpeed's ZeRO-3 (parallel/zero3.h).
#pragma once

#include <span>

#include "core/trace/tensor.h"

namespace ledger {

// A call of one module: who it is (the same at every call), and its own parameters, those of its children not among
// them. Empty tensors stand for parameters it does not have.
struct ModuleCall {
  const void* module = nullptr;
  std::span<const Tensor* const> parameters;
};

class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;

  virtual Tensor before_module(const ModuleCall& call,
                               const Tensor& input) = 0;  // the input as the module is to see it
  virtual void after_module(const ModuleCall& call, const Tensor& output) = 0;

  // `parameter` is read by code that is not its module's: a loss that multiplies with the output layer's weight, DoRA's
  // module that asks for the norms of the adapted one.
  virtual void read_elsewhere(const Tensor& parameter) = 0;
};

}  // namespace ledger
