#include "core/trace/repeat.h"

namespace ledger {

void Repeated::begin(const std::string& prefix, std::span<const Tensor> leaves) {
  known_ = false;
  prefix_ = prefix.size();
  pass_.begin = tape_.mark();
  tape_.once_.clear();
  tape_.most_live_bytes_ = tape_.live_bytes_;
  tape_.oldest_changed_ = kNoStorage;
  gradients_.assign(leaves.size(), {});
  for (std::size_t i = 0; i < leaves.size(); ++i)
    gradients_[i].before = static_cast<bool>(leaves[i].grad());
}

void Repeated::end(std::span<const Tensor> leaves) {
  if (tape_.options_.operands || tape_.oldest_changed_ < pass_.begin.storage) return;
  pass_.end = tape_.mark();
  cut_out_once();
  latest_.clear();
  for (const Parameter& parameter : tape_.trace_.parameters) {
    const bool born = parameter.gradient != kNoStorage && parameter.gradient >= pass_.begin.storage;
    latest_.push_back(born ? parameter.gradient : kNoStorage);
  }
  std::size_t storages = 0;
  known_ = keep_gradients(leaves, storages) && storages == alive_;
}

// The pass between what was made once in it, and what it leaves besides that.
void Repeated::cut_out_once() {
  parts_.clear();
  Tape::Mark from = pass_.begin;
  alive_ = pass_.end.alive - pass_.begin.alive;
  added_ = pass_.end.live_bytes - pass_.begin.live_bytes;
  most_added_ = tape_.most_live_bytes_ - pass_.begin.live_bytes;
  for (const Tape::Span& once : tape_.once_) {
    parts_.push_back({from, once.begin});
    from = once.end;
    const Bytes bytes = once.end.live_bytes - once.begin.live_bytes;
    alive_ -= once.end.alive - once.begin.alive;
    added_ -= bytes;
    most_added_ -= bytes;
  }
  parts_.push_back({from, pass_.end});
}

// All that a gradient is made of, where nobody but the leaves hold it; `storages`: in how many they lie.
bool Repeated::keep_gradients(std::span<const Tensor> leaves, std::size_t& storages) {
  const StorageRef* storage = nullptr;
  std::uint32_t handles = 0;  // of it
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    Gradient& gradient = gradients_[i];
    if (gradient.before || !leaves[i].grad()) continue;
    const TensorImpl& impl = *leaves[i].grad().impl();
    gradient.shares = impl.storage == storage;
    if (!gradient.shares) {
      if (storage != nullptr && storage->refs != handles) return false;
      storage = impl.storage;
      handles = 0;
      ++storages;
    }
    ++handles;
    if (impl.refs != 1 || impl.grad_fn != nullptr || impl.requires_grad) return false;
    if (storage->id == kNoStorage || storage->id < pass_.begin.storage) return false;
    gradient.id = storage->id;
    gradient.dtype = impl.dtype;
    gradient.contiguous = impl.contiguous;
    gradient.offset = impl.offset;
    gradient.shape = impl.shape;
    gradient.strides = impl.strides;
  }
  return storage == nullptr || storage->refs == handles;
}

// The number of the storage in a repetition whose first one is `first`.
StorageId Repeated::renamed(StorageId id, StorageId first) const {
  for (const Tape::Span& part : parts_) {
    if (id < part.end.storage) return id - part.begin.storage + first;
    first += part.end.storage - part.begin.storage;
  }
  return kNoStorage;
}

bool Repeated::again(const std::string& prefix, std::span<const Tensor> leaves) {
  if (!known_) return false;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (gradients_[i].before != static_cast<bool>(leaves[i].grad())) return false;
  }
  const auto first = static_cast<StorageId>(tape_.trace_.storages.size());
  copy_storages();
  copy_events(prefix, first);
  Tensor before;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Gradient& made = gradients_[i];
    if (made.id == kNoStorage) continue;
    Tensor& gradient = leaves[i].impl()->grad;
    gradient = made.shares ? tape_.detach(before) : tape_.unbacked(made.shape, made.dtype);
    TensorImpl& impl = *gradient.impl();
    impl.dtype = made.dtype;
    impl.shape = made.shape;
    impl.strides = made.strides;
    impl.offset = made.offset;
    impl.contiguous = made.contiguous;
    impl.storage->id = renamed(made.id, first);
    before = gradient;
  }
  for (std::size_t i = 0; i < latest_.size(); ++i) {
    if (latest_[i] != kNoStorage) tape_.trace_.parameters[i].gradient = renamed(latest_[i], first);
  }
  return true;
}

void Repeated::copy_storages() const {
  std::vector<StorageInfo>& storages = tape_.trace_.storages;
  for (const Tape::Span& part : parts_) {
    for (StorageId id = part.begin.storage; id < part.end.storage; ++id) {
      const StorageInfo copy = storages[id];
      storages.push_back(copy);
    }
  }
}

void Repeated::copy_events(const std::string& prefix, StorageId first) const {
  Trace& trace = tape_.trace_;
  for (const Tape::Span& part : parts_) {
    for (std::size_t i = part.begin.event; i < part.end.event; ++i) {
      Event event = trace.events[i];
      if (event.type == EventType::mark) {
        tape_.begin_phase(prefix + trace.phases[event.id].substr(prefix_));
        continue;
      }
      if (event.type == EventType::run) {
        event.id = tape_.run_count_++;
      } else if (event.type != EventType::empty_cache) {
        event.id = renamed(event.id, first);
      }
      trace.events.push_back(event);
    }
  }
  if (plus(tape_.live_bytes_, most_added_) > tape_.options_.limit) trace.over_limit = true;
  tape_.live_bytes_ += added_;
  tape_.alive_ += alive_;
}

}  // namespace ledger
