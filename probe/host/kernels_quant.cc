// kernels_quant.cc - NF4 weights with plain or doubly quantised scales: made at load, expanded before each use.
#include <algorithm>
#include <span>
#include <vector>

#include "core/base/number_format.h"
#include "probe/host/gemm.h"
#include "probe/host/kernels.h"
#include "probe/host/nf4.h"
#include "probe/host/strided_loop.h"
#include "probe/initial_values.h"

namespace ledger::host {
namespace {

template <class T>
void write(const HostView& out, std::span<const T> values) {
  generate<float>(out, [&](std::uint64_t i) { return static_cast<float>(values[i]); });
}

std::vector<float> read(const HostView& in) {
  std::vector<float> values(in.numel());
  std::size_t next = 0;
  const StridedLoop<1> loop(in, {in});
  loop.for_each_row([&](const auto& at, std::size_t row) {
    load_strip(&values[next], at[0], loop.steps[0][0], row, in.dtype);
    next += row;
  });
  return values;
}

std::vector<float> initial_weights(const Parameter& parameter, std::size_t count) {
  const std::uint64_t hash = fnv1a64(parameter.name);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(centred_value(hash + i, kWeightScale));
    values[i] = float_from_bf16(bf16_from_float(value));
  }
  return values;
}

enum Output : std::size_t { kPacked, kAbsmax, kCode, kOffset, kAbsmax2, kCode2, kOutputs };

// quantize_4bit, compress_statistics: the mean is taken off, for scales are positive and the map is signed.
void quantise_scales(KernelCall& call, std::vector<float> absmax) {
  double total = 0;
  for (const float scale : absmax)
    total += static_cast<double>(scale);
  const auto offset = static_cast<float>(total / static_cast<double>(absmax.size()));
  for (float& scale : absmax)
    scale -= offset;
  const Blocks scales = quantise_blocks(absmax, kAbsmaxBlock, dynamic_map());
  write<std::uint8_t>(call.out[kAbsmax], scales.codes);
  store_one(call.out[kOffset].data, offset, call.out[kOffset].dtype);
  write<float>(call.out[kAbsmax2], scales.absmax);
  write<float>(call.out[kCode2], dynamic_map());
}

}  // namespace

void quantise(KernelCall& call) {
  const auto number = static_cast<std::size_t>(call.attr.i[0]);
  const auto count = static_cast<std::size_t>(call.attr.i[1]);
  const bool nested = call.out.size() == kOutputs;
  if (number >= call.trace.parameters.size()) {
    call.error = "there is no parameter of this number";
    return;
  }
  if (call.out[kPacked].numel() != (count + 1) / 2 ||
      call.out[kAbsmax].numel() != (count + kNf4Block - 1) / kNf4Block) {
    call.error = "the packed weight or its scales have another size than the weight needs";
    return;
  }
  Blocks weight = quantise_blocks(initial_weights(call.trace.parameters[number], count), kNf4Block, kNf4);
  write<std::uint8_t>(call.out[kPacked], packed(weight.codes));
  write<float>(call.out[kCode], kNf4);
  if (nested) {
    quantise_scales(call, std::move(weight.absmax));
  } else {
    write<float>(call.out[kAbsmax], weight.absmax);
  }
}

void dequantise_absmax(KernelCall& call) {
  const std::vector<float> codes = read(call.in[0]), absmax = read(call.in[1]), map = read(call.in[2]);
  generate<float>(call.out[0],
                  [&](std::uint64_t i) { return map[static_cast<std::size_t>(codes[i])] * absmax[i / kAbsmaxBlock]; });
}

void dequantise(KernelCall& call) {
  const HostView& packed_codes = call.in[0];
  if (packed_codes.numel() * 2 < call.out[0].numel()) {
    call.error = "there are fewer codes than weights";
    return;
  }
  const std::vector<float> absmax = read(call.in[1]), table = read(call.in[2]);
  const auto* codes = reinterpret_cast<const std::uint8_t*>(packed_codes.data);  // always dense: [n, 1]
  generate<float>(call.out[0], [&](std::uint64_t i) {
    const unsigned pair = codes[i / 2];
    return table[i % 2 == 0 ? pair >> 4 : pair & 15u] * absmax[i / kNf4Block];
  });
}

namespace {

// The scales of a weight in fp32, from those two levels that double quantisation keeps.
std::vector<float> whole_scales(const KernelCall& call) {
  std::vector<float> scales = read(call.in[2]);
  if (call.in[2].dtype != DType::u8) return scales;
  const std::vector<float> offset = read(call.in[4]), absmax = read(call.in[5]), map = read(call.in[6]);
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = map[static_cast<std::size_t>(scales[i])] * absmax[i / kAbsmaxBlock] + offset[0];
  return scales;
}

Matrix dense(std::vector<float>& values, std::uint64_t rows, std::uint64_t cols) {
  constexpr std::ptrdiff_t kElement = sizeof(float);
  return {reinterpret_cast<std::byte*>(values.data()),  DType::f32, rows, cols,
          static_cast<std::ptrdiff_t>(cols) * kElement, kElement};
}

Matrix transposed(const Matrix& m) {
  return {m.data, m.dtype, m.cols, m.rows, m.col_stride, m.row_stride};
}

}  // namespace

// The whole weight is decoded here, for the time of the call; the kernel on a GPU decodes it piece by piece.
void gemm_4bit(KernelCall& call) {
  const std::uint64_t in = call.in[0].last_size(), out = call.out[0].last_size(), rows = call.in[0].numel() / in;
  std::vector<float> x = read(call.in[0]), weight = read(call.in[1]), bias;
  if (weight.size() * 2 < in * out) {
    call.error = "there are fewer codes than weights";
    return;
  }
  const std::vector<float> scales = whole_scales(call), table = read(call.in[3]), pairs = weight;
  weight.resize(in * out);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const auto pair = static_cast<unsigned>(pairs[i / 2]);
    weight[i] = float_from_bf16(bf16_from_float(table[i % 2 == 0 ? pair >> 4 : pair & 15u] * scales[i / kNf4Block]));
  }
  const bool biased = call.in.size() % 3 == 2;  // 4 or 7 without, 5 or 8 with
  if (biased) bias = read(call.in.back());
  Matrix repeated = dense(bias, rows, out);
  repeated.row_stride = 0;
  std::vector<float> product(rows * out);
  multiply<float>(dense(x, rows, in), transposed(dense(weight, out, in)), dense(product, rows, out),
                  biased ? &repeated : nullptr);
  write<float>(call.out[0], product);
}

}  // namespace ledger::host
