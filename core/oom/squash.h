// squash.h - a pasted text as its letters: lower case, without white space, underscores, markdown stars, box drawing,
// terminal colours and the prefixes that launchers put before lines; each letter knows where it came from.
//
// Terminals wrap inside words and numbers ("memor\ny", "4\n0.30 GiB"), markdown eats underscores and puts stars into
// numbers, rich draws boxes around tracebacks. On the squashed text one spelling of each format finds them all, and
// the origins let an answer quote the line as its author knows it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ledger::oom {

class Squashed {
 public:
  explicit Squashed(std::string_view original);

  std::string_view text() const { return text_; }
  std::string_view original() const { return original_; }
  // The line of the original around squashed position `at`, without white space at its ends and without prefixes, cut
  // to `limit` bytes around the position at character boundaries.
  std::string quote(std::size_t at, std::size_t limit = 200) const;

 private:
  void take_line(std::size_t begin, std::size_t end);
  std::string_view original_;
  std::string text_;
  std::vector<std::uint32_t> origin_;  // per letter of text_
};

// How many bytes at the start of `line` are a launcher's prefix ("[rank3]:", "worker-0:", "(Actor pid=7)", "> "), white
// space or box drawing.
std::size_t prefix_bytes(std::string_view line);

}  // namespace ledger::oom
