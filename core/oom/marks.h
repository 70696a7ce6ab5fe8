// marks.h - frames, log lines and words that tell a stage or weigh for a cause.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/oom/diagnosis.h"

namespace ledger::oom {

// How much a mark decides the stage. Frames that enclose others decide over those inside them: cross_entropy under
// evaluation_loop is evaluation. Words are what people say without a traceback.
enum class Depth : std::uint8_t { none, words, inner, exact, enclosing };

struct Weighing {
  Cause cause = Cause::count_;
  std::int8_t tenths = 0;
};

struct Mark {
  std::string_view needle;  // squashed: see squash.h
  const char* id;           // of the evidence; several needles may share one
  Stage stage;
  Depth depth;
  Weighing weighings[3];
};

std::span<const Mark> frame_marks();  // tracebacks
std::span<const Mark> log_marks();    // lines that programs print
std::span<const Mark> word_marks();   // what people write, in English and Chinese

struct Hit {
  const Mark* mark;
  std::size_t at;  // the last place in the squashed text
};

// Every mark that occurs, in the order of the tables.
std::vector<Hit> find_marks(std::string_view squashed);

}  // namespace ledger::oom
