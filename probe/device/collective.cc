// collective.cc - collectives among the ranks of the call, or of a process that stands in for one of them: what others
// would send is then a copy of its own (probe/ranks/stand_in.h). The copies around them are as true as the host's.
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

RankBuffer buffer_of(const Operand& operand) {
  return {operand.data, operand.numel(), operand.dtype};
}

void report(Call& call, bool well) {
  if (!well) call.error = call.ranks->failure().c_str();
}

// In place, an operator of one or two times the same operand.
void apply(Call& call, OpKind op, std::size_t inputs, void (*kernel)(Call&)) {
  const std::array<Operand, 2> same = {call.out[0], call.out[0]};
  Run run = call.run;
  run.op = op;
  run.attr = {};
  Call one{
      std::span(same).first(inputs), call.out, run.attr, call.trace, call.seed, run, call.forward_pass, call.services};
  kernel(one);
  if (one.error != nullptr) call.error = one.error;
}

// Libraries have no such reduction: squares are added, as PyTorch's DTensor adds them.
void reduce_norms(Call& call) {
  apply(call, OpKind::mul, 2, binary);
  if (call.error == nullptr) report(call, call.ranks->all_reduce(buffer_of(call.out[0]), ReduceOp::sum));
  if (call.error == nullptr) apply(call, OpKind::sqrt, 1, unary);
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
  if (call.ranks != nullptr) return report(call, call.ranks->all_gather(buffer_of(out)));
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
  if (call.ranks != nullptr) {
    const auto op = static_cast<ReduceOp>(call.attr.i[0]);
    return report(call, call.ranks->reduce_scatter(buffer_of(in), buffer_of(out), op));
  }
  const Operand own = flat_window(in, out.numel() * call.seat.rank, out.numel());
  if (own.data != out.data) move(call, flat_window(out, 0, out.numel()), own);
}

void all_to_all(Call& call) {
  const Operand &in = call.in[0], &out = call.out[0];
  if (!is_dense(in) || !is_dense(out)) call.error = kNotDense;
  if (in.numel() != out.numel() || in.dtype != out.dtype) call.error = kPartsDoNotFit;
  if (call.error != nullptr) return;
  if (call.ranks != nullptr) return report(call, call.ranks->all_to_all(buffer_of(in), buffer_of(out)));
  move(call, out, in);
}

void all_reduce(Call& call) {
  if (call.ranks == nullptr) return;
  if (!is_dense(call.out[0])) call.error = kNotDense;
  if (call.error != nullptr) return;
  const auto op = static_cast<ReduceOp>(call.attr.i[0]);
  if (op == ReduceOp::norm) return reduce_norms(call);
  report(call, call.ranks->all_reduce(buffer_of(call.out[0]), op));
}

// Among ranks messages are the executor's (message_batch.h).
void receive(Call& call) {
  fill_zeros(call);
}

}  // namespace ledger::LEDGER_DEVICE
