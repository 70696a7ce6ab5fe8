// parameters.cc - how many parameters a model has, from its sizes and style alone.
//
// The modules in core/models make the same parameters one by one (tests hold them equal); this is the count for
// families whose step is not traced, and it is quicker.

#include <algorithm>

#include "core/base/bytes.h"
#include "core/config/counting.h"
#include "core/config/model_config.h"

namespace ledger {
namespace {

using counting::Count;
using counting::linear;

Count norm(NormKind kind, Count size) {
  if (kind == NormKind::bare) return 0;
  return kind == NormKind::layer ? times(2, size) : size;
}

Count plain_stack(const ModelConfig& config) {
  Count sum = 0;
  for (const PlainLinear& layer : config.layers)
    sum = plus(sum, linear(layer.in, layer.out, layer.bias));
  return sum;
}

Count latent_attention(const ModelConfig& c) {
  const LatentConfig& m = c.latent;
  const Count heads = c.num_attention_heads;
  const Count q = times(heads, plus(m.nope_dim, m.rope_dim));
  Count sum = m.q_rank == 0
                  ? times(c.hidden_size, q)
                  : plus(linear(c.hidden_size, m.q_rank, c.attention_bias), plus(m.q_rank, times(m.q_rank, q)));
  sum = plus(sum, linear(c.hidden_size, plus(m.kv_rank, m.rope_dim), c.attention_bias));
  sum = plus(sum, plus(m.kv_rank, times(m.kv_rank, times(heads, plus(m.nope_dim, m.v_dim)))));
  return plus(sum, linear(times(heads, m.v_dim), c.hidden_size, c.attention_bias));
}

Count attention(const ModelConfig& c) {
  if (c.style.projections == Projections::latent) return latent_attention(c);
  const Count query = times(c.num_attention_heads, c.head_dim);
  const Count key = times(c.num_key_value_heads, c.head_dim);
  const bool qkv_bias = c.attention_bias || c.qkv_bias;
  Count sum = plus(linear(c.hidden_size, query, qkv_bias), times(2, linear(c.hidden_size, key, qkv_bias)));
  sum = plus(sum, linear(query, c.hidden_size, c.attention_bias && !c.style.bias_skips_o));
  if (c.style.sinks) sum = plus(sum, c.num_attention_heads);
  switch (c.style.qk_norm) {
    case QkNorm::head:
      return plus(sum, times(2, norm(c.style.norm, c.head_dim)));
    case QkNorm::width:
    case QkNorm::each_head:
      return plus(sum, plus(query, key));
    default:
      return c.qk_norm ? plus(sum, times(2, c.head_dim)) : sum;
  }
}

Count mlp(const ModelConfig& c, Count width) {
  const Count up = linear(c.hidden_size, width, c.mlp_bias);
  return plus(c.style.feed == Feed::plain ? up : times(2, up), linear(width, c.hidden_size, c.mlp_bias));
}

Count experts(const ModelConfig& c) {
  const MoeConfig& m = c.moe;
  const bool bias = c.style.expert_bias;
  const Count expert = plus(times(2, linear(c.hidden_size, m.width, bias)), linear(m.width, c.hidden_size, bias));
  Count sum = plus(linear(c.hidden_size, m.experts, bias), times(m.experts, expert));
  if (m.shared_width != 0) sum = plus(sum, times(3, times(c.hidden_size, m.shared_width)));
  return plus(sum, c.style.shared_gate ? c.hidden_size : 0);
}

Count norms_of_a_layer(const ModelConfig& c) {
  constexpr Count kNorms[] = {2, 2, 4, 1, 2};  // by Layout
  return times(kNorms[static_cast<std::size_t>(c.style.layout)], norm(c.style.norm, c.hidden_size));
}

Count around_the_layers(const ModelConfig& c) {
  const Count width = c.embedding_width == 0 ? c.hidden_size : c.embedding_width;
  Count sum = times(c.tie_word_embeddings ? 1 : 2, times(c.vocab_size, width));
  if (c.style.head_bias) sum = plus(sum, c.vocab_size);
  if (width != c.hidden_size) sum = plus(sum, times(2, times(width, c.hidden_size)));
  if (c.style.position == Position::learned) {
    sum = plus(sum, times(plus(c.max_position_embeddings, c.extra_positions), c.hidden_size));
  }
  if (c.style.embedding_norm) sum = plus(sum, norm(c.style.norm, c.hidden_size));
  return c.final_norm ? plus(sum, norm(c.style.norm, c.hidden_size)) : sum;
}

Count decoder(const ModelConfig& c) {
  const auto sparse = static_cast<Count>(std::count(c.moe.layers.begin(), c.moe.layers.end(), true));
  const Count dense = c.num_hidden_layers - sparse;
  Count sum = times(c.num_hidden_layers, plus(attention(c), norms_of_a_layer(c)));
  if (dense != 0) sum = plus(sum, times(dense, mlp(c, c.intermediate_size)));
  if (sparse != 0) sum = plus(sum, times(sparse, experts(c)));
  return plus(sum, around_the_layers(c));
}

}  // namespace

std::uint64_t parameter_count(const ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::plain:
      return plain_stack(config);
    case Architecture::counted:
    case Architecture::bert:
    case Architecture::t5:
    case Architecture::vit:
    case Architecture::image_text:
      return config.counted;
    default:
      return decoder(config);
  }
}

}  // namespace ledger
