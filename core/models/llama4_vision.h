// llama4_vision.h - Llama 4's encoder of images: patches by a product, a class token at the end, complex rotary
// positions by row and column, and squares of patches shuffled into the width of an MLP.
//
// Source: transformers 5.12 models/llama4/modeling_llama4.py, Llama4VisionModel.
#pragma once

#include <string>
#include <vector>

#include "core/models/attention.h"
#include "core/models/model.h"
#include "core/models/norms.h"

namespace ledger {

class Llama4Vision {
 public:
  // `tiles`: images that it sees, all of one size.
  void make(ModuleBuilder& builder, const VisionConfig& config, const ModelOptions& options, std::uint64_t tiles);

  Shape pixels_shape() const;
  Dim tokens() const { return {config_.tokens, Sym::none}; }  // of a tile, in the text
  DType pixel_dtype() const { return patch_linear_.weight.dtype(); }
  Dim width() const { return {config_.out_width, Sym::none}; }
  Tensor forward(const Tensor& pixels) const;  // [tiles, tokens, width]

 private:
  struct Layer {
    Norm before, after;
    Linear q, k, v, o, up, down;
  };
  Layer make_layer(ModuleBuilder& builder, std::size_t index, const std::string& path) const;
  void make_adapter(ModuleBuilder& builder, const std::string& path);

  Tensor patches(const Tensor& pixels) const;
  Tensor embed(const Tensor& pixels) const;
  Tensor encode(const Tensor& hidden) const;
  Tensor forward_layer(std::size_t index, const Tensor& hidden) const;
  Tensor forward_block(const Layer& layer, const Tensor& hidden) const;
  Tensor attend(const Layer& layer, const Tensor& hidden, Tensor& weights) const;
  Tensor feed(const Layer& layer, const Tensor& hidden) const;
  Tensor adapt(const Tensor& encoded) const;

  VisionConfig config_;
  ModelOptions options_;
  std::uint64_t side_ = 0;              // of a tile, in patches
  Dim tiles_, places_, h_, heads_, d_;  // places_: patches of a tile and its class token
  Tensor class_embedding_, positional_embedding_;
  Linear patch_linear_;
  Tensor turns_;  // complex [1, places, 1, d/2], a buffer
  Norm pre_, post_;
  std::vector<Layer> layers_;
  Linear adapter_in_, adapter_out_;
};

}  // namespace ledger
