// checked_executor.h - runs a trace's operators on memory of whatever kind, for the host and for devices.
//
// It trusts nobody: before a kernel runs, every operand must be born, not dead, and wholly inside its storage. The
// first violation is kept as a RunFailure, and nothing runs after it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/memory/replay.h"
#include "probe/host/host_view.h"
#include "probe/shortage.h"

namespace ledger {

struct RunFailure {
  std::string what;                       // in English, for stderr
  std::uint32_t run = 0;                  // index into Trace::runs
  StorageId storage = kNoStorage;         // the operand at fault, if one is
  std::optional<Shortage> shortage = {};  // then it is a result, as an allocator out of memory is
};

class CheckedExecutor : public Executor {
 public:
  void born(StorageId storage, std::uint64_t address) override;
  void born_on_host(StorageId storage) override;
  void died(StorageId storage) override;
  void run(std::uint32_t run_index) override;
  void mark(std::uint32_t phase_index) override;
  void finish();  // ends the last phase
  std::uint32_t phases_done() const { return phases_done_; }

  static constexpr const char* kStopped = "stopped";

  const std::optional<RunFailure>& failure() const { return failure_; }
  const std::vector<double>& losses() const { return losses_; }      // NaN for a step that has not computed its loss
  const std::vector<double>& phase_ms() const { return phase_ms_; }  // by index into Trace::phases
  bool alive(StorageId storage) const;

 protected:
  using Operands = std::span<const host::HostView>;

  // `trace` has operands and outlives the executor. `stop` is asked before every operator; true stops the run there, as
  // if it had failed with kStopped.
  explicit CheckedExecutor(const Trace& trace, std::function<bool()> stop = nullptr);

  // The memory behind the allocator's address; nullptr where none was reserved.
  virtual std::byte* locate(std::uint64_t address, Bytes bytes) = 0;
  // Of a storage in host memory, for as long as it lives; nullptr: there is none.
  virtual std::byte* keep_on_host(StorageId storage, Bytes bytes) = 0;
  virtual void drop_on_host(StorageId storage) = 0;
  virtual void after_birth(StorageId, std::byte*) {}
  virtual void before_death(StorageId, std::byte*) {}
  // Runs or queues the operator's kernel; what it refuses, or nullptr.
  virtual const char* compute(const Run& run, Operands in, Operands out) = 0;
  virtual void note_loss(std::size_t step, const host::HostView& loss) = 0;
  virtual void settle() {}                                         // waits for what is queued
  virtual void after_phase(std::uint32_t) {}                       // index into Trace::phases; what it left is alive
  virtual std::optional<Shortage> shortage() const { return {}; }  // asked when something failed

  const Trace& trace() const { return trace_; }
  std::uint64_t forward_pass() const { return forward_pass_; }  // how many forward phases have begun
  std::byte* data(StorageId storage) const { return slots_[storage].data; }
  void set_loss(std::size_t step, double value) { losses_[step] = value; }
  void fail(std::string what, StorageId storage = kNoStorage);
  std::string describe(StorageId storage) const;

 private:
  enum class State : std::uint8_t { unborn, alive, dead };
  struct Slot {
    std::byte* data = nullptr;
    State state = State::unborn;
    bool loss = false;
  };
  using Clock = std::chrono::steady_clock;

  bool resolve(const View& view, host::HostView& resolved);
  void note_losses(Operands outputs, const Run& run);
  void end_phase();

  const Trace& trace_;
  std::vector<Slot> slots_;
  std::vector<host::HostView> operands_;  // of the call in progress
  std::uint32_t current_run_ = 0;
  std::uint64_t forward_pass_ = 0;
  std::uint32_t phases_done_ = 0;
  std::function<bool()> stop_;
  std::optional<RunFailure> failure_;
  std::vector<double> losses_;
  std::vector<double> phase_ms_;
  std::optional<std::uint32_t> phase_;
  Clock::time_point phase_began_;
};

}  // namespace ledger
