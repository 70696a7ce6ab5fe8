// chunked_loss.cc - trl's chunked cross-entropy (July 2026): 256 tokens at a time, each chunk checkpointed, with the
// metrics that it computes on the way.

#include <algorithm>

#include "core/models/causal_lm_loss.h"
#include "core/trace/backward_rules.h"

namespace ledger {
namespace {

// A step of a metric's computation: its values are read by nobody, but its graph saves them like any other.
Tensor metric_step(std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> saved,
                   const Shape& shape, DType dtype, bool saves_result = false) {
  Tape& tape = (*inputs.begin())->tape();
  Node* node = tape.node(backward::never, inputs);
  for (const Tensor* tensor : saved)
    tape.save(node, *tensor);
  Tensor result = bookkeeping(tape, shape, dtype);
  if (saves_result) tape.save_output(node, result);
  tape.attach(node, result);
  return result;
}

// ((logits.argmax(dim=-1) == lbl) & valid).sum().float()
Tensor correct_tokens(const Tensor& logits) {
  Tape& tape = logits.tape();
  const Shape rows{logits.dim(0)};
  Tensor hits;
  {
    Tensor equal;
    {
      const Tensor best = bookkeeping(tape, rows, DType::i64);
      equal = bookkeeping(tape, rows, DType::boolean);
    }
    hits = bookkeeping(tape, rows, DType::boolean);
  }
  const Tensor count = bookkeeping(tape, Shape{}, DType::i64);
  hits.reset();
  return bookkeeping(tape, Shape{}, DType::f32);
}

// (-(log_p.exp() * log_p).sum(dim=-1) * valid).sum()
Tensor entropy_of(const Tensor& log_p, const Tensor& valid) {
  const Shape whole = log_p.shape(), rows{log_p.dim(0)};
  const DType dtype = log_p.dtype();
  Tensor x;
  {
    const Tensor p = metric_step({&log_p}, {}, whole, dtype, true);
    x = metric_step({&p, &log_p}, {&p, &log_p}, whole, dtype);
  }
  x = metric_step({&x}, {}, rows, dtype);        // sum
  x = metric_step({&x}, {}, rows, dtype);        // neg
  x = metric_step({&x}, {&valid}, rows, dtype);  // * valid
  return metric_step({&x}, {}, Shape{}, dtype);  // sum
}

// _chunk: fp32 logits through an fp32 copy of the whole output layer (16-bit ones under autocast).
CheckpointOutputs one_chunk(const Tensor& h, const Tensor& w, const Tensor& labels) {
  Tape& tape = h.tape();
  Tensor logits;
  {
    const Tensor rows = tape.autocast_low(to(h, DType::f32));
    const Tensor columns = tape.autocast_low(transpose(to(w, DType::f32), 0, 1));
    logits = mm(rows, columns);
  }
  const Tensor log_p = log_softmax(logits);
  const Tensor loss = nll_loss(log_p, labels, Reduction::sum);
  const Tensor valid = not_equal(labels, kIgnoreIndex);
  const Tensor correct = correct_tokens(logits);
  return {loss, correct, entropy_of(log_p, valid)};
}

struct Packed {
  Tensor hidden, labels, valid, order, count;
};

// Tokens with a label first, in a copy.
Packed pack(const Tensor& hidden_states, const Tensor& all_labels) {
  Tape& tape = hidden_states.tape();
  const Dim fewer{all_labels.dim(1).size - 1, Sym::none};
  const Dim n{times(all_labels.dim(0).size, fewer.size), Sym::none};
  Packed packed;
  packed.hidden = reshape(slice(hidden_states, 1, 0, fewer), {n, hidden_states.dim(2)});
  packed.labels = reshape(slice(all_labels, 1, 1, fewer), {n});
  packed.valid = not_equal(packed.labels, kIgnoreIndex);
  packed.count = count_true(packed.valid);
  {
    const Tensor keys = to(packed.valid, DType::i8);
    const Tensor sorted = tape.empty(OpKind::sort_true_first, {n}, DType::i8);
    packed.order = tape.empty(OpKind::sort_true_first, {n}, DType::i64);
    tape.run(OpKind::sort_true_first, {&keys}, {&sorted, &packed.order});
  }
  packed.hidden = index_rows(packed.hidden, packed.order);
  packed.labels = index_rows(packed.labels, packed.order);
  return packed;
}

}  // namespace

HeadLoss chunked_loss(const Tensor& hidden_states, const Tensor& weight, const Tensor& all_labels) {
  Tape& tape = hidden_states.tape();
  const Packed packed = pack(hidden_states, all_labels);
  const std::uint64_t total = packed.labels.dim(0).size;
  Tensor correct = zeros(tape, Shape{}, DType::f32);
  Tensor entropy = zeros(tape, Shape{}, DType::f32);
  const Tensor n_padded = bookkeeping(tape, Shape{}, DType::i64);
  Tensor loss = zeros(tape, Shape{}, DType::f32);
  CheckpointOutputs chunk;
  for (std::uint64_t start = 0; start < total; start += kChunkedLossRows) {
    const Dim n{std::min(kChunkedLossRows, total - start), Sym::none};
    const Tensor h_chunk = slice(packed.hidden, 0, start, n);
    const Tensor label_chunk = slice(packed.labels, 0, start, n);
    chunk = tape.checkpoint_many([h_chunk, weight, label_chunk] { return one_chunk(h_chunk, weight, label_chunk); });
    loss = loss + chunk[0];
    correct = bookkeeping(tape, Shape{}, DType::f32);
    entropy = entropy + chunk[2];
  }
  return {div(loss, packed.count), entropy};
}

}  // namespace ledger
