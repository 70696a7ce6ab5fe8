#include "core/oom/marks.h"

#include <array>

namespace ledger::oom {
namespace {

// A needle that begins with a comma is a function's name behind its line number: `line 9, in step` in Python's own
// tracebacks, `file.py:9 in step` in rich's.
std::string_view letters(const Mark& mark) {
  return mark.needle[0] == ',' ? mark.needle.substr(1) : mark.needle;
}

bool stands_at(const Mark& mark, std::string_view text, std::size_t at) {
  if (!text.substr(at).starts_with(letters(mark))) return false;
  if (mark.needle[0] != ',') return true;
  const char before = at == 0 ? '\0' : text[at - 1];
  return before == ',' || (before >= '0' && before <= '9');
}

// Marks by their first letter, so that one pass over the text finds them all.
using Buckets = std::array<std::vector<std::uint16_t>, 256>;

Buckets buckets_of(const std::vector<const Mark*>& marks) {
  Buckets buckets;
  for (std::size_t i = 0; i < marks.size(); ++i)
    buckets[static_cast<unsigned char>(letters(*marks[i])[0])].push_back(static_cast<std::uint16_t>(i));
  return buckets;
}

}  // namespace

std::vector<Hit> find_marks(std::string_view squashed) {
  std::vector<const Mark*> marks;
  for (const auto table : {frame_marks(), log_marks(), word_marks()}) {
    for (const Mark& mark : table)
      marks.push_back(&mark);
  }
  const Buckets buckets = buckets_of(marks);
  constexpr std::size_t kNever = ~std::size_t{0};
  std::vector<std::size_t> last(marks.size(), kNever);
  for (std::size_t at = 0; at < squashed.size(); ++at) {
    for (const std::uint16_t i : buckets[static_cast<unsigned char>(squashed[at])]) {
      if (stands_at(*marks[i], squashed, at)) last[i] = at;
    }
  }
  std::vector<Hit> hits;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (last[i] != kNever) hits.push_back({marks[i], last[i]});
  }
  return hits;
}

}  // namespace ledger::oom
