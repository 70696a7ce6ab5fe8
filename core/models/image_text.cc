#include "core/models/image_text.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/models/causal_lm_loss.h"
#include "core/models/feed_forward.h"

namespace ledger {
namespace {

constexpr const char* kTower = "model.vision_tower";
constexpr const char* kProjector = "model.multi_modal_projector";
constexpr const char* kText = "model.language_model";

// LlavaMultiModalProjector.
class TwoLayers : public Projector {
 public:
  TwoLayers(ModuleBuilder& builder, const VisionConfig& config, Dim from, Dim to) : act_(config.projector_act) {
    const Tape::Scope scope(builder.tape(), kProjector);
    const std::string at = std::string(kProjector) + ".";
    first_ = Linear::make(builder, at, "linear_1", from, to, config.projector_bias);
    second_ = Linear::make(builder, at, "linear_2", to, to, config.projector_bias);
  }

  Tensor forward(const Tensor& features) const override {
    const Tape::Scope scope(features.tape(), kProjector);
    Tensor hidden = first_.forward(features);
    hidden = activate(act_, hidden);
    return second_.forward(hidden);
  }

 private:
  Act act_;
  Linear first_, second_;
};

// Gemma3MultiModalProjector.
class Pooling : public Projector {
 public:
  Pooling(ModuleBuilder& builder, const VisionConfig& config, Dim from, Dim to) : config_(config) {
    const Tape::Scope scope(builder.tape(), kProjector);
    weight_ = builder.parameter(kProjector, {from, to}, Parameter::Role::matrix, "mm_input_projection_weight");
    norm_ = Norm::make(builder, std::string(kProjector) + ".", "mm_soft_emb_norm", NormKind::rms_gemma, from,
                       config.norm_eps);
  }

  Tensor forward(const Tensor& features) const override {
    const Tape::Scope scope(features.tape(), kProjector);
    const std::uint64_t side = config_.image_size / config_.patch_size;
    std::uint64_t kept = 1;
    while ((kept + 1) * (kept + 1) <= config_.tokens)
      ++kept;
    const Dim whole{side, Sym::none};
    const Tensor reshaped =
        contiguous(reshape(transpose(features, 1, 2), {features.dim(0), features.dim(2), whole, whole}));
    Tensor pooled = avg_pool(reshaped, side / kept);
    pooled = view(pooled, {features.dim(0), features.dim(2), {config_.tokens, Sym::none}});
    pooled = transpose(pooled, 1, 2);
    const Tensor normed = norm_.forward(pooled);
    const Tensor projected = linear_by_matmul(normed, transpose(weight_, 0, 1), Tensor());
    return to(projected, features.dtype());
  }

 private:
  VisionConfig config_;
  Tensor weight_;
  Norm norm_;
};

std::unique_ptr<Projector> make_projector(ModuleBuilder& builder, const ModelConfig& config, Dim from, Dim to) {
  if (config.model_type == "gemma3") return std::make_unique<Pooling>(builder, config.vision, from, to);
  return std::make_unique<TwoLayers>(builder, config.vision, from, to);
}

}  // namespace

ImageText::ImageText(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : config_(config), options_(options) {
  const VisionConfig& vision = config.vision;
  const bool has_class_token = vision.model_type == "clip_vision_model";
  sizes_ = {.images = {times(options.batch, options.images), Sym::images},
            .tokens = {plus(vision.patches(), has_class_token ? 1 : 0), Sym::patches},
            .h = {vision.hidden_size, Sym::h_v},
            .ffn = {vision.intermediate_size, Sym::ffn_v},
            .heads = vision.heads};
  ModuleBuilder builder(tape, options.weights, options.linears, options.units);
  {
    const Tape::Scope scope(tape, kTower);
    const ModuleBuilder::Frozen frozen(builder, options.freeze_vision_tower);
    const std::string path = std::string(kTower) + ".";
    tower_.make(builder, vision, options, sizes_, path);
    builder.open(kRootUnit);
    tower_.make_final_norm(builder, path);
  }
  projector_ = make_projector(builder, config, sizes_.h, {config.hidden_size, Sym::h});
  text_ =
      std::make_unique<Llama>(builder, decoder_behind_images(config), options_behind_images(config, options), kText);
  trainable_ = builder.take_trainable();
}

Tensor ImageText::make_inputs(Tape& tape) {
  const VisionConfig& vision = config_.vision;
  const Dim side{vision.image_size, Sym::none};
  const auto layout = static_cast<std::int64_t>((options_.images << 32) + vision.tokens);
  const DecoderDims& dims = text_->dims();
  Tensor ids = load_token_ids(tape, dims.b, dims.s, "input_ids", {0, {layout, image_token()}});
  pixels_ = load_pixels(tape, {sizes_.images, {vision.channels, Sym::none}, side, side});
  if (config_.model_type == "gemma3") {
    const Tape::Scope scope(tape, "token_type_ids");
    const Tape::In in(tape, Category::inputs);
    token_type_ids_ = to(equal(ids, image_token()), DType::i64);
  }
  return ids;
}

// CLIPVisionModel.forward with output_hidden_states=True: all of them stay until the features are chosen, and the rest
// of the tower runs for nobody.
Tensor ImageText::selected(const Tensor& pixels) const {
  std::vector<Tensor> hidden_states;
  Tensor last_hidden, pooled;
  {
    const Tape::Scope scope(pixels.tape(), kTower);
    hidden_states.push_back(tower_.embed(pixels));
    for (std::size_t i = 0; i < tower_.layers(); ++i)
      hidden_states.push_back(tower_.run_layer(i, hidden_states.back()));
    last_hidden = hidden_states.back();
    if (config_.vision.model_type == "clip_vision_model") {
      pooled = view(slice(last_hidden, 1, 0, {1, Sym::none}), {sizes_.images, sizes_.h});
      pooled = tower_.final_norm(pooled);
    } else {
      last_hidden = tower_.final_norm(last_hidden);
    }
  }
  Tensor feature = hidden_states[static_cast<std::size_t>(config_.vision.feature_layer)];
  if (config_.vision.drops_first) feature = slice(feature, 1, 1, {sizes_.tokens.size - 1, Sym::none});
  return projector_->forward(feature);
}

// SiglipVisionModel.forward, without a pooling head.
Tensor ImageText::last_hidden(const Tensor& pixels) const {
  Tensor hidden;
  {
    const Tape::Scope scope(pixels.tape(), kTower);
    hidden = tower_.embed(pixels);
    for (std::size_t i = 0; i < tower_.layers(); ++i)
      hidden = tower_.run_layer(i, hidden);
    hidden = tower_.final_norm(hidden);
  }
  return projector_->forward(hidden);
}

// get_placeholder_mask and masked_scatter.
Tensor ImageText::joined(const Tensor& embeds, const Tensor& features, const Tensor& ids) const {
  const Tape::Scope scope(ids.tape(), "model");
  const Tensor special_image_mask = equal(ids, image_token());
  { const Tensor n_image_tokens = count_true(special_image_mask); }
  return masked_scatter(embeds, unsqueeze(special_image_mask, -1), features);
}

// fully_shard's root casts the pixels, too, and keeps them until the whole pass is over.
Tensor ImageText::forward(const Tensor& ids) {
  Tensor seen = pixels_;
  return as_root(options_.units, [&] {
    if (options_.units != nullptr) seen = to(pixels_, tower_.pixel_dtype());
    return forward_with_loss(ids, seen);
  });
}

Tensor ImageText::forward_with_loss(const Tensor& ids, const Tensor& pixels) {
  Tape& tape = ids.tape();
  Tensor image_features;  // an output of the model, alive with its logits
  const Tensor hidden = decode(ids, pixels, image_features);
  const Tape::In in(tape, Category::logits);
  const bool shifted = config_.model_type == "gemma3" && options_.loss == Loss::full;
  Tensor loss = shifted ? gemma_loss(hidden, ids) : text_->loss_of(hidden, ids);
  if (!options_.keep_outputs) return loss;
  if (!shifted) outputs_ = text_->outputs();
  text_->replace_outputs(Tensor());
  image_outputs_ = tape.detach(image_features);
  return loss;
}

Tensor ImageText::decode(const Tensor& ids, const Tensor& pixels, Tensor& image_features) {
  Tensor inputs_embeds = text_->embed(ids);
  {
    Tensor features = config_.model_type == "gemma3" ? last_hidden(pixels) : selected(pixels);
    if (config_.model_type != "gemma3") features = join_images(features);
    image_features = to(features, inputs_embeds.dtype());
  }
  inputs_embeds = joined(inputs_embeds, image_features, ids);
  if (config_.model_type != "gemma3") return text_->run_layers(inputs_embeds);
  const Tensor block_sequence_ids = blocks();
  const Llama::Masks masks = make_masks(block_sequence_ids, inputs_embeds.dtype());
  return text_->run_layers(inputs_embeds, &masks);
}

// get_block_sequence_ids_for_mask: which image each token belongs to, if any.
Tensor ImageText::blocks() const {
  const Tape::Scope scope(token_type_ids_.tape(), "causal_mask");
  const Tape::NoGrad no_grad(token_type_ids_.tape());
  return image_blocks(equal(token_type_ids_, 1));
}

// Masks that is_causal cannot say, of both kinds of layers; flash attention takes none, and sees no later image token.
Llama::Masks ImageText::make_masks(const Tensor& block_sequence_ids, DType dtype) const {
  if (options_.attention == Attention::flash) return {};
  Tape& tape = block_sequence_ids.tape();
  const Tape::Scope scope(tape, "causal_mask");
  const Tape::NoGrad no_grad(tape);
  const auto mask = [&](std::uint64_t window) {
    const Tensor seen = causal_or_block_mask(block_sequence_ids, window);
    return options_.attention == Attention::eager ? additive_mask(seen, dtype, false) : seen;
  };
  Llama::Masks masks;
  masks.full = mask(0);
  masks.sliding = mask(config_.sliding_window);
  return masks;
}

// Gemma3ForConditionalGeneration.forward: fp32 logits in the place of the others, and a copy of all but the last.
Tensor ImageText::gemma_loss(const Tensor& hidden, const Tensor& ids) {
  Tape& tape = ids.tape();
  Tensor logits = text_->logits_of(hidden);
  const Tape::Scope scope(tape, "loss");
  logits = to(logits, DType::f32);
  if (options_.keep_outputs) outputs_ = tape.detach(logits);
  return shifted_cross_entropy(logits, ids);
}

std::unique_ptr<Model> build_image_text(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  if (config.vision.any_size()) return build_qwen_vl(tape, config, options);
  if (config.vision.tiled) return build_llama4_images(tape, config, options);
  return std::make_unique<ImageText>(tape, config, options);
}

}  // namespace ledger
