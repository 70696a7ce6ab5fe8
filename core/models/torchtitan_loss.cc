// torchtitan_loss.cc - torchtitan's losses: over all logits, over eighths of them, and with the output layer and both
// passes over an eighth of the tokens at a time.
//
// Source: components/loss.py: cross_entropy_loss; chunked_cross_entropy_loss (e23bb707d, March 2025);
// ChunkedLossWrapper and GradAccumulator (b5bcd76c6, August 2026; as ChunkedCELoss since April).
#include "core/models/compiled.h"
#include "core/models/dtensor.h"
#include "core/models/torchtitan.h"

namespace ledger {
namespace {

// _DecoderOutputGradientBackProp: the gradient that the chunks made, whatever comes from the loss.
void gradient_of_chunks(Node& node, const Gradients&, Gradients& out) {
  out[0] = node.tape->unpack(node, 0);
}

}  // namespace

// pred [T, V].
Tensor TorchtitanDecoder::cross_entropy(const Tensor& pred, const Tensor& labels, Reduction reduction) const {
  if (options_.compile && version_.compiles_loss && options_.tp == 1) return compiled::cross_entropy(pred, labels);
  const Tensor wide = to(pred, DType::f32);
  if (options_.tp > 1) return dtensor::cross_entropy(wide, labels, seat_, reduction);
  return nll_loss(log_softmax(wide), labels, reduction);
}

Tensor TorchtitanDecoder::loss_of(const Tensor& pred, const Tensor& targets) const {
  const Tape::Scope scope(pred.tape(), "loss");
  const Tape::In in(pred.tape(), Category::logits);
  const Tensor flat = reshape(pred, {tokens_of(pred), dims_.V}), labels = reshape(targets, {tokens_of(targets)});
  return cross_entropy(flat, labels, Reduction::mean);
}

// Views of every sequence's eighths; backward puts their gradients together.
Tensor TorchtitanDecoder::loss_of_logits_by_chunks(const Tensor& pred) const {
  const Tape::Scope scope(pred.tape(), "loss");
  const Tape::In in(pred.tape(), Category::logits);
  const std::vector<Dim> lengths(kTitanChunks, {pred.dim(1).size / kTitanChunks, Sym::none});
  const std::vector<Tensor> labels = split_all(labels_, 1, lengths), chunks = split_all(pred, 1, lengths);
  Tensor total;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Tensor flat = reshape(chunks[i], {tokens_of(chunks[i]), dims_.V});
    const Tensor loss = cross_entropy(flat, reshape(labels[i], {tokens_of(labels[i])}), Reduction::mean);
    total = total ? total + loss : loss + 0.0;
  }
  return total / static_cast<double>(kTitanChunks);
}

// hidden [b, s, h]. Names bound in Python's loop live until the next turn has rebound them, the last ones until it
// returns.
Tensor TorchtitanDecoder::loss_by_chunks(const Tensor& hidden) const {
  Tape& tape = hidden.tape();
  ParameterUnits* const units = options_.units;
  const Tape::Scope scope(tape, "loss");
  const Tape::In in(tape, Category::logits);
  const Dim all = tokens_of(hidden), each{all.size / kTitanChunks, Sym::none};
  const Tensor labels = reshape(labels_, {all}), rows = reshape(tape.detach(hidden), {all, dims_.h});
  const Tensor valid = count_true(not_equal(labels, kIgnoreIndex));
  Tensor gradients;
  {
    const Tape::In own(tape, Category::activation_gradients);
    gradients = zeros(tape, hidden.shape(), DType::f32);
  }
  Tensor total = zeros(tape, Shape{}, DType::f32), pred, loss;
  for (std::uint64_t i = 0; i < kTitanChunks; ++i) {
    if (units != nullptr) units->in_pieces(kHeadUnit, i + 1 == kTitanChunks ? Pieces::last : Pieces::some);
    Tensor chunk = slice(rows, 0, i * each.size, each);
    tape.require_grad(chunk);
    pred = logits(units != nullptr ? units->before_forward(kHeadUnit, chunk) : chunk);
    loss = div(cross_entropy(pred, slice(labels, 0, i * each.size, each), Reduction::sum), valid);
    total = total + tape.detach(loss);
    // The tokens are those of all micro-batches.
    if (options_.grad_accum != 1) loss = loss / static_cast<double>(options_.grad_accum);
    tape.backward(loss, Tape::Pass::within);
    {
      const Tape::NoGrad no_grad(tape);
      const Tensor wide = to(chunk.grad(), DType::f32);
      copy_into(slice(view(gradients, {all, dims_.h}), 0, i * each.size, each), wide);
    }
    chunk.clear_grad();
  }
  if (units != nullptr) units->in_pieces(kHeadUnit, Pieces::over);
  Node* const node = tape.node(gradient_of_chunks, {&hidden});
  tape.save(node, to(gradients, hidden.dtype()));
  Tensor result = tape.detach(total);
  tape.attach(node, result);
  return result;
}

}  // namespace ledger
