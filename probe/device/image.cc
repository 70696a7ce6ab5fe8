// image.cc - patches, pooling, and rows that stand for images. The formulas are math/images.h's.
#include "probe/device/kernels.h"
#include "probe/device/memory.h"
#include "probe/host/pieces.h"
#include "probe/math/images.h"

namespace ledger::LEDGER_DEVICE {
namespace {

using math::Places;

template <class C>
struct LoadOne {
  LEDGER_DEVICE_ONLY C operator()(const std::byte* from, DType dtype) const { return load<C>(from, dtype); }
};

template <class C>
void convolve(Call& call) {
  const Places bias = call.in.size() > 2 ? Places(call.in[2]) : Places();
  generate<C>(call, call.out[0],
              math::Convolve<C, LoadOne<C>>{Places(call.in[0]), Places(call.in[1]), bias, Places(call.out[0]), {}});
}

template <class C>
void filter_gradients(Call& call) {
  const Places gradient(call.in[0]);
  generate<C>(call, call.out[0],
              math::FilterGradient<C, LoadOne<C>>{gradient, Places(call.in[1]), Places(call.in[2]), {}});
  if (call.out.size() > 1) generate<C>(call, call.out[1], math::OffsetGradient<C, LoadOne<C>>{gradient, {}});
}

// One row for a team: each counts the rows held before it.
struct MoveHeld {
  Places mask, from, to, otherwise;  // otherwise.data: where rows come from that the mask does not hold
  bool scatters;
  std::uint64_t limit;
  std::int32_t* fault;

  LEDGER_DEVICE_ONLY bool holds(std::uint64_t row) const { return load<float>(mask.row(row), mask.dtype) != 0; }
  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    const std::uint64_t held = team.sum<std::uint64_t>(row, [&](std::uint64_t i) { return std::uint64_t{holds(i)}; });
    const bool mine = holds(row);
    if (!mine && !scatters) return;
    if (mine && !inside(static_cast<std::int64_t>(held), limit, fault, device::kBadIndex)) return;
    const Places& source = mine ? from : otherwise;
    std::byte* target = to.row(scatters ? row : held);
    const std::byte* origin = source.row(mine && scatters ? held : row);
    const std::int64_t to_step = to.steps[to.rank - 1], step = source.steps[source.rank - 1];
    with_type<double>(to.dtype, [&]<class T>(T) {
      team.for_each(to.sizes[to.rank - 1], [&](std::uint64_t i) {
        const auto column = static_cast<std::int64_t>(i);
        *reinterpret_cast<T*>(target + column * to_step) = *reinterpret_cast<const T*>(origin + column * step);
      });
    });
  }
};

std::uint64_t rows_of(const Operand& view) {
  return view.numel() / view.last_size();
}

}  // namespace

void convolution(Call& call) {
  needs_double(call) ? convolve<double>(call) : convolve<float>(call);
}

void convolution_backward(Call& call) {
  needs_double(call) ? filter_gradients<double>(call) : filter_gradients<float>(call);
}

void masked_scatter(Call& call) {
  for_teams(call, rows_of(call.in[1]),
            MoveHeld{Places(call.in[1]), Places(call.in[2]), Places(call.out[0]), Places(call.in[0]), true,
                     rows_of(call.in[2]), call.services.fault});
}

void masked_select(Call& call) {
  for_teams(call, rows_of(call.in[1]),
            MoveHeld{Places(call.in[1]), Places(call.in[0]), Places(call.out[0]), Places(), false, rows_of(call.out[0]),
                     call.services.fault});
}

void avg_pool(Call& call) {
  const auto side = static_cast<std::uint64_t>(call.attr.i[0]);
  generate<double>(call, call.out[0],
                   math::SquareMean<double, LoadOne<double>>{Places(call.in[0]), Places(call.out[0]), side, {}});
}

void avg_pool_backward(Call& call) {
  const auto side = static_cast<std::uint64_t>(call.attr.i[0]);
  generate<double>(call, call.out[0],
                   math::SquareShare<double, LoadOne<double>>{Places(call.in[0]), Places(call.out[0]), side, {}});
}

void image_blocks(Call& call) {
  generate<double>(call, call.out[0], math::RunNumber<LoadOne<float>>{Places(call.in[0]), {}});
}

void unfold(Call& call) {
  const auto side = static_cast<std::uint64_t>(call.attr.i[0]);
  generate<double>(call, call.out[0], math::Unfolded<double, LoadOne<double>>{Places(call.in[0]), side, {}});
}

void image_turns(Call& call) {
  const auto side = static_cast<std::uint64_t>(call.attr.i[0]);
  generate<float>(call, call.out[0], math::ImageTurn{side, call.out[0].last_size() / 2, call.attr.x});
}

void window_order(Call& call) {
  generate<double>(call, call.out[0], math::WindowOrder(WindowGrid::of(call.attr), call.attr.x != 0));
}

void packed_attention(Call& call) {
  host::attend_by_pieces(call, 3, 2, attention);
}

void packed_attention_backward(Call& call) {
  host::attend_by_pieces(call, 6, 3, attention_backward);
}

}  // namespace ledger::LEDGER_DEVICE
