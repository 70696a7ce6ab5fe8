// flash_forward.cc - attention forward on tensor cores: a team has 64 queries and walks over the keys they see, 64 at a
// time, with the online softmax of FlashAttention-2 (Dao 2023, algorithm 1).
#include "probe/device/flash.h"

namespace ledger::LEDGER_DEVICE {

bool suits_tensor_cores(const Call& call, std::initializer_list<const Operand*> operands) {
  if (call.services.queue.capability < kTensorCores) return false;
  const Operand& first = **operands.begin();
  if (first.dtype != DType::bf16 && first.dtype != DType::f16) return false;
  const std::uint64_t width = first.sizes[3];
  if (width != 64 && width != 96 && width != 128) return false;
  for (const Operand* x : operands) {
    if (x->sizes[3] != width || x->strides[3] != 1 || reinterpret_cast<std::uintptr_t>(x->data) % 16 != 0) return false;
    for (std::size_t i = 0; i < 3; ++i) {
      if (x->sizes[i] > 1 && x->strides[i] % kStrip != 0) return false;
    }
  }
  return true;
}

namespace {

// Of a lane's two rows: the largest score so far, and its own columns' part of the sum of powers.
struct OnlineRows {
  float largest[2], total[2];
};

template <class T, unsigned kWidth>
struct FlashForward {
  static constexpr unsigned kBlocks = kWidth / 8, kKeyBlocks = kTile / 8;
  static constexpr unsigned kPart = SharedRows<kWidth>::bytes(kTile), kBytes = 3 * kPart;
  using Scores = PerLane<std::array<Sums, kKeyBlocks>>;
  using Output = PerLane<std::array<Sums, kBlocks>>;

  Heads all;
  Operand out;
  RowNumbers logsumexp;
  std::uint64_t tiles;  // of queries

  // Values come while scores are made, the next keys while they are weighed.
  LEDGER_DEVICE_ONLY void operator()(Warps& warps, std::uint64_t index) const {
    // The last tiles see the most keys: they go first, so that no long one is left over at the end.
    const std::uint64_t of_heads = all.batches * all.heads, tile = tiles - 1 - index / of_heads;
    const std::uint64_t batch = index % of_heads / all.heads, head = index % all.heads, first = tile * kTile;
    const GlobalRows keys = head_rows(all.k, batch, all.kv_head(head));
    const GlobalRows values = head_rows(all.v, batch, all.kv_head(head));
    const SharedRows<kWidth> q{0}, k{kPart}, v{2 * kPart};
    Scores scores;
    Output output;
    PerLane<OnlineRows> rows;
    clear(warps, output);
    warps.lanes([&](unsigned lane) {
      rows[lane] = {{-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}, {0, 0}};
    });
    fetch_rows<kTile>(warps, q, head_rows(all.q, batch, head), first);
    fetch_rows<kTile>(warps, k, keys, 0);
    warps.commit();
    const std::uint64_t end = all.last_visible(first);
    for (std::uint64_t key = 0; key < end; key += kTile) {
      warps.arrive<0>();
      warps.barrier();
      fetch_rows<kTile>(warps, v, values, key);
      warps.commit();
      rows_by_rows<T>(warps, scores, q, k);
      warps.barrier();
      if (key + kTile < end) fetch_rows<kTile>(warps, k, keys, key + kTile);
      warps.commit();
      absorb(warps, scores, output, rows, first, key);
      warps.arrive<1>();
      warps.barrier();
      PerLane<std::array<Fragment, kKeyBlocks / 2>> weights;
      as_left<T>(warps, weights, scores);
      add_product<T>(warps, output, weights, v);
    }
    finish(warps, output, rows, batch, head, first);
  }

  // Scores become exp(score - largest so far); what came before is rescaled to the new largest.
  LEDGER_DEVICE_ONLY void absorb(Warps& warps, Scores& scores, Output& output, PerLane<OnlineRows>& rows,
                                 std::uint64_t first, std::uint64_t key) const {
    const float scale = static_cast<float>(all.scale) * kLog2e;
    const bool whole = key + kTile <= all.keys && key + kTile <= all.visible(first);
    PerLane<std::array<float, 2>> most;
    warps.lanes([&](unsigned lane) {
      LEDGER_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        const std::uint64_t seen = all.visible(first + sum_row(lane, i));
        const std::uint64_t visible = seen < all.keys ? seen : all.keys;
        const unsigned limit = visible <= key          ? 0
                               : visible - key < kTile ? static_cast<unsigned>(visible - key)
                                                       : kTile;
        float& largest = most[lane][i / 2];
        if (i % 2 == 0) largest = rows[lane].largest[i / 2];
        LEDGER_UNROLL
        for (unsigned j = 0; j < kKeyBlocks; ++j) {
          float& score = scores[lane][j].v[i];
          score =
              whole || j * 8 + sum_column(lane, i) < limit ? score * scale : -std::numeric_limits<float>::infinity();
          largest = Largest{}(largest, score);
        }
      }
    });
    warps.across_row(most, Largest{});
    warps.lanes([&](unsigned lane) {
      LEDGER_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        const float largest = most[lane][i], factor = std::exp2(rows[lane].largest[i] - largest);
        float total = rows[lane].total[i] * factor;
        LEDGER_UNROLL
        for (unsigned j = 0; j < 2 * kKeyBlocks; ++j) {
          float& score = scores[lane][j / 2].v[2 * i + j % 2];
          total += score = std::exp2(score - largest);
        }
        LEDGER_UNROLL
        for (unsigned j = 0; j < 2 * kBlocks; ++j)
          output[lane][j / 2].v[2 * i + j % 2] *= factor;
        rows[lane].largest[i] = largest;
        rows[lane].total[i] = total;
      }
    });
  }

  LEDGER_DEVICE_ONLY void finish(Warps& warps, Output& output, PerLane<OnlineRows>& rows, std::uint64_t batch,
                                 std::uint64_t head, std::uint64_t first) const {
    PerLane<std::array<float, 2>> totals;
    warps.lanes([&](unsigned lane) { totals[lane] = {rows[lane].total[0], rows[lane].total[1]}; });
    warps.across_row(totals, Sum{});
    warps.lanes([&](unsigned lane) {
      LEDGER_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        LEDGER_UNROLL
        for (unsigned j = 0; j < kBlocks; ++j)
          output[lane][j].v[i] /= totals[lane][i / 2];
      }
      LEDGER_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        const std::uint64_t row = first + sum_row(lane, 2 * i);
        if (lane % 4 != 0 || row >= all.queries) continue;
        logsumexp.at(batch, head, row) = (rows[lane].largest[i] + std::log2(totals[lane][i])) / kLog2e;
      }
    });
    store_rows<T>(warps, output, head_rows(out, batch, head), first, 1);
  }
};

}  // namespace

bool flash_forward(Call& call) {
  const Operand &q = call.in[0], &k = call.in[1], &v = call.in[2], &out = call.out[0];
  if (call.in.size() > 3 || !suits_tensor_cores(call, {&q, &k, &v, &out})) return false;
  const Heads all(q, k, v, nullptr, call.attr);
  const std::uint64_t tiles = divide_up(all.queries, kTile);
  by_head(q, [&]<class T, class Width>(T, Width) {
    using Body = FlashForward<T, Width::value>;
    for_warps(call, tiles * all.batches * all.heads, Body{all, out, RowNumbers(call.out[1]), tiles});
  });
  return true;
}

}  // namespace ledger::LEDGER_DEVICE
