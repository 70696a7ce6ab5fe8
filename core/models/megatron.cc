#include "core/models/megatron.h"

#include <cmath>

#include "core/models/megatron_ops.h"

namespace ledger {
namespace {

constexpr std::uint64_t kVocabMultiple = 128;  // make_vocab_size_divisible_by
constexpr const char* kWordEmbeddings = "embedding.word_embeddings.weight";

Dim shared(std::uint64_t whole, std::uint64_t tp, Sym sym) {
  return {whole / tp, tp == 1 ? sym : Sym::none};
}

Dim times_dim(Dim a, Dim b) {
  return {times(a.size, b.size), Sym::none};
}

bool gated(const ModelConfig& c) {
  return c.style.feed == Feed::gated;
}

// add_bias_linear: of every linear of a layer, or of queries, keys and values alone (add_qkv_bias).
bool biased(const ModelConfig& c) {
  return c.style.norm == NormKind::layer;
}

}  // namespace

std::uint64_t megatron_vocab(const ModelConfig& c, std::uint64_t tp) {
  return round_up(c.vocab_size, times(kVocabMultiple, tp));
}

// --- parameters
// -----------------------------------------------------------------------------------------------------------------

MegatronStage::MegatronStage(Tape& tape, const ModelConfig& config, const MegatronOptions& options,
                             MainGradients& gradients)
    : tape_(tape),
      c_(config),
      o_(options),
      gradients_(gradients),
      b_{options.batch, Sym::b},
      s_{options.seq / options.cp, options.cp == 1 ? Sym::s : Sym::none},
      s_shard_(options.sequence_parallel ? shared(s_.size, options.tp, Sym::s) : s_),
      h_{config.hidden_size, Sym::h},
      ffn_(shared(config.intermediate_size, options.tp, Sym::ffn)),
      d_{config.head_dim, Sym::d},
      np_(shared(config.num_attention_heads, options.tp, Sym::nh)),
      ng_(shared(config.num_key_value_heads, options.tp, Sym::nkv)),
      vocab_(shared(megatron_vocab(config, options.tp), options.tp, Sym::V)) {
  const std::uint64_t layers = layers_of_stage(config, options.pp);
  const TensorCut rows = cut_of(vocab_.size, h_.size);
  depth_ = layers / options.chunks;
  if (is_first(0)) {
    word_embeddings_ = parameter(kWordEmbeddings, {vocab_, h_}, Parameter::Role::matrix, rows);
    if (config.style.position == Position::learned) {
      const Shape places{{config.max_position_embeddings, Sym::none}, h_};
      position_embeddings_ = parameter("embedding.position_embeddings.weight", places, Parameter::Role::matrix);
    }
  }
  if (config.style.position == Position::rotary) make_frequencies();
  {
    const Tape::Scope scope(tape, "layers.*");
    for (std::uint64_t i = 0; i < layers; ++i) {
      const auto layer = layer_at(i);
      layers_.push_back(layer ? make_layer(*layer) : Layer{});
    }
  }
  const bool last = is_last(options.chunks - 1), tied = config.tie_word_embeddings;
  if (last) {
    final_norm_ = make_ln_linear("decoder.final_layernorm", "final_layernorm", {0, Sym::none}, false);
    // With pipelining the last stage holds tied embeddings once more.
    output_weight_ = tied && is_first(0) ? word_embeddings_
                                         : parameter(tied ? kWordEmbeddings : "output_layer.weight", {vocab_, h_},
                                                     Parameter::Role::matrix, rows);
  }
  if (tied && options.pp > 1 && (is_first(0) || last)) shared_embedding_ = last ? output_weight_ : word_embeddings_;
}

// models/common/embeddings/rotary_pos_embedding.py.
void MegatronStage::make_frequencies() {
  const Tape::Scope scope(tape_, "rotary_pos_emb");
  const Tape::In in(tape_, Category::buffers);
  tape_.trace().rope = c_.rope;
  frequencies_ = tape_.empty(OpKind::load_buffer, {{d_.size / 2, Sym::half_d}}, DType::f32);
  tape_.run(OpKind::load_buffer, {}, {&frequencies_}, {c_.rope_theta, {0, 0}});
}

bool counts_embedding_and_loss(const ModelConfig& config, std::uint64_t pp) {
  return config.num_hidden_layers % pp != 0 && (config.num_hidden_layers + 2) % pp == 0;
}

std::uint64_t layers_of_stage(const ModelConfig& config, std::uint64_t pp) {
  if (counts_embedding_and_loss(config, pp)) return (config.num_hidden_layers + 2) / pp;
  return config.num_hidden_layers % pp == 0 ? config.num_hidden_layers / pp : 0;
}

// Of a stage's chunks, one after the other, as numbers of the whole model's layers.
std::optional<std::uint64_t> MegatronStage::layer_at(std::uint64_t position) const {
  const std::uint64_t chunk = position / depth_;
  const std::uint64_t index = plus(times(plus(times(chunk, o_.pp), o_.stage), depth_), position % depth_);
  if (!counts_embedding_and_loss(c_, o_.pp)) return index;
  if (index == 0 || index > c_.num_hidden_layers) return std::nullopt;
  return index - 1;
}

Tensor MegatronStage::parameter(const std::string& path, const Shape& shape, Parameter::Role role, const TensorCut& cut,
                                bool by_tokens) {
  Tensor result = tape_.parameter(path, shape, o_.weights, role, true);
  parameter_of(result).cut = cut;
  gradients_.add(result, by_tokens && o_.sequence_parallel);
  return result;
}

// Of a dimension of which this rank has `local`.
TensorCut MegatronStage::cut_of(std::uint64_t local, std::uint64_t inner) const {
  return cut_among(o_.tp, o_.tp_rank, times(local, o_.tp), inner);
}

MegatronStage::LnLinear MegatronStage::make_ln_linear(const std::string& path, const char* name, Dim out, bool bias) {
  const Tape::Scope scope(tape_, name);
  LnLinear m;
  m.name = name;
  const Dim parts{c_.style.norm == NormKind::layer ? 2u : 1u, Sym::none};
  m.norm = parameter(path + ".layer_norm_weight", {parts, h_}, Parameter::Role::norm, {}, true);
  if (out.size != 0) m.weight = parameter(path + ".weight", {out, h_}, Parameter::Role::matrix);
  if (bias) m.bias = parameter(path + ".bias", {out}, Parameter::Role::bias, cut_of(out.size, 1));
  return m;
}

MegatronStage::Layer MegatronStage::make_layer(std::uint64_t index) {
  const Tape::Layer number(tape_, static_cast<std::int32_t>(index));
  const std::string path = "decoder.layers." + std::to_string(index) + ".";
  const bool bias = biased(c_);
  const Dim q_width = times_dim(np_, d_), qkv_width{plus(q_width.size, times(2, times_dim(ng_, d_).size)), Sym::none};
  const Dim fc1_width = gated(c_) ? Dim{times(2, ffn_.size), Sym::none} : ffn_;
  Layer layer;
  layer.qkv = make_ln_linear(path + "self_attention.linear_qkv", "linear_qkv", qkv_width, bias || c_.qkv_bias);
  parameter_of(layer.qkv.weight).cut = cut_of(qkv_width.size, h_.size);  // by groups of heads
  {
    const Tape::Scope scope(tape_, "linear_proj");
    layer.proj = parameter(path + "self_attention.linear_proj.weight", {h_, q_width}, Parameter::Role::matrix,
                           cut_of(q_width.size, 1));
    if (bias)
      layer.proj_bias = parameter(path + "self_attention.linear_proj.bias", {h_}, Parameter::Role::bias, {}, true);
  }
  layer.fc1 = make_ln_linear(path + "mlp.linear_fc1", "linear_fc1", fc1_width, false);
  parameter_of(layer.fc1.weight).cut = cut_of(ffn_.size, h_.size);  // gate and up each
  if (bias)
    layer.fc1_bias = parameter(path + "mlp.linear_fc1.bias", {fc1_width}, Parameter::Role::bias, cut_of(ffn_.size, 1));
  const Tape::Scope scope(tape_, "linear_fc2");
  layer.fc2 = parameter(path + "mlp.linear_fc2.weight", {h_, ffn_}, Parameter::Role::matrix, cut_of(ffn_.size, 1));
  if (bias) layer.fc2_bias = parameter(path + "mlp.linear_fc2.bias", {h_}, Parameter::Role::bias, {}, true);
  return layer;
}

// --- a layer
// ------------------------------------------------------------------------------------------------------------------

void MegatronStage::ensure_workspace() const {
  if (te_workspace_ || o_.te_workspace == 0) return;
  const Tape::Scope scope(tape_, "te_workspace", Tape::Scope::Below::nothing);
  const Tape::In in(tape_, Category::workspace);
  te_workspace_ = tape_.empty(OpKind::workspace, {{o_.te_workspace, Sym::none}}, DType::u8);
}

megatron::Sharing MegatronStage::sharing(const Tensor& weight) const {
  return {o_.tp, o_.sequence_parallel, weight ? gradients_.of(weight) : Tensor()};
}

Tensor MegatronStage::ln_linear(const LnLinear& m, const Tensor& x) const {
  ensure_workspace();
  const Tape::Scope scope(tape_, m.name);
  return megatron::norm_linear(x, {m.norm, c_.rms_norm_eps}, m.weight, m.bias, sharing(m.weight));
}

Tensor MegatronStage::row_linear(const Tensor& x, const Tensor& weight, const char* name) const {
  const Tape::Scope scope(tape_, name);
  return megatron::row_linear(x, weight, sharing(weight));
}

Tensor MegatronStage::bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual) const {
  const Tape::Scope scope(tape_, "bias_dropout_add");
  if (!bias && c_.residual_dropout == 0) return residual + x;
  return megatron::bias_dropout_add(x, bias, residual, c_.residual_dropout);
}

// UnfusedDotProductAttention: scores, probabilities and dropped probabilities [b n, s, s] in 16 bits. q, k, v [s, b, n,
// d]; keys and values are repeated for every query head.
Tensor MegatronStage::unfused(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const Dim heads = times_dim(b_, np_);
  const Shape folded{s_, heads, d_};
  const auto widened = [&](const Tensor& x) {
    if (ng_.size == np_.size) return transpose(reshape(x, folded), 0, 1);
    const Dim each{np_.size / ng_.size, Sym::none};
    const Tensor copies = contiguous(expand(unsqueeze(x, 3), {s_, b_, ng_, each, d_}));
    return transpose(reshape(copies, folded), 0, 1);
  };
  const Tensor query = transpose(reshape(q, folded), 0, 1);
  const Tensor key = transpose(widened(k), 1, 2);
  Tensor probabilities;
  {
    const Tensor scores = bmm(query, key);
    probabilities = softmax(scores, scores.dtype());
  }
  probabilities = dropout(probabilities, c_.attention_dropout);
  Tensor context;
  {
    const Tensor value = widened(v);
    context = bmm(probabilities, value);
  }
  context = transpose(transpose(view(context, {b_, np_, s_, d_}), 1, 2), 0, 1);
  return reshape(contiguous(context), {s_, b_, times_dim(np_, d_)});
}

Tensor MegatronStage::core_attention(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const Tape::Scope scope(tape_, "core_attention");
  if (o_.attention == Attention::eager) return unfused(q, k, v);
  const auto by_head = [](const Tensor& x) { return transpose(transpose(x, 0, 1), 1, 2); };  // [b, n, s, d]
  const Tensor query = by_head(q), key = by_head(k), value = by_head(v);
  const Tensor out = cudnn_attention(query, key, value, 0, c_.attention_dropout);
  return reshape(transpose(transpose(out, 1, 2), 0, 1), {s_, b_, times_dim(np_, d_)});
}

// SelfAttention.forward: the product is cut by groups; DotProductAttention makes q, k and v contiguous, unless those of
// every head lie side by side, a layout that it knows (sbh3d).
Tensor MegatronStage::attention(const Tensor& product) const {
  const Dim each{np_.size / ng_.size, Sym::none}, width = times_dim(each, d_);
  const Dim group{plus(width.size, times(2, d_.size)), Sym::none};
  Tensor q, k, v;
  {
    const Tensor mixed = view(product, {s_, b_, ng_, group});
    megatron::Heads heads = megatron::split_qkv(mixed, width, d_);
    q = reshape(heads.q, {s_, b_, np_, d_});
    k = std::move(heads.k);
    v = std::move(heads.v);
  }
  const bool rotary = c_.style.position == Position::rotary;
  if (rotary) {
    q = megatron::fused_rope(q, frequencies_);
    k = megatron::fused_rope(k, frequencies_);
  }
  const bool side_by_side = !rotary && each.size == 1;
  if (!side_by_side) {
    q = contiguous(q);
    k = contiguous(k);
    v = contiguous(v);
  }
  if (o_.checkpointing != Checkpointing::selective) return core_attention(q, k, v);
  return tape_.checkpoint([this, q, k, v] { return core_attention(q, k, v); });  // recompute_modules: core_attn
}

Tensor MegatronStage::activate_fused(const Tensor& x, const Tensor& bias) const {
  const Tape::Scope scope(tape_, "activation");
  return megatron::bias_activation(x, bias, gated(c_));
}

// TransformerLayer.forward.
Tensor MegatronStage::layer_forward(const Layer& layer, const Tensor& x) const {
  Tensor hidden;
  {
    Tensor out;
    {
      Tensor product = ln_linear(layer.qkv, x);
      const Tape::Scope scope(tape_, "self_attention");
      out = attention(product);
    }
    out = row_linear(out, layer.proj, "linear_proj");
    hidden = bias_dropout_add(out, layer.proj_bias, x);
  }
  Tensor out;
  {
    Tensor inner = ln_linear(layer.fc1, hidden);
    inner = activate_fused(inner, layer.fc1_bias);
    out = row_linear(inner, layer.fc2, "linear_fc2");
  }
  return bias_dropout_add(out, layer.fc2_bias, hidden);
}

// recompute_method uniform, one layer at a time: CheckpointFunction is reentrant.
Tensor MegatronStage::run_layer(const Layer& layer, const Tensor& x) const {
  if (o_.checkpointing != Checkpointing::full) return layer_forward(layer, x);
  return tape_.checkpoint_reentrant([this, &layer](const Tensor& input) { return layer_forward(layer, input); }, x);
}

}  // namespace ledger
