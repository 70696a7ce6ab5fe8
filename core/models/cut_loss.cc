// cut_loss.cc - Cut Cross-Entropy (ml-cross-entropy d42911f, implementation "cce"): what its autograd function
// allocates.

#include <array>
#include <vector>

#include "core/models/causal_lm_loss.h"

namespace ledger {
namespace {

constexpr std::uint64_t kRowsPerLock = 128, kColumnsPerLock = 64;

enum Saved : std::size_t { kE, kC, kLse, kTargets, kPositions, kLogitAvg, kSavedCount };

Dim locks(std::uint64_t rows) {
  return {divide_up(rows, kRowsPerLock), Sym::none};
}

// sort_logit_avg: argsort's values and indices, then the indices in 32 bits. It orders blocks of the vocabulary only.
Tensor vocabulary_order(const Tensor& logit_avg) {
  Tape& tape = logit_avg.tape();
  Tensor values = bookkeeping(tape, logit_avg.shape(), DType::f32);
  const Tensor indices = bookkeeping(tape, logit_avg.shape(), DType::i64);
  values.reset();
  return bookkeeping(tape, logit_avg.shape(), DType::i32);
}

// cce_backward_kernel: zero-filled gradients in the operands' dtype, and a lock for each of their blocks.
void cut_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  std::array<Tensor, kSavedCount> saved;
  for (std::size_t i = 0; i < node.saved_count; ++i)
    saved[i] = tape.unpack(node, i);
  const Tensor order = vocabulary_order(saved[kLogitAvg]);
  const Dim across{divide_up(saved[kC].dim(1).size, kColumnsPerLock), Sym::none};
  std::array<Tensor, 2> gradients;
  std::vector<const Tensor*> outputs;
  for (const std::size_t edge : {kE, kC}) {
    if (!node.needs(edge)) continue;
    gradients[edge] = tape.empty(OpKind::cut_backward, saved[edge].shape(), saved[edge].dtype());
    outputs.push_back(&gradients[edge]);
  }
  Tensor e_locks, c_locks;
  if (node.needs(kE)) e_locks = bookkeeping(tape, {locks(saved[kPositions].dim(0).size), across}, DType::i32);
  if (node.needs(kC)) c_locks = bookkeeping(tape, {locks(saved[kC].dim(0).size), across}, DType::i32);
  const std::array<const Tensor*, 6> inputs = {&in[0],       &saved[kE],         &saved[kC],
                                               &saved[kLse], &saved[kPositions], &saved[kTargets]};
  tape.run(OpKind::cut_backward, inputs, outputs, {0, {node.needs(kE) ? 1 : 0, node.needs(kC) ? 1 : 0}});
  // .to(the operands' dtype before autocast), both by the end.
  for (const std::size_t edge : {kC, kE}) {
    if (gradients[edge]) out[edge] = to(gradients[edge], static_cast<DType>(node.attr.i[edge]));
    gradients[edge].reset();
  }
}

// _build_flat_valids: where a label follows, as [n, 2] indices of 8 bytes, then of 4, then flat ones.
Tensor positions_with_a_label(const Tensor& labels) {
  Tape& tape = labels.tape();
  const Dim n{times(labels.dim(0).size, labels.dim(1).size - 1), Sym::none};
  const Dim two{2, Sym::none};
  Tensor indices;
  {
    Tensor pairs;
    {
      const Tensor mask = bookkeeping(tape, {labels.dim(0), {labels.dim(1).size - 1, Sym::none}}, DType::boolean);
      pairs = bookkeeping(tape, {n, two}, DType::i64);
    }
    indices = bookkeeping(tape, {n, two}, DType::i32);
  }
  Tensor positions = tape.empty(OpKind::cut_positions, {n}, DType::i64);
  tape.run(OpKind::cut_positions, {&labels}, {&positions});
  return positions;
}

struct Forward {
  Tensor loss, lse, logit_avg;
};

Forward forward(const Tensor& e, const Tensor& c, const Tensor& targets, const Tensor& positions) {
  Tape& tape = e.tape();
  const Shape per_position{positions.dim(0)};
  Forward result;
  result.lse = tape.empty(OpKind::cut_logsumexp, per_position, DType::f32);
  {
    const Tensor lse_locks = bookkeeping(tape, {locks(positions.dim(0).size)}, DType::i32);
    result.logit_avg = tape.empty(OpKind::cut_logsumexp, {c.dim(0)}, DType::f32);
    tape.run(OpKind::cut_logsumexp, {&e, &c, &positions}, {&result.lse, &result.logit_avg});
  }
  const Tensor neg_dot = tape.empty(OpKind::cut_neg_dot, per_position, DType::f32);
  tape.run(OpKind::cut_neg_dot, {&e, &c, &positions, &targets}, {&neg_dot});
  add_inplace(neg_dot, result.lse);
  result.loss = mean_all(neg_dot);
  return result;
}

}  // namespace

HeadLoss cut_loss(const Tensor& hidden, const Tensor& weight, const Tensor& labels) {
  Tape& tape = hidden.tape();
  const Dim tokens{times(hidden.dim(0).size, hidden.dim(1).size), Sym::tokens};
  const Tensor positions = positions_with_a_label(labels);
  const Tensor rows = view(hidden, {tokens, hidden.dim(2)});
  const Tensor targets = view(labels, {tokens});
  Node* node = tape.node(cut_backward, {&rows, &weight});
  if (node != nullptr)
    node->attr.i = {static_cast<std::int64_t>(rows.dtype()), static_cast<std::int64_t>(weight.dtype())};
  Forward result;
  Tensor e, c;
  {
    const Tape::NoGrad no_grad(tape);
    const DType dtype = tape.autocast_enabled() ? tape.autocast_dtype() : rows.dtype();
    e = to(rows, dtype);
    c = to(weight, tape.autocast_enabled() ? dtype : weight.dtype());
    result = forward(e, c, targets, positions);
  }
  for (const Tensor* saved :
       std::initializer_list<const Tensor*>{&e, &c, &result.lse, &targets, &positions, &result.logit_avg})
    tape.save(node, *saved);
  tape.attach(node, result.loss);
  return {result.loss, Tensor()};
}

}  // namespace ledger
