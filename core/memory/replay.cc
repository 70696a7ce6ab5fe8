#include "core/memory/replay.h"

#include <algorithm>
#include <string_view>

#include "core/trace/streams.h"

namespace ledger {
namespace {

// What the loop needs of a storage, dense: StorageInfo with its shape is a cache line or two, at random on frees.
struct Slot {
  BlockId block = kNoBlock;
  bool workspace = false;
};

struct SideScope {
  const char* name;
  Stream stream;
  bool gradients_only;  // the flat input of FSDP's reduce-scatter is made on the stream that computes
};

constexpr SideScope kSideScopes[] = {
    {kAllGatherScope, Stream::all_gather, false},      {kReduceScatterScope, Stream::reduce_scatter, true},
    {kZeroGatherScope, Stream::all_gather, false},     {kZeroGatheredScope, Stream::all_gather, false},
    {kZeroReduceScope, Stream::reduce_scatter, false},
};

// The scopes of side streams that a trace has, by number.
class SideScopes {
 public:
  explicit SideScopes(const Trace& trace) {
    for (std::size_t i = 0; i < trace.names.size(); ++i) {
      for (const SideScope& side : kSideScopes) {
        if (trace.names[i] == side.name) found_.push_back({static_cast<NameId>(i), &side});
      }
    }
  }

  Stream of(const StorageInfo& storage) const {
    for (const Found& found : found_) {
      if (storage.scope != found.scope) continue;
      if (!found.side->gradients_only || storage.category == Category::gradients) return found.side->stream;
    }
    return Stream::compute;
  }

 private:
  struct Found {
    NameId scope;
    const SideScope* side;
  };
  std::vector<Found> found_;
};

class Player {
 public:
  Player(const Trace& trace, const ReplayOptions& options, Executor* executor, SegmentStore* store)
      : trace_(trace), options_(options), executor_(executor), scopes_(trace), allocator_(options.allocator, store) {
    slots_.resize(trace.storages.size());
    result_.phases.reserve(trace.phases.size());
    if (options.record_samples) result_.samples.reserve(trace.events.size());
    if (options.record_addresses) result_.addresses.reserve(trace.storages.size());
  }

  Replay play();

 private:
  void on_alloc(std::uint32_t event, StorageId storage, bool workspace);
  void on_free(std::uint32_t event, StorageId storage);
  void on_mark(std::uint32_t event, std::uint32_t phase);
  void note_peaks(std::uint32_t event, bool workspace);
  void sample(std::uint32_t event);
  void close_phase();

  const Trace& trace_;
  const ReplayOptions& options_;
  Executor* executor_;
  SideScopes scopes_;
  CachingAllocator allocator_;
  std::vector<Slot> slots_;
  Bytes tensor_bytes_ = 0;
  Bytes workspace_bytes_ = 0;
  PhasePeak phase_;  // the current one, or what precedes the first mark
  bool in_phase_ = false;
  Replay result_;
};

Replay Player::play() {
  const auto count = static_cast<std::uint32_t>(trace_.events.size());
  for (std::uint32_t i = 0; i < count && !result_.out_of_memory; ++i) {
    const Event event = trace_.events[i];
    if (event.type == EventType::run && executor_ == nullptr) continue;  // half of all: foreseen better than a jump
    switch (event.type) {
      case EventType::alloc:
        on_alloc(i, event.id, event.category == Category::workspace);
        break;
      case EventType::free:
        on_free(i, event.id);
        break;
      case EventType::run:
        executor_->run(event.id);
        break;
      case EventType::mark:
        on_mark(i, event.id);
        break;
      case EventType::empty_cache:
        allocator_.empty_cache();
        sample(i);
        break;
      case EventType::alloc_on_host:
        if (executor_ != nullptr) executor_->born_on_host(event.id);
        break;
      case EventType::free_on_host:
        if (executor_ != nullptr) executor_->died(event.id);
        break;
      case EventType::label:  // other name, same bytes: no label leads into or out of workspace
        break;
    }
  }
  close_phase();
  result_.allocator = allocator_.stats();
  return std::move(result_);
}

void Player::on_alloc(std::uint32_t event, StorageId storage, bool workspace) {
  const Bytes bytes = trace_.storages[storage].bytes;
  const BlockId block = allocator_.allocate(bytes, scopes_.of(trace_.storages[storage]));
  if (block == kNoBlock) {
    result_.out_of_memory = true;
    result_.oom_event = event;
    result_.oom_storage = storage;
    result_.oom_requested_bytes = bytes;
    result_.oom_segment_bytes = allocator_.refused_segment_bytes();
    return;
  }
  slots_[storage] = {block, workspace};
  Bytes& sum = workspace ? workspace_bytes_ : tensor_bytes_;
  sum = plus(sum, bytes);
  if (options_.record_addresses) result_.addresses.push_back(allocator_.address(block));
  if (executor_ != nullptr) executor_->born(storage, allocator_.address(block));
  note_peaks(event, workspace);
  sample(event);
}

void Player::on_free(std::uint32_t event, StorageId storage) {
  const Slot& slot = slots_[storage];
  if (executor_ != nullptr) executor_->died(storage);
  (slot.workspace ? workspace_bytes_ : tensor_bytes_) -= allocator_.requested_bytes(slot.block);
  allocator_.release(slot.block);
  sample(event);
}

// Peaks begin at the current values, as after torch.cuda.reset_peak_memory_stats().
void Player::on_mark(std::uint32_t event, std::uint32_t phase) {
  close_phase();
  if (executor_ != nullptr) executor_->mark(phase);
  in_phase_ = true;
  phase_ = {};
  phase_.phase = phase;
  phase_.start_bytes = tensor_bytes_;
  phase_.peak_bytes = tensor_bytes_;
  phase_.peak_with_workspace_bytes = plus(tensor_bytes_, workspace_bytes_);
  phase_.allocated_peak_bytes = allocator_.stats().allocated;
  phase_.reserved_peak_bytes = allocator_.stats().reserved;
  phase_.peak_event = event;
}

void Player::note_peaks(std::uint32_t event, bool workspace) {
  const AllocatorStats& stats = allocator_.stats();
  if (!workspace && tensor_bytes_ > phase_.peak_bytes) {
    phase_.peak_bytes = tensor_bytes_;
    phase_.peak_event = event;
  }
  phase_.peak_with_workspace_bytes = std::max(phase_.peak_with_workspace_bytes, plus(tensor_bytes_, workspace_bytes_));
  phase_.allocated_peak_bytes = std::max(phase_.allocated_peak_bytes, stats.allocated);
  phase_.reserved_peak_bytes = std::max(phase_.reserved_peak_bytes, stats.reserved);
  if (tensor_bytes_ > result_.peak_tensor_bytes) {
    result_.peak_tensor_bytes = tensor_bytes_;
    result_.peak_event = event;
  }
  if (stats.allocated > result_.peak_allocated_bytes) {
    result_.peak_allocated_bytes = stats.allocated;
    result_.allocated_peak_event = event;
  }
  result_.peak_workspace_bytes = std::max(result_.peak_workspace_bytes, workspace_bytes_);
  result_.peak_reserved_bytes = std::max(result_.peak_reserved_bytes, stats.reserved);
}

void Player::sample(std::uint32_t event) {
  if (!options_.record_samples) return;
  const AllocatorStats& stats = allocator_.stats();
  result_.samples.push_back({event, tensor_bytes_, stats.allocated, stats.reserved});
}

void Player::close_phase() {
  if (!in_phase_) return;
  phase_.end_bytes = tensor_bytes_;
  result_.phases.push_back(phase_);
}

}  // namespace

Replay replay(const Trace& trace, const ReplayOptions& options, Executor* executor, SegmentStore* store) {
  return Player(trace, options, executor, store).play();
}

}  // namespace ledger
