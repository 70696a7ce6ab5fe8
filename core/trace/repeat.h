// repeat.h - a pass over a model that a training loop makes again and again: traced once, then copied.
//
// With the same tensors alive beforehand a pass leaves the same events, only with storages of its own; tracing it again
// is most of the work of a second step. What end() finds decides whether that holds: everything born in the pass died
// in it or is memory of parameters' gradients alone, and nothing older died. Otherwise, and with operands, every pass
// is traced. What has a memory of its own of earlier passes, without tensors (DeepSpeed's order of modules), is not
// seen.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/trace/tape.h"

namespace ledger {

class Repeated {
 public:
  explicit Repeated(Tape& tape) : tape_(tape) {}

  // Between begin() and end() the pass is traced. `prefix`: of its phases' names, another one at each repetition.
  // `leaves`: all whose gradients it makes or adds to, the same at each call.
  void begin(const std::string& prefix, std::span<const Tensor> leaves);
  void end(std::span<const Tensor> leaves);

  // The pass once more, unless it is not known yet, cannot be repeated, or other leaves have a gradient than before it.
  bool again(const std::string& prefix, std::span<const Tensor> leaves);

 private:
  struct Gradient {
    bool before = false;        // there when the pass began
    bool shares = false;        // memory with the one before it, as shards of one reduction do
    StorageId id = kNoStorage;  // born in it
    DType dtype = DType::f32;
    bool contiguous = true;
    std::uint64_t offset = 0;
    Shape shape;
    Strides strides{};
  };

  bool keep_gradients(std::span<const Tensor> leaves, std::size_t& storages);
  void cut_out_once();
  StorageId renamed(StorageId id, StorageId first) const;
  void copy_storages() const;
  void copy_events(const std::string& prefix, StorageId first) const;

  Tape& tape_;
  bool known_ = false;
  Tape::Span pass_{};
  std::vector<Tape::Span> parts_;  // of the pass, without what is not made again
  std::vector<Gradient> gradients_;
  std::vector<StorageId> latest_;  // what the trace says of each parameter's gradient
  std::size_t prefix_ = 0;
  std::size_t alive_ = 0;             // storages that the pass leaves
  Bytes most_added_ = 0, added_ = 0;  // to live bytes: at most during the pass, and at its end
};

}  // namespace ledger
