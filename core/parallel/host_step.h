// host_step.h - what DeepSpeed's offloaded optimizer (DeepSpeedCPUAdam) does in host memory. No byte of it is the
// GPU's, and its buffers are counted already (Trace::host).
#pragma once

#include "core/parallel/flat.h"

namespace ledger {

class HostStep {
 public:
  HostStep(Tape& tape, std::uint64_t elements, DType dtype);

  const Tensor& master() const { return master_; }
  Tensor master(std::uint64_t start, std::uint64_t count) const { return flat::piece(master_, start, count); }
  void add(const Tensor& gradient, std::uint64_t start) const;  // to those of this step
  Tensor norm() const;                                          // of all ranks' gradients
  void step(const Tensor& norm) const;                          // empty: nothing is clipped

 private:
  Tape& tape_;
  Tensor master_, gradient_, average_, square_, steps_;
};

}  // namespace ledger
