// naive_allocator.h - PyTorch's allocator rules written as slowly and plainly as possible, to check the fast one
// against.
//
// All blocks of all segments stand in one map by address; every search looks at every block. Expandable segments
// included.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

#include "core/base/bytes.h"

namespace ledger {

class NaiveAllocator {
 public:
  NaiveAllocator(bool expandable, Bytes limit) : expandable_(expandable), limit_(limit) {}

  std::optional<std::uint64_t> allocate(Bytes bytes) {
    const Bytes size = std::max<Bytes>(512, (bytes + 511) / 512 * 512);
    const bool small = size <= kMiB;
    auto found = best_fit(small, size);
    if (found == blocks_.end()) found = obtain(small, size);
    if (found == blocks_.end()) {
      give_back();
      ++retries;
      found = obtain(small, size);
    }
    if (found == blocks_.end()) return std::nullopt;
    const Bytes rest = found->second.bytes - size;
    if (small || expandable_ ? rest >= 512 : rest > kMiB) cut(found, size);
    found->second.state = State::live;
    allocated += found->second.bytes;
    return found->first;
  }

  void release(std::uint64_t address) {
    auto at = blocks_.find(address);
    allocated -= at->second.bytes;
    at->second.state = State::cached;
    merge(at);
  }

  Bytes block_bytes(std::uint64_t address) const { return blocks_.at(address).bytes; }

  Bytes allocated = 0;
  Bytes reserved = 0;
  std::uint64_t retries = 0;

 private:
  enum class State { live, cached, unmapped };
  struct Block {
    Bytes bytes;
    State state;
    bool small;
    int segment;
  };
  using At = std::map<std::uint64_t, Block>::iterator;

  static Bytes page(bool small) { return (small ? 2 : 20) * kMiB; }

  Bytes room(At at) const {
    const auto next = std::next(at);
    const bool grows = expandable_ && next != blocks_.end() && next->second.segment == at->second.segment &&
                       next->second.state == State::unmapped;
    return at->second.bytes + (grows ? next->second.bytes : 0);
  }

  At best_fit(bool small, Bytes size) {
    std::map<std::pair<Bytes, std::uint64_t>, At> fits;
    for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
      if (at->second.small == small && at->second.state == State::cached && at->second.bytes >= size) {
        fits.insert({{at->second.bytes, at->first}, at});
      }
    }
    if (fits.empty()) return blocks_.end();
    auto best = fits.begin();
    for (auto next = std::next(best); next != fits.end() && room(next->second) < room(best->second); ++next)
      best = next;
    return best->second;
  }

  At obtain(bool small, Bytes size) {
    if (expandable_) return expand(small, size);
    const Bytes bytes = small ? 2 * kMiB : size < 10 * kMiB ? 20 * kMiB : (size + 2 * kMiB - 1) / (2 * kMiB) * 2 * kMiB;
    if (reserved + bytes > limit_) return blocks_.end();
    reserved += bytes;
    const auto at = blocks_.insert({next_, {bytes, State::cached, small, segments_++}}).first;
    next_ += bytes;
    return at;
  }

  At expand(bool small, Bytes size) {
    if (size > limit_) return blocks_.end();
    At at = find_row(small, size);
    for (;;) {
      if (at->second.state == State::cached && at->second.bytes >= size) return at;
      const At gap = at->second.state == State::unmapped ? at : std::next(at);
      const Bytes have = at->second.state == State::unmapped ? 0 : at->second.bytes;
      const Bytes wanted = std::min(size - have, gap->second.bytes);
      const Bytes mapped = (wanted + page(small) - 1) / page(small) * page(small);
      if (reserved + mapped > limit_) return blocks_.end();
      reserved += mapped;
      if (mapped < gap->second.bytes) cut(gap, mapped);
      gap->second.state = State::cached;
      at = merge(gap);
    }
  }

  At find_row(bool small, Bytes size) {
    for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
      if (at->second.small != small || at->second.state != State::unmapped) continue;
      auto first = at;
      if (at != blocks_.begin() && std::prev(at)->second.segment == at->second.segment &&
          std::prev(at)->second.state == State::cached) {
        first = std::prev(at);
      }
      Bytes sum = 0;
      for (auto i = first; i != blocks_.end() && i->second.segment == at->second.segment; ++i) {
        if (i->second.state == State::live) break;
        sum += i->second.bytes;
      }
      if (sum >= size) return first;
    }
    const Bytes range = (limit_ == kOverflow ? Bytes{1} << 44 : limit_ + limit_ / 8) + page(small) - 1;
    next_ = (next_ + page(small) - 1) / page(small) * page(small);
    const Bytes bytes = range / page(small) * page(small);
    const auto at = blocks_.insert({next_, {bytes, State::unmapped, small, segments_++}}).first;
    next_ += bytes;
    return at;
  }

  void cut(At at, Bytes bytes) {
    Block rest = at->second;
    rest.bytes -= bytes;
    at->second.bytes = bytes;
    blocks_.insert({at->first + bytes, rest});
  }

  At merge(At at) {
    const auto joins = [](At a, At b) {
      return a->second.segment == b->second.segment && a->second.state == b->second.state;
    };
    const auto next = std::next(at);
    if (next != blocks_.end() && joins(at, next)) {
      at->second.bytes += next->second.bytes;
      blocks_.erase(next);
    }
    if (at == blocks_.begin() || !joins(std::prev(at), at)) return at;
    const auto prev = std::prev(at);
    prev->second.bytes += at->second.bytes;
    blocks_.erase(at);
    return prev;
  }

  void give_back() {
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      if (at->second.state != State::cached) {
        ++at;
      } else if (expandable_) {
        at = std::next(unmap(at));
      } else {
        at = whole(at) ? drop(at) : std::next(at);
      }
    }
    if (!expandable_) return;
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      at = at->second.state == State::unmapped && whole(at) ? blocks_.erase(at) : std::next(at);
    }
  }

  bool whole(At at) const {
    const bool first = at == blocks_.begin() || std::prev(at)->second.segment != at->second.segment;
    const auto next = std::next(at);
    return first && (next == blocks_.end() || next->second.segment != at->second.segment);
  }

  At drop(At at) {
    reserved -= at->second.bytes;
    return blocks_.erase(at);
  }

  At unmap(At at) {
    const Bytes p = page(at->second.small);
    const std::uint64_t begin = (at->first + p - 1) / p * p;
    const std::uint64_t end = (at->first + at->second.bytes) / p * p;
    if (begin >= end) return at;
    if (begin > at->first) {
      cut(at, begin - at->first);
      at = std::next(at);
    }
    if (end - begin < at->second.bytes) cut(at, end - begin);
    reserved -= end - begin;
    at->second.state = State::unmapped;
    return merge(at);
  }

  bool expandable_;
  Bytes limit_;
  std::map<std::uint64_t, Block> blocks_;
  std::uint64_t next_ = std::uint64_t{1} << 40;
  int segments_ = 0;
};

}  // namespace ledger
