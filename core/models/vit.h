// vit.h - ViT with its classification head: an encoder of images, of whose tokens the first is classified.
//
// Source: transformers 5.12 models/vit/modeling_vit.py, ViTForImageClassification; loss/loss_utils.py,
// ForSequenceClassificationLoss.
#pragma once

#include "core/models/image_encoder.h"

namespace ledger {

class Vit : public Model {
 public:
  Vit(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& pixels) override;

 private:
  Tensor encode(const Tensor& pixels);
  Tensor forward_with_loss(const Tensor& pixels);

  VisionConfig config_;
  ModelOptions options_;
  ImageEncoder::Sizes sizes_;
  ImageEncoder encoder_;
  Linear classifier_;
  Tensor labels_;  // int64 [b]
};

}  // namespace ledger
