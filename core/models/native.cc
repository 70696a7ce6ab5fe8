#include "core/models/native.h"

#include <string>

#include "core/models/causal_lm_loss.h"
#include "core/models/names.h"
#include "core/trace/fused_ops.h"

namespace ledger {
namespace {

// The norm of a sublayer's input; linear layers that save it get it made again from the sum.
Normed normed(const Norm& norm, const Tensor& residual, const Tensor& added) {
  Tape& tape = residual.tape();
  const Tape::Scope scope(tape, norm.name);
  Normed result = add_rms_norm(residual, added, norm.weight, norm.eps);
  tape.remake(result.y, [sum = tape.detach(result.sum), weight = norm.weight, eps = norm.eps] {
    return add_rms_norm(sum, Tensor(), weight, eps).y;
  });
  return result;
}

// gate and up are written over by their gradients: no name of theirs may last.
Tensor feed(const FeedForward& mlp, const Tensor& x) {
  Tape& tape = x.tape();
  const Tape::Scope scope(tape, mlp.name);
  Tensor hidden;
  {
    const Tensor gate = mlp.gate.forward(x);
    const Tensor up = mlp.up.forward(x);
    hidden = swiglu(gate, up);
    tape.remake(hidden, [gate = tape.detach(gate), up = tape.detach(up)] { return swiglu(gate, up); });
  }
  return mlp.down.forward(hidden);
}

}  // namespace

NativeDecoder::NativeDecoder(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : dims_(dims_of(config, options)), options_(options), names_(names_of(config)) {
  ModuleBuilder builder(tape, options.weights, options.linears);
  {
    const Tape::Scope scope(tape, names_.base);
    const std::string base = std::string(names_.base) + ".";
    embed_tokens_ = Embedding::make(builder, base, names_.embed, dims_.V, dims_.h);
    {
      const Tape::Scope layers(tape, "layers.*");
      for (std::size_t i = 0; i < config.num_hidden_layers; ++i)
        layers_.push_back(DecoderLayer::make(builder, config, dims_, i));
    }
    norm_ = Norm::make(builder, base, names_.final_norm, config.style.norm, dims_.h, config.rms_norm_eps);
    const Tape::Scope rotary(tape, "rotary_emb");
    const Tape::In in(tape, Category::buffers);
    inverse_frequencies_ = tape.empty(OpKind::load_buffer, {dims_.half_d}, DType::f32);
    tape.run(OpKind::load_buffer, {}, {&inverse_frequencies_}, {config.rope_theta, {0, 0}});
  }
  if (config.tie_word_embeddings) {
    lm_head_.name = names_.head;
    lm_head_.weight = embed_tokens_.weight;
  } else {
    lm_head_ = Linear::make(builder, "", names_.head, dims_.h, dims_.V, false);
  }
  trainable_ = builder.take_trainable();
  tape.trace().vocab_size = config.vocab_size;
  tape.trace().rope = config.rope;
}

Tensor NativeDecoder::make_inputs(Tape& tape) {
  return load_token_ids(tape, dims_.b, dims_.s);
}

// [b, s, q] as heads [b, n, s, d], normed a head at a time (Qwen 3) and turned.
Tensor NativeDecoder::heads_of(const Linear& projection, const std::optional<Norm>& norm, const Tensor& x, Dim count,
                               bool turned) const {
  Tensor states = view(projection.forward(x), {dims_.b, dims_.s, count, dims_.d});
  if (norm) {
    const Tape::Scope scope(x.tape(), norm->name);
    states = add_rms_norm(states, Tensor(), norm->weight, norm->eps).y;
  }
  if (turned) states = rope_inplace(states, inverse_frequencies_);
  return transpose(states, 1, 2);
}

Tensor NativeDecoder::attend_to(const SelfAttention& attention, const Tensor& x) const {
  const Tape::Scope scope(x.tape(), attention.name);
  Tensor output;
  {
    const Tensor q = heads_of(attention.q, attention.q_norm, x, dims_.nh, true);
    const Tensor k = heads_of(attention.k, attention.k_norm, x, dims_.nkv, true);
    const Tensor v = heads_of(attention.v, std::nullopt, x, dims_.nkv, false);
    output = options_.attention == Attention::cudnn ? cudnn_attention(q, k, v) : own_attention(q, k, v);
  }
  output = view(transpose(output, 1, 2), {dims_.b, dims_.s, dims_.q_dim});
  return attention.o.forward(output);
}

NativeDecoder::Stream NativeDecoder::forward_layer(const DecoderLayer& layer, const Stream& stream) const {
  Stream next;
  {
    Normed input = normed(layer.input_norm, stream.residual, stream.added);
    next.residual = std::move(input.sum);
    next.added = attend_to(layer.self_attn, input.y);
  }
  Normed input = normed(*layer.attention_norm, next.residual, next.added);
  next.residual = std::move(input.sum);
  next.added = feed(layer.mlp, input.y);
  return next;
}

// A checkpointed layer must find its input as it was: it is added up before, so that nothing inside overwrites it.
NativeDecoder::Stream NativeDecoder::run_layer(std::size_t index, Stream stream) const {
  Tape& tape = stream.residual.tape();
  const Tape::Layer number(tape, static_cast<std::int32_t>(index));
  if (options_.checkpointing == Checkpointing::none) return forward_layer(layers_[index], stream);
  if (stream.added) stream = {add_onto(stream.added, stream.residual), Tensor()};
  CheckpointOutputs outputs = tape.checkpoint_many([this, index, stream] {
    Stream next = forward_layer(layers_[index], stream);
    return CheckpointOutputs{std::move(next.residual), std::move(next.added)};
  });
  return {std::move(outputs[0]), std::move(outputs[1])};
}

NativeDecoder::Stream NativeDecoder::decode(const Tensor& ids) const {
  Stream stream{embed_tokens_.forward(ids), Tensor()};
  const Tape::Scope layers(ids.tape(), "layers.*");
  for (std::size_t i = 0; i < layers_.size(); ++i)
    stream = run_layer(i, std::move(stream));
  return stream;
}

Tensor NativeDecoder::forward(const Tensor& ids) {
  Tape& tape = ids.tape();
  Tensor logits;
  {
    Tensor hidden;
    {
      const Tape::Scope scope(tape, names_.base);
      const Stream last = decode(ids);
      hidden = normed(norm_, last.residual, last.added).y;
    }
    const Tape::In in(tape, Category::logits);
    logits = lm_head_.forward(hidden);
  }
  const Tape::Scope scope(tape, "loss");
  const Tape::In in(tape, Category::logits);
  const Dim tokens{times(dims_.b.size, dims_.s.size), Sym::tokens};
  const Tensor targets = shift_left(ids).shifted;
  const Tensor rows = view(logits, {tokens, dims_.V});
  return cross_entropy_inplace(rows, view(targets, {tokens}));
}

std::unique_ptr<Model> build_native(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<NativeDecoder>(tape, config, options);
}

}  // namespace ledger
