// image_text.h - a decoder that sees images: an encoder of images, a projector, and words' embeddings in whose places
// its features are put. LLaVA's and Gemma 3's.
//
// Source: transformers 5.12 models/{llava,gemma3}/modeling_*.py, *ForConditionalGeneration.
#pragma once

#include "core/models/image_encoder.h"
#include "core/models/llama.h"

namespace ledger {

// What turns a tower's features into embeddings of the text's width.
class Projector {
 public:
  virtual ~Projector() = default;
  virtual Tensor forward(const Tensor& features) const = 0;  // [i, t, h_v] -> [i, t', h]
};

class ImageText : public Model {
 public:
  ImageText(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;

 private:
  std::int64_t image_token() const { return static_cast<std::int64_t>(config_.vision.token_id); }
  Tensor forward_with_loss(const Tensor& ids, const Tensor& pixels);
  Tensor selected(const Tensor& pixels) const;     // LLaVA's features [i, t, h], from one of all hidden states
  Tensor last_hidden(const Tensor& pixels) const;  // Gemma 3's
  Tensor joined(const Tensor& embeds, const Tensor& features, const Tensor& ids) const;
  Tensor decode(const Tensor& ids, const Tensor& pixels, Tensor& image_features);
  Tensor blocks() const;
  Llama::Masks make_masks(const Tensor& block_sequence_ids, DType dtype) const;
  Tensor gemma_loss(const Tensor& hidden, const Tensor& ids);

  ModelConfig config_;
  ModelOptions options_;
  ImageEncoder::Sizes sizes_;
  ImageEncoder tower_;
  std::unique_ptr<Projector> projector_;
  std::unique_ptr<Llama> text_;
  Tensor pixels_, token_type_ids_;
};

}  // namespace ledger
