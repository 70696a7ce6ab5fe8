// data_parallel_time.h - how long a step of DDP, FSDP or ZeRO would take: its operators by their roofline, and what one
// GPU sends at its link's rate, which DDP, FSDP and ZeRO with overlap_comm hide behind operators as far as these last.
//
// As step_time.h, not a prediction of seconds but a bound to tell plans apart: published runs took kFastestShards to
// kSlowestShards times this (tests/fixtures/data_parallel_times.json, docs/accuracy.md).
#pragma once

#include <utility>

#include "core/answer/roofline.h"
#include "core/answer/step_time.h"

namespace ledger {

constexpr double kFastestShards = 1.25, kSlowestShards = 1.95;

// What of a model is sent, and how long its operators take.
class DataParallelModel {
 public:
  // `trace`: a step of batch 1, of one GPU or of one of the ranks that share it. nullopt: as Roofline::of.
  static std::optional<DataParallelModel> of(const Trace& trace, const Gpu& gpu);

  // Sent by one GPU in a step, where collectives go round in a ring: (n - 1)/n of a buffer to gather or to reduce and
  // scatter it, twice that to reduce it everywhere. DDP and FSDP1 wait for the last micro-batch (no_sync), as ZeRO-1
  // does; FSDP2 and ZeRO-2 and 3 reduce each one's gradients; what is given up after forward is gathered twice for
  // each.
  Bytes sent_bytes(const Recipe& recipe) const;

  StepTime time(const Recipe& recipe, const Links& links) const;

  // Of all weights in `width` bytes an element; what is packed stays as it is.
  Bytes weight_bytes(Bytes width) const { return plus(times(elements_, width), packed_bytes_); }
  std::uint64_t trained_elements() const { return trained_; }

 private:
  struct Rounds;
  explicit DataParallelModel(Roofline roofline) : roofline_(std::move(roofline)) {}
  void count(const Trace& trace);
  Rounds rounds_of(const Recipe& recipe) const;
  Rounds fsdp_rounds(const Recipe& recipe) const;
  Rounds zero_rounds(const Recipe& recipe) const;

  Roofline roofline_;
  std::uint64_t elements_ = 0, trained_ = 0;    // of floating-point weights; of those that are trained
  Bytes trained_bytes_ = 0, packed_bytes_ = 0;  // packed: 4-bit and 8-bit weights
  double whole_update_ = 0;                     // seconds, of all trained parameters
};

}  // namespace ledger
