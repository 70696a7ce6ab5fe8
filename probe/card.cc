#include "probe/card.h"

#include <algorithm>
#include <string>

namespace ledger {
namespace {

bool stands_between(const std::string& text, std::string_view word, char before, char after) {
  for (std::size_t at = text.find(word, 1); at != std::string::npos; at = text.find(word, at + 1)) {
    if (text[at - 1] == before && at + word.size() < text.size() && text[at + word.size()] == after) return true;
  }
  return false;
}

// How many words of the catalogue's name, its size left out, stand in CUDA's; 0 when one does not.
std::size_t common_words(std::string_view catalogue, std::string_view name) {
  const std::string spaced = std::string(1, ' ').append(name).append(1, ' ');
  std::size_t words = 0;
  for (std::size_t begin = 0; begin < catalogue.size();) {
    const std::size_t end = std::min(catalogue.find(' ', begin), catalogue.size());
    std::string_view word = catalogue.substr(begin, end - begin);
    if (word.ends_with(",")) word.remove_suffix(1);
    if (word.ends_with("GB") || word.starts_with("ECC") || word == "on") word = "";
    begin = end + 1;
    if (word.empty()) continue;
    bool found = false;
    for (const char before : {' ', '-'}) {
      for (const char after : {' ', '-'})
        found = found || stands_between(spaced, word, before, after);
    }
    if (!found) return 0;
    ++words;
  }
  return words;
}

Bytes distance(Bytes a, Bytes b) {
  return a > b ? a - b : b - a;
}

}  // namespace

const Gpu* find_card(std::string_view name, Bytes total_bytes) {
  const Gpu* best = nullptr;
  std::size_t most = 0;
  for (const Gpu& card : gpus()) {
    const std::size_t words = common_words(card.name, name);
    constexpr Bytes kTenth = 10;  // totals differ by ECC and by what drivers keep
    if (words < 2 || distance(card.usable_bytes, total_bytes) > card.usable_bytes / kTenth) continue;
    const bool nearer =
        best == nullptr || distance(card.usable_bytes, total_bytes) < distance(best->usable_bytes, total_bytes);
    if (words < most || (words == most && !nearer)) continue;
    best = &card;
    most = words;
  }
  return best;
}

}  // namespace ledger
