// llama.h - the Llama decoder as transformers writes it: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.
//
// Source: transformers 5.12 models/llama/modeling_llama.py. Scopes follow Python's, name by name, because a local variable
// that outlives its use is memory.
#pragma once

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

struct LlamaAttention {
  Linear q_proj, k_proj, v_proj, o_proj;

  Tensor forward(const Tensor& hidden, const Rotary& rotary, const LlamaDims& dims) const;
};

struct LlamaMlp {
  Linear gate_proj, up_proj, down_proj;

  Tensor forward(const Tensor& x) const;
};

struct LlamaDecoderLayer {
  RmsNorm input_layernorm, post_attention_layernorm;
  LlamaAttention self_attn;
  LlamaMlp mlp;

  Tensor forward(const Tensor& hidden, const Rotary& rotary, const LlamaDims& dims) const;
};

class Llama : public Model {
 public:
  Llama(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;

 private:
  Tensor decode(const Tensor& ids);  // LlamaModel.forward: last hidden state
  Tensor run_layer(std::size_t index, const Tensor& hidden, const Rotary& rotary, const Tensor& position_ids);

  LlamaDims dims_;
  bool checkpoint_layers_;
  Embedding embed_tokens_;
  std::vector<LlamaDecoderLayer> layers_;
  RmsNorm norm_;
  RotaryEmbedding rotary_emb_;
  Linear lm_head_;
};

}  // namespace ledger
