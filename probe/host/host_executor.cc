#include "probe/host/host_executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "probe/host/kernels.h"
#include "probe/host/strips.h"

namespace ledger {
namespace {

using host::HostView;

constexpr int kPoison = 0xFF;  // NaN in every floating format, -1 as a token id
constexpr int kCanary = 0xA5;
constexpr Bytes kAllocatorStep = 512;  // PyTorch's kMinBlockSize: memory up to the next multiple is the tensor's own

Bytes slack_bytes(Bytes bytes) {
  return round_up(bytes, kAllocatorStep) - bytes;
}

// One past the last element that the view touches, in elements of its dtype; strides are never negative in PyTorch.
std::uint64_t extent(const View& view) {
  std::uint64_t last = view.offset;
  for (std::size_t i = 0; i < view.rank; ++i) {
    if (view.sizes[i] == 0) return 0;
    last = plus(last, times(view.sizes[i] - 1, static_cast<std::uint64_t>(view.strides[i])));
  }
  return plus(last, 1);
}

}  // namespace

HostExecutor::HostExecutor(const Trace& trace, HostStore& store, Options options)
    : trace_(trace),
      store_(store),
      options_(std::move(options)),
      slots_(trace.storages.size()),
      losses_(trace.losses.size(), std::numeric_limits<double>::quiet_NaN()),
      phase_ms_(trace.phases.size(), 0.0) {
  for (const StorageId storage : trace.losses)
    slots_[storage].loss = true;
  if (!trace.has_operands) fail("the trace was made without operands");
}

void HostExecutor::born(StorageId storage, std::uint64_t address) {
  if (failure_) return;
  const Bytes bytes = trace_.storages[storage].bytes;
  std::byte* data = store_.locate(address, bytes);
  if (data == nullptr) return fail("no memory was reserved for " + describe(storage), storage);
  slots_[storage].data = data;
  slots_[storage].state = State::alive;
  if (options_.poison) {
    std::memset(data, kPoison, bytes);
    std::memset(data + bytes, kCanary, slack_bytes(bytes));
  }
}

void HostExecutor::died(StorageId storage) {
  if (failure_) return;
  Slot& slot = slots_[storage];
  if (slot.state != State::alive) return fail(describe(storage) + " dies without being alive", storage);
  slot.state = State::dead;
  if (!options_.poison) return;
  const Bytes bytes = trace_.storages[storage].bytes;
  const auto intact = [](std::byte b) { return b == std::byte{kCanary}; };
  if (!std::all_of(slot.data + bytes, slot.data + bytes + slack_bytes(bytes), intact)) {
    return fail("something wrote past the end of " + describe(storage), storage);
  }
  std::memset(slot.data, kPoison, bytes);
}

bool HostExecutor::resolve(const View& view, HostView& resolved) {
  resolved.dtype = view.dtype;
  resolved.rank = view.rank;
  resolved.sizes = view.sizes;
  resolved.strides = view.strides;
  const std::uint64_t end = extent(view);
  if (end == 0) return true;  // empty tensors have no storage
  if (view.storage >= slots_.size()) {
    fail("an operand has no storage");
    return false;
  }
  const Slot& slot = slots_[view.storage];
  if (slot.state != State::alive) {
    fail(describe(view.storage) + (slot.state == State::dead ? " is used after it died" : " is used before its birth"),
         view.storage);
    return false;
  }
  if (times(end, element_bytes(view.dtype)) > trace_.storages[view.storage].bytes) {
    fail("a view reaches beyond the end of " + describe(view.storage), view.storage);
    return false;
  }
  resolved.data = slot.data + times(view.offset, element_bytes(view.dtype));
  return true;
}

void HostExecutor::run(std::uint32_t run_index) {
  if (failure_) return;
  current_run_ = run_index;
  const Run& run = trace_.runs[run_index];
  const std::size_t inputs = run.input_count();
  operands_.assign(inputs + run.outputs, HostView{});
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!resolve(trace_.views[run.first_view + i], operands_[i])) return;
  }
  const std::span<const HostView> all = operands_;
  host::KernelCall call{all.first(inputs), all.subspan(inputs), run.attr, trace_, options_.seed, run,
                        forward_pass_,     host_memory_};
  host::kKernels[static_cast<std::size_t>(run.op)](call);
  if (call.error != nullptr) return fail(call.error);
  note_losses(call.out, run);
}

// The loss may be freed before its phase ends, so it is read as soon as it is written.
void HostExecutor::note_losses(std::span<const HostView> outputs, const Run& run) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const StorageId storage = trace_.views[run.first_view + run.input_count() + i].storage;
    if (storage >= slots_.size() || !slots_[storage].loss || outputs[i].data == nullptr) continue;
    const auto step = std::find(trace_.losses.begin(), trace_.losses.end(), storage) - trace_.losses.begin();
    losses_[static_cast<std::size_t>(step)] = host::load_one<double>(outputs[i].data, outputs[i].dtype);
  }
}

void HostExecutor::mark(std::uint32_t phase_index) {
  end_phase();
  phase_ = phase_index;
  if (trace_.phases[phase_index].ends_with("forward")) ++forward_pass_;
  phase_began_ = Clock::now();
}

void HostExecutor::finish() {
  end_phase();
  phase_.reset();
}

void HostExecutor::end_phase() {
  if (!phase_) return;
  phase_ms_[*phase_] = std::chrono::duration<double, std::milli>(Clock::now() - phase_began_).count();
  if (options_.on_phase_end && !failure_) options_.on_phase_end(*this, *phase_);
}

bool HostExecutor::alive(StorageId storage) const {
  return storage < slots_.size() && slots_[storage].state == State::alive;
}

std::vector<double> HostExecutor::read(StorageId storage) const {
  if (!alive(storage)) return {};
  const StorageInfo& info = trace_.storages[storage];
  const Bytes element = element_bytes(info.dtype);
  std::vector<double> values(info.bytes / element);
  host::load_strip(values.data(), slots_[storage].data, static_cast<std::ptrdiff_t>(element), values.size(),
                   info.dtype);
  return values;
}

void HostExecutor::write(StorageId storage, std::span<const double> values) {
  if (!alive(storage)) return fail(describe(storage) + " is written while it is not alive", storage);
  const StorageInfo& info = trace_.storages[storage];
  const Bytes element = element_bytes(info.dtype);
  const std::size_t count = std::min<std::size_t>(values.size(), info.bytes / element);
  host::store_strip(slots_[storage].data, static_cast<std::ptrdiff_t>(element), values.data(), count, info.dtype);
}

std::string HostExecutor::describe(StorageId storage) const {
  const StorageInfo& info = trace_.storages[storage];
  std::string text = "storage " + std::to_string(storage) + " (made by " + op_name(info.op);
  if (info.scope < trace_.names.size() && !trace_.names[info.scope].empty()) text += " in " + trace_.names[info.scope];
  if (info.layer >= 0) text += ", layer " + std::to_string(info.layer);
  return text + ")";
}

void HostExecutor::fail(std::string what, StorageId storage) {
  if (failure_) return;
  if (current_run_ < trace_.runs.size()) {
    what += "; at " + std::string(op_name(trace_.runs[current_run_].op)) + ", run " + std::to_string(current_run_);
  }
  failure_ = HostFailure{std::move(what), current_run_, storage};
}

}  // namespace ledger
