// bert.h - BERT and RoBERTa with their masked-language head: attention both ways, norms after every sum.
//
// Source: transformers 5.12 models/{bert,roberta}/modeling_*.py, BertForMaskedLM and RobertaForMaskedLM.
#pragma once

#include <vector>

#include "core/models/attention.h"
#include "core/models/decoder_dims.h"
#include "core/models/norms.h"

namespace ledger {

class Bert : public Model {
 public:
  Bert(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;

 private:
  struct Layer {
    Linear query, key, value, attended;
    Linear intermediate, output;
    Norm attention_norm, output_norm;
  };
  Layer make_layer(ModuleBuilder& builder, std::size_t index) const;

  Tensor embed(const Tensor& ids) const;
  Tensor encode(const Tensor& ids);
  Tensor run_layer(std::size_t index, const Tensor& hidden);
  Tensor forward_layer(std::size_t index, const Tensor& hidden) const;
  Tensor attend(const Layer& layer, const Tensor& hidden, Tensor& weights) const;
  Tensor feed(const Layer& layer, const Tensor& hidden) const;
  Tensor head(const Tensor& hidden) const;
  Tensor forward_with_loss(const Tensor& ids);
  Tensor drop(const Tensor& x) const;

  ModelConfig config_;
  DecoderDims dims_;
  ModelOptions options_;
  const char* base_;
  bool roberta_;
  Tensor positions_, types_;  // int64 [1, positions], buffers
  Embedding word_embeddings_, position_embeddings_, type_embeddings_;
  Norm embedding_norm_;
  std::vector<Layer> layers_;
  Linear transform_, decoder_;
  Norm transform_norm_;
};

}  // namespace ledger
