#include "core/models/llama4_images.h"

#include <string>
#include <utility>

#include "core/models/causal_lm_loss.h"

namespace ledger {
namespace {

constexpr const char* kMultiModalProjector = "multi_modal_projector";

}  // namespace

Llama4Images::Llama4Images(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : config_(config), options_(options), grid_(image_grid(config.vision, options.image_height, options.image_width)) {
  ModuleBuilder builder(tape, options.weights, options.linears, options.units);
  const std::uint64_t images = times(options.batch, options.images);
  vision_model_.make(builder, config.vision, options, times(images, grid_.tiles));
  {
    const Tape::Scope scope(tape, kMultiModalProjector);
    projector_ = Linear::make(builder, std::string(kMultiModalProjector) + ".", "linear_1", vision_model_.width(),
                              {config.hidden_size, Sym::h}, false);
  }
  text_ = std::make_unique<Llama>(builder, decoder_behind_images(config), options_behind_images(config, options),
                                  "language_model.model");
  trainable_ = builder.take_trainable();
}

// Llama4ImageProcessor rescales in bf16, whatever the model's dtype.
Tensor Llama4Images::make_inputs(Tape& tape) {
  const auto layout = static_cast<std::int64_t>((options_.images << 32) + grid_.tokens);
  const DecoderDims& dims = text_->dims();
  Tensor ids = load_token_ids(tape, dims.b, dims.s, "input_ids", {0, {layout, image_token()}});
  pixels_ = load_pixels(tape, vision_model_.pixels_shape(), DType::bf16);
  return ids;
}

// The encoder takes pixels as they are: for a model in fp32 the loop has to cast them first.
Tensor Llama4Images::pixel_values() const {
  return pixels_.tape().autocast_enabled() ? pixels_ : to(pixels_, vision_model_.pixel_dtype());
}

// Llama4ForCausalLM.forward: the logits, or the loss where one takes the output layer in.
Tensor Llama4Images::decode(const Tensor& inputs_embeds, const Tensor& ids) {
  const Tensor hidden = text_->run_layers(inputs_embeds);
  const Tape::In in(ids.tape(), Category::logits);
  return options_.loss == Loss::full ? text_->logits_of(hidden) : text_->loss_of(hidden, ids);
}

Tensor Llama4Images::forward(const Tensor& ids) {
  return as_root(options_.units, [&] { return forward_with_loss(ids); });
}

// One function in Python, too: its names live until the loss is there, image_features as long as the outputs.
Tensor Llama4Images::forward_with_loss(const Tensor& ids) {
  Tape& tape = ids.tape();
  Tensor inputs_embeds = text_->embed(ids);
  const Tensor image_features = vision_model_.forward(pixel_values());
  const Dim tokens{times(image_features.dim(0).size, image_features.dim(1).size), Sym::none};
  const Tensor vision_flat = view(image_features, {tokens, image_features.dim(2)});
  Tensor projected;
  {
    const Tape::Scope scope(tape, kMultiModalProjector);
    projected = projector_.forward(vision_flat);
    projected = to(projected, inputs_embeds.dtype());
  }
  Tensor special_image_mask = equal(ids, image_token());
  { const Tensor n_image_tokens = count_true(special_image_mask); }
  special_image_mask = unsqueeze(special_image_mask, -1);
  inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, projected);
  Tensor result = decode(inputs_embeds, ids);
  if (options_.keep_outputs) image_outputs_ = tape.detach(image_features);
  if (options_.loss != Loss::full) {
    if (options_.keep_outputs) outputs_ = text_->outputs();
    text_->replace_outputs(Tensor());
    return result;
  }
  if (options_.keep_outputs) outputs_ = tape.detach(result);
  const Tape::In in(tape, Category::logits);
  const Tape::Scope scope(tape, "loss");
  return shifted_cross_entropy(result, ids);
}

std::unique_ptr<Model> build_llama4_images(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<Llama4Images>(tape, config, options);
}

}  // namespace ledger
