// cut.cc - cut cross-entropy: logits exist a tile at a time.
//
// Right, and slow: each tile of 256 columns of a gradient makes all logits again, by kernels without tensor cores. A
// recipe with this loss is measured in memory, not in speed.
#include <cmath>

#include "probe/device/kernels.h"
#include "probe/device/tile.h"

namespace ledger::LEDGER_DEVICE {
namespace {

constexpr unsigned kColumnTiles = 4;

template <class C>
struct Problem {
  Operand e, c;
  std::uint64_t element;
  Integers positions, labels;
  std::int32_t* fault;
  std::uint64_t tokens, width, vocab;  // of e's rows, of both matrices' rows, of c

  Problem(Call& call, const Operand& of_e, const Operand& of_c, const Operand& of_positions, const Operand& of_labels)
      : e(of_e),
        c(of_c),
        element(element_bytes(of_e.dtype)),
        positions(of_positions),
        labels(of_labels),
        fault(call.services.fault),
        tokens(of_e.sizes[0]),
        width(of_e.sizes[1]),
        vocab(of_c.sizes[0]) {}
  // The row of e at position i; `tokens` where there is none.
  LEDGER_DEVICE_ONLY std::uint64_t token(std::uint64_t i) const {
    if (i >= positions.count || !inside(positions[i], tokens, fault, device::kBadPosition)) return tokens;
    return static_cast<std::uint64_t>(positions[i]);
  }
  // The label that follows it; `vocab` where there is none.
  LEDGER_DEVICE_ONLY std::uint64_t label(std::uint64_t i) const {
    const std::uint64_t row = token(i);
    if (row >= tokens) return vocab;
    if (row + 1 >= tokens || !inside(labels[row + 1], vocab, fault, device::kBadPosition)) {
      *fault = device::kBadPosition;
      return vocab;
    }
    return static_cast<std::uint64_t>(labels[row + 1]);
  }
  // blocks = logits of 64 positions (rows) and 64 words (columns).
  LEDGER_DEVICE_ONLY void logits(Team& team, TileMemory<C>& memory, PerLane<Block<C>>& blocks, std::uint64_t position,
                                 std::uint64_t word) const {
    const Grid<C> rows(e, element), words(c, element);
    multiply(
        team, memory, blocks, width, true, true,
        [&](unsigned row, std::uint64_t k) { return rows.get(token(position + row), k); },
        [&](unsigned column, std::uint64_t k) { return words.get(word + column, k); });
  }
};

template <class C>
struct Logsumexp {
  Problem<C> problem;
  Operand out;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t tile) const {
    auto& memory = *reinterpret_cast<TileMemory<C>*>(team.shared);
    const std::uint64_t first = tile * kTile;
    C *largest = memory.row[0], *total = memory.row[1];
    PerLane<Block<C>> blocks;
    team.each([&](unsigned lane) {
      if (lane >= kTile) return;
      largest[lane] = -std::numeric_limits<C>::infinity();
      total[lane] = 0;
    });
    for (std::uint64_t word = 0; word < problem.vocab; word += kTile) {
      problem.logits(team, memory, blocks, first, word);
      team.each([&](unsigned lane) {
        visit(blocks[lane], lane,
              [&](unsigned row, unsigned column, C value) { memory.whole[column * kPitch + row] = value; });
      });
      const std::uint64_t rest = problem.vocab - word;
      const unsigned words = rest < kTile ? static_cast<unsigned>(rest) : kTile;
      team.each([&](unsigned lane) {
        if (lane >= kTile) return;
        C most = largest[lane];
        for (unsigned k = 0; k < words; ++k)
          most = Largest{}(most, memory.whole[k * kPitch + lane]);
        C sum = total[lane] * std::exp(largest[lane] - most);
        for (unsigned k = 0; k < words; ++k)
          sum += std::exp(memory.whole[k * kPitch + lane] - most);
        largest[lane] = most;
        total[lane] = sum;
      });
    }
    team.each([&](unsigned lane) {
      if (lane >= kTile || first + lane >= problem.positions.count) return;
      const std::int64_t place = static_cast<std::int64_t>(first + lane) * out.strides[0];
      reinterpret_cast<float*>(out.data)[place] = static_cast<float>(largest[lane] + std::log(total[lane]));
    });
  }
};

template <class C>
struct NegativeDot {
  Problem<C> problem;
  Operand out;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t i) const {
    const std::uint64_t row = problem.token(i), word = problem.label(i);
    const Grid<C> rows(problem.e, problem.element), words(problem.c, problem.element);
    const C dot = team.sum<C>(problem.width, [&](std::uint64_t k) { return rows.get(row, k) * words.get(word, k); });
    team.each([&](unsigned lane) {
      if (lane == 0) {
        reinterpret_cast<float*>(out.data)[static_cast<std::int64_t>(i) * out.strides[0]] = static_cast<float>(-dot);
      }
    });
  }
};

// d logit = gradient / n (exp(logit - logsumexp) - [word is the label]).
template <class C>
struct CutGradient {
  Problem<C> problem;
  Operand logsumexp, gradient, out;
  std::uint64_t out_element;
  bool of_words;  // dc, else de

  LEDGER_DEVICE_ONLY void slopes(Team& team, TileMemory<C>& memory, PerLane<Block<C>>& blocks, std::uint64_t position,
                                 std::uint64_t word) const {
    problem.logits(team, memory, blocks, position, word);
    const C scale = load_float<C>(gradient.data, gradient.dtype) / static_cast<C>(problem.positions.count);
    team.each([&](unsigned lane) {
      visit(blocks[lane], lane, [&](unsigned row, unsigned column, C logit) {
        const std::uint64_t i = position + row, v = word + column;
        C slope = 0;
        if (i < problem.positions.count && v < problem.vocab) {
          const std::int64_t place = static_cast<std::int64_t>(i) * logsumexp.strides[0];
          const C total = static_cast<C>(reinterpret_cast<const float*>(logsumexp.data)[place]);
          slope = scale * (std::exp(logit - total) - (v == problem.label(i) ? C{1} : C{0}));
        }
        memory.whole[of_words ? row * kPitch + column : column * kPitch + row] = slope;
      });
    });
  }

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t index) const {
    auto& memory = *reinterpret_cast<TileMemory<C>*>(team.shared);
    constexpr std::uint64_t kColumns = kColumnTiles * kTile;
    const std::uint64_t across = (problem.width + kColumns - 1) / kColumns;
    const std::uint64_t first = index / across * kTile, column0 = index % across * kColumns;
    const Grid<C> rows(problem.e, problem.element), words(problem.c, problem.element);
    PerLane<Block<C>> blocks;
    PerLane<std::array<Block<C>, kColumnTiles>> total;
    team.each([&](unsigned lane) {
      for (unsigned t = 0; t < kColumnTiles; ++t)
        clear(total[lane][t]);
    });
    const std::uint64_t end = of_words ? problem.positions.count : problem.vocab;
    for (std::uint64_t other = 0; other < end; other += kTile) {
      slopes(team, memory, blocks, of_words ? other : first, of_words ? first : other);
      add_whole<kColumnTiles>(team, memory, total, problem.width - column0, [&](std::uint64_t k, std::uint64_t column) {
        return of_words ? rows.get(problem.token(other + k), column0 + column) : words.get(other + k, column0 + column);
      });
    }
    const Grid<C> result(out, out_element);
    team.each([&](unsigned lane) {
      for (unsigned t = 0; t < kColumnTiles; ++t) {
        visit(total[lane][t], lane, [&](unsigned row, unsigned column, C value) {
          const std::uint64_t to = of_words ? first + row : problem.token(first + row);
          result.set(to, column0 + t * kTile + column, value);
        });
      }
    });
  }
};

struct Zero {
  LEDGER_DEVICE_ONLY float operator()(std::uint64_t) const { return 0; }
};

template <class C>
void logsumexp_as(Call& call) {
  const Problem<C> problem(call, call.in[0], call.in[1], call.in[2], call.in[2]);
  for_teams(call, divide_up(problem.positions.count, kTile), Logsumexp<C>{problem, call.out[0]}, sizeof(TileMemory<C>));
}

template <class C>
void neg_dot_as(Call& call) {
  const Problem<C> problem(call, call.in[0], call.in[1], call.in[2], call.in[3]);
  for_teams(call, call.out[0].sizes[0], NegativeDot<C>{problem, call.out[0]});
}

template <class C>
void backward_as(Call& call) {
  const Problem<C> problem(call, call.in[1], call.in[2], call.in[4], call.in[5]);
  const std::uint64_t across = divide_up(problem.width, kColumnTiles * kTile);
  std::size_t next = 0;
  for (const bool of_words : {false, true}) {
    if (call.attr.i[of_words ? 1 : 0] == 0) continue;
    const Operand& out = call.out[next++];
    const std::uint64_t rows = of_words ? problem.vocab : problem.positions.count;
    for_teams(call, divide_up(rows, kTile) * across,
              CutGradient<C>{problem, call.in[3], call.in[0], out, element_bytes(out.dtype), of_words},
              sizeof(TileMemory<C>));
  }
}

}  // namespace

void cut_logsumexp(Call& call) {
  if (!in_fp32(call, call.in[0].dtype)) return;
  logsumexp_as<float>(call);
  for (std::size_t i = 1; i < call.out.size(); ++i)
    generate<float>(call, call.out[i], Zero{});
}

void cut_neg_dot(Call& call) {
  if (in_fp32(call, call.in[0].dtype)) neg_dot_as<float>(call);
}

void cut_backward(Call& call) {
  fill_zeros(call);  // tokens without a label have no gradient
  if (in_fp32(call, call.in[1].dtype)) backward_as<float>(call);
}

}  // namespace ledger::LEDGER_DEVICE
