// slab.h - objects of one type in chunks with a free list: a training step makes tens of thousands of small objects.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace ledger {

// Objects are default-constructed once and handed out again as they were given back; the user resets what it reads.
template <class T, std::size_t kChunk = 256>
class Slab {
 public:
  T* take() {
    if (free_.empty()) grow();
    T* object = free_.back();
    free_.pop_back();
    return object;
  }
  void give(T* object) { free_.push_back(object); }

 private:
  void grow() {
    chunks_.push_back(std::make_unique<T[]>(kChunk));
    free_.reserve(free_.size() + kChunk);
    for (std::size_t i = kChunk; i > 0; --i) free_.push_back(&chunks_.back()[i - 1]);
  }

  std::vector<std::unique_ptr<T[]>> chunks_;
  std::vector<T*> free_;
};

}  // namespace ledger
