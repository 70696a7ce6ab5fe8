// kernels_create.cc - tensors that come from nowhere: parameters, tables, inputs, constants.
#include <cmath>
#include <numbers>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"
#include "probe/initial_values.h"

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
  generate<double>(call.out[0], [&](std::uint64_t i) {
    return norm ? 1 + centred_value(hash + i, kNormScale) : centred_value(hash + i, kWeightScale);
  });
}

namespace {

// transformers 5, modeling_rope_utils.py: _compute_llama3_parameters. Long wavelengths are slowed by `factor`, short
// ones kept, those between interpolated.
float scaled_llama3(float frequency, const RopeScaling& rope) {
  const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequency);
  const double context = rope.original_max_position_embeddings;
  if (wavelength > context / rope.low_freq_factor) return frequency / static_cast<float>(rope.factor);
  if (wavelength < context / rope.high_freq_factor) return frequency;
  const double smooth = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return static_cast<float>(((1 - smooth) / rope.factor + smooth) * static_cast<double>(frequency));
}

}  // namespace

void load_buffer(KernelCall& call) {
  const RopeScaling& rope = call.trace.rope;
  const HostView& out = call.out[0];
  const double theta = call.attr.x;
  const auto dim = static_cast<float>(2 * out.numel());
  generate<float>(out, [&](std::uint64_t i) {
    // Rounded to fp32 where transformers rounds: exponent, power and quotient.
    const float exponent = static_cast<float>(2 * i) / dim;
    const float frequency = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    if (call.attr.i[0] != 0) return frequency;
    if (rope.type == "llama3") return scaled_llama3(frequency, rope);
    return rope.type == "linear" ? frequency / static_cast<float>(rope.factor) : frequency;
  });
}

void load_constant(KernelCall& call) {
  generate<double>(call.out[0], [&](std::uint64_t) { return call.attr.x; });
}

// transformers models/bloom/modeling_bloom.py, build_alibi_tensor.
void alibi_slopes(KernelCall& call) {
  const std::uint64_t heads = call.out[0].sizes[0];
  std::uint64_t whole = 1;
  while (whole * 2 <= heads)
    whole *= 2;
  const auto base = [](std::uint64_t n) { return -std::exp2(3 - std::log2(static_cast<double>(n))); };  // log2 of it
  generate<float>(call.out[0], [&](std::uint64_t i) {
    const double exponent = i < whole ? base(whole) * static_cast<double>(i + 1)
                                      : base(2 * whole) * static_cast<double>(2 * (i - whole) + 1);
    return static_cast<float>(std::exp2(exponent));
  });
}

void load_tokens(KernelCall& call) {
  const std::uint64_t vocab = call.trace.vocab_size;
  if (vocab == 0) {
    call.error = "the trace states no vocabulary";
    return;
  }
  generate<double>(call.out[0],
                   [&](std::uint64_t i) { return static_cast<double>(splitmix64(call.seed + i) % vocab); });
}

void load_values(KernelCall& call) {
  generate<double>(call.out[0], [&](std::uint64_t i) { return centred_value(call.seed + i, 1); });
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
