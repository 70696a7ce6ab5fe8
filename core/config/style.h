// style.h - how a decoder is put together: the choices in which families differ, named once.
//
// A family's row (dense_families.h, moe_families.h) says its style; core/config/parameters.cc counts from it and
// core/models builds from it.
#pragma once

#include <cstdint>

namespace ledger {

enum class NormKind : std::uint8_t {
  rms,        // Llama: fp32 inside, cast back, times weight
  rms_gemma,  // all in fp32, times (1 + weight)
  rms_late,   // OLMo 2: times weight before the cast back
  layer,      // nn.LayerNorm
  cohere,     // mean and variance written out in fp32, a weight and no bias
  bare,       // OLMo: F.layer_norm in fp32 without parameters
  rms_t5,     // T5: only the variance in fp32, cast to the weight's dtype, times weight
};

// Where norms stand around attention and MLP.
enum class Layout : std::uint8_t {
  pre,           // x + attention(norm(x)); x + mlp(norm(x))
  post,          // x + norm(attention(x)); x + norm(mlp(x))
  sandwich,      // norms before and after both
  parallel,      // x + attention(norm(x)) + mlp(norm(x)), one norm
  parallel_two,  // the same with a norm for each
};

enum class Projections : std::uint8_t {
  separate,  // q, k and v
  sliced,    // one product, cut into q, k and v along its width (Phi-3)
  by_head,   // one product, q, k and v side by side for each head (GPT-NeoX, BLOOM)
  falcon,    // the same for each group of heads, keys and values copied out
  conv,      // GPT-2's Conv1D: one product with the weight as [in, out]
  grouped,   // one product: for each group of heads its queries, a key and a value (InternLM2)
  latent,    // DeepSeek's low-rank queries, keys and values
};

enum class Feed : std::uint8_t { gated, gated_fused, plain };
enum class QkNorm : std::uint8_t {
  none,
  head,       // over a head
  width,      // over all of q and of k
  each_head,  // over a head, with a weight of its own for each (StableLM)
};
enum class Position : std::uint8_t {
  rotary,
  learned,
  alibi,
  table,     // rotary, stored in every layer (GPT-J)
  relative,  // a learned bias on the scores by distance (T5)
};
enum class MoeRule : std::uint8_t { none, every, qwen, first_dense, interleaved };
// How a router turns its logits into experts and their weights.
enum class Routing : std::uint8_t {
  softmax,          // Mixtral: of all experts' probabilities the k largest, in fp32
  softmax_cast,     // Qwen: the same in the logits' dtype
  of_chosen,        // gpt-oss: softmax over the k largest logits
  grouped_softmax,  // DeepSeek V2: fp32 probabilities, the k largest of all or of the best groups of experts
  grouped_sigmoid,  // DeepSeek V3: fp32 scores, chosen with a correction from the best groups
  every_expert,     // Llama 4: every expert sees every token, times the sigmoid of its score or 0
};
enum class Act : std::uint8_t { silu, gelu, gelu_tanh, gelu_new, gelu_bloom, relu, relu2, quick_gelu, count_ };

struct Style {
  NormKind norm = NormKind::rms;
  Layout layout = Layout::pre;
  Projections projections = Projections::separate;
  Feed feed = Feed::gated;
  QkNorm qk_norm = QkNorm::none;
  Position position = Position::rotary;
  MoeRule moe = MoeRule::none;
  Routing routing = Routing::softmax;
  bool qkv_bias = false;       // on q, k and v whatever attention_bias says
  bool bias_skips_o = false;   // attention_bias is for q, k and v only
  bool shared_gate = false;    // the shared expert has a gate of its own
  bool expert_bias = false;    // experts and router have biases; gate and up interleaved, clamped (gpt-oss)
  bool grouped_heads = false;  // of falcon: new_decoder_architecture
  bool sinks = false;          // one learned logit a head
  bool head_bias = false;      // on the output layer
  bool embedding_norm = false;
  bool traced = false;  // core/models builds and runs it

  bool operator==(const Style&) const = default;
};

}  // namespace ledger
