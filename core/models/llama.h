// llama.h - a decoder as transformers writes it: embedding, layers, final norm, output layer, loss. Llama and the
// families whose models are put together the same way; what differs within a layer is decoder_layer.h's.
//
// Source: transformers 5.12 models/llama/modeling_llama.py. Scopes follow Python's, name by name, because a local
// variable that outlives its use is memory.
#pragma once

#include <vector>

#include "core/models/decoder_layer.h"

namespace ledger {

class Llama : public Model {
 public:
  Llama(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;
  Tensor next_logits(const Tensor& ids, const Tensor& positions, KvCache& cache, bool last_only) override;
  void skip_tokens(KvCache& cache, std::uint64_t seen) override;

 private:
  Tensor forward_with_loss(const Tensor& ids);
  Tensor forward_layer(std::size_t index, const Tensor& hidden, const LayerContext& context, Tensor& weights) const;
  Tensor full_logits_loss(const Tensor& hidden, const Tensor& ids);
  Tensor decode(const Tensor& ids);  // LlamaModel.forward: last hidden state
  Tensor run_layer(std::size_t index, const Tensor& hidden, const LayerContext& context, Tensor& weights);
  Tensor embed(const Tensor& ids);
  Tensor logits_of(const Tensor& hidden);

  ModelConfig config_;
  DecoderDims dims_;
  ModelOptions options_;
  ModuleNames names_;
  Embedding embed_tokens_;
  Tensor embed_scale_;   // Gemma's, a buffer
  Embedding positions_;  // learned
  std::optional<Norm> embedding_norm_;
  std::vector<DecoderLayer> layers_;
  Norm norm_;
  RotaryEmbedding rotary_emb_, rotary_local_;  // rotary_local_: of sliding layers, where they have their own
  Linear lm_head_;
};

}  // namespace ledger
