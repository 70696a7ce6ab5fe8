// kernels_dropout.cc - dropout with masks that a recomputation draws again.
//
// PyTorch's checkpoint() saves the generator's state and restores it before it runs the region again. Here there is no
// state: the mask is a hash of where the operator stands (scope, layer, number of the forward pass) and the element's
// index. A recomputation runs in the backward phase after its forward pass, in the scope and layer of the first run,
// and so draws the same mask; every module, layer, micro-batch and step draws another. Two dropouts in one scope of one
// layer would share theirs; no model has two.
#include <array>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"
#include "probe/initial_values.h"

namespace ledger::host {

std::uint64_t dropout_place(std::uint64_t seed, const Trace& trace, const Run& run, std::uint64_t forward_pass) {
  std::uint64_t place = splitmix64(seed ^ fnv1a64(trace.names[run.scope]));
  place = splitmix64(place + static_cast<std::uint64_t>(run.layer + 1));
  return splitmix64(place + forward_pass);
}

namespace {

template <class C>
void drop(KernelCall& call) {
  const std::array<HostView, 3> operands = {call.out[0], call.out[1], call.in[0]};
  const std::uint64_t place = dropout_place(call.seed + call.rank(), call.trace, call.run, call.forward_pass);
  const double kept = 1 - call.attr.x;
  const C scale = static_cast<C>(1 / kept);
  const std::size_t width = operands[0].last_size();
  std::uint64_t index = 0;
  std::vector<C> mask(width), x(width);
  for_each_vector<3>(operands, [&](const auto& at) {
    load_strip(x.data(), at[2], last_step(operands[2]), width, operands[2].dtype);
    for (std::size_t i = 0; i < width; ++i) {
      mask[i] = unit_value(place + index++) < kept ? C{1} : C{0};
      x[i] *= mask[i] * scale;
    }
    store_strip(at[0], last_step(operands[0]), x.data(), width, operands[0].dtype);
    store_strip(at[1], last_step(operands[1]), mask.data(), width, operands[1].dtype);
  });
}

}  // namespace

void dropout(KernelCall& call) {
  if (needs_double(call)) {
    drop<double>(call);
  } else {
    drop<float>(call);
  }
}

}  // namespace ledger::host
