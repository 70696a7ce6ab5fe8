// host_executor.h - runs a trace's operators on host memory.
//
// It trusts nobody: before a kernel runs, every operand must be born, not dead, and wholly inside its storage. The
// first violation is kept as a HostFailure, and nothing runs after it. In poison mode memory is NaN before it is
// written and after it is freed, and the bytes that the allocator's rounding leaves behind each tensor must stay as
// they were.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/memory/replay.h"
#include "probe/host/host_store.h"
#include "probe/host/host_view.h"
#include "probe/initial_values.h"

namespace ledger {

struct HostFailure {
  std::string what;                // in English, for stderr
  std::uint32_t run = 0;           // index into Trace::runs
  StorageId storage = kNoStorage;  // the operand at fault, if one is
};

class HostExecutor : public Executor {
 public:
  struct Options {
    bool poison = false;
    std::uint64_t seed = kTokenSeed;  // of tokens, input features and dropout
    // Called when a phase (index into Trace::phases) has run, while what it left is alive.
    std::function<void(const HostExecutor&, std::uint32_t)> on_phase_end = nullptr;
  };

  // `trace` (with operands) and `store` outlive the executor.
  HostExecutor(const Trace& trace, HostStore& store, Options options);
  HostExecutor(const Trace& trace, HostStore& store) : HostExecutor(trace, store, Options{}) {}

  void born(StorageId storage, std::uint64_t address) override;
  void died(StorageId storage) override;
  void run(std::uint32_t run_index) override;
  void mark(std::uint32_t phase_index) override;
  void finish();  // ends the last phase

  const std::optional<HostFailure>& failure() const { return failure_; }
  const std::vector<double>& losses() const { return losses_; }      // NaN for a step that has not computed its loss
  const std::vector<double>& phase_ms() const { return phase_ms_; }  // by index into Trace::phases

  bool alive(StorageId storage) const;
  // Elements in memory order; empty when the storage is not alive.
  std::vector<double> read(StorageId storage) const;
  void write(StorageId storage, std::span<const double> values);

 private:
  enum class State : std::uint8_t { unborn, alive, dead };
  struct Slot {
    std::byte* data = nullptr;
    State state = State::unborn;
    bool loss = false;
  };
  using Clock = std::chrono::steady_clock;

  bool resolve(const View& view, host::HostView& resolved);
  void note_losses(std::span<const host::HostView> outputs, const Run& run);
  void end_phase();
  void fail(std::string what, StorageId storage = kNoStorage);
  std::string describe(StorageId storage) const;

  const Trace& trace_;
  HostStore& store_;
  Options options_;
  std::vector<Slot> slots_;
  std::vector<host::HostView> operands_;  // of the call in progress
  std::uint32_t current_run_ = 0;
  std::uint64_t forward_pass_ = 0;
  host::HostMemory host_memory_;
  std::optional<HostFailure> failure_;
  std::vector<double> losses_;
  std::vector<double> phase_ms_;
  std::optional<std::uint32_t> phase_;
  Clock::time_point phase_began_;
};

}  // namespace ledger
