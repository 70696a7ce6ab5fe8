#include "core/models/image_encoder.h"

#include <utility>

#include "core/models/feed_forward.h"

namespace ledger {
namespace {

constexpr EncoderNames kVit{.layers = "layers",
                            .attention = "attention",
                            .q = "q_proj",
                            .k = "k_proj",
                            .v = "v_proj",
                            .o = "o_proj",
                            .before = "layernorm_before",
                            .after = "layernorm_after",
                            .final_norm = "layernorm",
                            .values_first = false,
                            .norms_first = false,
                            .residual_last = true};
constexpr EncoderNames kClip{.layers = "encoder.layers",
                             .attention = "self_attn",
                             .q = "q_proj",
                             .k = "k_proj",
                             .v = "v_proj",
                             .o = "out_proj",
                             .before = "layer_norm1",
                             .after = "layer_norm2",
                             .final_norm = "post_layernorm",
                             .values_first = true,
                             .norms_first = false,
                             .residual_last = false};

constexpr EncoderNames siglip() {
  EncoderNames names = kClip;
  names.norms_first = true;
  return names;
}
constexpr EncoderNames kSiglip = siglip();

bool is_vit(const VisionConfig& c) {
  return c.model_type == "vit";
}
bool is_clip(const VisionConfig& c) {
  return c.model_type == "clip_vision_model";
}

const EncoderNames& names_of(const VisionConfig& c) {
  return is_vit(c) ? kVit : is_clip(c) ? kClip : kSiglip;
}

}  // namespace

std::vector<std::string_view> encoder_linears(const VisionConfig& config) {
  const EncoderNames& names = names_of(config);
  return {names.q, names.k, names.v, names.o, "fc1", "fc2"};
}

PatchEmbedding PatchEmbedding::make(ModuleBuilder& builder, const std::string& path, const char* name,
                                    const VisionConfig& config, Dim width, bool bias) {
  const Tape::Scope scope(builder.tape(), name);
  const Dim side{config.patch_size, Sym::none};
  Shape filters{width, {config.channels, Sym::none}};
  if (config.temporal_patch != 0) filters.push({config.temporal_patch, Sym::none});
  filters.push(side);
  filters.push(side);
  PatchEmbedding embedding;
  embedding.name = name;
  embedding.weight = builder.parameter(path + name, filters, Parameter::Role::matrix);
  if (bias) embedding.bias = builder.parameter(path + name, {width}, Parameter::Role::bias, "bias");
  return embedding;
}

Tensor PatchEmbedding::forward(const Tensor& pixels) const {
  const Tape::Scope scope(pixels.tape(), name);
  return call_module(this, {&weight, &bias}, pixels,
                     [&](const Tensor& seen) { return convolution(seen, weight, bias); });
}

void ImageEncoder::make(ModuleBuilder& builder, const VisionConfig& config, const ModelOptions& options,
                        const Sizes& sizes, const std::string& path) {
  Tape& tape = builder.tape();
  config_ = config;
  options_ = options;
  sizes_ = sizes;
  names_ = &names_of(config);
  builder.open(kEmbeddingUnit);
  make_embeddings(builder, path + "embeddings.");
  if (is_clip(config))
    first_norm_ = Norm::make(builder, path, "pre_layrnorm", NormKind::layer, sizes.h, config.norm_eps);
  const Tape::Scope layers(tape, is_vit(config) ? "layers.*" : "encoder.layers.*");
  for (std::size_t i = 0; i < config.layers; ++i) {
    builder.open(kFirstLayerUnit + static_cast<UnitId>(i));
    layers_.push_back(make_layer(builder, i, path + names_->layers + "." + std::to_string(i) + "."));
  }
}

void ImageEncoder::make_final_norm(ModuleBuilder& builder, const std::string& path) {
  final_norm_ = Norm::make(builder, path, names_->final_norm, NormKind::layer, sizes_.h, config_.norm_eps);
}

void ImageEncoder::make_embeddings(ModuleBuilder& builder, const std::string& path) {
  Tape& tape = builder.tape();
  const Tape::Scope scope(tape, "embeddings");
  const Dim one{1, Sym::none};
  const std::string base = path.substr(0, path.size() - 1);
  if (is_vit(config_)) {
    class_token_ = builder.parameter(base, {one, one, sizes_.h}, Parameter::Role::matrix, "cls_token");
    position_parameter_ =
        builder.parameter(base, {one, sizes_.tokens, sizes_.h}, Parameter::Role::matrix, "position_embeddings");
    const Tape::Scope patches(tape, "patch_embeddings");
    patch_embedding_ = PatchEmbedding::make(builder, path + "patch_embeddings.", "projection", config_, sizes_.h, true);
    return;
  }
  if (is_clip(config_)) class_token_ = builder.parameter(base, {sizes_.h}, Parameter::Role::matrix, "class_embedding");
  patch_embedding_ = PatchEmbedding::make(builder, path, "patch_embedding", config_, sizes_.h, !is_clip(config_));
  positions_ = Embedding::make(builder, path, "position_embedding", sizes_.tokens, sizes_.h);
  const Tape::Scope ids(tape, "position_ids");
  const Tape::In in(tape, Category::buffers);
  position_ids_ = tape.empty(OpKind::arange, {one, sizes_.tokens}, DType::i64);
  const Tensor row = view(position_ids_, {sizes_.tokens});
  tape.run(OpKind::arange, {}, {&row});
}

void ImageEncoder::make_attention(ModuleBuilder& builder, Layer& layer, const std::string& path) const {
  const Tape::Scope scope(builder.tape(), names_->attention);
  const std::string at = path + names_->attention + ".";
  const Dim h = sizes_.h;
  const auto q = [&] { layer.q = Linear::make(builder, at, names_->q, h, h, config_.qkv_bias); };
  const auto k = [&] { layer.k = Linear::make(builder, at, names_->k, h, h, config_.qkv_bias); };
  const auto v = [&] { layer.v = Linear::make(builder, at, names_->v, h, h, config_.qkv_bias); };
  if (!names_->values_first) q();
  k();
  v();
  if (names_->values_first) q();
  layer.o = Linear::make(builder, at, names_->o, h, h, true);
}

ImageEncoder::Layer ImageEncoder::make_layer(ModuleBuilder& builder, std::size_t index, const std::string& path) const {
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  const auto norm = [&](const char* name) {
    return Norm::make(builder, path, name, NormKind::layer, sizes_.h, config_.norm_eps);
  };
  const auto mlp = [&](Layer& layer) {
    const Tape::Scope scope(builder.tape(), "mlp");
    layer.up = Linear::make(builder, path + "mlp.", "fc1", sizes_.h, sizes_.ffn, true);
    layer.down = Linear::make(builder, path + "mlp.", "fc2", sizes_.ffn, sizes_.h, true);
  };
  Layer layer;
  if (names_->norms_first) layer.before = norm(names_->before);
  make_attention(builder, layer, path);
  if (!names_->norms_first) layer.before = norm(names_->before);
  const bool mlp_last = is_vit(config_) || names_->norms_first;
  if (!mlp_last) mlp(layer);
  layer.after = norm(names_->after);
  if (mlp_last) mlp(layer);
  return layer;
}

// The class token and the patches after it, in one sequence.
Tensor ImageEncoder::with_class_token(const Tensor& patches) const {
  if (!class_token_) return patches;
  const Tensor tokens = expand(class_token_, {sizes_.images, {1, Sym::none}, sizes_.h});
  return cat(tokens, patches, 1, sizes_.tokens.sym);
}

Tensor ImageEncoder::patches(const Tensor& pixels) const {
  Tape& tape = pixels.tape();
  Tensor features;
  {
    std::optional<Tape::Scope> scope;
    if (is_vit(config_)) scope.emplace(tape, "patch_embeddings");
    features = patch_embedding_.forward(to(pixels, patch_embedding_.weight.dtype()));
  }
  if (options_.input_requires_grad && !features.requires_grad()) tape.require_grad(features);
  const Dim count{config_.patches(), class_token_ ? Sym::none : sizes_.tokens.sym};
  return transpose(view(features, {sizes_.images, sizes_.h, count}), 1, 2);
}

Tensor ImageEncoder::embed(const Tensor& pixels) const {
  Tape& tape = pixels.tape();
  Tensor embeddings;
  {
    const Tape::Scope scope(tape, "embeddings");
    const auto all = [&](const Tensor& seen) {
      const Tensor embedded = with_class_token(patches(seen));
      if (position_parameter_) return drop(embedded + position_parameter_);
      const Tensor places = positions_.forward(position_ids_);
      return embedded + places;
    };
    embeddings = call_module(this, {&class_token_, &position_parameter_}, pixels, all);
  }
  if (first_norm_) embeddings = first_norm_->forward(embeddings);
  return embeddings;
}

Tensor ImageEncoder::drop(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), "dropout");
  return dropout(x, config_.hidden_dropout);
}

Tensor ImageEncoder::attend(const Layer& layer, const Tensor& hidden, Tensor& weights) const {
  const Tape::Scope scope(hidden.tape(), names_->attention);
  const Shape cut{sizes_.images, sizes_.tokens, {sizes_.heads, Sym::none}, {sizes_.h.size / sizes_.heads, Sym::none}};
  const auto heads = [&](const Linear& projection) { return transpose(view(projection.forward(hidden), cut), 1, 2); };
  const Tensor q = heads(layer.q);
  const Tensor k = heads(layer.k);
  const Tensor v = heads(layer.v);
  Attended attended =
      ledger::attend(options_.attention, q, k, v, Tensor(), {0, config_.attention_dropout, 0, true, false});
  weights = std::move(attended.weights);
  attended.output = contiguous(reshape(attended.output, {sizes_.images, sizes_.tokens, sizes_.h}));
  attended.output = layer.o.forward(attended.output);
  return std::move(attended.output);
}

Tensor ImageEncoder::feed(const Layer& layer, const Tensor& hidden) const {
  const Tape::Scope scope(hidden.tape(), "mlp");
  Tensor inner = layer.up.forward(hidden);
  inner = activate(config_.act, inner);
  inner = layer.down.forward(inner);
  return inner;
}

Tensor ImageEncoder::forward_layer(std::size_t index, const Tensor& hidden) const {
  const Layer& layer = layers_[index];
  const UnitId unit = kFirstLayerUnit + static_cast<UnitId>(index);
  Tensor residual = options_.units == nullptr ? hidden : options_.units->before_forward(unit, hidden);
  const auto sum = [&](const Tensor& x) { return names_->residual_last ? x + residual : residual + x; };
  Tensor weights;  // `hidden_states, _ = self.self_attn(...)`
  Tensor x = layer.before.forward(residual);
  x = attend(layer, x, weights);
  x = drop(x);
  x = sum(x);
  residual = x;
  x = layer.after.forward(x);
  x = feed(layer, x);
  x = drop(x);
  x = sum(x);
  if (options_.units != nullptr) options_.units->after_forward(unit, x);
  return x;
}

Tensor ImageEncoder::run_layer(std::size_t index, const Tensor& hidden) const {
  Tape& tape = hidden.tape();
  const Tape::Scope scope(tape, is_vit(config_) ? "layers.*" : "encoder.layers.*");
  const Tape::Layer number(tape, static_cast<std::int32_t>(index));
  return checkpointed(
      options_.checkpointing, [this, index](const Tensor& input) { return forward_layer(index, input); }, hidden);
}

}  // namespace ledger
