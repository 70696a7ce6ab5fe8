#include "probe/cuda/nccl_communicator.h"

#include <optional>

#include "probe/cuda/nccl_shared.h"

namespace ledger::cuda {
namespace {

using nccl::Result;

constexpr const char* kCollectiveNames[] = {"all-gather", "all-reduce", "reduce-scatter",
                                            "broadcast",  "all-to-all", "messages between stages"};

std::optional<nccl::DataType> type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return nccl::kFloat64;
    case DType::f32:
      return nccl::kFloat32;
    case DType::bf16:
      return nccl::kBfloat16;
    case DType::f16:
      return nccl::kFloat16;
    case DType::i64:
      return nccl::kInt64;
    case DType::i32:
      return nccl::kInt32;
    case DType::i8:
      return nccl::kInt8;
    case DType::u8:
    case DType::boolean:
      return nccl::kUint8;
    default:
      return std::nullopt;
  }
}

std::optional<nccl::RedOp> reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return nccl::kSum;
    case ReduceOp::mean:
      return nccl::kAvg;
    case ReduceOp::largest:
      return nccl::kMax;
    case ReduceOp::norm:
      break;
  }
  return std::nullopt;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const Nccl& library, MeasuredDevice& device, Communicator& control, double timeout_s)
    : Communicator(control.rank(), control.world(), control),
      shared_(new Shared{library, device, control, timeout_s, {}, {}}),
      control_(control) {}

NcclCommunicator::NcclCommunicator(std::shared_ptr<Shared> shared, std::unique_ptr<Communicator> control)
    : Communicator(control->rank(), control->world(), *control),
      shared_(std::move(shared)),
      own_control_(std::move(control)),
      control_(*own_control_) {}

std::unique_ptr<Communicator> NcclCommunicator::among(const std::vector<std::uint64_t>& members) {
  return std::unique_ptr<Communicator>(new NcclCommunicator(shared_, control_.among(members)));
}

// Its number among all ranks of the run.
std::string NcclCommunicator::who() const {
  return std::to_string(shared_->control.rank());
}

bool NcclCommunicator::end(const std::string& why) {
  shared_->control.abort(why);
  shared_->abort_all();
  return false;
}

void NcclCommunicator::abort(const std::string& why) {
  end(why);
}

// --- a communicator, and calls of it
// -----------------------------------------------------------------------------------------------------------

bool NcclCommunicator::make() {
  const Nccl& library = shared_->library;
  const Bytes before = shared_->device.bytes_in_use();
  nccl::UniqueId id{};
  if (rank() == 0) {
    if (const Result result = library.call().ncclGetUniqueId(&id); result != nccl::kSuccess)
      return refuse(shared_->complaint("ncclGetUniqueId", result, nullptr));
  }
  if (!control_.broadcast({reinterpret_cast<std::byte*>(id.internal), sizeof id.internal, DType::u8}, 0))
    return end(failure());
  nccl::Config config;
  nccl::Comm comm = nullptr;
  const auto count = static_cast<int>(world()), place = static_cast<int>(rank());
  const Result result = library.call().ncclCommInitRankConfig(&comm, count, id, place, &config);
  const std::string what = "making a communicator of " + std::to_string(world()) + " ranks";
  if (comm == nullptr) return refuse(shared_->complaint(what, result, nullptr));
  shared_->made.push_back({comm, {world(), 0, 0}});
  number_ = shared_->made.size();
  if (!is_well(result)) return refuse(shared_->complaint(what, result, comm));
  if (const std::string wrong = shared_->wait(comm, false, what); !wrong.empty()) return refuse(wrong);
  if (!failure().empty()) return end(failure());
  shared_->made[number_ - 1].memory.init_bytes = shared_->taken_since(before);
  return true;
}

// Nothing is queued before it and nothing after, so that what passes meanwhile is its own: time and memory.
bool NcclCommunicator::run(Kind kind, const Call& call) {
  if (!failure().empty() || !shared_->queue_is_empty()) return end(failure());
  if (number_ == 0 && !make()) return false;
  const std::string what = kCollectiveNames[static_cast<std::size_t>(kind)];
  const nccl::Comm comm = shared_->made[number_ - 1].comm;
  const unsigned bit = 1u << static_cast<unsigned>(kind);
  const bool first = (used_ & bit) == 0;
  const Bytes before = first ? shared_->device.bytes_in_use() : 0;
  const Result result = call(comm, shared_->device.services().queue.stream);
  if (!is_well(result)) return refuse(shared_->complaint(what, result, comm));
  if (const std::string wrong = shared_->wait(comm, true, what); !wrong.empty()) return refuse(wrong);
  if (!failure().empty()) return end(failure());
  used_ |= bit;
  if (first) {
    Bytes& connect = shared_->made[number_ - 1].memory.connect_bytes;
    connect = plus(connect, shared_->taken_since(before));
  }
  return true;
}

bool NcclCommunicator::group(Kind kind, const Call& calls) {
  return run(kind, [&](nccl::Comm comm, nccl::Stream stream) {
    Result result = shared_->library.call().ncclGroupStart();
    if (is_well(result)) result = calls(comm, stream);
    const Result ended = shared_->library.call().ncclGroupEnd();  // also what was begun in vain
    return is_well(result) ? ended : result;
  });
}

std::optional<Shortage> NcclCommunicator::shortage() const {
  return shared_->shortage;
}

NcclMemory NcclCommunicator::memory() const {
  NcclMemory memory;
  Bytes told = 0;
  bool all_told = !shared_->made.empty();
  for (const Shared::Made& one : shared_->made) {
    memory.communicators.push_back(one.memory);
    const std::optional<Bytes> bytes = one.comm == nullptr ? std::nullopt : shared_->library.memory_of(one.comm);
    all_told = all_told && bytes;
    told = plus(told, bytes.value_or(0));
  }
  if (all_told) memory.stats_bytes = told;
  return memory;
}

// --- collectives. What only moves is moved as bytes.
// -----------------------------------------------------------------------------------------------------------

bool NcclCommunicator::all_gather(const RankBuffer& whole) {
  if (whole.count % world() != 0) return refuse("all-gather: its buffer has no equal parts");
  const Bytes part = whole.bytes() / world();
  return run(Kind::all_gather, [&](nccl::Comm comm, nccl::Stream stream) {
    return shared_->library.call().ncclAllGather(whole.data + part * rank(), whole.data, part, nccl::kUint8, comm,
                                                 stream);
  });
}

bool NcclCommunicator::all_reduce(const RankBuffer& buffer, ReduceOp op) {
  const auto type = type_of(buffer.dtype);
  const auto reduction = reduction_of(op);
  if (!type || !reduction) return refuse("all-reduce: NCCL has none of this kind");
  return run(Kind::all_reduce, [&](nccl::Comm comm, nccl::Stream stream) {
    return shared_->library.call().ncclAllReduce(buffer.data, buffer.data, buffer.count, *type, *reduction, comm,
                                                 stream);
  });
}

bool NcclCommunicator::reduce_scatter(const RankBuffer& whole, const RankBuffer& part, ReduceOp op) {
  const auto type = type_of(whole.dtype);
  const auto reduction = reduction_of(op);
  if (!type || !reduction) return refuse("reduce-scatter: NCCL has none of this kind");
  return run(Kind::reduce_scatter, [&](nccl::Comm comm, nccl::Stream stream) {
    return shared_->library.call().ncclReduceScatter(whole.data, part.data, part.count, *type, *reduction, comm,
                                                     stream);
  });
}

bool NcclCommunicator::broadcast(const RankBuffer& buffer, std::uint64_t root) {
  return run(Kind::broadcast, [&](nccl::Comm comm, nccl::Stream stream) {
    return shared_->library.call().ncclBroadcast(buffer.data, buffer.data, buffer.bytes(), nccl::kUint8,
                                                 static_cast<int>(root), comm, stream);
  });
}

bool NcclCommunicator::all_to_all(const RankBuffer& out, const RankBuffer& in) {
  const Bytes part = out.bytes() / world();
  if (out.bytes() != in.bytes() || out.count % world() != 0) return refuse("all-to-all: its buffers do not match");
  return group(Kind::all_to_all, [&](nccl::Comm comm, nccl::Stream stream) {
    Result result = nccl::kSuccess;
    for (std::uint64_t r = 0; r < world() && is_well(result); ++r) {
      const auto& call = shared_->library.call();
      result = call.ncclSend(out.data + part * r, part, nccl::kUint8, static_cast<int>(r), comm, stream);
      if (is_well(result))
        result = call.ncclRecv(in.data + part * r, part, nccl::kUint8, static_cast<int>(r), comm, stream);
    }
    return result;
  });
}

bool NcclCommunicator::send(const RankBuffer& buffer, std::uint64_t to, std::uint32_t) {
  const Message one{buffer, to, true};
  return messages(std::span(&one, 1));
}

bool NcclCommunicator::receive(const RankBuffer& buffer, std::uint64_t from, std::uint32_t) {
  const Message one{buffer, from, false};
  return messages(std::span(&one, 1));
}

bool NcclCommunicator::messages(std::span<const Message> batch) {
  return group(Kind::messages, [&](nccl::Comm comm, nccl::Stream stream) {
    Result result = nccl::kSuccess;
    for (const Message& one : batch) {
      const auto& call = shared_->library.call();
      const Bytes bytes = one.buffer.bytes();
      const auto other = static_cast<int>(one.other);
      if (!is_well(result)) break;
      result = one.outgoing ? call.ncclSend(one.buffer.data, bytes, nccl::kUint8, other, comm, stream)
                            : call.ncclRecv(one.buffer.data, bytes, nccl::kUint8, other, comm, stream);
    }
    return result;
  });
}

}  // namespace ledger::cuda
