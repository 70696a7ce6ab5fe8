// kernels_image.cc - patches, pooling, and rows that stand for images. The formulas are math/images.h's.
#include "probe/host/kernels.h"
#include "probe/host/pieces.h"
#include "probe/host/strided_loop.h"
#include "probe/math/images.h"

namespace ledger::host {
namespace {

using math::Places;

template <class C>
struct LoadOne {
  C operator()(const std::byte* from, DType dtype) const { return load_one<C>(from, dtype); }
};

template <class C>
void convolve(KernelCall& call) {
  const Places bias = call.in.size() > 2 ? Places(call.in[2]) : Places();
  generate<C>(call.out[0],
              math::Convolve<C, LoadOne<C>>{Places(call.in[0]), Places(call.in[1]), bias, Places(call.out[0]), {}});
}

template <class C>
void filter_gradients(KernelCall& call) {
  const Places gradient(call.in[0]);
  generate<C>(call.out[0], math::FilterGradient<C, LoadOne<C>>{gradient, Places(call.in[1]), Places(call.in[2]), {}});
  if (call.out.size() < 2) return;
  const math::OffsetGradient<C, LoadOne<C>> offsets{gradient, {}};
  generate<C>(call.out[1], offsets);
}

// visit(row where the mask holds, its number among those), for all rows of [.., h].
template <class Visit>
void for_each_held(KernelCall& call, std::uint64_t limit, Visit visit) {
  const Places mask(call.in[1]);
  const std::uint64_t rows = mask.count() / mask.sizes[mask.rank - 1u];
  std::uint64_t held = 0;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const bool holds = load_one<float>(mask.row(row), mask.dtype) != 0;
    if (holds && held == limit) call.error = "the mask holds more rows than there are";
    if (call.error != nullptr) return;
    visit(row, holds, held);
    held += holds ? 1 : 0;
  }
}

void copy_row(const Places& to, std::uint64_t to_row, const Places& from, std::uint64_t from_row) {
  std::byte* at = to.row(to_row);
  const std::byte* source = from.row(from_row);
  const auto element = static_cast<std::size_t>(element_bytes(to.dtype));
  for (std::uint64_t i = 0; i < to.sizes[to.rank - 1u]; ++i) {
    std::memcpy(at, source, element);
    at += to.steps[to.rank - 1u];
    source += from.steps[from.rank - 1u];
  }
}

std::uint64_t rows_of(const Places& places) {
  return places.count() / places.sizes[places.rank - 1u];
}

}  // namespace

void convolution(KernelCall& call) {
  needs_double(call) ? convolve<double>(call) : convolve<float>(call);
}

void convolution_backward(KernelCall& call) {
  needs_double(call) ? filter_gradients<double>(call) : filter_gradients<float>(call);
}

void masked_scatter(KernelCall& call) {
  const Places in(call.in[0]), source(call.in[2]), out(call.out[0]);
  for_each_held(call, rows_of(source), [&](std::uint64_t row, bool holds, std::uint64_t held) {
    copy_row(out, row, holds ? source : in, holds ? held : row);
  });
}

void masked_select(KernelCall& call) {
  const Places in(call.in[0]), out(call.out[0]);
  for_each_held(call, rows_of(out), [&](std::uint64_t row, bool holds, std::uint64_t held) {
    if (holds) copy_row(out, held, in, row);
  });
}

void avg_pool(KernelCall& call) {
  const auto side = static_cast<std::uint64_t>(call.attr.i[0]);
  generate<double>(call.out[0],
                   math::SquareMean<double, LoadOne<double>>{Places(call.in[0]), Places(call.out[0]), side, {}});
}

void avg_pool_backward(KernelCall& call) {
  const auto side = static_cast<std::uint64_t>(call.attr.i[0]);
  generate<double>(call.out[0],
                   math::SquareShare<double, LoadOne<double>>{Places(call.in[0]), Places(call.out[0]), side, {}});
}

void image_blocks(KernelCall& call) {
  generate<double>(call.out[0], math::RunNumber<LoadOne<float>>{Places(call.in[0]), {}});
}

void unfold(KernelCall& call) {
  const auto side = static_cast<std::uint64_t>(call.attr.i[0]);
  generate<double>(call.out[0], math::Unfolded<double, LoadOne<double>>{Places(call.in[0]), side, {}});
}

void image_turns(KernelCall& call) {
  const auto side = static_cast<std::uint64_t>(call.attr.i[0]);
  generate<float>(call.out[0], math::ImageTurn{side, call.out[0].last_size() / 2, call.attr.x});
}

void window_order(KernelCall& call) {
  generate<double>(call.out[0], math::WindowOrder(WindowGrid::of(call.attr), call.attr.x != 0));
}

void packed_attention(KernelCall& call) {
  attend_by_pieces(call, 3, 2, attention);
}

void packed_attention_backward(KernelCall& call) {
  attend_by_pieces(call, 6, 3, attention_backward);
}

}  // namespace ledger::host
