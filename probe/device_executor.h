// device_executor.h - runs a trace's operators on a device: a GPU, or the emulation of one that the tests use.
#pragma once

#include <array>
#include <functional>

#include "probe/checked_executor.h"
#include "probe/device/call.h"
#include "probe/initial_values.h"
#include "probe/ranks/message_batch.h"
#include "probe/ranks/rank_groups.h"

namespace ledger::device {

using Kernels = std::array<KernelFn, kOpKinds>;

// What the executor needs of a device. Work is queued and runs in order; errors may show only when it is waited for.
class Device {
 public:
  virtual ~Device() = default;
  virtual const Kernels& kernels() const = 0;
  virtual Services& services() = 0;
  virtual std::byte* locate(std::uint64_t address, Bytes bytes) = 0;  // device memory behind the allocator's address
  virtual void fill(std::byte* memory, int byte, Bytes bytes) = 0;
  // Queued; `to` is host memory that stays until settle().
  virtual void copy_back(std::byte* to, const std::byte* from, Bytes bytes) = 0;
  virtual void copy_in(std::byte* to, const std::byte* from, Bytes bytes) = 0;  // done on return
  virtual void use_workspace(std::byte* memory, Bytes bytes) = 0;               // of the matrix library
  virtual std::string queue_error() = 0;                                        // of the launches since the last call
  virtual std::string settle() = 0;                                             // waits for the queue; what went wrong
  virtual bool idle() = 0;  // whether all that was queued has run, or failed; waits for nothing
  // A copy of device memory beside the allocator's, for number `place`, until that is asked for again; queued. nullptr:
  // there is no memory for it.
  virtual std::byte* put_aside(std::size_t place, const std::byte* from, Bytes bytes) = 0;
};

class DeviceExecutor : public CheckedExecutor {
 public:
  struct Options {
    bool poison = false;              // memory is NaN before it is written and after it is freed
    std::uint64_t seed = kTokenSeed;  // of tokens, input features and dropout
    RankSeat seat = {};               // in whose place this process is
    Communicator* ranks = nullptr;    // of which this is one; null: others' parts are copies of its own
    StageTurns messages = {};         // what they agreed on (message_plan.h), where they are stages of a pipeline
    // Called when a phase (index into Trace::phases) has run, while what it left is alive.
    std::function<void(DeviceExecutor&, std::uint32_t)> on_phase_end = nullptr;
    std::function<bool()> stop = nullptr;  // asked before every operator
  };

  // `trace` (with operands) and `device` outlive the executor.
  DeviceExecutor(const Trace& trace, Device& device, Options options);

  // Elements in memory order; empty when the storage is not alive.
  std::vector<double> read(StorageId storage);
  void write(StorageId storage, std::span<const double> values);

 private:
  std::byte* locate(std::uint64_t address, Bytes bytes) override { return device_.locate(address, bytes); }
  // By numbers that nobody puts anything aside under.
  std::byte* keep_on_host(StorageId storage, Bytes bytes) override;
  void drop_on_host(StorageId storage) override;
  void after_birth(StorageId storage, std::byte* memory) override;
  void before_death(StorageId storage, std::byte* memory) override;
  const char* compute(const Run& run, Operands in, Operands out) override;
  void note_loss(std::size_t step, const host::HostView& loss) override;
  void settle() override;
  void after_phase(std::uint32_t phase) override;
  std::optional<Shortage> shortage() const override;
  const char* add_message(const Run& run, Operands in, Operands out, Communicator& ranks);
  bool put_aside(const MessageBatch& messages, MessageBatch::Waiting& sent);
  bool exchange();
  const char* exchange_error() const;

  struct PendingLoss {
    alignas(8) std::array<std::byte, 8> bytes{};
    DType dtype = DType::f32;
    bool pending = false;
  };

  Device& device_;
  Options options_;
  StorageId workspace_ = kNoStorage;
  std::vector<PendingLoss> pending_;  // by step; copied back while kernels run
  std::optional<RankGroups> groups_;
  std::optional<Bytes> no_copy_of_;         // bytes of a message that there was no memory for
  MessageBatch to_stages_, to_neighbours_;  // of a pipeline; of a ring that shares sequences
  std::string error_;
};

// The first operator of `trace` that these kernels only have a size for, by its ATen name; empty when there is none.
std::string first_not_computed(const Trace& trace, const Kernels& kernels);

}  // namespace ledger::device
