// census.h - who is alive while events go by, and as what: the one place that applies alloc, free and label events to
// categories. Timeline and ledger both walk with it, so they cannot disagree.
#pragma once

#include <array>
#include <vector>

#include "core/trace/trace.h"

namespace ledger {

class Census {
 public:
  explicit Census(const Trace& trace) : trace_(trace), category_(trace.storages.size(), Category::count_) {}

  void apply(const Event& event);

  bool alive(StorageId storage) const { return category_[storage] != Category::count_; }
  Category category(StorageId storage) const { return category_[storage]; }  // count_ when not alive
  const std::array<Bytes, kCategories>& bytes() const { return bytes_; }

 private:
  void move(StorageId storage, Category to);

  const Trace& trace_;
  std::vector<Category> category_;
  std::array<Bytes, kCategories> bytes_{};
};

}  // namespace ledger
