// collective.cc - collectives of a process that stands in for one rank: what others would send is a copy of its own
// (probe/ranks/stand_in.h). The copies around them are as true as the host's.
#include "probe/device/kernels.h"
#include "probe/device/memory.h"
#include "probe/ranks/shard_moves.h"

namespace ledger::LEDGER_DEVICE {
namespace {

void move(Call& call, const Operand& to, const Operand& from) {
  Call one = call;
  one.in = {&from, 1};
  one.out = {&to, 1};
  copy(one);
  if (one.error != nullptr) call.error = one.error;
}

void run_moves(Call& call, const ShardMoves& moves) {
  if (moves.error != nullptr) call.error = moves.error;
  for (const ShardMove& one : moves.copies)
    move(call, one.to, one.from);
  if (moves.zeros.empty()) return;
  Call zeros = call;
  zeros.out = moves.zeros;
  fill_zeros(zeros);
}

}  // namespace

void gather_copy_in(Call& call) {
  run_moves(call, gather_in_moves(call.in, call.out[0], call.seat));
}

void gather_copy_out(Call& call) {
  run_moves(call, gather_out_moves(call.in[0], call.out, call.attr, call.seat));
}

void reduce_copy_in(Call& call) {
  run_moves(call, reduce_in_moves(call.in, call.out[0], call.attr, call.seat));
}

void all_gather(Call& call) {
  const Operand& out = call.out[0];
  if (!call.in.empty()) run_moves(call, own_part_moves(call.in[0], out, call.seat));
  if (!is_dense(out)) call.error = kNotDense;
  if (call.error != nullptr) return;
  const std::uint64_t part = out.numel() / call.seat.world;
  const Operand own = flat_window(out, part * call.seat.rank, part);
  for (std::uint64_t r = 0; r < call.seat.world; ++r) {
    if (r != call.seat.rank) move(call, flat_window(out, part * r, part), own);
  }
}

// The part may lie in the whole, and then is in place already.
void reduce_scatter(Call& call) {
  const Operand &in = call.in[0], &out = call.out[0];
  if (!is_dense(in) || !is_dense(out)) call.error = kNotDense;
  if (in.numel() != out.numel() * call.seat.world || in.dtype != out.dtype) call.error = kPartsDoNotFit;
  if (call.error != nullptr) return;
  const Operand own = flat_window(in, out.numel() * call.seat.rank, out.numel());
  if (own.data != out.data) move(call, flat_window(out, 0, out.numel()), own);
}

void all_to_all(Call& call) {
  const Operand &in = call.in[0], &out = call.out[0];
  if (!is_dense(in) || !is_dense(out)) call.error = kNotDense;
  if (in.numel() != out.numel() || in.dtype != out.dtype) call.error = kPartsDoNotFit;
  if (call.error == nullptr) move(call, out, in);
}

void all_reduce(Call&) {}

void receive(Call& call) {
  fill_zeros(call);
}

}  // namespace ledger::LEDGER_DEVICE
