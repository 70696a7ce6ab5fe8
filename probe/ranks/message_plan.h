// message_plan.h - the order in which messages between the stages of a pipeline go, where a send ends when it is
// received and messages have no tags (NCCL).
//
// Over sockets a message waits on its way. On GPUs it is an operator of two ranks, and the operators of a rank run one
// after the other: stages that keep to the order of their own passes may wait for each other, one with an activation
// to be taken, the other with a gradient. So they tell each other what they will send and receive, and each plays the
// whole pipeline with messages that wait. The moments at which messages arrive are one order of all messages, the same
// for everybody, and each stage exchanges its own in this order: whichever is the first that is not over, both its
// stages are at it, or on their way to it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/trace/trace.h"
#include "probe/ranks/communicator.h"

namespace ledger {

// What a stage sends or receives, or does together with other stages of its pipeline (a collective).
struct StageTurn {
  enum Kind : std::uint32_t { none, send, receive, together };
  std::uint32_t kind = none;
  std::uint32_t other = 0;  // a stage; together: the RankGroup
  std::uint32_t tag = 0;
  std::uint32_t passes = 0;  // phases of the trace that began since the turn before

  bool operator==(const StageTurn&) const = default;
};

using StageTurns = std::vector<StageTurn>;

// In the trace's order; none where it has no pipeline.
StageTurns stage_turns(const Trace& trace);

// The turns of stage `stage` of `all` in the order in which it takes them. None: some message is never sent or
// received.
std::optional<StageTurns> message_plan(const std::vector<StageTurns>& all, std::size_t stage);

// Among the ranks of a run, which all call it; `all` connects their processes. None where it fails, as all.failure()
// says.
std::optional<StageTurns> agree_on_messages(const Trace& trace, Communicator& all);

// A collective of this operator and group is among several stages of a pipeline.
bool spans_stages(OpKind op, RankGroup group);

}  // namespace ledger
