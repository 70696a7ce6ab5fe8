#include "core/models/llama4_vision.h"

#include <utility>

#include "core/models/feed_forward.h"

namespace ledger {
namespace {

constexpr const char* kVisionModel = "vision_model";

// pixel_shuffle: [n, L, h] to [n, L / m^2, h m^2]; two copies in other orders.
Tensor pixel_shuffled(const Tensor& x, std::uint64_t side, std::uint64_t m) {
  const auto plain = [](std::uint64_t size) { return Dim{size, Sym::none}; };
  const Dim n = x.dim(0), whole = plain(side), fewer = plain(side / m);
  const std::uint64_t h = x.dim(2).size;
  Tensor shuffled = view(x, {n, whole, whole, x.dim(2)});
  shuffled = view(shuffled, {n, whole, fewer, plain(times(h, m))});
  shuffled = contiguous(transpose(shuffled, 1, 2));
  shuffled = view(shuffled, {n, fewer, fewer, plain(times(h, times(m, m)))});
  shuffled = contiguous(transpose(shuffled, 1, 2));
  return view(shuffled, {n, plain(times(fewer.size, fewer.size)), shuffled.dim(3)});
}

}  // namespace

void Llama4Vision::make(ModuleBuilder& builder, const VisionConfig& config, const ModelOptions& options,
                        std::uint64_t tiles) {
  Tape& tape = builder.tape();
  config_ = config;
  options_ = options;
  side_ = config.image_size / config.patch_size;
  tiles_ = {tiles, Sym::images};
  places_ = {plus(times(side_, side_), 1), Sym::patches};
  h_ = {config.hidden_size, Sym::h_v};
  heads_ = {config.heads, Sym::none};
  d_ = {config.hidden_size / config.heads, Sym::none};
  const Tape::Scope scope(tape, kVisionModel);
  const ModuleBuilder::Frozen frozen(builder, options.freeze_vision_tower);
  const std::string name = kVisionModel, path = name + ".";
  builder.open(kEmbeddingUnit);
  class_embedding_ = builder.parameter(name, {h_}, Parameter::Role::matrix, "class_embedding");
  positional_embedding_ = builder.parameter(name, {places_, h_}, Parameter::Role::matrix, "positional_embedding_vlm");
  {
    const Tape::Scope patch(tape, "patch_embedding");
    const Dim pixels{times(config.channels, times(config.patch_size, config.patch_size)), Sym::none};
    patch_linear_ = Linear::make(builder, path + "patch_embedding.", "linear", pixels, h_, false);
  }
  {
    const Tape::Scope rotary(tape, "rotary_embedding.freqs_ci");
    const Tape::In in(tape, Category::buffers);
    turns_ = image_turns(tape, side_, {kOne, places_, kOne, d_}, config.rope_theta);
  }
  pre_ = Norm::make(builder, path, "layernorm_pre", NormKind::layer, h_, config.norm_eps);
  post_ = Norm::make(builder, path, "layernorm_post", NormKind::layer, h_, config.norm_eps);
  {
    const Tape::Scope layers(tape, "model.layers.*");
    for (std::size_t i = 0; i < config.layers; ++i) {
      builder.open(kFirstLayerUnit + static_cast<UnitId>(i));
      layers_.push_back(make_layer(builder, i, path + "model.layers." + std::to_string(i) + "."));
    }
  }
  builder.open(kRootUnit);
  make_adapter(builder, path + "vision_adapter.mlp.");
}

Llama4Vision::Layer Llama4Vision::make_layer(ModuleBuilder& builder, std::size_t index, const std::string& path) const {
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  const Dim ffn{config_.intermediate_size, Sym::ffn_v};
  Layer layer;
  {
    const Tape::Scope scope(builder.tape(), "self_attn");
    const std::string at = path + "self_attn.";
    layer.q = Linear::make(builder, at, "q_proj", h_, h_, true);
    layer.k = Linear::make(builder, at, "k_proj", h_, h_, true);
    layer.v = Linear::make(builder, at, "v_proj", h_, h_, true);
    layer.o = Linear::make(builder, at, "o_proj", h_, h_, true);
  }
  {
    const Tape::Scope scope(builder.tape(), "mlp");
    layer.up = Linear::make(builder, path + "mlp.", "fc1", h_, ffn, true);
    layer.down = Linear::make(builder, path + "mlp.", "fc2", ffn, h_, true);
  }
  layer.before = Norm::make(builder, path, "input_layernorm", NormKind::layer, h_, config_.norm_eps);
  layer.after = Norm::make(builder, path, "post_attention_layernorm", NormKind::layer, h_, config_.norm_eps);
  return layer;
}

void Llama4Vision::make_adapter(ModuleBuilder& builder, const std::string& path) {
  const Tape::Scope scope(builder.tape(), "vision_adapter.mlp");
  const Dim shuffled{config_.intermediate_size, Sym::ffn_v}, in{config_.adapter_in, Sym::none};
  const Dim out{config_.adapter_out, Sym::none};
  adapter_in_ = Linear::make(builder, path, "fc1", shuffled, in, false);
  adapter_out_ = Linear::make(builder, path, "fc2", in, out, false);
}

Shape Llama4Vision::pixels_shape() const {
  const Dim side{config_.image_size, Sym::none};
  return {tiles_, {config_.channels, Sym::none}, side, side};
}

// Llama4UnfoldConvolution.forward: [tiles, patches, h].
Tensor Llama4Vision::patches(const Tensor& pixels) const {
  Tape& tape = pixels.tape();
  const Tape::Scope scope(tape, "patch_embedding");
  Tensor hidden = unfold(pixels, config_.patch_size);
  hidden = transpose(hidden, 1, 2);
  hidden = patch_linear_.forward(hidden);
  if (options_.input_requires_grad && !hidden.requires_grad()) tape.require_grad(hidden);
  return hidden;
}

// What comes before the encoder, of Llama4VisionModel.forward.
Tensor Llama4Vision::embed(const Tensor& pixels) const {
  Tensor hidden = patches(pixels);
  const Tensor class_token = expand(class_embedding_, {tiles_, kOne, h_});
  hidden = cat(hidden, class_token, 1, Sym::patches);
  hidden = view(hidden, {tiles_, kOne, places_, h_});
  hidden = hidden + positional_embedding_;
  hidden = pre_.forward(hidden);
  return view(hidden, {tiles_, places_, h_});
}

Tensor Llama4Vision::encode(const Tensor& embedded) const {
  Tape& tape = embedded.tape();
  const Tape::Scope scope(tape, "model.layers.*");
  Tensor hidden = embedded;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Tape::Layer number(tape, static_cast<std::int32_t>(i));
    hidden = checkpointed(
        options_.checkpointing, [this, i](const Tensor& input) { return forward_layer(i, input); }, hidden);
  }
  return hidden;
}

Tensor Llama4Vision::forward_layer(std::size_t index, const Tensor& hidden) const {
  const UnitId unit = kFirstLayerUnit + static_cast<UnitId>(index);
  return in_unit(options_.units, unit, hidden,
                 [&](const Tensor& input) { return forward_block(layers_[index], input); });
}

Tensor Llama4Vision::forward_block(const Layer& layer, const Tensor& hidden) const {
  Tensor residual = hidden;
  Tensor weights;  // `hidden_state, attn_weights = self.self_attn(...)`
  Tensor x = layer.before.forward(residual);
  x = attend(layer, x, weights);
  x = residual + x;
  residual = x;
  x = layer.after.forward(x);
  x = feed(layer, x);
  return residual + x;
}

Tensor Llama4Vision::attend(const Layer& layer, const Tensor& hidden, Tensor& weights) const {
  const Tape::Scope scope(hidden.tape(), "self_attn");
  const Shape cut{tiles_, places_, heads_, d_};
  Tensor q = view(layer.q.forward(hidden), cut);
  Tensor k = view(layer.k.forward(hidden), cut);
  Tensor v = view(layer.v.forward(hidden), cut);
  {
    const Tensor q_wide = to(q, DType::f32);
    const Tensor k_wide = to(k, DType::f32);
    const Tensor q_out = complex_mul(q_wide, turns_);
    const Tensor k_out = complex_mul(k_wide, turns_);
    Tensor turned = to(q_out, q.dtype());
    k = to(k_out, k.dtype());
    q = std::move(turned);
  }
  q = transpose(q, 1, 2);
  k = transpose(k, 1, 2);
  v = transpose(v, 1, 2);
  constexpr bool kFp32Softmax = false, kCausal = false;
  Attended attended =
      ledger::attend(options_.attention, q, k, v, Tensor(), {0, config_.attention_dropout, 0, kFp32Softmax, kCausal});
  weights = std::move(attended.weights);
  attended.output = contiguous(reshape(attended.output, {tiles_, places_, h_}));
  attended.output = layer.o.forward(attended.output);
  return std::move(attended.output);
}

Tensor Llama4Vision::feed(const Layer& layer, const Tensor& hidden) const {
  const Tape::Scope scope(hidden.tape(), "mlp");
  Tensor inner = layer.up.forward(hidden);
  inner = gelu(inner, false);
  inner = layer.down.forward(inner);
  return inner;
}

// Llama4VisionPixelShuffleMLP.forward.
Tensor Llama4Vision::adapt(const Tensor& encoded) const {
  const Tape::Scope scope(encoded.tape(), "vision_adapter.mlp");
  const Tensor shuffled = pixel_shuffled(encoded, side_, config_.shuffle);
  Tensor hidden = adapter_in_.forward(shuffled);
  hidden = gelu(hidden, false);
  hidden = dropout(hidden, config_.projector_dropout);
  return gelu(adapter_out_.forward(hidden), false);
}

// The encoder's output keeps its name until this returns, and with it its memory.
Tensor Llama4Vision::forward(const Tensor& pixels) const {
  const Tape::Scope scope(pixels.tape(), kVisionModel);
  Tensor hidden = embed(pixels);
  const Tensor output = encode(hidden);
  hidden = output;
  hidden = post_.forward(hidden);
  hidden = slice(hidden, 1, 0, {places_.size - 1, Sym::none});
  return adapt(hidden);
}

}  // namespace ledger
