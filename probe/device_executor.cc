#include "probe/device_executor.h"

#include <algorithm>
#include <utility>

#include "probe/host/strips.h"

namespace ledger::device {
namespace {

// Host memory of storages, behind all that copy_to_host puts aside.
constexpr std::int64_t kFirstStorage = std::int64_t{1} << 40;

constexpr int kPoison = 0xFF;  // NaN in every floating format, -1 as a token id

constexpr const char* kNoCopy = "there is no memory for a copy of what is sent";

}  // namespace

DeviceExecutor::DeviceExecutor(const Trace& trace, Device& device, Options options)
    : CheckedExecutor(trace, options.stop),
      device_(device),
      options_(std::move(options)),
      pending_(trace.losses.size()) {
  if (options_.ranks != nullptr) groups_.emplace(trace.mesh, *options_.ranks);
  to_stages_.follow(options_.messages);
}

// The matrix library works in the trace's own workspace, the largest that is alive; others' scratch memory is not its.
void DeviceExecutor::after_birth(StorageId storage, std::byte* memory) {
  const StorageInfo& info = trace().storages[storage];
  if (options_.poison) device_.fill(memory, kPoison, info.bytes);
  if (trace().names[info.scope] != kCublasScope) return;
  if (workspace_ != kNoStorage && trace().storages[workspace_].bytes > info.bytes) return;
  workspace_ = storage;
  device_.use_workspace(memory, info.bytes);
}

std::byte* DeviceExecutor::keep_on_host(StorageId storage, Bytes bytes) {
  return device_.services().host_side->keep(kFirstStorage + storage, bytes);
}

void DeviceExecutor::drop_on_host(StorageId storage) {
  device_.services().host_side->drop(kFirstStorage + storage);
}

void DeviceExecutor::before_death(StorageId storage, std::byte* memory) {
  const Bytes bytes = trace().storages[storage].bytes;
  for (MessageBatch* messages : {&to_stages_, &to_neighbours_}) {
    while (MessageBatch::Waiting* sent = messages->sent_from(memory, bytes)) {
      if (!put_aside(*messages, *sent)) return fail(kNoCopy, storage);
    }
  }
  if (options_.poison) device_.fill(memory, kPoison, trace().storages[storage].bytes);
  if (storage != workspace_) return;
  workspace_ = kNoStorage;
  device_.use_workspace(nullptr, 0);
}

const char* DeviceExecutor::compute(const Run& run, Operands in, Operands out) {
  const KernelFn kernel = device_.kernels()[static_cast<std::size_t>(run.op)];
  if (kernel == nullptr) return "there is no kernel for this operator";
  Communicator* const ranks = groups_ ? &groups_->of(run.group) : nullptr;
  if (ranks != nullptr && (run.op == OpKind::send || run.op == OpKind::receive))
    return add_message(run, in, out, *ranks);
  const bool meets = ranks != nullptr && spans_stages(run.op, run.group);
  if ((meets || !MessageBatch::passes(in, out)) && !exchange()) return exchange_error();
  if (meets && !to_stages_.meet(*ranks)) return exchange_error();
  const RankSeat seat = seat_among(trace().mesh, options_.seat, run.group);
  Call call{in, out, run.attr, trace(), options_.seed, run, forward_pass(), device_.services(), seat, ranks};
  kernel(call);
  if (call.error != nullptr) return call.error;
  error_ = device_.queue_error();
  return error_.empty() ? nullptr : error_.c_str();
}

bool DeviceExecutor::put_aside(const MessageBatch& messages, MessageBatch::Waiting& sent) {
  RankBuffer& buffer = sent.message.buffer;
  const std::size_t number = messages.free_aside();
  const std::size_t place = 2 * number + (&messages == &to_stages_ ? 0 : 1);
  std::byte* const copy = device_.put_aside(place, buffer.data, buffer.bytes());
  if (copy == nullptr) {
    no_copy_of_ = buffer.bytes();
    return false;
  }
  buffer.data = copy;
  sent.aside = number;
  return true;
}

// What still waits for its turn may be overwritten meanwhile.
bool DeviceExecutor::exchange() {
  if (!to_stages_.exchange() || !to_neighbours_.exchange()) return false;
  while (MessageBatch::Waiting* const sent = to_stages_.not_aside()) {
    if (!put_aside(to_stages_, *sent)) return false;
  }
  return true;
}

// Of exchange(): a rank was lost, or a message could not wait.
const char* DeviceExecutor::exchange_error() const {
  const std::string& lost = options_.ranks->failure();
  return lost.empty() ? kNoCopy : lost.c_str();
}

std::optional<Shortage> DeviceExecutor::shortage() const {
  if (no_copy_of_) return Shortage{.by = "messages", .requested_bytes = *no_copy_of_};
  return options_.ranks == nullptr ? std::nullopt : options_.ranks->shortage();
}

const char* DeviceExecutor::add_message(const Run& run, Operands in, Operands out, Communicator& ranks) {
  const bool between_stages = run.group == RankGroup::pipeline;
  MessageBatch& others = between_stages ? to_neighbours_ : to_stages_;
  if (!others.rests() && !exchange()) return exchange_error();
  const bool outgoing = run.op == OpKind::send;
  const Operand& buffer = outgoing ? in[0] : out[0];
  if (!is_dense(buffer)) return kNotDense;
  (between_stages ? to_stages_ : to_neighbours_)
      .add(ranks, {{buffer.data, buffer.numel(), buffer.dtype}, static_cast<std::uint64_t>(run.attr.i[0]), outgoing},
           static_cast<std::uint32_t>(run.attr.i[1]));
  return nullptr;
}

void DeviceExecutor::note_loss(std::size_t step, const host::HostView& loss) {
  PendingLoss& pending = pending_[step];
  pending.dtype = loss.dtype;
  pending.pending = true;
  device_.copy_back(pending.bytes.data(), loss.data, element_bytes(loss.dtype));
}

void DeviceExecutor::settle() {
  const std::string error = device_.settle();
  if (!error.empty()) return fail(error);
  for (std::size_t step = 0; step < pending_.size(); ++step) {
    if (!pending_[step].pending) continue;
    set_loss(step, host::load_one<double>(pending_[step].bytes.data(), pending_[step].dtype));
    pending_[step].pending = false;
  }
}

// Messages outlast a phase: between stages one may end with a send and the next begin with a receive.
void DeviceExecutor::after_phase(std::uint32_t phase) {
  const bool last = phase + 1 == trace().phases.size();
  if (last && !exchange()) return fail(exchange_error());
  if (options_.on_phase_end) options_.on_phase_end(*this, phase);
}

std::vector<double> DeviceExecutor::read(StorageId storage) {
  if (!alive(storage)) return {};
  const StorageInfo& info = trace().storages[storage];
  const Bytes element = element_bytes(info.dtype);
  std::vector<std::byte> bytes(info.bytes);
  device_.copy_back(bytes.data(), data(storage), bytes.size());
  settle();
  std::vector<double> values(bytes.size() / element);
  host::load_strip(values.data(), bytes.data(), static_cast<std::ptrdiff_t>(element), values.size(), info.dtype);
  return values;
}

void DeviceExecutor::write(StorageId storage, std::span<const double> values) {
  if (!alive(storage)) return fail(describe(storage) + " is written while it is not alive", storage);
  const StorageInfo& info = trace().storages[storage];
  const Bytes element = element_bytes(info.dtype);
  const std::size_t count = std::min<std::size_t>(values.size(), info.bytes / element);
  std::vector<std::byte> bytes(count * element);
  host::store_strip(bytes.data(), static_cast<std::ptrdiff_t>(element), values.data(), count, info.dtype);
  device_.copy_in(data(storage), bytes.data(), bytes.size());
}

std::string first_not_computed(const Trace& trace, const Kernels& kernels) {
  for (const Run& run : trace.runs) {
    if (kernels[static_cast<std::size_t>(run.op)] == nullptr) return op_name(run.op);
  }
  return "";
}

}  // namespace ledger::device
