// matrix.cc - matrix products: the device's library does them, and kernels of our own whatever it does not take.
#include "probe/device/kernels.h"
#include "probe/device/nf4_decode.h"
#include "probe/device/tile.h"

namespace ledger::LEDGER_DEVICE {
namespace {

struct Element {
  std::uint64_t a, b, out, bias;  // bytes; looked up where tables of the host can be read
};

template <class C>
struct TileProduct {
  Operand a, b, out, bias;  // of rank 3; bias.data may be null
  Element element;
  std::uint64_t tiles_down, tiles_across;
  C factor;  // of the product

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t index) const {
    auto& memory = *reinterpret_cast<TileMemory<C>*>(team.shared);
    const std::uint64_t tiles = tiles_down * tiles_across, batch = index / tiles, tile = index - batch * tiles;
    const std::uint64_t first_row = tile / tiles_across * kTile, first_column = tile % tiles_across * kTile;
    const Grid<C> left(a, element.a, batch), right(b, element.b, batch), result(out, element.out, batch);
    PerLane<Block<C>> blocks;
    multiply(
        team, memory, blocks, left.columns, left.column_step < left.row_step, right.row_step < right.column_step,
        [&](unsigned row, std::uint64_t k) { return left.get(first_row + row, k); },
        [&](unsigned column, std::uint64_t k) { return right.get(k, first_column + column); });
    team.each([&](unsigned lane) {
      visit(blocks[lane], lane, [&](unsigned row, unsigned column, C value) {
        const std::uint64_t r = first_row + row, c = first_column + column;
        value *= factor;
        if (bias.data != nullptr) value += Grid<C>(bias, element.bias, batch).get(r, c);
        result.set(r, c, value);
      });
    });
  }
};

template <class C>
void by_tiles(Call& call, const device::Product& p, double factor = 1) {
  const std::uint64_t down = divide_up(p.out.sizes[1], kTile), across = divide_up(p.out.sizes[2], kTile);
  const Operand bias = p.bias == nullptr ? Operand{} : *p.bias;
  const Element element{element_bytes(p.a.dtype), element_bytes(p.b.dtype), element_bytes(p.out.dtype),
                        element_bytes(bias.dtype)};
  for_teams(call, p.out.sizes[0] * down * across,
            TileProduct<C>{p.a, p.b, p.out, bias, element, down, across, static_cast<C>(factor)},
            sizeof(TileMemory<C>));
}

void product(Call& call, const device::Product& p) {
  if (p.a.sizes[1] != p.out.sizes[1] || p.a.sizes[2] != p.b.sizes[1] || p.b.sizes[2] != p.out.sizes[2]) {
    call.error = "the matrices' shapes do not match";
    return;
  }
  if (p.out.numel() == 0) return;
  device::MatrixLibrary* library = call.services.library;
  if (library != nullptr && (library->multiply(p, call.error) || call.error != nullptr)) return;
  needs_double(call) ? by_tiles<double>(call, p) : by_tiles<float>(call, p);
}

// A matrix as a batch of one.
Operand batched(const Operand& matrix) {
  Operand batch = matrix;
  batch.rank = 3;
  batch.sizes = {1, matrix.sizes[0], matrix.sizes[1]};
  batch.strides = {0, matrix.strides[0], matrix.strides[1]};
  return batch;
}

}  // namespace

void mm(Call& call) {
  product(call, {batched(call.in[0]), batched(call.in[1]), batched(call.out[0])});
}

void addmm(Call& call) {
  const Operand &bias = call.in[0], &out = call.out[0];
  if (!host::broadcasts_to(bias, out)) {
    call.error = "the bias does not broadcast to the product's shape";
    return;
  }
  Operand repeated = batched(out);
  repeated.data = bias.data;
  repeated.dtype = bias.dtype;
  const auto element = static_cast<std::int64_t>(element_bytes(bias.dtype));
  repeated.strides = {0, host::broadcast_step(bias, 1) / element, host::broadcast_step(bias, 0) / element};
  product(call, {batched(call.in[1]), batched(call.in[2]), batched(out), &repeated});
}

void bmm(Call& call) {
  const std::uint64_t batches = call.out[0].sizes[0];
  if (call.in[0].sizes[0] != batches || call.in[1].sizes[0] != batches) {
    call.error = "the numbers of matrices differ";
    return;
  }
  product(call, {call.in[0], call.in[1], call.out[0]});
}

// By tiles alone: what is added is scaled otherwise than the product.
void baddbmm(Call& call) {
  const Operand &added = call.in[0], &out = call.out[0];
  if (!host::broadcasts_to(added, out)) {
    call.error = "what is added does not broadcast to the product's shape";
    return;
  }
  Operand repeated = out;
  repeated.data = added.data;
  repeated.dtype = added.dtype;
  const auto element = static_cast<std::int64_t>(element_bytes(added.dtype));
  for (std::size_t i = 0; i < 3; ++i)
    repeated.strides[i] = host::broadcast_step(added, 2 - i) / element;
  const device::Product product{call.in[1], call.in[2], out, &repeated};
  needs_double(call) ? by_tiles<double>(call, product, call.attr.x) : by_tiles<float>(call, product, call.attr.x);
}

namespace {

// The weight is decoded slice by slice, each number rounded to bf16 as a stored one would be.
struct Nf4Product {
  Rows<2> rows;  // result, operand
  Nf4Weight weight;
  const std::byte* bias;
  DType bias_dtype;
  std::uint64_t in, out, count, tiles_across;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t tile) const {
    auto& memory = *reinterpret_cast<TileMemory<float>*>(team.shared);
    const std::uint64_t first_row = tile / tiles_across * kTile, first_column = tile % tiles_across * kTile;
    PerLane<Block<float>> blocks;
    multiply(
        team, memory, blocks, in, true, true,
        [&](unsigned row, std::uint64_t k) {
          if (first_row + row >= count) return 0.0f;
          std::byte* at[2];
          rows.leading.locate(first_row + row, at);
          return rows.get<float>(at, 1, k);
        },
        [&](unsigned column, std::uint64_t k) {
          return first_column + column < out ? rounded(weight.at((first_column + column) * in + k), DType::bf16) : 0.0f;
        });
    team.each([&](unsigned lane) {
      visit(blocks[lane], lane, [&](unsigned row, unsigned column, float value) {
        const std::uint64_t r = first_row + row, c = first_column + column;
        if (r >= count || c >= out) return;
        std::byte* at[2];
        rows.leading.locate(r, at);
        if (bias != nullptr) value += load_at(bias, bias_dtype, c);
        rows.set(at, 0, c, value);
      });
    });
  }
  LEDGER_DEVICE_ONLY static float load_at(const std::byte* from, DType dtype, std::uint64_t i) {
    float value = 0;
    with_float<float>(dtype,
                      [&]<class T>(T) { value = static_cast<float>(widen(reinterpret_cast<const T*>(from)[i])); });
    return value;
  }
};

}  // namespace

void gemm_4bit(Call& call) {
  const std::uint64_t in = call.in[0].last_size(), out = call.out[0].last_size();
  if (call.in[1].numel() * 2 < in * out) {
    call.error = "there are fewer codes than weights";
    return;
  }
  const bool nested = call.in[2].dtype == DType::u8;
  const Nf4Scales scales =
      nested ? Nf4Scales(call.in[2], &call.in[4], &call.in[5], &call.in[6]) : Nf4Scales(call.in[2]);
  const bool biased = call.in.size() % 3 == 2;  // 4 or 7 without, 5 or 8 with
  const Operand bias = biased ? call.in.back() : Operand{};
  const Rows<2> rows({call.out[0], call.in[0]});
  const std::uint64_t count = rows.count(), across = divide_up(out, kTile);
  for_teams(call, divide_up(count, kTile) * across,
            Nf4Product{rows, Nf4Weight(call.in[1], call.in[3], scales), bias.data, bias.dtype, in, out, count, across},
            sizeof(TileMemory<float>));
}

}  // namespace ledger::LEDGER_DEVICE
