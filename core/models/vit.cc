#include "core/models/vit.h"

#include <memory>

namespace ledger {

Vit::Vit(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : config_(config.vision), options_(options) {
  sizes_ = {.images = {options.batch, Sym::b},
            .tokens = {plus(config_.patches(), 1), Sym::patches},
            .h = {config_.hidden_size, Sym::h},
            .ffn = {config_.intermediate_size, Sym::ffn},
            .heads = config_.heads};
  ModuleBuilder builder(tape, options.weights, options.linears, options.units);
  {
    const Tape::Scope base(tape, "vit");
    const ModuleBuilder::Frozen frozen(builder, options.freeze_vision_tower);
    encoder_.make(builder, config_, options, sizes_, "vit.");
    builder.open(kHeadUnit);
    encoder_.make_final_norm(builder, "vit.");
  }
  const Dim labels{config_.labels, Sym::none};
  classifier_ = Linear::make(builder, "", "classifier", sizes_.h, labels, true);
  // PEFT leaves out output layers of language models and, told the task, classifiers of text: this is neither.
  if (builder.adapts("classifier")) {
    const Tape::Scope scope(tape, "classifier");
    classifier_.adapter = builder.adapter("classifier", sizes_.h, labels);
  }
  trainable_ = builder.take_trainable();
  tape.trace().vocab_size = config_.labels;
}

Tensor Vit::make_inputs(Tape& tape) {
  const Dim side{config_.image_size, Sym::none};
  labels_ = view(load_token_ids(tape, sizes_.images, {1, Sym::none}, "labels"), {sizes_.images});
  return load_pixels(tape, {sizes_.images, {config_.channels, Sym::none}, side, side});
}

// ViTModel.forward.
Tensor Vit::encode(const Tensor& pixels) {
  Tape& tape = pixels.tape();
  const Tape::Scope base(tape, "vit");
  ParameterUnits* const units = options_.units;
  const Tensor pixel_values = to(pixels, encoder_.pixel_dtype());
  if (units != nullptr) units->before_forward(kEmbeddingUnit, Tensor());
  const Tensor embedding_output = encoder_.embed(pixel_values);
  if (units != nullptr) units->after_forward(kEmbeddingUnit, embedding_output);
  Tensor hidden = embedding_output;
  for (std::size_t i = 0; i < encoder_.layers(); ++i)
    hidden = encoder_.run_layer(i, hidden);
  if (units != nullptr) hidden = units->before_forward(kHeadUnit, hidden);
  return encoder_.final_norm(hidden);
}

Tensor Vit::forward(const Tensor& pixels) {
  Tensor seen = pixels;
  return as_root(options_.units, [&] {  // fully_shard's root casts what it is called with
    if (options_.units != nullptr) seen = to(pixels, encoder_.pixel_dtype());
    return forward_with_loss(seen);
  });
}

Tensor Vit::forward_with_loss(const Tensor& pixels) {
  Tape& tape = pixels.tape();
  const Tensor sequence = encode(pixels);
  const Tensor pooled = view(slice(sequence, 1, 0, {1, Sym::none}), {sizes_.images, sizes_.h});
  const Tape::In in(tape, Category::logits);
  const Tensor logits = classifier_.forward(pooled);
  if (options_.units != nullptr) options_.units->after_forward(kHeadUnit, logits);
  if (options_.keep_outputs) outputs_ = tape.detach(logits);
  const Tape::Scope scope(tape, "loss");
  return nll_loss(log_softmax(logits), labels_);
}

std::unique_ptr<Model> build_vit(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<Vit>(tape, config, options);
}

}  // namespace ledger
