// roofline.h - how long one GPU's operators take if each runs at the card's dense peak or at its memory's bandwidth,
// whichever is slower (Williams et al. 2009, doi:10.1145/1498765.1498785), one after the other.
//
// Read off one step's trace of batch 1. What an operator computes grows with the batch, and so does what it reads and
// writes, but for weights, their gradients and states. Left out: launches, and what caches save.
#pragma once

#include <optional>
#include <vector>

#include "core/config/gpu.h"
#include "core/trace/trace.h"

namespace ledger {

class Roofline {
 public:
  // nullopt: no operands, or a card whose rates are not in the catalogue.
  static std::optional<Roofline> of(const Trace& trace, const Gpu& gpu);

  double micro_batch_seconds(std::uint64_t batch) const;  // forward and backward
  double update_seconds() const { return update_; }       // clipping and optimizer, of all parameters

 private:
  // Seconds of operators alike.
  struct Work {
    double computing = 0, fixed = 0, scaled = 0;  // at the peak; at the bandwidth, for any batch and for each sequence
    double count = 0;
  };
  void add(const Work& work);

  std::vector<Work> works_;
  double update_ = 0;
};

}  // namespace ledger
