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
  // As a part of a model whose parameters `builder` makes; the decoder's scopes and names begin with `base`, the output
  // layer's do not.
  Llama(ModuleBuilder& builder, const ModelConfig& config, const ModelOptions& options, const char* base);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;
  Tensor next_logits(const Tensor& ids, const Tensor& positions, KvCache& cache, bool last_only) override;
  void skip_tokens(KvCache& cache, std::uint64_t seen) override;

  // The parts of forward(), for models that put something else than words into the decoder. Masks, where they are not
  // those of a decoder by itself: of layers that see everything and of the others.
  struct Masks {
    Tensor full, sliding;
  };
  Tensor embed(const Tensor& ids);
  // LlamaModel.forward: the last hidden state. Positions, where they are no line: int64 [3, b, s] of Qwen2-VL.
  Tensor run_layers(Tensor inputs_embeds, const Masks* masks = nullptr, const Tensor& positions = Tensor());
  Tensor loss_of(const Tensor& hidden, const Tensor& ids);
  Tensor logits_of(const Tensor& hidden);
  const DecoderDims& dims() const { return dims_; }

 private:
  void build(ModuleBuilder& builder);
  Tensor forward_with_loss(const Tensor& ids);
  Tensor forward_layer(std::size_t index, const Tensor& hidden, const LayerContext& context, Tensor& weights) const;
  Tensor full_logits_loss(const Tensor& hidden, const Tensor& ids);
  Tensor run_layer(std::size_t index, const Tensor& hidden, const LayerContext& context, Tensor& weights) const;
  Tensor checkpointed_layer(std::size_t index, const Tensor& hidden, const LayerContext& context,
                            Tensor& weights) const;

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

// The decoder of a model that sees images, as a model of its own.
ModelConfig decoder_behind_images(const ModelConfig& config);
ModelOptions options_behind_images(const ModelConfig& config, const ModelOptions& options);

}  // namespace ledger
