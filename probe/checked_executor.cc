#include "probe/checked_executor.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ledger {
namespace {

using host::HostView;

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

CheckedExecutor::CheckedExecutor(const Trace& trace, std::function<bool()> stop)
    : trace_(trace),
      slots_(trace.storages.size()),
      stop_(std::move(stop)),
      losses_(trace.losses.size(), std::numeric_limits<double>::quiet_NaN()),
      phase_ms_(trace.phases.size(), 0.0) {
  for (const StorageId storage : trace.losses)
    slots_[storage].loss = true;
  if (!trace.has_operands) fail("the trace was made without operands");
}

void CheckedExecutor::born(StorageId storage, std::uint64_t address) {
  if (failure_) return;
  std::byte* memory = locate(address, trace_.storages[storage].bytes);
  if (memory == nullptr) return fail("no memory was reserved for " + describe(storage), storage);
  slots_[storage].data = memory;
  slots_[storage].state = State::alive;
  after_birth(storage, memory);
}

void CheckedExecutor::born_on_host(StorageId storage) {
  if (failure_) return;
  std::byte* memory = keep_on_host(storage, trace_.storages[storage].bytes);
  if (memory == nullptr) return fail("the host has no memory left for " + describe(storage), storage);
  slots_[storage].data = memory;
  slots_[storage].state = State::alive;
}

void CheckedExecutor::died(StorageId storage) {
  if (failure_) return;
  Slot& slot = slots_[storage];
  if (slot.state != State::alive) return fail(describe(storage) + " dies without being alive", storage);
  slot.state = State::dead;
  if (trace_.storages[storage].on_host) return drop_on_host(storage);
  before_death(storage, slot.data);
}

bool CheckedExecutor::resolve(const View& view, HostView& resolved) {
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

void CheckedExecutor::run(std::uint32_t run_index) {
  if (failure_) return;
  current_run_ = run_index;
  if (stop_ && stop_()) return fail(kStopped);
  const Run& run = trace_.runs[run_index];
  const std::size_t inputs = run.input_count();
  operands_.assign(inputs + run.outputs, HostView{});
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (!resolve(trace_.views[run.first_view + i], operands_[i])) return;
  }
  const Operands all = operands_;
  if (const char* error = compute(run, all.first(inputs), all.subspan(inputs))) return fail(error);
  note_losses(all.subspan(inputs), run);
}

// The loss may be freed before its phase ends, so it is read as soon as it is written.
void CheckedExecutor::note_losses(Operands outputs, const Run& run) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const StorageId storage = trace_.views[run.first_view + run.input_count() + i].storage;
    if (storage >= slots_.size() || !slots_[storage].loss || outputs[i].data == nullptr) continue;
    const auto step = std::find(trace_.losses.begin(), trace_.losses.end(), storage) - trace_.losses.begin();
    note_loss(static_cast<std::size_t>(step), outputs[i]);
  }
}

void CheckedExecutor::mark(std::uint32_t phase_index) {
  end_phase();
  phase_.reset();
  if (failure_) return;  // nothing runs any more
  phase_ = phase_index;
  if (trace_.phases[phase_index].ends_with("forward")) ++forward_pass_;
  phase_began_ = Clock::now();
}

void CheckedExecutor::finish() {
  end_phase();
  phase_.reset();
}

void CheckedExecutor::end_phase() {
  if (!phase_) return;
  if (!failure_) settle();
  phase_ms_[*phase_] = std::chrono::duration<double, std::milli>(Clock::now() - phase_began_).count();
  if (failure_) return;
  phases_done_ = *phase_ + 1;
  after_phase(*phase_);
}

bool CheckedExecutor::alive(StorageId storage) const {
  return storage < slots_.size() && slots_[storage].state == State::alive;
}

std::string CheckedExecutor::describe(StorageId storage) const {
  const StorageInfo& info = trace_.storages[storage];
  std::string text = "storage " + std::to_string(storage) + " (made by " + op_name(info.op);
  if (info.scope < trace_.names.size() && !trace_.names[info.scope].empty()) text += " in " + trace_.names[info.scope];
  if (info.layer >= 0) text += ", layer " + std::to_string(info.layer);
  return text + ")";
}

void CheckedExecutor::fail(std::string what, StorageId storage) {
  if (failure_) return;
  const std::optional<Shortage> lacking = shortage();  // whose place is told apart
  if (!lacking && current_run_ < trace_.runs.size()) {
    what += "; at " + std::string(op_name(trace_.runs[current_run_].op)) + ", run " + std::to_string(current_run_);
  }
  failure_ = RunFailure{std::move(what), current_run_, storage, lacking};
}

}  // namespace ledger
