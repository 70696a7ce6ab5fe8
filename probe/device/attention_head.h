// attention_head.h - what forward and backward attention share: which operands go together, and tiles of scores.
//
// Letters as in probe/host/kernels_attention.cc: S scores, P probabilities, O output, d... their gradients. A team
// takes 64 queries or 64 keys of one head; scores never leave its shared memory.
#pragma once

#include "probe/device/tile.h"

namespace ledger::LEDGER_DEVICE {

struct Heads {
  Operand q, k, v, bias;  // bias.data is null without one
  std::uint64_t element = 2, bias_element = 2;
  double scale;
  bool causal;
  std::uint64_t batches, heads, kv_heads, queries, keys, width, value_width;  // widths: of a head

  Heads(const Operand& of_q, const Operand& of_k, const Operand& of_v, const Operand* of_bias, const Attr& attr)
      : q(of_q), k(of_k), v(of_v), element(element_bytes(q.dtype)) {
    if (of_bias != nullptr) {
      bias = *of_bias;
      bias_element = element_bytes(bias.dtype);
    }
    causal = attr.i[1] == 0;
    batches = q.sizes[0];
    heads = q.sizes[1];
    kv_heads = k.sizes[1];
    queries = q.sizes[2];
    keys = k.sizes[2];
    width = q.sizes[3];
    value_width = v.sizes[3];
    scale = attr.x != 0 ? attr.x : 1 / std::sqrt(static_cast<double>(width));
  }
  std::uint64_t widest() const { return width < value_width ? value_width : width; }
  LEDGER_DEVICE_ONLY std::uint64_t kv_head(std::uint64_t head) const { return head * kv_heads / heads; }
  // Keys that query i sees: all of earlier tokens, and its own with those before it.
  LEDGER_DEVICE_ONLY std::uint64_t visible(std::uint64_t query) const {
    return bias.data != nullptr || !causal ? keys : keys - queries + query + 1;
  }
  // Of the keys that a tile of queries sees, one past the last.
  LEDGER_DEVICE_ONLY std::uint64_t last_visible(std::uint64_t first_query) const {
    const std::uint64_t last = first_query + kTile < queries ? first_query + kTile : queries;
    return visible(last - 1);
  }
};

template <class C>
struct Head {
  Grid<C> q, k, v, bias;

  LEDGER_DEVICE_ONLY Head(const Heads& all, std::uint64_t batch, std::uint64_t head)
      : q(all.q, all.element, batch, head),
        k(all.k, all.element, batch, all.kv_head(head)),
        v(all.v, all.element, batch, all.kv_head(head)) {
    if (all.bias.data != nullptr) bias = Grid<C>(all.bias, all.bias_element, all.bias.sizes[0] == 1 ? 0 : batch, 0);
  }
  // The score of a product; -inf where the key is hidden.
  LEDGER_DEVICE_ONLY C score(const Heads& all, std::uint64_t query, std::uint64_t key, C product) const {
    if (query >= all.queries || key >= all.visible(query)) return -std::numeric_limits<C>::infinity();
    const C scaled = product * static_cast<C>(all.scale);
    return all.bias.data == nullptr ? scaled : scaled + bias.get(query, key);
  }
};

// blocks = rows of x times rows of y, both from their first on: Q K^T or dO V^T.
template <class C>
LEDGER_DEVICE_ONLY inline void rows_by_rows(Team& team, TileMemory<C>& memory, PerLane<Block<C>>& blocks,
                                            const Grid<C>& x, std::uint64_t first_x, const Grid<C>& y,
                                            std::uint64_t first_y) {
  multiply(
      team, memory, blocks, x.columns, true, true,
      [&](unsigned row, std::uint64_t k) { return x.get(first_x + row, k); },
      [&](unsigned column, std::uint64_t k) { return y.get(first_y + column, k); });
}

// Registers for heads of up to 64, 128 or 256: launch(width class).
template <class Launch>
inline void by_width(Call& call, std::uint64_t width, Launch launch) {
  if (width <= kTile) return launch(std::integral_constant<unsigned, 1>());
  if (width <= 2 * kTile) return launch(std::integral_constant<unsigned, 2>());
  if (width <= 4 * kTile) return launch(std::integral_constant<unsigned, 4>());
  call.error = "attention heads wider than 256 are not computed here";
}

// What is wrong with a call whose queries are in[first], or nullptr.
const char* attention_refusal(const Call& call, std::size_t first, std::size_t bias);

}  // namespace ledger::LEDGER_DEVICE
