// self_attention.h - the attention block of a decoder layer: projections, norms of queries and keys, rotary embedding,
// attention, output.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/models/attention.h"
#include "core/models/head_norms.h"
#include "core/models/kv_cache.h"
#include "core/models/latent_attention.h"
#include "core/models/names.h"
#include "core/models/norms.h"
#include "core/models/rotary.h"

namespace ledger {

// What every decoder layer gets besides the hidden states, as keyword arguments.
struct LayerContext {
  Rotary rotary;             // empty without rotary embedding
  Tensor mask;               // eager attention's, or empty
  Tensor alibi;              // BLOOM's bias [b*nh, 1, s]
  Tensor position_ids;       // not used in the layer, but bound into what checkpointing keeps
  KvCache* cache = nullptr;  // while generating
};

struct LayerRotary;

struct SelfAttention {
  const char* name = "self_attn";
  Projections projections = Projections::separate;
  RotaryStyle rotary = RotaryStyle::halves;
  bool turned = true;               // false on layers without rotary embedding
  bool liger_rope = false;          // liger_rotary_pos_emb in place of apply_rotary_pos_emb
  bool scales_queries = false;      // OPT: before the heads are cut, and not in the kernel
  bool grouped = false;             // Falcon's keys and values belong to groups of heads
  bool norms_before_heads = false;  // q_norm and k_norm over all heads at once (OLMo 2)
  Linear q, k, v;
  Linear qkv;
  Linear o;
  std::optional<Norm> q_norm, k_norm;
  std::optional<HeadNorms> q_norms, k_norms;            // of heads that were turned round already (StableLM)
  Tensor sinks;                                         // [nh], gpt-oss
  Tensor embed_positions;                               // fp32 [positions, rot], GPT-J: a buffer of every layer
  bool l2_norm = false;                                 // of turned queries and keys
  double temperature_floor = 0, temperature_scale = 0;  // of queries that are not turned, where above 0
  double norm_eps = 1e-6;
  std::optional<LatentProjections> latent;        // in place of q, k and v
  std::shared_ptr<const LayerRotary> rotary_emb;  // in place of the model's tables, InternLM2
  bool returns_weights = true;                    // of written-out attention
  Attention kind = Attention::sdpa;
  std::size_t layer = 0;
  bool repeats_kv = false;  // transformers 4: keys and values at all query heads before the kernel
  AttentionOptions options;
  double dropout = 0;  // of the result

  static SelfAttention make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                            const ModuleNames& names, const DecoderDims& dims);

  // The projected output and, for eager attention, the weights that it returns beside it.
  std::pair<Tensor, Tensor> forward(const Tensor& hidden, const LayerContext& context, const DecoderDims& dims) const;

  struct Heads {
    Tensor q, k, v;                  // [b, n, s, d]
    Tensor whole;                    // the product that they are views of, a local variable of the framework's forward
    std::array<Tensor, 5> locals{};  // others of its local variables
  };

 private:
  Heads project(const Tensor& hidden, const Rotary& tables, const DecoderDims& dims) const;
  Attended attend_heads(Heads& heads, const LayerContext& context, const DecoderDims& dims) const;
  Heads project_separately(const Tensor& hidden, const DecoderDims& dims) const;
  Heads project_sliced(const Tensor& hidden, const DecoderDims& dims) const;
  Heads project_conv(const Tensor& hidden, const DecoderDims& dims) const;
  Heads project_by_head(const Tensor& hidden, const DecoderDims& dims) const;
};

}  // namespace ledger
