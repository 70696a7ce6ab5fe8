// host_executor.h - runs a trace's operators on host memory.
//
// In poison mode memory is NaN before it is written and after it is freed, and the bytes that the allocator's rounding
// leaves behind each tensor must stay as they were.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "probe/checked_executor.h"
#include "probe/host/host_store.h"
#include "probe/initial_values.h"
#include "probe/ranks/rank_groups.h"

namespace ledger {

class HostExecutor : public CheckedExecutor {
 public:
  struct Options {
    bool poison = false;
    std::uint64_t seed = kTokenSeed;  // of tokens, input features and dropout
    Communicator* ranks = nullptr;    // of which this is one; null: the only one
    // Called when a phase (index into Trace::phases) has run, while what it left is alive.
    std::function<void(const HostExecutor&, std::uint32_t)> on_phase_end = nullptr;
    std::function<bool()> stop = nullptr;  // asked before every operator
  };

  // `trace` (with operands) and `store` outlive the executor.
  HostExecutor(const Trace& trace, HostStore& store, Options options);
  HostExecutor(const Trace& trace, HostStore& store) : HostExecutor(trace, store, Options{}) {}

  // Elements in memory order; empty when the storage is not alive.
  std::vector<double> read(StorageId storage) const;
  void write(StorageId storage, std::span<const double> values);

 private:
  std::byte* locate(std::uint64_t address, Bytes bytes) override { return store_.locate(address, bytes); }
  std::byte* keep_on_host(StorageId storage, Bytes bytes) override;
  void drop_on_host(StorageId storage) override { host_storages_.erase(storage); }
  void after_birth(StorageId storage, std::byte* memory) override;
  void before_death(StorageId storage, std::byte* memory) override;
  const char* compute(const Run& run, Operands in, Operands out) override;
  void note_loss(std::size_t step, const host::HostView& loss) override;
  void after_phase(std::uint32_t phase) override;

  HostStore& store_;
  Options options_;
  std::optional<RankGroups> groups_;
  host::HostMemory host_memory_;
  std::unordered_map<StorageId, std::vector<std::byte>> host_storages_;
};

}  // namespace ledger
