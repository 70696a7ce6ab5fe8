// diagnosis.h - when it happened and why: marks in the text (frames, log lines, words) and what the numbers allow.
//
// The stage is the innermost frame of the framework that decides it. The cause is a sum of evidence, in tenths of a
// natural logarithm: how often each cause was the answer in 261 public reports, how often at this stage, and what
// every mark and number adds. Confidence is what that sum gives the winner, no more.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/oom/messages.h"

namespace ledger::oom {

enum class Stage : std::uint8_t { unknown, load, forward, loss, backward, optimizer, eval, save, generate, count_ };
enum class Cause : std::uint8_t {
  activations,
  optimizer,
  sharding,
  logits,
  host,
  weights,
  gathering,
  comm,
  fragmentation,
  eval,
  gradients,
  process,
  leak,
  kv_cache,
  unknown,  // not a matter of capacity
  count_
};
inline constexpr std::size_t kStages = static_cast<std::size_t>(Stage::count_);
inline constexpr std::size_t kCauses = static_cast<std::size_t>(Cause::count_);

const char* stage_name(Stage stage);
const char* cause_name(Cause cause);

struct Evidence {
  const char* id;     // what was seen: "frame_cross_entropy", "other_process_bytes"
  std::string quote;  // the user's own line; empty when it is arithmetic over several numbers
  Bytes bytes = 0;    // what the arithmetic gave, or 0
  std::array<std::int8_t, kCauses> weight{};
};

struct Diagnosis {
  Stage stage = Stage::unknown;
  Cause cause = Cause::unknown;
  std::vector<Cause> also_possible;  // at most two, likeliest first
  double confidence = 0;             // 0..1
  bool fragmentation_is_real = false;
  Bytes other_process_bytes = 0;  // by subtraction, or 0
  std::vector<Evidence> evidence;
};

Diagnosis diagnose(const Squashed& text, const std::vector<Message>& messages);

}  // namespace ledger::oom
