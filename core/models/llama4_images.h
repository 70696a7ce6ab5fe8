// llama4_images.h - Llama 4 as it is published: an encoder of images, a linear layer, and its decoder.
//
// Source: transformers 5.12 models/llama4/modeling_llama4.py, Llama4ForConditionalGeneration.
#pragma once

#include <memory>

#include "core/config/image_grid.h"
#include "core/models/llama.h"
#include "core/models/llama4_vision.h"

namespace ledger {

class Llama4Images : public Model {
 public:
  Llama4Images(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;

 private:
  std::int64_t image_token() const { return static_cast<std::int64_t>(config_.vision.token_id); }
  Tensor pixel_values() const;
  Tensor forward_with_loss(const Tensor& ids);
  Tensor decode(const Tensor& inputs_embeds, const Tensor& ids);

  ModelConfig config_;
  ModelOptions options_;
  ImageGrid grid_;  // of an image
  Llama4Vision vision_model_;
  Linear projector_;
  std::unique_ptr<Llama> text_;
  Tensor pixels_;
};

}  // namespace ledger
