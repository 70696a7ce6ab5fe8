#include "core/memory/census.h"

namespace ledger {

void Census::apply(const Event& event) {
  switch (event.type) {
    case EventType::alloc:
      return move(event.id, event.category);
    case EventType::free:
      return move(event.id, Category::count_);
    case EventType::label:
      if (alive(event.id)) move(event.id, event.category);
      return;
    case EventType::run:
    case EventType::mark:
    case EventType::empty_cache:
    case EventType::alloc_on_host:
    case EventType::free_on_host:
      return;
  }
}

void Census::move(StorageId storage, Category to) {
  const Bytes bytes = trace_.storages[storage].bytes;
  const Category from = category_[storage];
  if (from != Category::count_) bytes_[static_cast<std::size_t>(from)] -= bytes;
  if (to != Category::count_) {
    Bytes& sum = bytes_[static_cast<std::size_t>(to)];
    sum = plus(sum, bytes);
  }
  category_[storage] = to;
}

}  // namespace ledger
