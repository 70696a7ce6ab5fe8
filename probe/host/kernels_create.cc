// kernels_create.cc - tensors that come from nowhere: parameters, tables, inputs, constants.
#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"
#include "probe/initial_values.h"
#include "probe/math/alibi.h"
#include "probe/math/images.h"
#include "probe/math/relative_bucket.h"
#include "probe/math/rotary.h"
#include "probe/math/sinusoids.h"

namespace ledger::host {

void load_parameter(KernelCall& call) {
  const auto index = static_cast<std::size_t>(call.attr.i[0]);
  if (index >= call.trace.parameters.size()) {
    call.error = "there is no parameter of this number";
    return;
  }
  const Parameter& parameter = call.trace.parameters[index];
  const bool norm = parameter.role == Parameter::Role::norm;
  const std::uint64_t hash = fnv1a64(parameter.name);
  const std::uint64_t held = parameter.elements == 0 ? call.out[0].numel() : parameter.held;
  generate<double>(call.out[0], [&](std::uint64_t i) {
    if (i >= held) return 0.0;  // the last shard's padding
    const std::uint64_t place = hash + parameter.cut.place(parameter.first + i);
    return norm ? 1 + centred_value(place, kNormScale) : centred_value(place, kWeightScale);
  });
}

void load_buffer(KernelCall& call) {
  const auto dim = static_cast<float>(2 * call.out[0].numel());
  const math::RopeRule rope = call.attr.i[0] != 0 ? math::RopeRule{} : math::rope_rule(call.trace.rope);
  generate<float>(call.out[0], math::InverseFrequency{call.attr.x, dim, rope});
}

void load_constant(KernelCall& call) {
  generate<double>(call.out[0], [&](std::uint64_t) { return call.attr.x; });
}

void sinusoids(KernelCall& call) {
  generate<float>(call.out[0], math::Sinusoid{call.out[0].last_size()});
}

void relative_buckets(KernelCall& call) {
  const Attr& a = call.attr;
  generate<double>(call.out[0], math::RelativeBucket{call.out[0].last_size(), a.i[0], a.i[1], a.x != 0});
}

void alibi_slopes(KernelCall& call) {
  generate<float>(call.out[0], math::AlibiSlope(call.out[0].sizes[0]));
}

namespace {

// Where this rank's part of the batch begins; micro-batches follow each other.
std::uint64_t first_input(const KernelCall& call) {
  const std::uint64_t ranks = call.ranks == nullptr ? 1 : call.ranks->world();
  const std::uint64_t batches = static_cast<std::uint64_t>(call.attr.x) * ranks + call.rank();
  return call.seed + batches * call.out[0].numel();
}

}  // namespace

void load_tokens(KernelCall& call) {
  const std::uint64_t vocab = call.trace.vocab_size;
  if (vocab == 0) {
    call.error = "the trace states no vocabulary";
    return;
  }
  const std::uint64_t first = first_input(call);
  const math::ImageTokens images(call.attr, call.out[0].last_size());
  generate<double>(call.out[0],
                   [&](std::uint64_t i) { return static_cast<double>(images(i, splitmix64(first + i), vocab)); });
}

void load_values(KernelCall& call) {
  const std::uint64_t first = first_input(call);
  generate<double>(call.out[0], [&](std::uint64_t i) { return centred_value(first + i, 1); });
}

void eye(KernelCall& call) {
  const std::uint64_t columns = call.out[0].last_size();
  generate<float>(call.out[0], [&](std::uint64_t i) { return i / columns == i % columns ? 1.0f : 0.0f; });
}

void arange(KernelCall& call) {
  generate<double>(call.out[0], [](std::uint64_t i) { return static_cast<double>(i); });
}

void fill_ones(KernelCall& call) {
  generate<double>(call.out[0], [](std::uint64_t) { return 1.0; });
}

void fill_zeros(KernelCall& call) {
  generate<double>(call.out[0], [](std::uint64_t) { return 0.0; });
}

void fill(KernelCall& call) {
  generate<double>(call.out[0], [&](std::uint64_t) { return call.attr.x; });
}

void nothing(KernelCall&) {}
void not_computed(KernelCall&) {}

}  // namespace ledger::host
