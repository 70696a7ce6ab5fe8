// attention_backward.cc - gradients of causal attention: scores are made again from the logsumexp (FlashAttention, Dao
// et al. 2022, algorithm 4). Where tensor cores do not take it (flash_backward.cc).
//
// Two kernels: one takes 64 queries and walks over the keys for dQ, the other 64 keys and walks over the queries for dK
// and dV. The scores are computed twice, which spares atomics and the fp32 copy of dQ: no memory beside the operands',
// and runs repeat to the bit.
#include <cmath>

#include "probe/device/flash.h"
#include "probe/device/kernels.h"

namespace ledger::LEDGER_DEVICE {
namespace {

struct BackwardOperands {
  Operand gradient, out, logsumexp;
};

// Rows of one query tile that do not depend on the keys: logsumexp, and sum over d of dO O.
template <class C>
LEDGER_DEVICE_ONLY inline void load_rows(Team& team, TileMemory<C>& memory, const Heads& all, const BackwardOperands& x,
                                         std::uint64_t batch, std::uint64_t head, std::uint64_t first) {
  const Grid<C> gradient(x.gradient, all.element, batch, head), out(x.out, all.element, batch, head);
  team.each([&](unsigned lane) {
    if (lane >= kTile) return;
    C inner = 0;
    for (std::uint64_t i = 0; i < all.value_width; ++i)
      inner += gradient.get(first + lane, i) * out.get(first + lane, i);
    memory.row[1][lane] = inner;
    if (first + lane >= all.queries) return;
    const std::int64_t place = static_cast<std::int64_t>(batch) * x.logsumexp.strides[0] +
                               static_cast<std::int64_t>(head) * x.logsumexp.strides[1] +
                               static_cast<std::int64_t>(first + lane) * x.logsumexp.strides[2];
    memory.row[0][lane] = static_cast<C>(reinterpret_cast<const float*>(x.logsumexp.data)[place]);
  });
}

// P and dS of one pair of tiles, in the lanes' registers.
template <class C>
LEDGER_DEVICE_ONLY inline void probabilities(Team& team, TileMemory<C>& memory, PerLane<Block<C>>& p,
                                             PerLane<Block<C>>& ds, const Heads& all, const Head<C>& x,
                                             const Grid<C>& gradient, std::uint64_t query, std::uint64_t key) {
  rows_by_rows(team, memory, p, x.q, query, x.k, key);
  rows_by_rows(team, memory, ds, gradient, query, x.v, key);
  team.each([&](unsigned lane) {
    LEDGER_UNROLL
    for (unsigned i = 0; i < kSide; ++i) {
      LEDGER_UNROLL
      for (unsigned j = 0; j < kSide; ++j) {
        const unsigned row = tile_row(lane, i), column = tile_column(lane, j);
        C& mine = p[lane].v[i][j];
        const C score = x.score(all, query + row, key + column, mine);
        mine = score == -std::numeric_limits<C>::infinity() ? C{0} : std::exp(score - memory.row[0][row]);
        C& slope = ds[lane].v[i][j];
        slope = mine * (slope - memory.row[1][row]) * static_cast<C>(all.scale);
      }
    }
  });
}

template <class C, unsigned kTiles>
struct QueryGradient {
  Heads all;
  BackwardOperands operands;
  Operand dq;
  std::uint64_t tiles;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t index) const {
    auto& memory = *reinterpret_cast<TileMemory<C>*>(team.shared);
    const std::uint64_t of_heads = all.batches * all.heads, tile = tiles - 1 - index / of_heads;
    const std::uint64_t batch = index % of_heads / all.heads, head = index % all.heads, first = tile * kTile;
    const Head<C> x(all, batch, head);
    const Grid<C> gradient(operands.gradient, all.element, batch, head), result(dq, all.element, batch, head);
    PerLane<Block<C>> p, ds;
    PerLane<std::array<Block<C>, kTiles>> total;
    team.each([&](unsigned lane) {
      for (unsigned t = 0; t < kTiles; ++t)
        clear(total[lane][t]);
    });
    load_rows(team, memory, all, operands, batch, head, first);
    for (std::uint64_t key = 0; key < all.last_visible(first); key += kTile) {
      probabilities(team, memory, p, ds, all, x, gradient, first, key);
      team.each([&](unsigned lane) {
        visit(ds[lane], lane,
              [&](unsigned row, unsigned column, C value) { memory.whole[column * kPitch + row] = value; });
      });
      add_whole<kTiles>(team, memory, total, all.width,
                        [&](std::uint64_t k, std::uint64_t column) { return x.k.get(key + k, column); });
    }
    team.each([&](unsigned lane) {
      for (unsigned t = 0; t < kTiles; ++t) {
        visit(total[lane][t], lane,
              [&](unsigned row, unsigned column, C value) { result.set(first + row, t * kTile + column, value); });
      }
    });
  }
};

template <class C, unsigned kTiles>
struct KeyGradient {
  Heads all;
  BackwardOperands operands;
  Operand dk, dv;
  std::uint64_t tiles;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t index) const {
    auto& memory = *reinterpret_cast<TileMemory<C>*>(team.shared);
    const std::uint64_t of_heads = all.batches * all.kv_heads, first = index / of_heads * kTile;
    const std::uint64_t batch = index % of_heads / all.kv_heads, kv_head = index % all.kv_heads;
    PerLane<std::array<Block<C>, kTiles>> to_k, to_v;
    team.each([&](unsigned lane) {
      for (unsigned t = 0; t < kTiles; ++t) {
        clear(to_k[lane][t]);
        clear(to_v[lane][t]);
      }
    });
    const std::uint64_t group = all.heads / all.kv_heads;
    for (std::uint64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      add_head(team, memory, to_k, to_v, batch, head, first);
    const Grid<C> of_k(dk, all.element, batch, kv_head), of_v(dv, all.element, batch, kv_head);
    team.each([&](unsigned lane) {
      for (unsigned t = 0; t < kTiles; ++t) {
        visit(to_k[lane][t], lane,
              [&](unsigned row, unsigned column, C value) { of_k.set(first + row, t * kTile + column, value); });
        visit(to_v[lane][t], lane,
              [&](unsigned row, unsigned column, C value) { of_v.set(first + row, t * kTile + column, value); });
      }
    });
  }

  LEDGER_DEVICE_ONLY void add_head(Team& team, TileMemory<C>& memory, PerLane<std::array<Block<C>, kTiles>>& to_k,
                                   PerLane<std::array<Block<C>, kTiles>>& to_v, std::uint64_t batch, std::uint64_t head,
                                   std::uint64_t first) const {
    const Head<C> x(all, batch, head);
    const Grid<C> gradient(operands.gradient, all.element, batch, head);
    PerLane<Block<C>> p, ds;
    for (std::uint64_t query = 0; query < all.queries; query += kTile) {
      if (all.last_visible(query) <= first) continue;
      load_rows(team, memory, all, operands, batch, head, query);
      probabilities(team, memory, p, ds, all, x, gradient, query, first);
      team.each([&](unsigned lane) {
        visit(p[lane], lane,
              [&](unsigned row, unsigned column, C value) { memory.whole[row * kPitch + column] = value; });
      });
      add_whole<kTiles>(team, memory, to_v, all.value_width,
                        [&](std::uint64_t k, std::uint64_t column) { return gradient.get(query + k, column); });
      team.each([&](unsigned lane) {
        visit(ds[lane], lane,
              [&](unsigned row, unsigned column, C value) { memory.whole[row * kPitch + column] = value; });
      });
      add_whole<kTiles>(team, memory, to_k, all.width,
                        [&](std::uint64_t k, std::uint64_t column) { return x.q.get(query + k, column); });
    }
  }
};

template <class C>
void backward(Call& call) {
  const auto& in = call.in;
  const Heads all(in[1], in[2], in[3], in.size() > 6 ? &in[6] : nullptr, call.attr);
  const BackwardOperands operands{in[0], in[4], in[5]};
  const std::uint64_t query_tiles = divide_up(all.queries, kTile), key_tiles = divide_up(all.keys, kTile);
  by_width(call, all.widest(), [&]<unsigned kTiles>(std::integral_constant<unsigned, kTiles>) {
    for_teams(call, query_tiles * all.batches * all.heads,
              QueryGradient<C, kTiles>{all, operands, call.out[0], query_tiles}, sizeof(TileMemory<C>));
    for_teams(call, key_tiles * all.batches * all.kv_heads,
              KeyGradient<C, kTiles>{all, operands, call.out[1], call.out[2], key_tiles}, sizeof(TileMemory<C>));
  });
}

}  // namespace

void attention_backward(Call& call) {
  call.error = attention_refusal(call, 1, 6);
  if (call.error != nullptr || flash_backward(call)) return;
  if (in_fp32(call, call.in[1].dtype)) backward<float>(call);
}

void cudnn_attention_backward(Call& call) {
  if (call.services.attention == nullptr || !call.services.attention->attend(call)) attention_backward(call);
}

}  // namespace ledger::LEDGER_DEVICE
