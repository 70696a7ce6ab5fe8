// quantised_optimizers.cc - 8-bit AdamW, paged AdamW and Lion of bitsandbytes, and torchao's quantised AdamW: states
// only; their kernels work in place.
//
// Sources: bitsandbytes 0.50 optim/optimizer.py (Optimizer2State.init_state, Optimizer1State.init_state,
// get_state_buffer), transformers trainer_optimizer.py (embeddings keep 32-bit states); torchao
// optim/{adam,subclass_8bit,subclass_4bit}.py.

#include <string_view>

#include "core/training/optimizer.h"

namespace ledger {
namespace {

constexpr std::uint64_t kSmallest =
    4096;  // elements; below it states stay in 32 bits (bnb), or like the parameter (ao)
constexpr std::uint64_t kSmallestPaged = 100000;  // elements; smaller states are ordinary tensors

Tensor state(Tape& tape, const char* name, const Shape& shape, DType dtype) {
  const Tape::Scope scope(tape, name);
  return zeros(tape, shape, dtype);
}

Tensor flat(Tape& tape, const char* name, std::uint64_t count, DType dtype) {
  return state(tape, name, {{count, Sym::none}}, dtype);
}

// Trainer keeps 32 bits for every nn.Embedding, of tokens, positions and kinds.
bool is_embedding(Tape& tape, const Tensor& parameter) {
  const std::int32_t index = parameter.impl()->parameter;
  if (index < 0) return false;
  return tape.trace().parameters[static_cast<std::size_t>(index)].role == Parameter::Role::embedding;
}

// Makes its states at the first step and keeps them; what a step computes needs no memory.
class StatesOnly : public OptimizerStep {
 public:
  void step(Tape& tape, const std::vector<Tensor>& parameters) override {
    const Tape::Scope scope(tape, name());
    const Tape::NoGrad no_grad(tape);
    const Tape::In in(tape, Category::optimizer_states);
    if (states_.empty()) {
      for (const Tensor& parameter : parameters)
        make_states(tape, parameter);
    }
    for (const Tensor& parameter : parameters)
      optimizer_math({&parameter.grad()}, {&parameter});
  }

 protected:
  virtual const char* name() const = 0;
  virtual void make_states(Tape& tape, const Tensor& parameter) = 0;
  std::vector<Tensor> states_;
};

class AdamW8bit : public StatesOnly {
 public:
  explicit AdamW8bit(bool paged) : paged_(paged) {}

 private:
  static constexpr std::uint64_t kBlock = 256;

  const char* name() const override { return paged_ ? "paged_adamw_8bit" : "adamw_8bit"; }

  void make_states(Tape& tape, const Tensor& parameter) override {
    const std::uint64_t elements = parameter.shape().numel();
    const bool managed = paged_ && elements >= kSmallestPaged;  // cudaMallocManaged: not in the allocator
    if (elements < kSmallest || is_embedding(tape, parameter)) {
      if (managed) return;
      states_.push_back(state(tape, "state1", parameter.shape(), DType::f32));
      states_.push_back(state(tape, "state2", parameter.shape(), DType::f32));
      return;
    }
    if (maps_.empty()) {  // one pair for the whole optimizer
      maps_.push_back(flat(tape, "qmap1", 256, DType::f32));
      maps_.push_back(flat(tape, "qmap2", 256, DType::f32));
    }
    if (!managed) {
      states_.push_back(state(tape, "state1", parameter.shape(), DType::u8));
      states_.push_back(state(tape, "state2", parameter.shape(), DType::u8));
    }
    states_.push_back(flat(tape, "absmax1", divide_up(elements, kBlock), DType::f32));
    states_.push_back(flat(tape, "absmax2", divide_up(elements, kBlock), DType::f32));
  }

  bool paged_;
  std::vector<Tensor> maps_;
};

// Trainer's lion_32bit: one state, always fp32.
class Lion : public StatesOnly {
  const char* name() const override { return "lion"; }
  void make_states(Tape& tape, const Tensor& parameter) override {
    states_.push_back(state(tape, "state1", parameter.shape(), DType::f32));
  }
};

struct AoFormat {
  const char* name;
  std::uint64_t block;
  std::uint64_t values_per_byte;
  std::uint64_t map_entries;
};

class AdamWAo : public StatesOnly {
 public:
  explicit AdamWAo(AoFormat format) : format_(format) {}

 private:
  const char* name() const override { return format_.name; }

  void make_states(Tape& tape, const Tensor& parameter) override {
    for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
      const Tape::Scope scope(tape, moment);
      const std::uint64_t elements = parameter.shape().numel();
      if (elements < kSmallest || elements % format_.block != 0) {
        states_.push_back(zeros_like(parameter));
        continue;
      }
      states_.push_back(flat(tape, "codes", elements / format_.values_per_byte, DType::u8));
      states_.push_back(flat(tape, "scale", elements / format_.block, DType::f32));
      states_.push_back(flat(tape, "qmap", format_.map_entries, DType::f32));
    }
  }

  AoFormat format_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_adamw_8bit() {
  return std::make_unique<AdamW8bit>(false);
}
std::unique_ptr<OptimizerStep> make_paged_adamw_8bit() {
  return std::make_unique<AdamW8bit>(true);
}
std::unique_ptr<OptimizerStep> make_lion() {
  return std::make_unique<Lion>();
}
std::unique_ptr<OptimizerStep> make_adamw_ao_8bit() {
  return std::make_unique<AdamWAo>(AoFormat{"adamw_ao_8bit", 256, 1, 256});
}
std::unique_ptr<OptimizerStep> make_adamw_ao_4bit() {
  return std::make_unique<AdamWAo>(AoFormat{"adamw_ao_4bit", 128, 2, 16});
}

}  // namespace ledger
