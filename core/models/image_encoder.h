// image_encoder.h - encoders of images as transformers writes them: patches by a convolution, learned positions, layers
// with attention both ways. ViT's, CLIP's and SigLIP's, which differ in names and in what stands around the layers.
//
// Source: transformers 5.12 models/{vit,clip,siglip}/modeling_*.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/models/attention.h"
#include "core/models/model.h"
#include "core/models/norms.h"

namespace ledger {

// nn.Conv2d whose filters do not overlap: images [i, c, H, W] to features [i, h, H/k, W/k]. Or nn.Conv3d, over time.
struct PatchEmbedding {
  const char* name = "";
  Tensor weight, bias;  // [h, c, k, k], [h, c, t, k, k]; [h] or empty

  static PatchEmbedding make(ModuleBuilder& builder, const std::string& path, const char* name,
                             const VisionConfig& config, Dim width, bool bias);
  Tensor forward(const Tensor& pixels) const;
};

// What the families call their modules, and what they have of them.
struct EncoderNames {
  const char* layers;
  const char* attention;
  const char *q, *k, *v, *o;
  const char *before, *after;  // norms of a layer
  const char* final_norm;
  bool values_first;   // k and v are made before q
  bool norms_first;    // the first norm is made before attention
  bool residual_last;  // x + residual, not residual + x
};

class ImageEncoder {
 public:
  struct Sizes {
    Dim images, tokens, h, ffn;  // tokens: of an image, with its class token where there is one
    std::uint64_t heads = 1;
  };

  // `path` of state dicts, "" or ending in a dot; the scope of ledger lines is the tape's.
  void make(ModuleBuilder& builder, const VisionConfig& config, const ModelOptions& options, const Sizes& sizes,
            const std::string& path);
  void make_final_norm(ModuleBuilder& builder, const std::string& path);

  Tensor embed(const Tensor& pixels) const;  // [i, tokens, h]
  DType pixel_dtype() const { return patch_embedding_.weight.dtype(); }
  std::size_t layers() const { return layers_.size(); }
  Tensor run_layer(std::size_t index, const Tensor& hidden) const;
  Tensor final_norm(const Tensor& hidden) const { return final_norm_.forward(hidden); }

 private:
  struct Layer {
    Linear q, k, v, o, up, down;
    Norm before, after;
  };
  Layer make_layer(ModuleBuilder& builder, std::size_t index, const std::string& path) const;
  void make_attention(ModuleBuilder& builder, Layer& layer, const std::string& path) const;
  void make_embeddings(ModuleBuilder& builder, const std::string& path);

  Tensor patches(const Tensor& pixels) const;
  Tensor with_class_token(const Tensor& patches) const;
  Tensor forward_layer(std::size_t index, const Tensor& hidden) const;
  Tensor attend(const Layer& layer, const Tensor& hidden, Tensor& weights) const;
  Tensor feed(const Layer& layer, const Tensor& hidden) const;
  Tensor drop(const Tensor& x) const;

  VisionConfig config_;
  ModelOptions options_;
  Sizes sizes_;
  const EncoderNames* names_ = nullptr;
  Tensor class_token_;  // ViT's [1, 1, h], CLIP's [h]
  PatchEmbedding patch_embedding_;
  Tensor position_parameter_;  // ViT's [1, tokens, h]
  Embedding positions_;        // CLIP's and SigLIP's
  Tensor position_ids_;        // int64 [1, tokens], a buffer
  std::optional<Norm> first_norm_;
  std::vector<Layer> layers_;
  Norm final_norm_;
};

// The linear layers of one, as adapters' targets name them.
std::vector<std::string_view> encoder_linears(const VisionConfig& config);

}  // namespace ledger
