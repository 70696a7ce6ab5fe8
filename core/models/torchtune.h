// torchtune.h - a decoder as torchtune writes it: its own modules, the ones that its builders for Llama and Mistral put
// together.
//
// Source: torchtune modules/{transformer,attention,position_embeddings,rms_norm,feed_forward}.py and
// modules/loss/ce_chunked_output_loss.py, training/_compile.py (0.6). Scopes follow Python's, as in llama.h.
#pragma once

#include <vector>

#include "core/models/decoder_dims.h"
#include "core/models/feed_forward.h"

namespace ledger {

// Positions in the rotary cache, which the builders of models/*/_model_builders.py hard-wire: torchtune reads no
// config.json. A shape that no builder has gets the config's max_position_embeddings.
std::uint64_t torchtune_max_seq_len(const ModelConfig& config);

// Chunks of CEWithChunkedOutputLoss, each of so many tokens of every sequence.
inline constexpr std::uint64_t kTorchtuneChunks = 8;

class TorchtuneDecoder : public Model {
 public:
  TorchtuneDecoder(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;

 private:
  struct Norm {  // RMSNorm
    const char* name = "";
    Tensor scale;
    double eps = 1e-6;
    bool compiled = false;  // one kernel
    Tensor forward(const Tensor& x) const;
  };
  struct Layer {  // TransformerSelfAttentionLayer
    Linear q, k, v, o;
    FeedForward mlp;
    Norm sa_norm, mlp_norm;
  };

  Norm make_norm(ModuleBuilder& builder, const std::string& path, const char* name, bool compiled) const;
  Layer make_layer(ModuleBuilder& builder, std::size_t index) const;
  void make_rope_cache(Tape& tape);

  Tensor decode(const Tensor& ids) const;
  Tensor run_layer(const Layer& layer, const Tensor& x) const;
  Tensor attend_to(const Layer& layer, const Tensor& x) const;
  Tensor rotate(const Tensor& x) const;
  Tensor full_output(const Tensor& h) const;
  std::vector<Tensor> chunked_output(const Tensor& h) const;
  Tensor full_loss(const Tensor& ids) const;
  Tensor chunked_loss(const Tensor& ids) const;

  double eps_;
  DecoderDims dims_;
  ModelOptions options_;
  const ModuleNames& names_;
  double rope_theta_;
  std::uint64_t max_seq_len_;
  Tensor theta_, rope_cache_;  // buffers of RotaryPositionalEmbeddings
  Tensor labels_;              // of the batch: a tensor of their own, as padded_collate_sft makes them
  Embedding tok_embeddings_;
  std::vector<Layer> layers_;
  Norm norm_;
  Linear output_;
};

}  // namespace ledger
