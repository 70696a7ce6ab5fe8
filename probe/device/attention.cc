// attention.cc - causal attention forward, by tiles of queries and keys with an online softmax (Milakov, Gimelshein
// 2018; FlashAttention, Dao et al. 2022, algorithm 1), where tensor cores do not take it (flash_forward.cc).
#include <algorithm>
#include <cmath>

#include "probe/device/flash.h"
#include "probe/device/kernels.h"

namespace ledger::LEDGER_DEVICE {

const char* attention_refusal(const Call& call, std::size_t first, std::size_t bias) {
  const Operand &q = call.in[first], &k = call.in[first + 1], &v = call.in[first + 2];
  const bool match = q.rank == 4 && k.rank == 4 && v.rank == 4 && (call.attr.i[1] != 0 || q.sizes[2] <= k.sizes[2]) &&
                     q.sizes[3] == k.sizes[3] && std::equal(k.sizes.begin(), k.sizes.begin() + 3, v.sizes.begin()) &&
                     k.sizes[1] > 0 && q.sizes[1] % k.sizes[1] == 0 && q.dtype == k.dtype && q.dtype == v.dtype;
  const bool biased = call.in.size() > bias;
  if (!match || (biased && q.sizes[1] != k.sizes[1])) {
    return "queries, keys and values have shapes that do not go together";
  }
  return call.attr.i[0] != 0 ? "dropout inside attention is not computed here: set the model's attention dropout to 0"
                             : nullptr;
}

namespace {

template <class C, unsigned kTiles>
struct Attend {
  Heads all;
  Operand out, logsumexp;
  std::uint64_t tiles;  // of queries

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t index) const {
    auto& memory = *reinterpret_cast<TileMemory<C>*>(team.shared);
    // The last tiles see the most keys: they go first, so that no long one is left over at the end.
    const std::uint64_t of_heads = all.batches * all.heads, tile = tiles - 1 - index / of_heads;
    const std::uint64_t batch = index % of_heads / all.heads, head = index % all.heads, first = tile * kTile;
    const Head<C> x(all, batch, head);
    C *largest = memory.row[0], *total = memory.row[1], *factor = memory.row[2];
    PerLane<Block<C>> scores;
    PerLane<std::array<Block<C>, kTiles>> output;
    team.each([&](unsigned lane) {
      for (unsigned t = 0; t < kTiles; ++t)
        clear(output[lane][t]);
      if (lane >= kTile) return;
      largest[lane] = -std::numeric_limits<C>::infinity();
      total[lane] = 0;
    });
    const std::uint64_t end = all.last_visible(first);
    for (std::uint64_t key = 0; key < end; key += kTile) {
      rows_by_rows(team, memory, scores, x.q, first, x.k, key);
      team.each([&](unsigned lane) {
        visit(scores[lane], lane, [&](unsigned row, unsigned column, C product) {
          memory.whole[column * kPitch + row] = x.score(all, first + row, key + column, product);
        });
      });
      team.each([&](unsigned lane) {
        if (lane < kTile) absorb(memory.whole + lane, largest[lane], total[lane], factor[lane]);
      });
      team.each([&](unsigned lane) {
        for (unsigned t = 0; t < kTiles; ++t)
          for (unsigned i = 0; i < kSide; ++i)
            for (unsigned j = 0; j < kSide; ++j)
              output[lane][t].v[i][j] *= factor[tile_row(lane, i)];
      });
      add_whole<kTiles>(team, memory, output, all.value_width,
                        [&](std::uint64_t k, std::uint64_t column) { return x.v.get(key + k, column); });
    }
    finish(team, memory, output, batch, head, first);
  }

  // One row of scores becomes exp(score - largest so far); what came before is to be multiplied by `factor`.
  LEDGER_DEVICE_ONLY static void absorb(C* column, C& largest, C& total, C& factor) {
    C most = largest;
    for (unsigned k = 0; k < kTile; ++k)
      most = column[k * kPitch] > most ? column[k * kPitch] : most;
    if (most == -std::numeric_limits<C>::infinity()) {  // nothing was seen so far
      for (unsigned k = 0; k < kTile; ++k)
        column[k * kPitch] = 0;
      factor = 1;
      return;
    }
    factor = std::exp(largest - most);
    C sum = 0;
    for (unsigned k = 0; k < kTile; ++k)
      sum += column[k * kPitch] = std::exp(column[k * kPitch] - most);
    total = total * factor + sum;
    largest = most;
  }

  LEDGER_DEVICE_ONLY void finish(Team& team, TileMemory<C>& memory, PerLane<std::array<Block<C>, kTiles>>& output,
                                 std::uint64_t batch, std::uint64_t head, std::uint64_t first) const {
    const Grid<C> result(out, all.element, batch, head);
    team.each([&](unsigned lane) {
      for (unsigned t = 0; t < kTiles; ++t) {
        visit(output[lane][t], lane, [&](unsigned row, unsigned column, C value) {
          result.set(first + row, t * kTile + column, value / memory.row[1][row]);
        });
      }
      if (lane >= kTile || first + lane >= all.queries) return;
      const std::int64_t place = static_cast<std::int64_t>(batch) * logsumexp.strides[0] +
                                 static_cast<std::int64_t>(head) * logsumexp.strides[1] +
                                 static_cast<std::int64_t>(first + lane) * logsumexp.strides[2];
      reinterpret_cast<float*>(logsumexp.data)[place] =
          static_cast<float>(memory.row[0][lane] + std::log(memory.row[1][lane]));
    });
  }
};

template <class C>
void attend(Call& call) {
  const Operand* bias = call.in.size() > 3 ? &call.in[3] : nullptr;
  const Heads all(call.in[0], call.in[1], call.in[2], bias, call.attr);
  const std::uint64_t tiles = divide_up(all.queries, kTile);
  by_width(call, all.widest(), [&]<unsigned kTiles>(std::integral_constant<unsigned, kTiles>) {
    for_teams(call, tiles * all.batches * all.heads, Attend<C, kTiles>{all, call.out[0], call.out[1], tiles},
              sizeof(TileMemory<C>));
  });
}

}  // namespace

void attention(Call& call) {
  call.error = attention_refusal(call, 0, 3);
  if (call.error != nullptr || flash_forward(call)) return;
  if (in_fp32(call, call.in[0].dtype)) attend<float>(call);
}

void cudnn_attention(Call& call) {
  if (call.services.attention == nullptr || !call.services.attention->attend(call)) attention(call);
}

}  // namespace ledger::LEDGER_DEVICE
