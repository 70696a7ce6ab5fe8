// fused.cc - operators of the stack native that are no row of another file: rotary embedding in place, SwiGLU's
// gradients.
#include "probe/device/kernels.h"
#include "probe/device/memory.h"
#include "probe/math/elementwise.h"
#include "probe/math/rotary.h"

namespace ledger::LEDGER_DEVICE {
namespace {

// A thread turns a strip of pairs: neighbours in the first half of a head, and those in the second that go with them.
template <class C>
struct Rope {
  Walk<1> heads;  // [b, s, n]
  std::int64_t step;
  DType dtype;
  std::uint64_t half, strips, positions, heads_of_token, first_position;
  const std::byte* frequencies;
  std::int64_t frequency_step;
  bool back;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t index) const {
    const std::uint64_t head = index / strips, first = (index - head * strips) * kStrip;
    const std::uint64_t position = first_position + head / heads_of_token % positions;
    const unsigned count = half - first < kStrip ? static_cast<unsigned>(half - first) : kStrip;
    std::byte* at[1];
    heads.locate(head, at);
    std::byte* const low = at[0] + static_cast<std::int64_t>(first) * step;
    std::byte* const high = low + static_cast<std::int64_t>(half) * step;
    C x[kStrip] = {}, y[kStrip] = {};
    load_strip(x, low, step, count, dtype);
    load_strip(y, high, step, count, dtype);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      if (i >= count) continue;
      const auto from = frequencies + static_cast<std::int64_t>(first + i) * frequency_step;
      math::Turn(position, *reinterpret_cast<const float*>(from), back)(x[i], y[i]);
    }
    store_strip(low, step, x, count, dtype);
    store_strip(high, step, y, count, dtype);
  }
};

template <class C>
void turn(Call& call) {
  const Operand &x = call.out[0], &frequencies = call.in[1];
  Operand heads = x;
  --heads.rank;
  const std::uint64_t half = x.sizes[3] / 2, strips = divide_up(half, kStrip);
  const Rope<C> rope{Walk<1>(heads, {heads}),
                     host::last_step(x),
                     x.dtype,
                     half,
                     strips,
                     x.sizes[1],
                     x.sizes[2],
                     static_cast<std::uint64_t>(call.attr.i[1]),
                     frequencies.data,
                     frequencies.byte_stride(0),
                     call.attr.i[0] != 0};
  for_elements(call, rope.heads.count() * strips, rope);
}

template <class C, class Backward>
struct GatedBackward {
  Strips<5> strips;  // to gate, to up; gradient, gate, up

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto p = strips.place(strip);
    C gradient[kStrip] = {}, gate[kStrip] = {}, up[kStrip] = {};
    strips.read(p, 2, gradient);
    strips.read(p, 3, gate);
    strips.read(p, 4, up);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i)
      Backward{}(gradient[i], gate[i], up[i]);
    strips.write(p, 0, gate);
    strips.write(p, 1, up);
  }
};

template <class Backward>
void differentiate(Call& call, const Strips<5>& strips) {
  if (needs_double(call)) return for_elements(call, strips.count(), GatedBackward<double, Backward>{strips});
  for_elements(call, strips.count(), GatedBackward<float, Backward>{strips});
}

}  // namespace

void rope(Call& call) {
  (needs_double(call) ? turn<double> : turn<float>)(call);
}

void swiglu_backward(Call& call) {
  const Strips<5> strips(call.out[0], {call.out[0], call.out[1], call.in[0], call.in[1], call.in[2]});
  (call.attr.i[0] != 0 ? differentiate<math::GegluBackward> : differentiate<math::SwigluBackward>)(call, strips);
}

}  // namespace ledger::LEDGER_DEVICE
