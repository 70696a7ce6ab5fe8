#include "core/models/llama.h"

#include "core/models/attention.h"
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
  Tensor turned = rotate_half(x, half);
  turned = turned * sin;
  return straight + turned;
}

std::pair<Tensor, Tensor> apply_rotary(const Tensor& q, const Tensor& k, const Rotary& rotary, Dim half) {
  const Tensor cos = unsqueeze(rotary.cos, 1);
  const Tensor sin = unsqueeze(rotary.sin, 1);
  Tensor q_embed = rotate(q, cos, sin, half);
  Tensor k_embed = rotate(k, cos, sin, half);
  return {std::move(q_embed), std::move(k_embed)};
}

Tensor frequencies(Tape& tape, const ModelConfig& config, Dim half) {
  const Tape::In in(tape, Category::buffers);
  Tensor buffer = tape.empty(OpKind::load_buffer, {half}, DType::f32);
  tape.run(OpKind::load_buffer, {}, {&buffer}, {config.rope_theta, {}});
  return buffer;
}

LlamaAttention make_attention(ModuleBuilder& builder, const std::string& at, const ModelConfig& c, const LlamaDims& n) {
  const Tape::Scope scope(builder.tape(), "self_attn");
  LlamaAttention attention;
  attention.q_proj = Linear::make(builder, at, "q_proj", n.h, n.q_dim, c.attention_bias || c.qkv_bias);
  attention.k_proj = Linear::make(builder, at, "k_proj", n.h, n.kv_dim, c.attention_bias || c.qkv_bias);
  attention.v_proj = Linear::make(builder, at, "v_proj", n.h, n.kv_dim, c.attention_bias || c.qkv_bias);
  attention.o_proj = Linear::make(builder, at, "o_proj", n.q_dim, n.h, c.attention_bias);
  if (c.qk_norm) {
    attention.q_norm = RmsNorm::make(builder, at, "q_norm", n.d, c.rms_norm_eps);
    attention.k_norm = RmsNorm::make(builder, at, "k_norm", n.d, c.rms_norm_eps);
  }
  return attention;
}

LlamaDecoderLayer make_layer(ModuleBuilder& builder, const ModelConfig& c, const LlamaDims& n, std::size_t index) {
  const std::string path = "model.layers." + std::to_string(index) + ".";
  Tape& tape = builder.tape();
  const Tape::Layer number(tape, static_cast<std::int32_t>(index));
  LlamaDecoderLayer layer;
  layer.self_attn = make_attention(builder, path + "self_attn.", c, n);
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
  const Dim one{1, Sym::none}, rows = position_ids.dim(0);  // 1, or b where the positions come from a padding mask
  const Tensor inv_freq_expanded = expand(view(inv_freq, {one, dims.half_d, one}), {rows, dims.half_d, one});
  const Tensor position_ids_expanded = to(view(position_ids, {rows, one, position_ids.dim(1)}), DType::f32);
  const Tape::Autocast autocast(tape, false);
  const Tensor freqs = transpose(bmm(inv_freq_expanded, position_ids_expanded), 1, 2);
  const Tensor emb = cat(freqs, freqs, -1);
  const Tensor cos = ledger::cos(emb) * 1.0;  // attention_scaling
  const Tensor sin = ledger::sin(emb) * 1.0;
  return {to(cos, x.dtype()), to(sin, x.dtype())};
}

Tensor LlamaAttention::heads(const Linear& projection, const std::optional<RmsNorm>& norm, const Tensor& hidden,
                             Dim count, const LlamaDims& n) const {
  Tensor states = view(projection.forward(hidden), {n.b, n.s, count, n.d});
  if (norm) states = norm->forward(states);
  return transpose(states, 1, 2);
}

std::pair<Tensor, Tensor> LlamaAttention::forward(const Tensor& hidden, const LayerContext& context,
                                                  const LlamaDims& n) const {
  const Tape::Scope scope(hidden.tape(), "self_attn");
  Tensor q = heads(q_proj, q_norm, hidden, n.nh, n);
  Tensor k = heads(k_proj, k_norm, hidden, n.nkv, n);
  Tensor v = heads(v_proj, std::nullopt, hidden, n.nkv, n);
  std::tie(q, k) = apply_rotary(q, k, context.rotary, n.half_d);
  if (context.cache != nullptr) std::tie(k, v) = context.cache->update(layer, k, v);
  if (repeats_kv) {
    k = repeat_kv(k, n.nh);
    v = repeat_kv(v, n.nh);
  }
  Attended attended = attend(kind, q, k, v, context.mask);
  attended.output = contiguous(reshape(attended.output, {n.b, n.s, n.q_dim}));
  attended.output = o_proj.forward(attended.output);
  return {std::move(attended.output), std::move(attended.weights)};
}

Tensor LlamaMlp::forward(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), "mlp");
  Tensor product = silu(gate_proj.forward(x));
  product = product * up_proj.forward(x);
  return down_proj.forward(product);
}

Tensor LlamaDecoderLayer::forward(const Tensor& input, const LayerContext& context, const LlamaDims& dims) const {
  Tensor residual = input;
  Tensor hidden = input_layernorm.forward(input);
  Tensor weights;  // `hidden_states, _ = self.self_attn(...)`: the underscore is a name, too
  std::tie(hidden, weights) = self_attn.forward(hidden, context, dims);
  hidden = residual + hidden;
  residual = hidden;
  hidden = post_attention_layernorm.forward(hidden);
  hidden = mlp.forward(hidden);
  hidden = residual + hidden;
  return hidden;
}

Llama::Llama(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : dims_(dims_of(config, options)), options_(options) {
  ModuleBuilder builder(tape, options.weights, options.linears);
  {
    const Tape::Scope scope(tape, "model");
    embed_tokens_ = Embedding::make(builder, "model.", "embed_tokens", dims_.V, dims_.h);
    {
      const Tape::Scope layers(tape, "layers.*");
      for (std::size_t i = 0; i < config.num_hidden_layers; ++i) {
        layers_.push_back(make_layer(builder, config, dims_, i));
        layers_.back().self_attn.kind = options.attention;
        layers_.back().self_attn.layer = i;
        layers_.back().self_attn.repeats_kv = options.transformers_4 && options.attention != Attention::flash;
      }
    }
    norm_ = RmsNorm::make(builder, "model.", "norm", dims_.h, config.rms_norm_eps);
    const Tape::Scope rotary(tape, "rotary_emb");
    rotary_emb_.inv_freq = frequencies(tape, config, dims_.half_d);
    rotary_emb_.original_inv_freq = frequencies(tape, config, dims_.half_d);
  }
  if (config.tie_word_embeddings) {
    lm_head_.name = "lm_head";
    lm_head_.weight = embed_tokens_.weight;
  } else {
    lm_head_ = Linear::make(builder, "", "lm_head", dims_.h, dims_.V, false);
  }
  trainable_ = builder.take_trainable();
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

Tensor Llama::run_layer(std::size_t index, const Tensor& hidden, const LayerContext& context) {
  Tape& tape = hidden.tape();
  const Tape::Layer number(tape, static_cast<std::int32_t>(index));
  const LlamaDecoderLayer& layer = layers_[index];
  // GradientCheckpointingLayer binds every keyword argument, position_ids too, into the function it hands to
  // checkpoint().
  switch (options_.checkpointing) {
    case Checkpointing::full:
      return tape.checkpoint([&layer, &dims = dims_, hidden, context] { return layer.forward(hidden, context, dims); });
    case Checkpointing::selective:
      return tape.checkpoint([&layer, &dims = dims_, hidden, context] { return layer.forward(hidden, context, dims); },
                             Keep::compute_intensive);
    case Checkpointing::full_reentrant:
      return tape.checkpoint_reentrant(
          [&layer, &dims = dims_, context](const Tensor& input) { return layer.forward(input, context, dims); },
          hidden);
    case Checkpointing::offload:
      return tape.checkpoint_offloaded(
          [&layer, &dims = dims_, context](const Tensor& input) { return layer.forward(input, context, dims); },
          hidden);
    default:
      return layer.forward(hidden, context, dims_);
  }
}

Tensor Llama::decode(const Tensor& ids) {
  Tape& tape = ids.tape();
  const Tape::Scope scope(tape, "model");
  const Tensor inputs_embeds = embed_tokens_.forward(ids);
  if (options_.input_requires_grad && !inputs_embeds.requires_grad()) tape.require_grad(inputs_embeds);
  LayerContext context;
  {
    const Tape::Scope positions(tape, "position_ids");
    const Tape::In in(tape, Category::inputs);
    Tensor positions_1d = arange(tape, dims_.s);
    positions_1d = add(positions_1d, 0.0);  // + past_seen_tokens
    context.position_ids = unsqueeze(positions_1d, 0);
  }
  context.mask = make_mask(options_.attention, tape, {.s = dims_.s, .keys = dims_.s}, inputs_embeds.dtype());
  Tensor hidden = inputs_embeds;
  context.rotary = rotary_emb_.forward(hidden, context.position_ids, dims_);
  {
    const Tape::Scope layers(tape, "layers.*");
    for (std::size_t i = 0; i < layers_.size(); ++i)
      hidden = run_layer(i, hidden, context);
  }
  hidden = norm_.forward(hidden);
  return hidden;
}

Tensor Llama::full_logits_loss(const Tensor& hidden, const Tensor& ids) {
  Tape& tape = ids.tape();
  const Tensor logits = lm_head_.forward(alias(hidden));  // hidden[:, slice(0, None), :] takes all of it
  if (options_.keep_outputs) outputs_ = tape.detach(logits);
  const Tape::Scope scope(tape, "loss");
  return options_.transformers_4 ? shifted_logits_loss(logits, ids) : causal_lm_loss(logits, ids);
}

Tensor Llama::forward(const Tensor& ids) {
  const Tensor hidden = decode(ids);
  const Tape::In in(ids.tape(), Category::logits);
  const HeadLossFunction head_loss = head_loss_of(options_.loss);
  if (head_loss == nullptr) return full_logits_loss(hidden, ids);
  const Tape::Scope scope(ids.tape(), "loss");
  const HeadLoss result = head_loss(hidden, lm_head_.weight, ids);
  if (options_.keep_outputs) outputs_ = result.metric;
  return result.loss;
}

Tensor Llama::next_logits(const Tensor& ids, const Tensor& positions, KvCache& cache, bool last_only) {
  Tape& tape = ids.tape();
  LlamaDims dims = dims_;
  dims.s = ids.dim(1);
  Tensor hidden;
  {
    const Tape::Scope scope(tape, "model");
    const Tensor inputs_embeds = embed_tokens_.forward(ids);
    hidden = inputs_embeds;
    LayerContext context;
    context.position_ids = positions;
    context.cache = &cache;
    context.mask = make_mask(options_.attention, tape, cache.mask_for(dims.b, dims.s), hidden.dtype());
    context.rotary = rotary_emb_.forward(hidden, positions, dims);
    {
      const Tape::Scope layers(tape, "layers.*");
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        const Tape::Layer number(tape, static_cast<std::int32_t>(i));
        hidden = layers_[i].forward(hidden, context, dims);
      }
    }
    hidden = norm_.forward(hidden);
  }
  const Tape::In in(tape, Category::logits);
  // hidden_states[:, slice(-logits_to_keep, None), :]; logits_to_keep = 0 takes all of it.
  return lm_head_.forward(last_only ? slice(hidden, 1, dims.s.size - 1, {1, Sym::none}) : alias(hidden));
}

void Llama::skip_tokens(KvCache& cache, std::uint64_t seen) {
  const Tape::Scope model(embed_tokens_.weight.tape(), "model");
  const Tape::Scope layers(embed_tokens_.weight.tape(), "layers.*");
  const Tape::Scope attention(embed_tokens_.weight.tape(), "self_attn");
  cache.skip_to(seen);
}

std::unique_ptr<Model> build_llama(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<Llama>(tape, config, options);
}

}  // namespace ledger
