// rotary.h - rotary position embedding: the tables, made once a forward pass, and turning queries and keys by them.
//
// Source: transformers 5.12 models/llama/modeling_llama.py, LlamaRotaryEmbedding and apply_rotary_pos_emb, and where
// other families differ from it.
#pragma once

#include <array>

#include "core/models/decoder_dims.h"

namespace ledger {

enum class RotaryStyle : std::uint8_t {
  halves,        // the first half of a head turns with the second
  wide,          // the same with fp32 tables, cast back afterwards (OLMo)
  partial,       // the same on the first part of a head, joined to the rest (Phi-3, GPT-NeoX)
  partial_kept,  // the same in the attention's own forward, whose names keep the turned parts (Phi, StableLM)
  interleaved,   // neighbours turn with each other, in fp32 (Cohere)
  glm,           // neighbours on the first part of a head, their tables made in every layer (GLM)
  chunked,       // halves, each turned by tables half as wide (gpt-oss)
  paired,        // neighbours turn with each other and end up in halves (DeepSeek V3)
  complex,       // neighbours as complex numbers, in fp32, queries and keys cast back one by one (DeepSeek V2)
  complex_both,  // the same, cast back at the end (Llama 4)
};

RotaryStyle rotary_style(const ModelConfig& config);

// Of half a head, how much time, row and column turn; the same once more for the other half. Nothing: there is one
// position.
using RotarySections = std::array<std::uint64_t, 3>;

struct Rotary {
  Tensor cos, sin;            // [1, s, rot] in the hidden states' dtype, or fp32 where wide; complex: cos holds both
  RotarySections sections{};  // else cos and sin are [3, b, s, rot]
  Tensor inv_freq;            // what the tables were made of: Liger's kernel turns by it
};

struct RotaryEmbedding {
  Tensor inv_freq, original_inv_freq;  // fp32 [rot/2]
  RotaryStyle style = RotaryStyle::halves;
  RotarySections sections{};

  // `scaled`: as the config's rope scaling says, if it says any.
  static RotaryEmbedding make(Tape& tape, const ModelConfig& config, double theta, bool scaled,
                              const DecoderDims& dims);
  Rotary forward(const Tensor& x, const Tensor& position_ids, const DecoderDims& dims) const;  // no_grad, autocast off

 private:
  Rotary of_three(const Tensor& x, const Tensor& position_ids, const DecoderDims& dims) const;
};

// fp32 [half]: theta^(-i / half), as the config's rope scaling says or not.
Tensor inverse_frequencies(Tape& tape, double theta, Dim half, bool scaled);

// The second half of a head, negated, before the first.
Tensor rotate_half(const Tensor& x, Dim half);

// x * cos + rotate_half(x) * sin.
Tensor turn_halves(const Tensor& x, const Tensor& cos, const Tensor& sin, Dim half);

// x * cos + x's neighbours turned a quarter * sin: GPT-J's rotate_every_two.
Tensor rotate_every_two(const Tensor& x, const Tensor& cos, const Tensor& sin, Dim half);

struct Turned {
  Tensor q, k;
  Tensor q_part, k_part;  // what the attention's forward still has names for
};

Turned apply_rotary(RotaryStyle style, const Tensor& q, const Tensor& k, const Rotary& rotary, const DecoderDims& dims);

}  // namespace ledger
