// mesh.h - how the ranks of a run are numbered, and which of them a collective is among.
//
// Source: Megatron-LM core/parallel_state.py (order tp-cp-ep-dp-pp), torchtitan distributed/parallel_dims.py (pp, dp,
// cp, tp): both count tensor-parallel ranks first and pipeline stages last. Megatron numbers the ranks of a stage once
// more for its experts, those that cut an expert's matrices first, then those that have other experts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ledger {

// A rank's number in digits, the one that changes first in front.
enum class Axis : std::uint8_t { tensor, context, data, pipeline, count_ };

// The members of a group differ along these axes, a bit each.
enum class RankGroup : std::uint16_t {
  tensor = 1,
  data = 2 | 4,  // those that have the same parameters and other tokens
  pipeline = 8,
  model = 1 | 8,  // those that have one model among them
  everyone = 15,
  pipeline_ends = 8 | 16,  // of a pipeline the first and the last stage
  expert_tensor = 32,      // the same experts' matrices are cut among them
  expert = 64,             // each has other experts
  expert_data = 128,       // those that have the same part of the same experts
  expert_model = 8 | 32 | 64,
  batches = 4,     // those that have other sequences
  exchange = 256,  // of those that share sequences, neighbours that exchange tokens for heads
  ring = 512,      // and those that keys and values go around among
};

// Where a rank stands among those of its stage, as its experts are numbered.
struct ExpertPlace {
  std::uint64_t tensor = 0, expert = 0, data = 0;
};

struct Mesh {
  static constexpr std::size_t kAxes = static_cast<std::size_t>(Axis::count_);
  std::array<std::uint64_t, kAxes> sizes{1, 1, 1, 1};
  std::uint64_t expert_tensor = 1, expert = 1;  // a stage's ranks are a multiple of their product
  std::uint64_t exchanging = 1;                 // how many neighbours along the context axis exchange heads

  std::uint64_t world() const {
    std::uint64_t ranks = 1;
    for (const std::uint64_t size : sizes)
      ranks *= size;
    return ranks;
  }

  std::uint64_t size(Axis axis) const { return sizes[static_cast<std::size_t>(axis)]; }

  std::uint64_t place(std::uint64_t rank, Axis axis) const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(axis); ++i)
      rank /= sizes[i];
    return rank % size(axis);
  }

  // Among the ranks that have the same parameters.
  std::uint64_t data_place(std::uint64_t rank) const {
    return place(rank, Axis::data) * size(Axis::context) + place(rank, Axis::context);
  }

  std::uint64_t stage_ranks() const { return world() / size(Axis::pipeline); }
  std::uint64_t expert_data() const { return stage_ranks() / (expert_tensor * expert); }

  ExpertPlace expert_place(std::uint64_t rank) const {
    const std::uint64_t here = rank % stage_ranks();
    return {here % expert_tensor, here / expert_tensor % expert, here / (expert_tensor * expert)};
  }

  // In ascending order, `rank` among them unless it is no end of its pipeline.
  std::vector<std::uint64_t> members(std::uint64_t rank, RankGroup group) const {
    const unsigned bits = static_cast<unsigned>(group);
    std::vector<std::uint64_t> all;
    for (std::uint64_t other = 0; other < world(); ++other) {
      if (bits > 31 && bits < 256) {
        if (shares_experts(rank, other, bits)) all.push_back(other);
        continue;
      }
      bool member = bits < 256 || shares_sequences(rank, other, group);
      for (std::size_t i = 0; i < kAxes; ++i) {
        const auto axis = static_cast<Axis>(i);
        const bool may_differ = (bits >> i & 1u) != 0 || (bits >= 256 && axis == Axis::context);
        member = member && (may_differ || place(other, axis) == place(rank, axis));
      }
      const std::uint64_t stage = place(other, Axis::pipeline);
      const bool end = stage == 0 || stage + 1 == size(Axis::pipeline);
      if (member && (group != RankGroup::pipeline_ends || end)) all.push_back(other);
    }
    return all;
  }

 private:
  bool shares_sequences(std::uint64_t rank, std::uint64_t other, RankGroup group) const {
    const std::uint64_t a = place(rank, Axis::context), b = place(other, Axis::context);
    return group == RankGroup::ring ? a % exchanging == b % exchanging : a / exchanging == b / exchanging;
  }

  bool shares_experts(std::uint64_t rank, std::uint64_t other, unsigned bits) const {
    const ExpertPlace a = expert_place(rank), b = expert_place(other);
    const bool stage = (bits & 8u) != 0 || place(rank, Axis::pipeline) == place(other, Axis::pipeline);
    return stage && ((bits & 32u) != 0 || a.tensor == b.tensor) && ((bits & 64u) != 0 || a.expert == b.expert) &&
           ((bits & 128u) != 0 || a.data == b.data);
  }
};

}  // namespace ledger
