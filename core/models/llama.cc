#include "core/models/llama.h"

#include "core/models/causal_lm_loss.h"

namespace ledger {
namespace {

LlamaDims dims_of(const ModelConfig& c, const ModelOptions& o) {
  return {
      .b = {o.batch, Sym::b},
      .s = {o.seq, Sym::s},
      .h = {c.hidden_size, Sym::h},
      .ffn = {c.intermediate_size, Sym::ffn},
      .V = {c.vocab_size, Sym::V},
      .nh = {c.num_attention_heads, Sym::nh},
      .nkv = {c.num_key_value_heads, Sym::nkv},
      .d = {c.head_dim, Sym::d},
      .half_d = {c.head_dim / 2, Sym::half_d},
      .q_dim = {times(c.num_attention_heads, c.head_dim), Sym::q_dim},
      .kv_dim = {times(c.num_key_value_heads, c.head_dim), Sym::kv_dim},
  };
}

Tensor rotate_half(const Tensor& x, Dim half) {
  const Tensor x1 = slice(x, -1, 0, half);
  const Tensor x2 = slice(x, -1, half.size, half);
  return cat(neg(x2), x1, -1);
}

// (x * cos) + (rotate_half(x) * sin), evaluated left to right as Python does.
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, Dim half) {
  const Tensor straight = x * cos;
  return straight + (rotate_half(x, half) * sin);
}

std::pair<Tensor, Tensor> apply_rotary(const Tensor& q, const Tensor& k, const Rotary& rotary, Dim half) {
  const Tensor cos = unsqueeze(rotary.cos, 1);
  const Tensor sin = unsqueeze(rotary.sin, 1);
  Tensor q_embed = rotate(q, cos, sin, half);
  Tensor k_embed = rotate(k, cos, sin, half);
  return {std::move(q_embed), std::move(k_embed)};
}

// sdpa_attention_forward: causal, no mask, K/V not repeated (enable_gqa).
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor output = flash_attention(q, k, v);
  return contiguous(transpose(output, 1, 2));
}

Tensor frequencies(Tape& tape, const ModelConfig& config, Dim half) {
  const Tape::In in(tape, Category::buffers);
  Tensor buffer = tape.empty(OpKind::load_buffer, {half}, DType::f32);
  tape.run(OpKind::load_buffer, {}, {&buffer}, {config.rope_theta, {}});
  return buffer;
}

LlamaDecoderLayer make_layer(ModuleBuilder& builder, const ModelConfig& c, const LlamaDims& n, std::size_t index) {
  const std::string path = "model.layers." + std::to_string(index) + ".";
  Tape& tape = builder.tape();
  const Tape::Layer number(tape, static_cast<std::int32_t>(index));
  LlamaDecoderLayer layer;
  {
    const Tape::Scope scope(tape, "self_attn");
    const std::string at = path + "self_attn.";
    layer.self_attn.q_proj = Linear::make(builder, at, "q_proj", n.h, n.q_dim, c.attention_bias);
    layer.self_attn.k_proj = Linear::make(builder, at, "k_proj", n.h, n.kv_dim, c.attention_bias);
    layer.self_attn.v_proj = Linear::make(builder, at, "v_proj", n.h, n.kv_dim, c.attention_bias);
    layer.self_attn.o_proj = Linear::make(builder, at, "o_proj", n.q_dim, n.h, c.attention_bias);
  }
  {
    const Tape::Scope scope(tape, "mlp");
    const std::string at = path + "mlp.";
    layer.mlp.gate_proj = Linear::make(builder, at, "gate_proj", n.h, n.ffn, c.mlp_bias);
    layer.mlp.up_proj = Linear::make(builder, at, "up_proj", n.h, n.ffn, c.mlp_bias);
    layer.mlp.down_proj = Linear::make(builder, at, "down_proj", n.ffn, n.h, c.mlp_bias);
  }
  layer.input_layernorm = RmsNorm::make(builder, path, "input_layernorm", n.h, c.rms_norm_eps);
  layer.post_attention_layernorm = RmsNorm::make(builder, path, "post_attention_layernorm", n.h, c.rms_norm_eps);
  return layer;
}

}  // namespace

Rotary RotaryEmbedding::forward(const Tensor& x, const Tensor& position_ids, const LlamaDims& dims) const {
  Tape& tape = x.tape();
  const Tape::Scope scope(tape, "rotary_emb");
  const Tape::NoGrad no_grad(tape);
  const Dim one{1, Sym::none};
  const Tensor inv_freq_expanded = view(inv_freq, {one, dims.half_d, one});
  const Tensor position_ids_expanded = to(view(position_ids, {one, one, dims.s}), DType::f32);
  const Tape::Autocast autocast(tape, false);
  const Tensor freqs = transpose(bmm(inv_freq_expanded, position_ids_expanded), 1, 2);
  const Tensor emb = cat(freqs, freqs, -1);
  const Tensor cos = ledger::cos(emb) * 1.0;  // attention_scaling
  const Tensor sin = ledger::sin(emb) * 1.0;
  return {to(cos, x.dtype()), to(sin, x.dtype())};
}

Tensor LlamaAttention::forward(const Tensor& hidden, const Rotary& rotary, const LlamaDims& n) const {
  const Tape::Scope scope(hidden.tape(), "self_attn");
  Tensor q = transpose(view(q_proj.forward(hidden), {n.b, n.s, n.nh, n.d}), 1, 2);
  Tensor k = transpose(view(k_proj.forward(hidden), {n.b, n.s, n.nkv, n.d}), 1, 2);
  const Tensor v = transpose(view(v_proj.forward(hidden), {n.b, n.s, n.nkv, n.d}), 1, 2);
  std::tie(q, k) = apply_rotary(q, k, rotary, n.half_d);
  Tensor output = scaled_dot_product_attention(q, k, v);
  output = contiguous(reshape(output, {n.b, n.s, n.q_dim}));
  return o_proj.forward(output);
}

Tensor LlamaMlp::forward(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), "mlp");
  Tensor product = silu(gate_proj.forward(x));
  product = product * up_proj.forward(x);
  return down_proj.forward(product);
}

Tensor LlamaDecoderLayer::forward(const Tensor& input, const Rotary& rotary, const LlamaDims& dims) const {
  Tensor residual = input;
  Tensor hidden = input_layernorm.forward(input);
  hidden = self_attn.forward(hidden, rotary, dims);
  hidden = residual + hidden;
  residual = hidden;
  hidden = post_attention_layernorm.forward(hidden);
  hidden = mlp.forward(hidden);
  hidden = residual + hidden;
  return hidden;
}

Llama::Llama(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : dims_(dims_of(config, options)), checkpoint_layers_(options.checkpoint_layers) {
  ModuleBuilder builder(tape, options.weights);
  {
    const Tape::Scope scope(tape, "model");
    embed_tokens_ = Embedding::make(builder, "model.", "embed_tokens", dims_.V, dims_.h);
    {
      const Tape::Scope layers(tape, "layers.*");
      for (std::size_t i = 0; i < config.num_hidden_layers; ++i) layers_.push_back(make_layer(builder, config, dims_, i));
    }
    norm_ = RmsNorm::make(builder, "model.", "norm", dims_.h, config.rms_norm_eps);
    const Tape::Scope rotary(tape, "rotary_emb");
    rotary_emb_.inv_freq = frequencies(tape, config, dims_.half_d);
    rotary_emb_.original_inv_freq = frequencies(tape, config, dims_.half_d);
  }
  if (config.tie_word_embeddings) {
    lm_head_ = {"lm_head", embed_tokens_.weight, Tensor()};
  } else {
    lm_head_ = Linear::make(builder, "", "lm_head", dims_.h, dims_.V, false);
  }
  parameters_ = builder.take();
  tape.trace().vocab_size = config.vocab_size;
  tape.trace().rope = config.rope;
}

Tensor Llama::make_inputs(Tape& tape) {
  const Tape::Scope scope(tape, "input_ids");
  const Tape::In in(tape, Category::inputs);
  Tensor ids = tape.empty(OpKind::load_tokens, {dims_.b, dims_.s}, DType::i64);
  tape.run(OpKind::load_tokens, {}, {&ids});
  return ids;
}

Tensor Llama::run_layer(std::size_t index, const Tensor& hidden, const Rotary& rotary, const Tensor& position_ids) {
  Tape& tape = hidden.tape();
  const Tape::Layer number(tape, static_cast<std::int32_t>(index));
  const LlamaDecoderLayer& layer = layers_[index];
  if (!checkpoint_layers_) return layer.forward(hidden, rotary, dims_);
  // GradientCheckpointingLayer binds every keyword argument, position_ids too, into the function it hands to checkpoint().
  return tape.checkpoint([&layer, &dims = dims_, hidden, rotary, position_ids] { return layer.forward(hidden, rotary, dims); });
}

Tensor Llama::decode(const Tensor& ids) {
  Tape& tape = ids.tape();
  const Tape::Scope scope(tape, "model");
  const Tensor inputs_embeds = embed_tokens_.forward(ids);
  Tensor position_ids;
  {
    const Tape::Scope positions(tape, "position_ids");
    const Tape::In in(tape, Category::inputs);
    position_ids = arange(tape, dims_.s);
    position_ids = add(position_ids, 0.0);  // + past_seen_tokens
    position_ids = unsqueeze(position_ids, 0);
  }
  Tensor hidden = inputs_embeds;
  const Rotary rotary = rotary_emb_.forward(hidden, position_ids, dims_);
  {
    const Tape::Scope layers(tape, "layers.*");
    for (std::size_t i = 0; i < layers_.size(); ++i) hidden = run_layer(i, hidden, rotary, position_ids);
  }
  hidden = norm_.forward(hidden);
  return hidden;
}

Tensor Llama::forward(const Tensor& ids) {
  Tape& tape = ids.tape();
  const Tensor hidden = decode(ids);
  const Tape::In in(tape, Category::logits);
  const Tensor logits = lm_head_.forward(alias(hidden));  // hidden[:, slice(0, None), :] takes all of it
  const Tape::Scope scope(tape, "loss");
  return causal_lm_loss(logits, ids);
}

std::unique_ptr<Model> build_llama(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<Llama>(tape, config, options);
}

}  // namespace ledger
