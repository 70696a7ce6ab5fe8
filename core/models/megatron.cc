#include "core/models/megatron.h"

#include "core/models/megatron_tensors.h"

namespace ledger {
namespace {

constexpr std::uint64_t kVocabMultiple = 128;  // make_vocab_size_divisible_by
constexpr const char* kWordEmbeddings = "embedding.word_embeddings.weight";

Dim shared(std::uint64_t whole, std::uint64_t tp, Sym sym) {
  return {whole / tp, tp == 1 ? sym : Sym::none};
}

bool gated(const ModelConfig& c) {
  return c.style.feed == Feed::gated;
}

bool has_experts(const ModelConfig& c, std::uint64_t layer) {
  return layer < c.moe.layers.size() && c.moe.layers[static_cast<std::size_t>(layer)];
}

// add_bias_linear: of every linear of a layer, or of queries, keys and values alone (add_qkv_bias).
bool biased(const ModelConfig& c) {
  return c.style.norm == NormKind::layer && c.mlp_bias;
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
  const std::uint64_t layers = layers_of_stage(config, options.cut, options.stage);
  const TensorCut rows = cut_of(vocab_.size, h_.size);
  depth_ = layers / options.chunks;
  latent_ = config.style.projections == Projections::latent;
  set_input_tensors_.resize(static_cast<std::size_t>(options.chunks));
  if (is_first(0)) {
    word_embeddings_ = parameter(kWordEmbeddings, {vocab_, h_}, Parameter::Role::matrix, rows);
    if (config.style.position == Position::learned) {
      const Shape places{{config.max_position_embeddings, Sym::none}, h_};
      position_embeddings_ = parameter("embedding.position_embeddings.weight", places, Parameter::Role::matrix);
    }
  }
  if (config.style.position == Position::rotary || latent_) make_frequencies();
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
  const Dim half = c_.rotary_dim == 0 ? Dim{d_.size / 2, Sym::half_d} : Dim{c_.rotary_dim / 2, Sym::none};
  frequencies_ = tape_.empty(OpKind::load_buffer, {half}, DType::f32);
  tape_.run(OpKind::load_buffer, {}, {&frequencies_}, {c_.rope_theta, {0, 0}});
}

Tensor MegatronStage::parameter(const std::string& path, const Shape& shape, Parameter::Role role, const TensorCut& cut,
                                PartsOf parts) {
  Tensor result = tape_.parameter(path, shape, o_.weights, role, true);
  parameter_of(result).cut = cut;
  const bool whole = (parts == PartsOf::tokens && !o_.sequence_parallel) || (parts == PartsOf::heads && o_.tp == 1);
  gradients_.add(result, whole ? PartsOf::none : parts);
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
  m.norm = parameter(path + ".layer_norm_weight", {parts, h_}, Parameter::Role::norm, {}, PartsOf::tokens);
  if (out.size != 0) m.weight = parameter(path + ".weight", {out, h_}, Parameter::Role::matrix);
  if (bias) m.bias = parameter(path + ".bias", {out}, Parameter::Role::bias, cut_of(out.size, 1));
  return m;
}

MegatronStage::Layer MegatronStage::make_layer(std::uint64_t index) {
  const Tape::Layer number(tape_, static_cast<std::int32_t>(index));
  const std::string path = "decoder.layers." + std::to_string(index) + ".";
  Layer layer;
  make_attention(layer, path + "self_attention.");
  if (has_experts(c_, index)) {
    layer.fc1 = make_ln_linear(path + "pre_mlp_layernorm", "pre_mlp_layernorm", {0, Sym::none}, false);
    layer.experts = make_experts(path + "mlp.");
  } else {
    make_feed(layer, path + "mlp.");
  }
  return layer;
}

void MegatronStage::make_attention(Layer& layer, const std::string& path) {
  const bool bias = biased(c_);
  const Dim values = megatron::times_dim(np_, latent_ ? Dim{c_.latent.v_dim, Sym::none} : d_);
  const Dim q_width = megatron::times_dim(np_, d_),
            qkv_width{plus(q_width.size, times(2, megatron::times_dim(ng_, d_).size)), Sym::none};
  if (latent_) {
    layer.qkv = make_ln_linear(path + "input_layernorm", "input_layernorm", {0, Sym::none}, false);
    layer.latent = make_latent(path);
  } else {
    layer.qkv = make_ln_linear(path + "linear_qkv", "linear_qkv", qkv_width, bias || c_.qkv_bias);
    parameter_of(layer.qkv.weight).cut = cut_of(qkv_width.size, h_.size);  // by groups of heads
  }
  {
    const Tape::Scope scope(tape_, "linear_proj");
    layer.proj = parameter(path + "linear_proj.weight", {h_, values}, Parameter::Role::matrix, cut_of(values.size, 1));
    if (bias) layer.proj_bias = parameter(path + "linear_proj.bias", {h_}, Parameter::Role::bias, {}, PartsOf::tokens);
  }
  if (c_.qk_norm) {
    layer.q_norm = make_head_norm(path + "q_layernorm", "q_layernorm");
    layer.k_norm = make_head_norm(path + "k_layernorm", "k_layernorm");
  }
}

void MegatronStage::make_feed(Layer& layer, const std::string& path) {
  const bool bias = biased(c_);
  const Dim fc1_width = gated(c_) ? Dim{times(2, ffn_.size), Sym::none} : ffn_;
  layer.fc1 = make_ln_linear(path + "linear_fc1", "linear_fc1", fc1_width, false);
  parameter_of(layer.fc1.weight).cut = cut_of(ffn_.size, h_.size);  // gate and up each
  if (bias)
    layer.fc1_bias = parameter(path + "linear_fc1.bias", {fc1_width}, Parameter::Role::bias, cut_of(ffn_.size, 1));
  const Tape::Scope scope(tape_, "linear_fc2");
  layer.fc2 = parameter(path + "linear_fc2.weight", {h_, ffn_}, Parameter::Role::matrix, cut_of(ffn_.size, 1));
  if (bias) layer.fc2_bias = parameter(path + "linear_fc2.bias", {h_}, Parameter::Role::bias, {}, PartsOf::tokens);
}

MegatronStage::LnLinear MegatronStage::make_head_norm(const std::string& path, const char* name) {
  const Tape::Scope scope(tape_, name);
  LnLinear m;
  m.name = name;
  m.norm = parameter(path + ".weight", {kOne, d_}, Parameter::Role::norm, {}, PartsOf::heads);
  return m;
}

MegatronExperts MegatronStage::make_experts(const std::string& path) {
  MegatronExperts experts(c_, o_, gradients_);
  experts.make(tape_, path, [&](const std::string& name, const Shape& shape, const TensorCut& cut, PartsOf parts) {
    return parameter(name, shape, Parameter::Role::matrix, cut, parts);
  });
  return experts;
}

}  // namespace ledger
