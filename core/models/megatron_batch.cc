// megatron_batch.cc - a micro-batch's way through a stage: what it is loaded from or received, the embedding, the
// layers, and the loss or what is sent on.
#include "core/models/megatron.h"

namespace ledger {

Tensor MegatronStage::receive() const {
  const Tape::Scope scope(tape_, "p2p", Tape::Scope::Below::nothing);
  const Tape::In in(tape_, Category::communication);
  const Tape::Among ranks(tape_, RankGroup::pipeline);
  Tensor input = tape_.empty(OpKind::receive, {s_shard_, b_, h_}, o_.weights);
  tape_.run(OpKind::receive, {}, {&input}, {0, {static_cast<std::int64_t>((o_.stage + o_.pp - 1) % o_.pp), 0}});
  tape_.require_grad(input);
  return input;
}

void MegatronStage::send_gradient(const Tensor& received) const {
  const Tape::Among ranks(tape_, RankGroup::pipeline);
  tape_.run(OpKind::send, {&received.grad()}, {}, {0, {static_cast<std::int64_t>((o_.stage + o_.pp - 1) % o_.pp), 0}});
}

// get_batch_on_this_tp_rank. The attention mask of every sequence travels with it
// (create_attention_mask_in_dataloader), although causal kernels read none.
MegatronStage::Batch MegatronStage::load_batch(std::uint64_t chunk, std::uint64_t micro_batch) const {
  const Tape::Scope scope(tape_, "batch");
  const Tape::In in(tape_, Category::inputs);
  const auto loaded = [&](const Shape& shape, DType dtype, OpKind contents, Attr attr) {
    Tensor result = tape_.empty(OpKind::load_tokens, shape, dtype);
    tape_.run(contents, {}, {&result}, attr);
    return result;
  };
  const Attr number{static_cast<double>(micro_batch), {}};
  Batch batch;
  if (is_first(chunk)) batch.tokens = loaded({b_, s_}, DType::i64, OpKind::load_tokens, number);
  if (is_last(chunk)) {
    batch.labels = loaded({b_, s_}, DType::i64, OpKind::load_tokens, number);
    batch.loss_mask = loaded({b_, s_}, DType::f32, OpKind::ones_like, {});
  }
  if (is_first(chunk) || is_last(chunk))
    batch.attention_mask = loaded({b_, {1, Sym::none}, s_, {o_.seq, Sym::s}}, DType::boolean, OpKind::causal_mask, {});
  if (is_first(chunk)) batch.positions = positions();
  return batch;
}

// torch.arange(seq), for every sequence; which matters to executors alone.
Tensor MegatronStage::positions() const {
  Tensor result = tape_.empty(OpKind::load_tokens, {b_, s_}, DType::i64);
  const std::uint64_t sequences = tape_.trace().has_operands ? b_.size : 1;
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const Tensor row = tape_.view_of(result, {s_}, {1}, times(i, s_.size));
    tape_.run(OpKind::arange, {}, {&row});
  }
  return result;
}

// LanguageModelEmbedding.forward and VocabParallelEmbedding.forward: sums over ranks are scattered at once
// (reduce_scatter_embeddings) where no positions are added to them.
Tensor MegatronStage::embed(const Batch& batch) const {
  const Tape::Scope scope(tape_, "embedding");
  const bool scatters_sums = o_.sequence_parallel && !position_embeddings_;
  Tensor hidden = megatron::vocab_parallel_rows(word_embeddings_, batch.tokens, seat());
  if (o_.tp > 1 && !scatters_sums) {
    const Tape::Among ranks(tape_, RankGroup::tensor);
    all_reduce(hidden, ReduceOp::sum);
  }
  if (position_embeddings_) {
    const Tensor positions = embedding(position_embeddings_, batch.positions);
    hidden = hidden + positions;
  }
  hidden = contiguous(transpose(hidden, 0, 1));
  if (o_.sequence_parallel) hidden = megatron::scatter_to_sequence(hidden, seat(), scatters_sums);
  return dropout(hidden, c_.embedding_dropout);
}

// RotaryEmbedding.forward, of which the first call's result is kept. The kernel that turns computes what is in it.
void MegatronStage::ensure_angles() const {
  if (angles_ || !frequencies_) return;
  const Tape::Scope scope(tape_, "rotary_pos_emb", Tape::Scope::Below::nothing);
  const Tape::In in(tape_, Category::buffers);
  const Tensor places = to(arange(tape_, {o_.seq, Sym::s}), DType::f32);
  const Tensor half = view(places, {{o_.seq, Sym::s}, kOne}) * view(frequencies_, {kOne, frequencies_.dim(0)});
  angles_ = cat(half, half, -1, c_.rotary_dim == 0 ? Sym::d : Sym::none);
}

// The output layer and the loss: logits in this rank's part of the vocabulary.
Tensor MegatronStage::head_loss(const Tensor& hidden, const Batch& batch) {
  const Tape::In in(tape_, Category::logits);
  if (o_.sequence_parallel && !gather_buffer_) {
    const Tape::Scope scope(tape_, "memory_buffer", Tape::Scope::Below::nothing);
    const Tape::In shared_in(tape_, Category::communication);
    gather_buffer_ = tape_.empty(OpKind::all_gather, {s_, b_, h_}, o_.weights);
  }
  Tensor logits;
  {
    const Tape::Scope scope(tape_, "output_layer");
    logits = megatron::column_linear(hidden, output_weight_, gather_buffer_, sharing(output_weight_));
  }
  const Tape::Scope scope(tape_, "loss");
  const Tensor labels = contiguous(transpose(batch.labels, 0, 1));
  return mean_all(megatron::vocab_parallel_cross_entropy(logits, labels, seat()));
}

Tensor MegatronStage::forward(std::size_t chunk, const Tensor& received, std::uint64_t micro_batch) {
  const Batch batch = load_batch(chunk, micro_batch);
  ensure_angles();
  Tensor hidden = is_first(chunk) ? embed(batch) : received;
  {
    const Tape::Scope scope(tape_, "layers.*");
    hidden = run_layers(chunk, hidden);
  }
  if (!is_last(chunk)) return megatron::send_forward(hidden, (o_.stage + 1) % o_.pp);
  hidden = ln_linear(final_norm_, hidden);
  return head_loss(hidden, batch);
}

}  // namespace ledger
