// qwen_vl.h - Qwen2-VL and Qwen2.5-VL: their encoder of images, and a decoder whose positions are three numbers a
// token.
//
// Source: transformers 5.12 models/{qwen2_vl,qwen2_5_vl}/modeling_*.py, *ForConditionalGeneration.
#pragma once

#include <memory>

#include "core/models/llama.h"
#include "core/models/qwen_vision.h"

namespace ledger {

class QwenVl : public Model {
 public:
  QwenVl(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;

 private:
  std::int64_t image_token() const { return static_cast<std::int64_t>(config_.vision.token_id); }
  Tensor forward_with_loss(const Tensor& ids, const Tensor& pixels);
  Tensor decode(const Tensor& ids, const Tensor& pixels);
  Tensor image_features(const Tensor& pixels) const;
  Tensor rope_index(Tape& tape);
  Tensor row_positions(Tape& tape) const;
  Tensor image_positions(Tape& tape, double start) const;

  ModelConfig config_;
  ModelOptions options_;
  ImageGrid grid_;
  Dim images_;  // of the batch
  QwenVision visual_;
  std::unique_ptr<Llama> text_;
  Tensor pixels_, image_grid_thw_, mm_token_type_ids_;  // beside the ids, of the batch
  Tensor rope_deltas_;                                  // int64 [b, 1], kept by the model from pass to pass
};

}  // namespace ledger
