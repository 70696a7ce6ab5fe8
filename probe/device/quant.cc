// quant.cc - NF4 weights with plain or doubly quantised scales: made at load, expanded before each use.
//
// Weights are a formula of their index, so scales are computed from it anew wherever they are needed: nothing but the
// result takes memory.
#include <cmath>

#include "probe/device/kernels.h"
#include "probe/device/memory.h"
#include "probe/device/nf4_decode.h"
#include "probe/host/nf4.h"
#include "probe/initial_values.h"
#include "probe/math/quantise.h"

namespace ledger::LEDGER_DEVICE {
namespace {

using host::kAbsmaxBlock;
using host::kNf4Block;
static_assert(kAbsmaxBlock == kLanes, "a lane a scale");

// Tables travel in the kernels' arguments.
template <unsigned kSize>
struct Table {
  float values[kSize];
  explicit Table(const std::array<float, kSize>& from) {
    for (unsigned i = 0; i < kSize; ++i)
      values[i] = from[i];
  }
};

struct Weights {
  std::uint64_t hash, count;

  // As a checkpoint holds it, in bf16.
  LEDGER_DEVICE_ONLY float at(std::uint64_t i) const {
    Bf16 bits;
    narrow(static_cast<float>(centred_value(hash + i, kWeightScale)), bits);
    return widen(bits);
  }
  LEDGER_DEVICE_ONLY std::uint64_t end_of(std::uint64_t block) const {
    const std::uint64_t end = (block + 1) * kNf4Block;
    return end < count ? end : count;
  }
  LEDGER_DEVICE_ONLY float absmax(std::uint64_t block) const {
    float largest = 0;
    for (std::uint64_t i = block * kNf4Block; i < end_of(block); ++i)
      largest = std::fmax(largest, std::fabs(at(i)));
    return largest;
  }
};

LEDGER_DEVICE_ONLY inline float inverse_of(float absmax) {
  return absmax > 0 ? 1.0f / absmax : 0.0f;
}
LEDGER_DEVICE_ONLY inline float clamped(float x) {
  return x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x;
}

struct PackBlock {
  Weights weights;
  Table<16> code;
  std::uint8_t* packed;
  float* absmax;  // nullptr when the scales are quantised, too

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t block) const {
    const float largest = weights.absmax(block), inverse = inverse_of(largest);
    const std::uint64_t end = weights.end_of(block);
    for (std::uint64_t i = block * kNf4Block; i < end; i += 2) {
      const unsigned low = i + 1 < end ? code_of(i + 1, inverse) : 7u;  // an odd one out is joined by the code of 0
      packed[i / 2] = static_cast<std::uint8_t>(code_of(i, inverse) << 4 | low);
    }
    if (absmax != nullptr) absmax[block] = largest;
  }
  LEDGER_DEVICE_ONLY unsigned code_of(std::uint64_t i, float inverse) const {
    return math::nearest_code(code.values, 16, clamped(weights.at(i) * inverse));
  }
};

struct PartOfMean {
  Weights weights;
  std::uint64_t blocks, size;
  double* scratch;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t part) const {
    const std::uint64_t first = part * size, rest = first < blocks ? blocks - first : 0;
    const double total = team.sum<double>(
        rest < size ? rest : size, [&](std::uint64_t i) { return static_cast<double>(weights.absmax(first + i)); });
    team.each([&](unsigned lane) {
      if (lane == 0) scratch[part] = total;
    });
  }
};

struct Mean {
  const double* scratch;
  std::uint64_t parts, blocks;
  float* offset;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t) const {
    const double total = team.sum<double>(parts, [&](std::uint64_t i) { return scratch[i]; });
    team.each([&](unsigned lane) {
      if (lane == 0) *offset = static_cast<float>(total / static_cast<double>(blocks));
    });
  }
};

// quantize_4bit, compress_statistics: the mean is taken off, for scales are positive and the map is signed.
struct QuantiseScales {
  Weights weights;
  std::uint64_t blocks;
  Table<256> map;
  const float* offset;
  std::uint8_t* codes;
  float* absmax2;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t group) const {
    PerLane<float> scale, size;
    team.each([&](unsigned lane) {
      const std::uint64_t block = group * kAbsmaxBlock + lane;
      scale[lane] = block < blocks ? weights.absmax(block) - *offset : 0.0f;
      size[lane] = std::fabs(scale[lane]);
    });
    const float largest = team.combine(size, Largest{});
    team.each([&](unsigned lane) {
      const std::uint64_t block = group * kAbsmaxBlock + lane;
      if (lane == 0) absmax2[group] = largest;
      if (block >= blocks) return;
      const unsigned code = math::nearest_code(map.values, 256, clamped(scale[lane] * inverse_of(largest)));
      codes[block] = static_cast<std::uint8_t>(code);
    });
  }
};

template <unsigned kSize>
struct FromTable {
  Table<kSize> table;
  LEDGER_DEVICE_ONLY float operator()(std::uint64_t i) const { return table.values[i]; }
};

enum Output : std::size_t { kPacked, kAbsmax, kCode, kOffset, kAbsmax2, kCode2, kOutputs };

void quantise_scales(Call& call, const Weights& weights, std::uint64_t blocks) {
  auto* offset = reinterpret_cast<float*>(call.out[kOffset].data);
  const std::uint64_t parts = std::min<std::uint64_t>(device::kScratch, divide_up(blocks, kLanes));
  for_teams(call, parts, PartOfMean{weights, blocks, divide_up(blocks, parts), call.services.scratch});
  for_teams(call, 1, Mean{call.services.scratch, parts, blocks, offset});
  for_teams(call, divide_up(blocks, kAbsmaxBlock),
            QuantiseScales{weights, blocks, Table<256>(host::dynamic_map()), offset,
                           reinterpret_cast<std::uint8_t*>(call.out[kAbsmax].data),
                           reinterpret_cast<float*>(call.out[kAbsmax2].data)});
  generate<float>(call, call.out[kCode2], FromTable<256>{Table<256>(host::dynamic_map())});
}

}  // namespace

void quantise(Call& call) {
  const auto number = static_cast<std::size_t>(call.attr.i[0]);
  const auto count = static_cast<std::uint64_t>(call.attr.i[1]), blocks = divide_up(count, kNf4Block);
  if (number >= call.trace.parameters.size()) {
    call.error = "there is no parameter of this number";
    return;
  }
  if (call.out[kPacked].numel() != divide_up(count, 2) || call.out[kAbsmax].numel() != blocks) {
    call.error = "the packed weight or its scales have another size than the weight needs";
    return;
  }
  const Weights weights{fnv1a64(call.trace.parameters[number].name), count};
  const bool nested = call.out.size() == kOutputs;
  for_elements(call, blocks,
               PackBlock{weights, Table<16>(kNf4), reinterpret_cast<std::uint8_t*>(call.out[kPacked].data),
                         nested ? nullptr : reinterpret_cast<float*>(call.out[kAbsmax].data)});
  generate<float>(call, call.out[kCode], FromTable<16>{Table<16>(kNf4)});
  if (nested) quantise_scales(call, weights, blocks);
}

namespace {

struct Absmax {
  Nf4Scales scales;
  LEDGER_DEVICE_ONLY float operator()(std::uint64_t i) const { return scales.of_block(i); }
};

struct Dequantised {
  Nf4Weight weight;
  LEDGER_DEVICE_ONLY float operator()(std::uint64_t i) const { return weight.at(i); }
};

}  // namespace

void dequantise_absmax(Call& call) {
  const Nf4Scales scales(call.in[0], nullptr, &call.in[1], &call.in[2]);
  generate<float>(call, call.out[0], Absmax{scales});
}

void dequantise(Call& call) {
  if (call.in[0].numel() * 2 < call.out[0].numel()) {
    call.error = "there are fewer codes than weights";
    return;
  }
  generate<float>(call, call.out[0], Dequantised{Nf4Weight(call.in[0], call.in[2], Nf4Scales(call.in[1]))});
}

}  // namespace ledger::LEDGER_DEVICE
