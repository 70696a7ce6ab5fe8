// slab.h - objects of one type in chunks with a free list: a training step makes tens of thousands of small objects.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace ledger {

// Objects are default-constructed once and handed out again as they were given back; the user resets what it reads.
// Chunks outlive the slab, per thread: the page traces again at every keystroke, and touching fresh pages costs more
// than the tracing itself.
template <class T, std::size_t kChunk = 256>
class Slab {
 public:
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    const bool all_back = free_.size() == chunks_.size() * kChunk;
    for (auto& chunk : chunks_) {
      if (all_back && spare().size() < kMostSpare) spare().push_back(std::move(chunk));
    }
  }

  T* take() {
    if (free_.empty()) grow();
    T* object = free_.back();
    free_.pop_back();
    return object;
  }
  void give(T* object) { free_.push_back(object); }

 private:
  using Chunk = std::unique_ptr<T[]>;
  static constexpr std::size_t kMostSpare = 64;

  static std::vector<Chunk>& spare() {
    static thread_local std::vector<Chunk> chunks;
    return chunks;
  }

  void grow() {
    if (spare().empty()) {
      chunks_.push_back(std::make_unique<T[]>(kChunk));
    } else {
      chunks_.push_back(std::move(spare().back()));
      spare().pop_back();
    }
    free_.reserve(chunks_.size() * kChunk);
    for (std::size_t i = kChunk; i > 0; --i)
      free_.push_back(&chunks_.back()[i - 1]);
  }

  std::vector<Chunk> chunks_;
  std::vector<T*> free_;
};

}  // namespace ledger
