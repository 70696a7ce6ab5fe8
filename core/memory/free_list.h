// free_list.h - cached blocks ordered by (size, address): exact best fit without tree nodes.
//
// PyTorch keeps a std::set; its nodes are heap traffic and cache misses on every event. Here sizes fall into bins
// (eight per power of two) of sorted entries, and a bitmap finds the next bin in use. A bin keeps its smallest entry
// last: best fit takes from the end, and the backward pass, which frees towards lower addresses, appends there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/bytes.h"

namespace ledger {

using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = ~BlockId{0};

class FreeList {
 public:
  struct Entry {
    Bytes bytes;  // a multiple of kUnit
    std::uint64_t address;
    BlockId block;
  };
  // Place of an entry; insert() and erase() invalidate it.
  struct Cursor {
    std::size_t bin;
    std::size_t index;
    bool found() const { return bin < kBins; }
  };

  void insert(const Entry& entry);
  void erase(Cursor cursor);
  void replace(Cursor cursor, const Entry& entry);  // erase and insert, in place where the order allows
  Cursor first_not_below(Bytes bytes, std::uint64_t address = 0) const;
  Cursor next(Cursor cursor) const;  // in rising (size, address) order
  const Entry& operator[](Cursor cursor) const { return bins_[cursor.bin][cursor.index]; }

 private:
  static constexpr Bytes kUnit = 512;
  static constexpr std::size_t kWords = 7;
  static constexpr std::size_t kBins = 64 * kWords;

  static std::size_t bin_of(Bytes bytes);
  static std::size_t count_not_below(const std::vector<Entry>& bin, Bytes bytes, std::uint64_t address);
  Cursor smallest_from(std::size_t bin) const;

  std::array<std::vector<Entry>, kBins> bins_;
  std::array<std::uint64_t, kWords> used_{};  // bit b of word w: bin 64w+b is not empty
};

}  // namespace ledger
