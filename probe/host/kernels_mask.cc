// kernels_mask.cc - attention masks: which keys a query sees, as booleans and as numbers to add.
#include <limits>

#include "core/base/number_format.h"
#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"
#include "probe/math/images.h"

namespace ledger::host {
double lowest_finite(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::numeric_limits<double>::lowest();
    case DType::bf16:
      return static_cast<double>(float_from_bf16(0xFF7F));
    case DType::f16:
      return static_cast<double>(float_from_fp16(0xFBFF));
    default:
      return static_cast<double>(std::numeric_limits<float>::lowest());
  }
}

void causal_mask(KernelCall& call) {
  const HostView& out = call.out[0];
  const std::uint64_t keys = out.sizes[out.rank - 1u], queries = out.sizes[out.rank - 2u];
  const math::Places blocks = call.in.empty() ? math::Places() : math::Places(call.in[0]);
  generate<float>(out, math::Seen{keys, queries, static_cast<std::uint64_t>(call.attr.i[0]), call.attr.i[1], blocks});
}

void additive_mask(KernelCall& call) {
  const HostView &out = call.out[0], &in = call.in[0];
  const double hidden = call.attr.x != 0 ? -std::numeric_limits<double>::infinity() : lowest_finite(out.dtype);
  const StridedLoop<2> loop(out, {out, in});
  const auto [out_step, in_step] = loop.steps[0];
  loop.for_each_row([&, out_step = out_step, in_step = in_step](auto at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i, at[0] += out_step, at[1] += in_step)
      store_one(at[0], load_one<float>(at[1], in.dtype) != 0 ? 0.0 : hidden, out.dtype);
  });
}

void all(KernelCall& call) {
  const HostView &out = call.out[0], &in = call.in[0];
  HostView repeated = out;  // the result's one column, at every row of the input
  repeated.sizes = in.sizes;
  const std::size_t width = in.last_size();
  for_each_vector<2>({repeated, in}, [&](const auto& at) {
    bool holds = true;
    for (std::size_t i = 0; i < width; ++i) {
      const std::byte* element = at[1] + static_cast<std::ptrdiff_t>(i) * last_step(in);
      holds = holds && load_one<float>(element, in.dtype) != 0;
    }
    store_one(at[0], holds ? 1.0f : 0.0f, out.dtype);
  });
}

}  // namespace ledger::host
