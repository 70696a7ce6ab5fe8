#include "core/memory/free_list.h"

namespace ledger {
namespace {

// Without branches: on a search they would be mispredicted every other time.
bool below(const FreeList::Entry& entry, Bytes bytes, std::uint64_t address) {
  return (entry.bytes < bytes) | ((entry.bytes == bytes) & (entry.address < address));
}

}  // namespace

// Units below 8 have a bin each; above, the three bits after the leading one pick the eighth of its power of two. The
// largest 64-bit size lands in bin 423.
std::size_t FreeList::bin_of(Bytes bytes) {
  const std::uint64_t units = bytes / kUnit;
  if (units < 8) return static_cast<std::size_t>(units);
  const unsigned top = 63u - static_cast<unsigned>(__builtin_clzll(units));
  return (top - 2u) * 8u + static_cast<std::size_t>((units >> (top - 3u)) & 7u);
}

std::size_t FreeList::count_not_below(const std::vector<Entry>& bin, Bytes bytes, std::uint64_t address) {
  const Entry* first = bin.data();
  for (std::size_t left = bin.size(); left > 0;) {
    const std::size_t half = (left + 1) / 2;
    first += half & (std::size_t{below(first[half - 1], bytes, address)} - 1);
    left -= half;
  }
  return static_cast<std::size_t>(first - bin.data());
}

FreeList::Cursor FreeList::smallest_from(std::size_t bin) const {
  std::size_t word = bin / 64;
  std::uint64_t bits = word < kWords ? used_[word] & (~std::uint64_t{0} << (bin % 64)) : 0;
  while (bits == 0) {
    if (++word >= kWords) return {kBins, 0};
    bits = used_[word];
  }
  const std::size_t found = word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits));
  return {found, bins_[found].size() - 1};
}

void FreeList::insert(const Entry& entry) {
  const std::size_t number = bin_of(entry.bytes);
  std::vector<Entry>& bin = bins_[number];
  if (bin.empty()) {
    used_[number / 64] |= std::uint64_t{1} << (number % 64);
    if (bin.capacity() == 0) bin.reserve(16);
    bin.push_back(entry);
  } else if (!below(bin.back(), entry.bytes, entry.address)) {
    bin.push_back(entry);
  } else {
    const std::size_t at = count_not_below(bin, entry.bytes, entry.address);
    bin.insert(bin.begin() + static_cast<std::ptrdiff_t>(at), entry);
  }
}

void FreeList::erase(Cursor cursor) {
  std::vector<Entry>& bin = bins_[cursor.bin];
  if (cursor.index + 1 == bin.size()) {
    bin.pop_back();
    if (bin.empty()) used_[cursor.bin / 64] &= ~(std::uint64_t{1} << (cursor.bin % 64));
  } else {
    bin.erase(bin.begin() + static_cast<std::ptrdiff_t>(cursor.index));
  }
}

void FreeList::replace(Cursor cursor, const Entry& entry) {
  std::vector<Entry>& bin = bins_[cursor.bin];
  const std::size_t i = cursor.index;
  const bool above_ok = i == 0 || !below(bin[i - 1], entry.bytes, entry.address);
  const bool below_ok = i + 1 == bin.size() || below(bin[i + 1], entry.bytes, entry.address);
  if (above_ok && below_ok && bin_of(entry.bytes) == cursor.bin) {
    bin[i] = entry;
    return;
  }
  erase(cursor);
  insert(entry);
}

FreeList::Cursor FreeList::first_not_below(Bytes bytes, std::uint64_t address) const {
  const std::size_t number = bin_of(bytes);
  const std::vector<Entry>& bin = bins_[number];
  if (bin.empty()) return smallest_from(number + 1);
  if (!below(bin.back(), bytes, address)) return {number, bin.size() - 1};
  const std::size_t count = count_not_below(bin, bytes, address);
  return count > 0 ? Cursor{number, count - 1} : smallest_from(number + 1);
}

FreeList::Cursor FreeList::next(Cursor cursor) const {
  return cursor.index > 0 ? Cursor{cursor.bin, cursor.index - 1} : smallest_from(cursor.bin + 1);
}

}  // namespace ledger
