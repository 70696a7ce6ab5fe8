// qwen_vision.h - Qwen2-VL's and Qwen2.5-VL's encoders of images: patches of all images in one sequence, positions by
// row and column, attention within an image or a window of it, and squares of patches merged into tokens of the text.
//
// Source: transformers 5.12 models/qwen2_vl/modeling_qwen2_vl.py, Qwen2VisionTransformerPretrainedModel;
// models/qwen2_5_vl/modeling_qwen2_5_vl.py, Qwen2_5_VisionTransformerPretrainedModel; vision_utils.py.
#pragma once

#include <string>
#include <vector>

#include "core/config/image_grid.h"
#include "core/models/attention.h"
#include "core/models/feed_forward.h"
#include "core/models/image_encoder.h"
#include "core/models/model.h"
#include "core/models/norms.h"

namespace ledger {

// How often its layers call attention in a pass: flash attention takes all images at once.
std::uint64_t attention_calls(const VisionConfig& config, const Recipe& recipe);

class QwenVision {
 public:
  void make(ModuleBuilder& builder, const VisionConfig& config, const ModelOptions& options, std::uint64_t images,
            Dim text_width);

  Dim patches() const { return packed_; }  // of all images
  Dim pixels_of_patch() const;
  DType pixel_dtype() const { return patch_embedding_.weight.dtype(); }
  Tensor forward(const Tensor& pixels) const;  // [patches, pixels] -> [tokens, h]

 private:
  struct Layer {
    Norm before, after;
    Linear qkv, proj;
    FeedForward mlp;
  };
  // What every layer gets besides the hidden states: fp32 tables of positions, and where pieces of the sequence end.
  struct Context {
    Tensor cos, sin, ends;
  };

  Layer make_layer(ModuleBuilder& builder, std::size_t index, const std::string& path) const;
  FeedForward make_mlp(ModuleBuilder& builder, const std::string& path) const;
  void make_merger(ModuleBuilder& builder, const std::string& path, Dim text_width);

  bool whole(std::size_t layer) const;  // sees all of an image
  WindowGrid grid_of(bool whole) const;
  std::uint64_t pieces(bool whole) const;
  Tensor position_ids(Tape& tape) const;
  Tensor in_windows(const Tensor& x) const;
  Tensor embed(const Tensor& pixels) const;
  Tensor run_layer(std::size_t index, const Tensor& hidden, const Context& context) const;
  Context as_seen(const Context& context, DType dtype) const;
  Tensor forward_layer(std::size_t index, const Tensor& hidden, const Context& context) const;
  Tensor forward_block(const Layer& layer, std::size_t index, const Tensor& hidden, const Context& context) const;
  Tensor attend(const Layer& layer, std::size_t index, const Tensor& hidden, const Context& context) const;
  Tensor in_pieces(std::size_t index, const Tensor& q, const Tensor& k, const Tensor& v) const;
  Tensor merge(const Tensor& hidden) const;

  VisionConfig config_;
  ModelOptions options_;
  ImageGrid grid_;
  std::uint64_t images_ = 1;
  Dim packed_, h_, ffn_, heads_, d_;
  NormKind norm_ = NormKind::layer;
  PatchEmbedding patch_embedding_;
  Tensor inv_freq_;  // fp32 [d/4], a buffer
  std::vector<Layer> layers_;
  Norm merger_norm_;
  Linear merger_in_, merger_out_;
};

}  // namespace ledger
