#include "core/lesson/rules.h"

#include <algorithm>

#include "core/base/bytes.h"

namespace ledger {
namespace {

constexpr Bytes kHalf = 2;  // bytes of a 16-bit element

std::uint64_t query_width(const ModelConfig& c) {
  return times(c.num_attention_heads, c.head_dim);
}

std::uint64_t tokens(const Recipe& recipe) {
  return times(recipe.batch, recipe.seq);
}

Bytes hidden_state(const ModelConfig& c, const Recipe& recipe) {
  return times(times(tokens(recipe), c.hidden_size), kHalf);
}

std::uint64_t expert_layers(const ModelConfig& c) {
  return static_cast<std::uint64_t>(std::count(c.moe.layers.begin(), c.moe.layers.end(), true));
}

}  // namespace

Bytes course_scores(const ModelConfig& c, const Recipe& recipe) {
  return times(times(times(c.num_hidden_layers, c.num_attention_heads), times(tokens(recipe), recipe.seq)), kHalf);
}

// q, k, v, o and gate, up, down.
std::uint64_t layer_linear_parameters(const ModelConfig& c) {
  const std::uint64_t kv = times(c.num_key_value_heads, c.head_dim);
  const std::uint64_t attention = times(times(2, c.hidden_size), plus(query_width(c), kv));
  return times(c.num_hidden_layers, plus(attention, times(3, times(c.hidden_size, c.intermediate_size))));
}

std::uint64_t layer_parameters(const ModelConfig& c) {
  const std::uint64_t tables = times(c.tie_word_embeddings ? 1 : 2, times(c.vocab_size, c.hidden_size));
  const std::uint64_t all = parameter_count(c), rest = plus(tables, c.hidden_size);
  return all > rest ? all - rest : 0;
}

// 2 M N K a product; attention's two products over all s x s scores, 4 b nh s s d (core/answer/flops.h).
std::uint64_t course_forward_flops(const ModelConfig& c, const Recipe& recipe) {
  const std::uint64_t linears = times(times(2, tokens(recipe)), layer_linear_parameters(c));
  const std::uint64_t scores = times(times(4, tokens(recipe)), times(recipe.seq, query_width(c)));
  return plus(linears, times(c.num_hidden_layers, scores));
}

Cut tensor_cut(const ModelConfig& c, const Recipe& recipe, std::uint64_t ways) {
  const std::uint64_t all = parameter_count(c), cut = layer_linear_parameters(c);
  return {plus(all - std::min(all, cut), divide_up(cut, ways)), times(4, c.num_hidden_layers), hidden_state(c, recipe)};
}

// The first stage holds the embedding; embedding and head are the larger tables.
Cut pipeline_cut(const ModelConfig& c, const Recipe& recipe, std::uint64_t ways) {
  const std::uint64_t layer = c.num_hidden_layers == 0 ? 0 : layer_parameters(c) / c.num_hidden_layers;
  const std::uint64_t stage = times(divide_up(c.num_hidden_layers, ways), layer);
  return {plus(stage, times(c.vocab_size, c.hidden_size)), 2, hidden_state(c, recipe)};
}

Cut expert_cut(const ModelConfig& c, const Recipe& recipe, std::uint64_t ways) {
  const std::uint64_t expert = times(3, times(c.hidden_size, c.moe.width));
  const std::uint64_t experts = times(times(expert_layers(c), c.moe.experts), expert);
  const std::uint64_t all = parameter_count(c);
  const std::uint64_t held = times(times(expert_layers(c), divide_up(c.moe.experts, ways)), expert);
  return {plus(all - std::min(all, experts), held), times(4, expert_layers(c)),
          times(hidden_state(c, recipe), c.moe.per_token)};
}

}  // namespace ledger
