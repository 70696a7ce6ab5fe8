// create.cc - tensors that come from nowhere: parameters, tables, inputs, constants, masks.
#include <cmath>

#include "probe/device/kernels.h"
#include "probe/device/memory.h"
#include "probe/initial_values.h"
#include "probe/math/alibi.h"
#include "probe/math/experts.h"
#include "probe/math/images.h"
#include "probe/math/relative_bucket.h"
#include "probe/math/rotary.h"
#include "probe/math/sinusoids.h"

namespace ledger::LEDGER_DEVICE {
namespace {

struct Constant {
  double value;
  LEDGER_DEVICE_ONLY double operator()(std::uint64_t) const { return value; }
};

void fill_with(Call& call, const Operand& out, double value) {
  generate<double>(call, out, Constant{value});
}

struct Centred {
  std::uint64_t hash;
  double centre, scale;
  LEDGER_DEVICE_ONLY double operator()(std::uint64_t i) const { return centre + centred_value(hash + i, scale); }
};

// From the `first` of this rank's part on `held` of them, and 0 behind: the last shard's padding.
struct Shard {
  Centred values;
  TensorCut cut;
  std::uint64_t first, held;
  LEDGER_DEVICE_ONLY double operator()(std::uint64_t i) const { return i < held ? values(cut.place(first + i)) : 0.0; }
};

// Where this rank's part of the batch begins; micro-batches follow each other.
std::uint64_t first_input(const Call& call) {
  const std::uint64_t batches = static_cast<std::uint64_t>(call.attr.x) * call.seat.world + call.seat.rank;
  return call.seed + batches * call.out[0].numel();
}

struct Token {
  std::uint64_t seed, vocab;
  math::ImageTokens images;
  LEDGER_DEVICE_ONLY double operator()(std::uint64_t i) const {
    return static_cast<double>(images(i, splitmix64(seed + i), vocab));
  }
};

struct Index {
  LEDGER_DEVICE_ONLY double operator()(std::uint64_t i) const { return static_cast<double>(i); }
};

struct Diagonal {
  std::uint64_t columns;
  LEDGER_DEVICE_ONLY double operator()(std::uint64_t i) const { return i / columns == i % columns ? 1.0 : 0.0; }
};

}  // namespace

void load_parameter(Call& call) {
  const auto index = static_cast<std::size_t>(call.attr.i[0]);
  if (index >= call.trace.parameters.size()) {
    call.error = "there is no parameter of this number";
    return;
  }
  const Parameter& parameter = call.trace.parameters[index];
  const bool norm = parameter.role == Parameter::Role::norm;
  const Centred values{fnv1a64(parameter.name), norm ? 1.0 : 0.0, norm ? kNormScale : kWeightScale};
  const std::uint64_t held = parameter.elements == 0 ? call.out[0].numel() : parameter.held;
  generate<double>(call, call.out[0], Shard{values, parameter.cut, parameter.first, held});
}

void load_buffer(Call& call) {
  const double dim = static_cast<double>(2 * call.out[0].numel());
  generate<float>(call, call.out[0],
                  math::InverseFrequency{call.attr.x, static_cast<float>(dim),
                                         call.attr.i[0] != 0 ? math::RopeRule{} : math::rope_rule(call.trace.rope)});
}

void sinusoids(Call& call) {
  generate<float>(call, call.out[0], math::Sinusoid{call.out[0].last_size()});
}

void relative_buckets(Call& call) {
  const Attr& a = call.attr;
  generate<double>(call, call.out[0], math::RelativeBucket{call.out[0].last_size(), a.i[0], a.i[1], a.x != 0});
}

void alibi_slopes(Call& call) {
  generate<float>(call, call.out[0], math::AlibiSlope(call.out[0].sizes[0]));
}

void load_constant(Call& call) {
  fill_with(call, call.out[0], call.attr.x);
}

void load_tokens(Call& call) {
  if (call.trace.vocab_size == 0) {
    call.error = "the trace states no vocabulary";
    return;
  }
  generate<double>(
      call, call.out[0],
      Token{first_input(call), call.trace.vocab_size, math::ImageTokens(call.attr, call.out[0].last_size())});
}

void load_values(Call& call) {
  generate<double>(call, call.out[0], Centred{first_input(call), 0, 1});
}

void eye(Call& call) {
  generate<double>(call, call.out[0], Diagonal{call.out[0].last_size()});
}

void arange(Call& call) {
  generate<double>(call, call.out[0], Index{});
}

void experts_in_turn(Call& call) {
  generate<double>(call, call.out[0], math::ExpertsInTurn(call.attr, call.out[0].last_size()));
}

void fill_ones(Call& call) {
  fill_with(call, call.out[0], 1);
}

void fill_zeros(Call& call) {
  for (const Operand& out : call.out)
    fill_with(call, out, 0);
}

void fill(Call& call) {
  fill_with(call, call.out[0], call.attr.x);
}

void causal_mask(Call& call) {
  const Operand& out = call.out[0];
  const math::Places blocks = call.in.empty() ? math::Places() : math::Places(call.in[0]);
  generate<float>(call, out,
                  math::Seen{out.sizes[out.rank - 1u], out.sizes[out.rank - 2u],
                             static_cast<std::uint64_t>(call.attr.i[0]), call.attr.i[1], blocks});
}

void nothing(Call&) {}

}  // namespace ledger::LEDGER_DEVICE
