// kernels_collective.cc - collectives, and the copies that put shards into their buffers and take parameters out.
//
// Buffers of collectives are dense. How shards lie in them stands in ops.h.
#include "probe/host/kernels.h"
#include "probe/ranks/shard_moves.h"

namespace ledger::host {
namespace {

RankSeat seat(const KernelCall& call) {
  return {call.ranks->rank(), call.ranks->world()};
}

void run_moves(KernelCall& call, const ShardMoves& moves) {
  if (moves.error != nullptr) call.error = moves.error;
  KernelCall one = call;
  for (const ShardMove& move : moves.copies) {
    one.in = {&move.from, 1};
    one.out = {&move.to, 1};
    copy(one);
  }
  for (const HostView& zero : moves.zeros)
    std::memset(zero.data, 0, zero.numel() * element_bytes(zero.dtype));
  if (one.error != nullptr) call.error = one.error;
}

RankBuffer buffer_of(const HostView& view) {
  return {view.data, view.numel(), view.dtype};
}

void report(KernelCall& call, bool well) {
  if (!well) call.error = call.ranks->failure().c_str();
}

}  // namespace

void gather_copy_in(KernelCall& call) {
  run_moves(call, gather_in_moves(call.in, call.out[0], seat(call)));
}

void gather_copy_out(KernelCall& call) {
  run_moves(call, gather_out_moves(call.in[0], call.out, call.attr, seat(call)));
}

void reduce_copy_in(KernelCall& call) {
  run_moves(call, reduce_in_moves(call.in, call.out[0], call.attr, seat(call)));
}

void all_gather(KernelCall& call) {
  if (!call.in.empty()) run_moves(call, own_part_moves(call.in[0], call.out[0], seat(call)));
  if (!is_dense(call.out[0])) call.error = kNotDense;
  if (call.error == nullptr) report(call, call.ranks->all_gather(buffer_of(call.out[0])));
}

void reduce_scatter(KernelCall& call) {
  const HostView &in = call.in[0], &out = call.out[0];
  if (!is_dense(in) || !is_dense(out)) call.error = kNotDense;
  if (in.numel() != out.numel() * call.ranks->world() || in.dtype != out.dtype) call.error = kPartsDoNotFit;
  if (call.error != nullptr) return;
  report(call, call.ranks->reduce_scatter(buffer_of(in), buffer_of(out), static_cast<ReduceOp>(call.attr.i[0])));
}

void all_reduce(KernelCall& call) {
  if (!is_dense(call.out[0])) call.error = kNotDense;
  if (call.error != nullptr) return;
  report(call, call.ranks->all_reduce(buffer_of(call.out[0]), static_cast<ReduceOp>(call.attr.i[0])));
}

void all_to_all(KernelCall& call) {
  const HostView &in = call.in[0], &out = call.out[0];
  if (!is_dense(in) || !is_dense(out)) call.error = kNotDense;
  const bool fits = in.numel() == out.numel() && in.dtype == out.dtype && in.numel() % call.ranks->world() == 0;
  if (!fits) call.error = kPartsDoNotFit;
  if (call.error != nullptr) return;
  report(call, call.ranks->all_to_all(buffer_of(in), buffer_of(out)));
}

void send(KernelCall& call) {
  if (!is_dense(call.in[0])) call.error = kNotDense;
  if (call.error != nullptr) return;
  report(call, call.ranks->send(buffer_of(call.in[0]), static_cast<std::uint64_t>(call.attr.i[0]),
                                static_cast<std::uint32_t>(call.attr.i[1])));
}

void receive(KernelCall& call) {
  if (!is_dense(call.out[0])) call.error = kNotDense;
  if (call.error != nullptr) return;
  report(call, call.ranks->receive(buffer_of(call.out[0]), static_cast<std::uint64_t>(call.attr.i[0]),
                                   static_cast<std::uint32_t>(call.attr.i[1])));
}

}  // namespace ledger::host
