// flash_backward.cc - gradients of attention on tensor cores: scores are made again from the logsumexp
// (FlashAttention-2, Dao 2023, algorithm 2). Letters as in attention_head.h; D has the sum of dO O over each query's
// row.
//
// A team holds 64 keys and values and walks over the queries that see them, 32 at a time, for dK and dV. Where the
// operator has fp32 memory for dQ, the same teams add their parts to it; where it has none, other teams hold 64 queries
// and walk over the keys, which makes the scores twice.
#include "probe/device/flash_rows.h"

namespace ledger::LEDGER_DEVICE {
namespace {

constexpr unsigned kWalked = 32;                    // rows at a time
constexpr std::size_t kWalkedBlocks = kWalked / 8;  // of columns, where those rows are columns of scores
constexpr unsigned kNumbers = kWalked * 4;          // bytes of one number for each of those rows

struct FlashGradients {
  Heads all;
  Operand gradient;
  RowNumbers logsumexp, inner;  // inner: D
  float scale, power;           // of scores: as they are, and as powers of two

  FlashGradients(const Heads& heads, const Operand& of_out, const Operand& lse, const RowNumbers& d)
      : all(heads),
        gradient(of_out),
        logsumexp(lse),
        inner(d),
        scale(static_cast<float>(heads.scale)),
        power(scale * kLog2e) {}
  // Keys that a query sees, also one past the last, which sees as many as that.
  LEDGER_DEVICE_ONLY std::uint64_t visible(std::uint64_t query) const {
    return all.causal && query < all.queries ? earlier() + query + 1 : all.keys;
  }
  // Keys that every query sees: of tokens before the first.
  LEDGER_DEVICE_ONLY std::uint64_t earlier() const { return all.keys - all.queries; }
};

// The logsumexp as a power of two, and D, of one query. Past the last one no key has weight.
struct QueryNumbers {
  float lse, inner;
};
LEDGER_DEVICE_ONLY inline QueryNumbers query_numbers(const FlashGradients& x, std::uint64_t batch, std::uint64_t head,
                                                     std::uint64_t query) {
  if (query >= x.all.queries) return {std::numeric_limits<float>::infinity(), 0};
  return {x.logsumexp.at(batch, head, query) * kLog2e, x.inner.at(batch, head, query)};
}

// Tiles in shared memory: two that are held, two that are walked over, twice; then what one of the teams has besides.
template <unsigned kWidth>
struct FlashTiles {
  static constexpr unsigned kHeld = SharedRows<kWidth>::bytes(kTile), kStep = SharedRows<kWidth>::bytes(kWalked);
  static constexpr unsigned kRest = 2 * kHeld + 4 * kStep;
  LEDGER_DEVICE_ONLY static SharedRows<kWidth> held(unsigned which) { return {which * kHeld}; }
  LEDGER_DEVICE_ONLY static SharedRows<kWidth> walked(std::uint64_t turn, unsigned which) {
    return {2 * kHeld + (static_cast<unsigned>(turn % 2) * 2 + which) * kStep};
  }
};

// scores become P, slopes become dS but for the scale. numbers(lane, j, i) of the element's query, seen(lane, j, i).
template <class Numbers, class Seen>
LEDGER_DEVICE_ONLY inline void to_slopes(Warps& warps, PerLane<std::array<Sums, kWalkedBlocks>>& scores,
                                         PerLane<std::array<Sums, kWalkedBlocks>>& slopes, float power, Numbers numbers,
                                         Seen seen) {
  warps.lanes([&](unsigned lane) {
    LEDGER_UNROLL
    for (unsigned j = 0; j < kWalkedBlocks; ++j) {
      LEDGER_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        const QueryNumbers query = numbers(lane, j, i);
        float& p = scores[lane][j].v[i];
        p = seen(lane, j, i) ? std::exp2(p * power - query.lse) : 0.0f;
        slopes[lane][j].v[i] = p * (slopes[lane][j].v[i] - query.inner);
      }
    }
  });
}

template <class T, unsigned kWidth, bool kAddsQueries>
struct FlashKeys {
  using Tiles = FlashTiles<kWidth>;
  using Whole = PerLane<std::array<Sums, kWidth / 8>>;
  static constexpr unsigned kLse = Tiles::kRest, kInner = kLse + 2 * kNumbers, kSlopes = kInner + 2 * kNumbers;
  static constexpr unsigned kBytes = kSlopes + (kAddsQueries ? SharedRows<kWalked>::bytes(kTile) : 0);

  FlashGradients x;
  Operand dk, dv, dq_sums;  // dq_sums: [b, s or more, n, d or more] fp32

  // The walk: tiles of queries of each head that shares the keys.
  struct Walk {
    std::uint64_t batch, kv_head, first, skipped, tiles;  // tiles: of one head, without those before the keys
    LEDGER_DEVICE_ONLY std::uint64_t head(std::uint64_t group, std::uint64_t turn) const {
      return kv_head * group + turn / tiles;
    }
    LEDGER_DEVICE_ONLY std::uint64_t query(std::uint64_t turn) const { return (skipped + turn % tiles) * kWalked; }
  };

  LEDGER_DEVICE_ONLY void operator()(Warps& warps, std::uint64_t index) const {
    const Heads& all = x.all;
    const std::uint64_t of_heads = all.batches * all.kv_heads, group = all.heads / all.kv_heads;
    Walk walk{index % of_heads / all.kv_heads, index % all.kv_heads, index / of_heads * kTile, 0, 0};
    walk.skipped = all.causal && walk.first > x.earlier() ? (walk.first - x.earlier()) / kWalked : 0;
    walk.tiles = (all.queries + kWalked - 1) / kWalked - walk.skipped;
    fetch_rows<kTile>(warps, Tiles::held(0), head_rows(all.k, walk.batch, walk.kv_head), walk.first);
    fetch_rows<kTile>(warps, Tiles::held(1), head_rows(all.v, walk.batch, walk.kv_head), walk.first);
    fetch(warps, walk, group, 0);
    warps.commit();
    Whole to_k, to_v;
    clear(warps, to_k);
    clear(warps, to_v);
    for (std::uint64_t turn = 0; turn < group * walk.tiles; ++turn) {
      warps.arrive<0>();
      warps.barrier();
      if (turn + 1 < group * walk.tiles) fetch(warps, walk, group, turn + 1);
      warps.commit();
      add_queries(warps, to_k, to_v, walk, group, turn);
    }
    store_rows<T>(warps, to_k, head_rows(dk, walk.batch, walk.kv_head), walk.first, x.scale);
    store_rows<T>(warps, to_v, head_rows(dv, walk.batch, walk.kv_head), walk.first, 1);
  }

  LEDGER_DEVICE_ONLY void fetch(Warps& warps, const Walk& walk, std::uint64_t group, std::uint64_t turn) const {
    const std::uint64_t head = walk.head(group, turn), query = walk.query(turn);
    const auto numbers = static_cast<unsigned>(turn % 2) * kNumbers;
    fetch_rows<kWalked>(warps, Tiles::walked(turn, 0), head_rows(x.all.q, walk.batch, head), query);
    fetch_rows<kWalked>(warps, Tiles::walked(turn, 1), head_rows(x.gradient, walk.batch, head), query);
    warps.lanes([&](unsigned lane) {
      if (lane >= kWalked) return;
      const QueryNumbers mine = query_numbers(x, walk.batch, head, query + lane);
      warps.put(lane, kLse + numbers + lane * 4, mine.lse);
      warps.put(lane, kInner + numbers + lane * 4, mine.inner);
    });
  }

  // dV += P^T dO, dK += dS^T Q: rows are keys, columns queries.
  LEDGER_DEVICE_ONLY void add_queries(Warps& warps, Whole& to_k, Whole& to_v, const Walk& walk, std::uint64_t group,
                                      std::uint64_t turn) const {
    const SharedRows<kWidth> q = Tiles::walked(turn, 0), gradient = Tiles::walked(turn, 1);
    const auto numbers = static_cast<unsigned>(turn % 2) * kNumbers;
    const std::uint64_t query = walk.query(turn), first = walk.first;
    const bool whole = first + kTile <= x.visible(query);
    PerLane<std::array<Sums, kWalkedBlocks>> scores, slopes;
    rows_by_rows<T>(warps, scores, Tiles::held(0), q);
    rows_by_rows<T>(warps, slopes, Tiles::held(1), gradient);
    to_slopes(
        warps, scores, slopes, x.power,
        [&](unsigned lane, unsigned j, unsigned i) {
          const unsigned at = numbers + (j * 8 + sum_column(lane, i)) * 4;
          return QueryNumbers{warps.template get<float>(lane, kLse + at), warps.template get<float>(lane, kInner + at)};
        },
        [&](unsigned lane, unsigned j, unsigned i) {
          return whole || first + sum_row(lane, i) < x.visible(query + j * 8 + sum_column(lane, i));
        });
    PerLane<std::array<Fragment, kWalkedBlocks / 2>> weights;
    as_left<T>(warps, weights, scores);
    add_product<T>(warps, to_v, weights, gradient);
    as_left<T>(warps, weights, slopes);
    add_product<T>(warps, to_k, weights, q);
    if constexpr (kAddsQueries) add_to_sums(warps, weights, walk.batch, walk.head(group, turn), query);
  }

  // dQ += dS K: each team has the keys of its own, so that the sums are everybody's. Two warps have 16 queries each,
  // the others the second half of their columns.
  LEDGER_DEVICE_ONLY void add_to_sums(Warps& warps, PerLane<std::array<Fragment, kWalkedBlocks / 2>>& slopes,
                                      std::uint64_t batch, std::uint64_t head, std::uint64_t query) const {
    const SharedRows<kWalked> turned{kSlopes};  // rows are keys
    const SharedRows<kWidth> k = Tiles::held(0);
    warps.lanes([&](unsigned lane) {
      LEDGER_UNROLL
      for (unsigned j = 0; j < kWalkedBlocks; ++j)
        LEDGER_UNROLL
      for (unsigned i = 0; i < 4; i += 2)
        warps.put(lane, turned.place(sum_row(lane, i), j * 8 + sum_column(lane, i)),
                  slopes[lane][j / 2].r[j % 2 * 2 + i / 2]);
    });
    warps.barrier();
    PerLane<std::array<Sums, kWidth / 16>> part;
    clear(warps, part);
    LEDGER_UNROLL
    for (unsigned key = 0; key < kTile; key += 16) {
      PerLane<std::array<Fragment, 1>> left;
      warps.template load<true>(
          left, 0, [&](unsigned lane) { return turned.template matrix<false>(lane, key, first_row(lane)); });
      LEDGER_UNROLL
      for (unsigned j = 0; j < kWidth / 16; j += 2) {
        PerLane<std::array<Fragment, 1>> right;
        warps.template load<true>(
            right, 0, [&](unsigned lane) { return k.template matrix<true>(lane, key, first_column(lane) + j * 8); });
        warps.template multiply<T>(part, j, left, 0, right, 0);
        warps.template multiply<T>(part, j + 1, left, 0, right, 1);
      }
    }
    warps.lanes([&](unsigned lane) {
      LEDGER_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        const std::uint64_t row = query + first_row(lane) + sum_row(lane % kWarp, i);
        if (row >= x.all.queries) continue;
        float* const to =
            reinterpret_cast<float*>(dq_sums.data) + static_cast<std::int64_t>(batch) * dq_sums.strides[0] +
            static_cast<std::int64_t>(row) * dq_sums.strides[1] + static_cast<std::int64_t>(head) * dq_sums.strides[2] +
            first_column(lane) + sum_column(lane, i);
        LEDGER_UNROLL
        for (unsigned j = 0; j < kWidth / 16; ++j)
          Warps::add(to + j * 8, part[lane][j].v[i]);
      }
    });
  }
  LEDGER_DEVICE_ONLY static unsigned first_row(unsigned lane) { return lane / kWarp % 2 * kWarpRows; }
  LEDGER_DEVICE_ONLY static unsigned first_column(unsigned lane) { return lane / kWarp / 2 * (kWidth / 2); }
};

// dQ by teams that hold queries: rows are queries, columns keys.
template <class T, unsigned kWidth>
struct FlashQueries {
  using Tiles = FlashTiles<kWidth>;
  static constexpr unsigned kBytes = Tiles::kRest;

  FlashGradients x;
  Operand dq;
  std::uint64_t tiles;

  LEDGER_DEVICE_ONLY void operator()(Warps& warps, std::uint64_t index) const {
    const Heads& all = x.all;
    const std::uint64_t of_heads = all.batches * all.heads, first = (tiles - 1 - index / of_heads) * kTile;
    const std::uint64_t batch = index % of_heads / all.heads, head = index % all.heads;
    const GlobalRows keys = head_rows(all.k, batch, all.kv_head(head));
    const GlobalRows values = head_rows(all.v, batch, all.kv_head(head));
    fetch_rows<kTile>(warps, Tiles::held(0), head_rows(all.q, batch, head), first);
    fetch_rows<kTile>(warps, Tiles::held(1), head_rows(x.gradient, batch, head), first);
    fetch_rows<kWalked>(warps, Tiles::walked(0, 0), keys, 0);
    fetch_rows<kWalked>(warps, Tiles::walked(0, 1), values, 0);
    warps.commit();
    // Read before dQ is written: D may lie in its memory.
    PerLane<std::array<QueryNumbers, 2>> numbers;
    warps.lanes([&](unsigned lane) {
      LEDGER_UNROLL
      for (unsigned i = 0; i < 2; ++i)
        numbers[lane][i] = query_numbers(x, batch, head, first + sum_row(lane, 2 * i));
    });
    PerLane<std::array<Sums, kWidth / 8>> total;
    clear(warps, total);
    const std::uint64_t turns = (x.visible(first + kTile - 1) + kWalked - 1) / kWalked;
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      warps.arrive<0>();
      warps.barrier();
      if (turn + 1 < turns) {
        fetch_rows<kWalked>(warps, Tiles::walked(turn + 1, 0), keys, (turn + 1) * kWalked);
        fetch_rows<kWalked>(warps, Tiles::walked(turn + 1, 1), values, (turn + 1) * kWalked);
      }
      warps.commit();
      add_keys(warps, total, numbers, first, turn);
    }
    store_rows<T>(warps, total, head_rows(dq, batch, head), first, x.scale);
  }

  // dQ += dS K.
  LEDGER_DEVICE_ONLY void add_keys(Warps& warps, PerLane<std::array<Sums, kWidth / 8>>& total,
                                   PerLane<std::array<QueryNumbers, 2>>& numbers, std::uint64_t first,
                                   std::uint64_t turn) const {
    const SharedRows<kWidth> k = Tiles::walked(turn, 0), v = Tiles::walked(turn, 1);
    const std::uint64_t key = turn * kWalked;
    const bool whole = key + kWalked <= x.visible(first);
    PerLane<std::array<Sums, kWalkedBlocks>> scores, slopes;
    rows_by_rows<T>(warps, scores, Tiles::held(0), k);
    rows_by_rows<T>(warps, slopes, Tiles::held(1), v);
    to_slopes(
        warps, scores, slopes, x.power, [&](unsigned lane, unsigned, unsigned i) { return numbers[lane][i / 2]; },
        [&](unsigned lane, unsigned j, unsigned i) {
          return whole || key + j * 8 + sum_column(lane, i) < x.visible(first + sum_row(lane, i));
        });
    PerLane<std::array<Fragment, kWalkedBlocks / 2>> weights;
    as_left<T>(warps, weights, slopes);
    add_product<T>(warps, total, weights, k);
  }
};

template <class T, unsigned kWidth>
void with_sums(Call& call, const FlashGradients& x) {
  const Operand &dq = call.out[0], &sums = call.out[4];
  const Heads& all = x.all;
  for_elements(call, sums.numel() / 4, FlashClear{reinterpret_cast<float*>(sums.data)});
  using Keys = FlashKeys<T, kWidth, true>;
  for_warps(call, divide_up(all.keys, kTile) * all.batches * all.kv_heads, Keys{x, call.out[1], call.out[2], sums});
  for_elements(call, all.batches * all.heads * all.queries * (kWidth / kStrip),
               FlashNarrow<T>{sums, dq, all.heads, all.queries, kWidth, x.scale});
}

template <class T, unsigned kWidth>
void without_sums(Call& call, const FlashGradients& x) {
  const Heads& all = x.all;
  using Keys = FlashKeys<T, kWidth, false>;
  using Queries = FlashQueries<T, kWidth>;
  const std::uint64_t query_tiles = divide_up(all.queries, kTile);
  for_warps(call, divide_up(all.keys, kTile) * all.batches * all.kv_heads, Keys{x, call.out[1], call.out[2], {}});
  for_warps(call, query_tiles * all.batches * all.heads, Queries{x, call.out[0], query_tiles});
}

}  // namespace

bool flash_backward(Call& call) {
  const auto& in = call.in;
  const auto& out = call.out;
  if (in.size() > 6 || !suits_tensor_cores(call, {&in[1], &in[0], &in[2], &in[3], &in[4], &out[0], &out[1], &out[2]}))
    return false;
  // As the operator has it: softmax_d and dq_accum of FlashAttention-2. Without them the rows of dQ hold D until then.
  const bool has_sums = call.run.op == OpKind::flash_attention_backward && out.size() == 5;
  const Heads all(in[1], in[2], in[3], nullptr, call.attr);
  const FlashGradients x(all, in[0], in[5], RowNumbers(out[has_sums ? 3 : 0]));
  by_head(in[1], [&]<class T, class Width>(T, Width) {
    for_elements(call, all.batches * all.heads * all.queries,
                 FlashInner<T>{in[0], in[4], x.inner, all.heads, all.queries, Width::value});
    has_sums ? with_sums<T, Width::value>(call, x) : without_sums<T, Width::value>(call, x);
  });
  return true;
}

}  // namespace ledger::LEDGER_DEVICE
