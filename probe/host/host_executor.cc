#include "probe/host/host_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "probe/host/kernels.h"
#include "probe/host/strips.h"
#include "probe/ranks/stand_in.h"

namespace ledger {
namespace {

constexpr int kPoison = 0xFF;  // NaN in every floating format, -1 as a token id
constexpr int kCanary = 0xA5;
constexpr Bytes kAllocatorStep = 512;  // PyTorch's kMinBlockSize: memory up to the next multiple is the tensor's own

Bytes slack_bytes(Bytes bytes) {
  return round_up(bytes, kAllocatorStep) - bytes;
}

}  // namespace

HostExecutor::HostExecutor(const Trace& trace, HostStore& store, Options options)
    : CheckedExecutor(trace, options.stop), store_(store), options_(std::move(options)) {
  static StandIn alone(0, 1);
  groups_.emplace(trace.mesh, options_.ranks == nullptr ? alone : *options_.ranks);
}

void HostExecutor::after_birth(StorageId storage, std::byte* memory) {
  if (!options_.poison) return;
  const Bytes bytes = trace().storages[storage].bytes;
  std::memset(memory, kPoison, bytes);
  std::memset(memory + bytes, kCanary, slack_bytes(bytes));
}

std::byte* HostExecutor::keep_on_host(StorageId storage, Bytes bytes) {
  return host_storages_.emplace(storage, std::vector<std::byte>(bytes, std::byte{kPoison})).first->second.data();
}

void HostExecutor::before_death(StorageId storage, std::byte* memory) {
  if (!options_.poison) return;
  const Bytes bytes = trace().storages[storage].bytes;
  const auto intact = [](std::byte b) { return b == std::byte{kCanary}; };
  if (!std::all_of(memory + bytes, memory + bytes + slack_bytes(bytes), intact)) {
    return fail("something wrote past the end of " + describe(storage), storage);
  }
  std::memset(memory, kPoison, bytes);
}

const char* HostExecutor::compute(const Run& run, Operands in, Operands out) {
  Communicator& ranks = groups_->of(run.group);
  host::KernelCall call{in, out, run.attr, trace(), options_.seed, run, forward_pass(), host_memory_, &ranks};
  host::kKernels[static_cast<std::size_t>(run.op)](call);
  return call.error;
}

void HostExecutor::note_loss(std::size_t step, const host::HostView& loss) {
  set_loss(step, host::load_one<double>(loss.data, loss.dtype));
}

void HostExecutor::after_phase(std::uint32_t phase) {
  if (options_.on_phase_end) options_.on_phase_end(*this, phase);
}

std::vector<double> HostExecutor::read(StorageId storage) const {
  if (!alive(storage)) return {};
  const StorageInfo& info = trace().storages[storage];
  const Bytes element = element_bytes(info.dtype);
  std::vector<double> values(info.bytes / element);
  host::load_strip(values.data(), data(storage), static_cast<std::ptrdiff_t>(element), values.size(), info.dtype);
  return values;
}

void HostExecutor::write(StorageId storage, std::span<const double> values) {
  if (!alive(storage)) return fail(describe(storage) + " is written while it is not alive", storage);
  const StorageInfo& info = trace().storages[storage];
  const Bytes element = element_bytes(info.dtype);
  const std::size_t count = std::min<std::size_t>(values.size(), info.bytes / element);
  host::store_strip(data(storage), static_cast<std::ptrdiff_t>(element), values.data(), count, info.dtype);
}

}  // namespace ledger
