#include "core/models/torchtune.h"

#include <algorithm>
#include <string>

#include "core/models/attention.h"
#include "core/models/compiled.h"
#include "core/models/names.h"

namespace ledger {
namespace {

// models/{llama2,llama3,llama3_1,llama3_2,mistral}/_model_builders.py.
struct Built {
  std::uint64_t vocab, hidden, layers, kv_heads, max_seq_len;
};
constexpr Built kBuilt[] = {
    {32000, 4096, 32, 32, 4096},      // llama2_7b
    {32000, 5120, 40, 40, 4096},      // llama2_13b
    {32000, 8192, 80, 8, 4096},       // llama2_70b
    {32000, 4096, 32, 8, 32768},      // mistral_7b
    {128256, 4096, 32, 8, 8192},      // llama3_8b
    {128256, 8192, 80, 8, 8192},      // llama3_70b
    {128256, 4096, 32, 8, 131072},    // llama3_1_8b
    {128256, 8192, 80, 8, 131072},    // llama3_1_70b
    {128256, 16384, 126, 8, 131072},  // llama3_1_405b
    {128256, 2048, 16, 8, 131072},    // llama3_2_1b
    {128256, 3072, 28, 8, 131072},    // llama3_2_3b
};

constexpr Dim kPair{2, Sym::none};

// x[..., i] of pairs.
Tensor pick(const Tensor& x, std::uint64_t i) {
  Shape shape;
  for (std::size_t at = 0; at + 1 < x.shape().rank; ++at)
    shape.push(x.shape()[at]);
  return view(slice(x, -1, i, kOne), shape);
}

// F.cross_entropy over logits.float().
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, Reduction reduction) {
  const Tensor upcast = to(logits, DType::f32);
  return nll_loss(log_softmax(upcast), targets, reduction);
}

// x.tensor_split(kTorchtuneChunks, dim=1): views, the first ones longer where the length does not divide.
std::vector<Tensor> tensor_split(const Tensor& x) {
  const std::uint64_t length = x.dim(1).size / kTorchtuneChunks, longer = x.dim(1).size % kTorchtuneChunks;
  std::vector<Tensor> chunks;
  std::uint64_t start = 0;
  for (std::uint64_t i = 0; i < kTorchtuneChunks; ++i) {
    const std::uint64_t size = length + (i < longer ? 1 : 0);
    chunks.push_back(slice(x, 1, start, {size, Sym::none}));
    start += size;
  }
  return chunks;
}

}  // namespace

std::uint64_t torchtune_max_seq_len(const ModelConfig& c) {
  std::uint64_t length = c.max_position_embeddings;
  for (const Built& built : kBuilt) {
    const bool same = built.vocab == c.vocab_size && built.hidden == c.hidden_size &&
                      built.layers == c.num_hidden_layers && built.kv_heads == c.num_key_value_heads;
    if (!same) continue;
    length = built.max_seq_len;
    if (length == c.max_position_embeddings) break;  // Llama 3 and 3.1 differ in nothing else
  }
  return length;
}

// --- parts
// ------------------------------------------------------------------------------------------------------------------

TorchtuneDecoder::TorchtuneDecoder(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : eps_(config.rms_norm_eps),
      dims_(dims_of(config, options)),
      options_(options),
      names_(names_of(config, Stack::torchtune)),
      rope_theta_(config.rope_theta),
      max_seq_len_(torchtune_max_seq_len(config)) {
  ModuleBuilder builder(tape, options.weights, options.linears);
  tape.trace().rope = config.rope;
  make_rope_cache(tape);
  // A matrix like others to its optimizers: it is transformers' Trainer that tells 8-bit ones of embeddings.
  tok_embeddings_ = Embedding::make(builder, "", names_.embed, dims_.V, dims_.h, Parameter::Role::matrix);
  {
    const Tape::Scope scope(tape, "layers.*");
    for (std::size_t i = 0; i < config.num_hidden_layers; ++i)
      layers_.push_back(make_layer(builder, i));
  }
  norm_ = make_norm(builder, "", names_.final_norm, false);
  if (config.tie_word_embeddings) {  // TiedLinear
    output_.name = names_.head;
    output_.weight = tok_embeddings_.weight;
  } else {
    output_ = Linear::make(builder, "", names_.head, dims_.h, dims_.V, false);
  }
  trainable_ = builder.take_trainable();
  tape.trace().vocab_size = config.vocab_size;
}

TorchtuneDecoder::Norm TorchtuneDecoder::make_norm(ModuleBuilder& builder, const std::string& path, const char* name,
                                                   bool compiled) const {
  const Tape::Scope scope(builder.tape(), name);
  return {name, builder.parameter(path + name, {dims_.h}, Parameter::Role::norm, "scale"), eps_, compiled};
}

TorchtuneDecoder::Layer TorchtuneDecoder::make_layer(ModuleBuilder& builder, std::size_t index) const {
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  const std::string path = "layers." + std::to_string(index) + ".";
  Layer layer;
  {
    const Tape::Scope scope(builder.tape(), names_.attention);
    const std::string at = path + names_.attention + ".";
    layer.q = Linear::make(builder, at, names_.q, dims_.h, dims_.q_dim, false);
    layer.k = Linear::make(builder, at, names_.k, dims_.h, dims_.kv_dim, false);
    layer.v = Linear::make(builder, at, names_.v, dims_.h, dims_.kv_dim, false);
    layer.o = Linear::make(builder, at, names_.o, dims_.q_dim, dims_.h, false);
  }
  layer.mlp = FeedForward::make(builder, path, ModelConfig{}, names_, dims_.h, dims_.ffn);
  layer.mlp.compiled = options_.compile;
  layer.sa_norm = make_norm(builder, path, names_.input_norm, options_.compile);
  layer.mlp_norm = make_norm(builder, path, names_.attention_norm, options_.compile);
  return layer;
}

// RotaryPositionalEmbeddings.rope_init and build_rope_cache: cosine and sine side by side for every position.
void TorchtuneDecoder::make_rope_cache(Tape& tape) {
  const Tape::Scope scope(tape, "pos_embeddings");
  const Tape::In in(tape, Category::buffers);
  const Dim positions{max_seq_len_, Sym::none};
  theta_ = tape.empty(OpKind::load_buffer, {dims_.half_d}, DType::f32);
  tape.run(OpKind::load_buffer, {}, {&theta_}, {rope_theta_, {0, 0}});
  Tensor angles;
  {
    const Tensor index = to(arange(tape, positions), DType::f32);
    angles = view(index, {positions, kOne}) * view(theta_, {kOne, dims_.half_d});
  }
  const Tensor cosine = cos(angles), sine = sin(angles);
  rope_cache_ = cat(unsqueeze(cosine, -1), unsqueeze(sine, -1), -1);
}

// x_fp32 has a name until the end; every step of the rest takes the last one's place.
Tensor TorchtuneDecoder::Norm::forward(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), name);
  if (compiled) return fused_rms_norm(x, scale, eps);
  const Tensor x_fp32 = to(x, DType::f32);
  Tensor x_normed = pow(x_fp32, 2);
  x_normed = mean_last(x_normed);
  x_normed = x_normed + eps;
  x_normed = rsqrt(x_normed);
  x_normed = x_fp32 * x_normed;
  x_normed = to(x_normed, x.dtype());
  return x_normed * scale;
}

// RotaryPositionalEmbeddings.forward: neighbours are turned in fp32. x [b, s, n, d].
Tensor TorchtuneDecoder::rotate(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), "pos_embeddings");
  const Tensor xshaped = reshape(to(x, DType::f32), {x.dim(0), x.dim(1), x.dim(2), dims_.half_d, kPair});
  const Tensor cache = view(slice(rope_cache_, 0, 0, x.dim(1)), {kOne, x.dim(1), kOne, dims_.half_d, kPair});
  const Tensor cosine = pick(cache, 0), sine = pick(cache, 1);
  Tensor x_out;
  {
    Tensor even, odd;
    {
      const Tensor straight = pick(xshaped, 0) * cosine;
      const Tensor crossed = pick(xshaped, 1) * sine;
      even = sub(straight, crossed);
    }
    {
      const Tensor straight = pick(xshaped, 1) * cosine;
      const Tensor crossed = pick(xshaped, 0) * sine;
      odd = straight + crossed;
    }
    x_out = cat(unsqueeze(even, -1), unsqueeze(odd, -1), -1);
  }
  x_out = view(x_out, x.shape());
  return to(x_out, x.dtype());
}

// MultiHeadAttention.forward.
Tensor TorchtuneDecoder::attend_to(const Layer& layer, const Tensor& x) const {
  const Tape::Scope scope(x.tape(), names_.attention);
  Tensor q = layer.q.forward(x);
  q = view(q, {dims_.b, dims_.s, dims_.nh, dims_.d});
  q = rotate(q);
  q = transpose(q, 1, 2);
  Tensor k = layer.k.forward(x);
  Tensor v = layer.v.forward(x);
  k = view(k, {dims_.b, dims_.s, dims_.nkv, dims_.d});
  v = view(v, {dims_.b, dims_.s, dims_.nkv, dims_.d});
  k = rotate(k);
  k = transpose(k, 1, 2);
  v = transpose(v, 1, 2);
  k = repeat_kv(k, dims_.nh);
  v = repeat_kv(v, dims_.nh);
  Tensor output = attend(Attention::sdpa, q, k, v, Tensor()).output;
  output = view(output, {dims_.b, dims_.s, dims_.q_dim});
  return layer.o.forward(output);
}

// TransformerSelfAttentionLayer.forward.
Tensor TorchtuneDecoder::run_layer(const Layer& layer, const Tensor& x) const {
  Tensor h = layer.sa_norm.forward(x);
  const Tensor attn_out = attend_to(layer, h);
  h = attn_out + x;
  const Tensor mlp_out = layer.mlp.forward(layer.mlp_norm.forward(h));
  return h + mlp_out;
}

// --- the whole
// --------------------------------------------------------------------------------------------------------------

// TransformerDecoder.forward up to unembed(). set_activation_checkpointing wraps layers without reentry.
Tensor TorchtuneDecoder::decode(const Tensor& ids) const {
  Tape& tape = ids.tape();
  Tensor h = tok_embeddings_.forward(ids);
  const Tape::Scope scope(tape, "layers.*");
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Tape::Layer number(tape, static_cast<std::int32_t>(i));
    if (options_.checkpointing == Checkpointing::full) {
      h = tape.checkpoint([this, i, h] { return run_layer(layers_[i], h); });
    } else {
      h = run_layer(layers_[i], h);
    }
  }
  return h;
}

// TransformerDecoder.unembed().
Tensor TorchtuneDecoder::full_output(const Tensor& hidden) const {
  const Tensor h = norm_.forward(hidden);
  const Tape::In in(h.tape(), Category::logits);
  const Tensor output = output_.forward(h);
  return to(output, DType::f32);
}

// The same with chunked_output(): the logits of all chunks wait in a list.
std::vector<Tensor> TorchtuneDecoder::chunked_output(const Tensor& hidden) const {
  const Tensor h = norm_.forward(hidden);
  const Tape::In in(h.tape(), Category::logits);
  std::vector<Tensor> logits;
  for (const Tensor& chunk : tensor_split(h))
    logits.push_back(output_.forward(chunk));
  return logits;
}

// nn.CrossEntropyLoss, once the model's forward and its names are gone. Never compiled: its recipes for one GPU let go
// of what compile_loss() returns.
Tensor TorchtuneDecoder::full_loss(const Tensor& ids) const {
  Tensor outputs = full_output(decode(ids));
  const Tape::Scope scope(ids.tape(), "loss");
  const Tape::In in(ids.tape(), Category::logits);
  outputs = reshape(outputs, {tokens_of(labels_), dims_.V});
  return cross_entropy(outputs, reshape(labels_, {tokens_of(labels_)}), Reduction::mean);
}

// CEWithChunkedOutputLoss.forward. Python adds to total_loss in place, 4 bytes less for a moment.
Tensor TorchtuneDecoder::chunked_loss(const Tensor& ids) const {
  std::vector<Tensor> logits = chunked_output(decode(ids));
  const Tape::Scope scope(ids.tape(), "loss");
  const Tape::In in(ids.tape(), Category::logits);
  const Tensor total_elements = count_true(not_equal(labels_, kIgnoreIndex));
  std::vector<Tensor> targets = tensor_split(labels_);
  for (Tensor& chunk : targets)
    chunk = reshape(chunk, {tokens_of(chunk)});
  for (Tensor& chunk : logits)
    chunk = reshape(chunk, {tokens_of(chunk), dims_.V});
  Tensor total_loss;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Tensor loss = options_.compile ? compiled::cross_entropy(logits[i], targets[i])
                                         : cross_entropy(logits[i], targets[i], Reduction::sum);
    total_loss = total_loss ? total_loss + loss : loss + 0.0;
  }
  return div(total_loss, total_elements);
}

Tensor TorchtuneDecoder::make_inputs(Tape& tape) {
  labels_ = load_token_ids(tape, dims_.b, dims_.s, "labels");
  return load_token_ids(tape, dims_.b, dims_.s);
}

Tensor TorchtuneDecoder::forward(const Tensor& ids) {
  return options_.loss == Loss::chunked ? chunked_loss(ids) : full_loss(ids);
}

std::unique_ptr<Model> build_torchtune(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<TorchtuneDecoder>(tape, config, options);
}

}  // namespace ledger
