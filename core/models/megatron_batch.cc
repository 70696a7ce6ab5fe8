// megatron_batch.cc - a micro-batch's way through a stage: what it is loaded from or received, the embedding, the
// layers, and the loss or what is sent on.
#include "core/models/megatron.h"
#include "core/models/ring_attention.h"

namespace ledger {

// p2p_communication.py. Activations have tag 0, gradients 1.
Tensor MegatronStage::received(std::uint64_t from, std::int64_t tag) const {
  const Tape::Scope scope(tape_, "p2p", Tape::Scope::Below::nothing);
  const Tape::In in(tape_, Category::communication);
  const Tape::Among ranks(tape_, RankGroup::pipeline);
  Tensor tensor = tape_.empty(OpKind::receive, {s_shard_, b_, h_}, o_.weights);
  tape_.run(OpKind::receive, {}, {&tensor}, {0, {static_cast<std::int64_t>(from), tag}});
  return tensor;
}

void MegatronStage::send(const Tensor& tensor, std::uint64_t to, std::int64_t tag) const {
  const Tape::Among ranks(tape_, RankGroup::pipeline);
  tape_.run(OpKind::send, {&tensor}, {}, {0, {static_cast<std::int64_t>(to), tag}});
}

Tensor MegatronStage::receive() const {
  Tensor input = received(stage_before(), 0);
  tape_.require_grad(input);
  return input;
}

Tensor MegatronStage::receive_gradient() const {
  return received(stage_after(), 1);
}

void MegatronStage::release(const Tensor& output) const {
  const Tape::Scope scope(tape_, "p2p", Tape::Scope::Below::nothing);
  const Tape::In in(tape_, Category::communication);
  tape_.set_data(output, tape_.empty(OpKind::send, {kOne}, o_.weights));
}

// Of `whole` with all tokens along `dim`, those of this rank: get_batch_on_this_cp_rank, get_pos_emb_on_this_cp_rank.
Tensor MegatronStage::own_tokens(const Tensor& whole, int dim) const {
  return o_.cp == 1 ? whole : own_pieces(whole, dim, o_.cp_rank, o_.cp, OpKind::index_rows);
}

// get_batch_on_this_tp_rank, of which each rank that shares the sequence then takes its tokens. The attention mask of
// every sequence travels with it (create_attention_mask_in_dataloader), although causal kernels read none.
MegatronStage::Batch MegatronStage::load_batch(std::uint64_t chunk, std::uint64_t micro_batch) const {
  const Tape::Scope scope(tape_, "batch");
  const Tape::In in(tape_, Category::inputs);
  const Tape::Among ranks(tape_, RankGroup::batches);
  const Dim all{o_.seq, Sym::s};
  const auto loaded = [&](const Shape& shape, DType dtype, OpKind contents, Attr attr) {
    Tensor result = tape_.empty(OpKind::load_tokens, shape, dtype);
    tape_.run(contents, {}, {&result}, attr);
    return result;
  };
  const Attr number{static_cast<double>(micro_batch), {}};
  Batch batch;
  if (is_first(chunk)) batch.tokens = loaded({b_, all}, DType::i64, OpKind::load_tokens, number);
  if (is_last(chunk)) {
    batch.labels = loaded({b_, all}, DType::i64, OpKind::load_tokens, number);
    batch.loss_mask = loaded({b_, all}, DType::f32, OpKind::ones_like, {});
  }
  if (is_first(chunk) || is_last(chunk))
    batch.attention_mask = loaded({b_, {1, Sym::none}, all, all}, DType::boolean, OpKind::causal_mask, {});
  if (is_first(chunk)) batch.positions = positions();
  for (Tensor* one : {&batch.tokens, &batch.labels, &batch.loss_mask, &batch.attention_mask, &batch.positions}) {
    if (*one) *one = own_tokens(*one, one == &batch.attention_mask ? 2 : 1);
  }
  return batch;
}

// torch.arange(seq), for every sequence.
Tensor MegatronStage::positions() const {
  const Dim all{o_.seq, Sym::s};
  Tensor result = tape_.empty(OpKind::load_tokens, {b_, all}, DType::i64);
  for (std::uint64_t i = 0; i < b_.size; ++i) {  // also where nothing is executed: a plan is compared event by event
    const Tensor row = tape_.view_of(result, {all}, {1}, times(i, all.size));
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
  if (!angles_ && frequencies_ && !latent_) angles_ = rotary_angles();
}

Tensor MegatronStage::rotary_angles() const {
  const Tape::NoGrad no_grad(tape_);
  const Tape::Scope scope(tape_, "rotary_pos_emb", Tape::Scope::Below::nothing);
  const Tape::In in(tape_, Category::buffers);
  const Tensor places = to(arange(tape_, {o_.seq, Sym::s}), DType::f32);
  const Tensor half = view(places, {{o_.seq, Sym::s}, kOne}) * view(frequencies_, {kOne, frequencies_.dim(0)});
  return own_tokens(cat(half, half, -1, c_.rotary_dim == 0 ? Sym::d : Sym::none), 0);
}

// GlobalMemoryBuffer.get_tensor "mpu": it grows to the most that is asked of it; whoever has its tensor reads the new
// memory then.
const Tensor& MegatronStage::memory_buffer(const Shape& shape) const {
  if (memory_buffer_ && memory_buffer_elements_ >= shape.numel()) return memory_buffer_;
  const Tape::Scope scope(tape_, "memory_buffer", Tape::Scope::Below::nothing);
  const Tape::In in(tape_, Category::communication);
  const Tensor larger = tape_.empty(OpKind::all_gather, shape, o_.weights);
  memory_buffer_elements_ = shape.numel();
  if (memory_buffer_) {
    tape_.set_data(memory_buffer_, larger);
  } else {
    memory_buffer_ = larger;
  }
  return memory_buffer_;
}

// What column-parallel linears of Megatron's gather all tokens in, if they gather any.
Tensor MegatronStage::gather_buffer() const {
  return o_.sequence_parallel ? memory_buffer({s_, b_, h_}) : Tensor();
}

// The output layer and the loss: logits in this rank's part of the vocabulary.
Tensor MegatronStage::head_loss(const Tensor& hidden, const Batch& batch) {
  const Tape::In in(tape_, Category::logits);
  const Tensor buffer = gather_buffer();
  Tensor logits;
  {
    const Tape::Scope scope(tape_, "output_layer");
    logits = megatron::column_linear(hidden, output_weight_, Tensor(), buffer, sharing(output_weight_));
  }
  const Tape::Scope scope(tape_, "loss");
  const Tensor labels = contiguous(transpose(batch.labels, 0, 1));
  return mean_all(megatron::vocab_parallel_cross_entropy(logits, labels, seat(), o_.fused_loss));
}

Tensor MegatronStage::forward(std::size_t chunk, const Tensor& received, std::uint64_t micro_batch) {
  set_input_tensors_[chunk] = received;
  const Batch batch = load_batch(chunk, micro_batch);
  ensure_angles();
  Tensor hidden = is_first(chunk) ? embed(batch) : received;
  {
    const Tape::Scope scope(tape_, "layers.*");
    hidden = run_layers(chunk, hidden);
  }
  if (!is_last(chunk)) return hidden;
  hidden = ln_linear(final_norm_, hidden);
  return head_loss(hidden, batch);
}

}  // namespace ledger
