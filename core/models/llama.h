// llama.h - the Llama decoder as transformers writes it: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.
//
// Source: transformers 5.12 models/llama/modeling_llama.py. Scopes follow Python's, name by name, because a local
// variable that outlives its use is memory.
#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/models/model.h"
#include "core/models/modules.h"

namespace ledger {

struct LlamaDims {
  Dim b, s, h, ffn, V, nh, nkv, d, half_d, q_dim, kv_dim;
};

struct Rotary {
  Tensor cos, sin;  // [1, s, d] in the hidden states' dtype
};

struct RotaryEmbedding {
  Tensor inv_freq, original_inv_freq;  // fp32 [d/2]

  // Source: LlamaRotaryEmbedding.forward (no_grad, autocast off).
  Rotary forward(const Tensor& x, const Tensor& position_ids, const LlamaDims& dims) const;
};

// What every decoder layer gets besides the hidden states, as keyword arguments.
struct LayerContext {
  Rotary rotary;
  Tensor mask;               // eager attention's, or empty
  Tensor position_ids;       // not used in the layer, but bound into what checkpointing keeps
  KvCache* cache = nullptr;  // while generating
};

struct LlamaAttention {
  Linear q_proj, k_proj, v_proj, o_proj;
  std::optional<RmsNorm> q_norm, k_norm;  // qwen3: over the head dimension
  Attention kind = Attention::sdpa;
  bool repeats_kv = false;  // transformers 4: keys and values at all query heads before the kernel
  std::size_t layer = 0;

  // The projected output and, for eager attention, the weights that it returns beside it.
  std::pair<Tensor, Tensor> forward(const Tensor& hidden, const LayerContext& context, const LlamaDims& dims) const;

 private:
  Tensor heads(const Linear& projection, const std::optional<RmsNorm>& norm, const Tensor& hidden, Dim count,
               const LlamaDims& dims) const;
};

struct LlamaMlp {
  Linear gate_proj, up_proj, down_proj;

  Tensor forward(const Tensor& x) const;
};

struct LlamaDecoderLayer {
  RmsNorm input_layernorm, post_attention_layernorm;
  LlamaAttention self_attn;
  LlamaMlp mlp;

  Tensor forward(const Tensor& hidden, const LayerContext& context, const LlamaDims& dims) const;
};

class Llama : public Model {
 public:
  Llama(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;
  Tensor next_logits(const Tensor& ids, const Tensor& positions, KvCache& cache, bool last_only) override;
  void skip_tokens(KvCache& cache, std::uint64_t seen) override;

 private:
  Tensor full_logits_loss(const Tensor& hidden, const Tensor& ids);
  Tensor decode(const Tensor& ids);  // LlamaModel.forward: last hidden state
  Tensor run_layer(std::size_t index, const Tensor& hidden, const LayerContext& context);

  LlamaDims dims_;
  ModelOptions options_;
  Embedding embed_tokens_;
  std::vector<LlamaDecoderLayer> layers_;
  RmsNorm norm_;
  RotaryEmbedding rotary_emb_;
  Linear lm_head_;
};

}  // namespace ledger
