// experts.h - which experts tokens go to where each gets as many as the next.
#pragma once

#include "core/trace/trace.h"
#include "probe/math/host_device.h"

namespace ledger::math {

// By element of [T, k]: LEDGER_OPS' experts_in_turn.
struct ExpertsInTurn {
  std::uint64_t experts, sequences, chosen;

  ExpertsInTurn(const Attr& attr, std::uint64_t chosen_)
      : experts(static_cast<std::uint64_t>(attr.i[0])),
        sequences(static_cast<std::uint64_t>(attr.i[1])),
        chosen(chosen_) {}

  LEDGER_HOST_DEVICE double operator()(std::uint64_t i) const {
    const std::uint64_t place = i / chosen / sequences;
    return static_cast<double>((place * chosen + i % chosen) % experts);
  }
};

}  // namespace ledger::math
