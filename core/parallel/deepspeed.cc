#include "core/parallel/deepspeed.h"

namespace ledger {
namespace {

std::uint64_t or_automatic(std::uint64_t given, std::uint64_t automatic) {
  return given != 0 ? given : automatic;
}

}  // namespace

// zero/config.py, overlap_comm_valid.
bool overlaps_communication(const Recipe& r) {
  return r.overlap_comm == OverlapComm::automatic ? r.zero == 3 : r.overlap_comm == OverlapComm::on;
}

// transformers integrations/deepspeed.py: reduce_bucket_size h*h, stage3_prefetch_bucket_size int(0.9 h*h),
// stage3_param_persistence_threshold 10 h.
ZeroOptions zero_options(const Recipe& r, std::uint64_t hidden, DType dtype) {
  const std::uint64_t square = times(hidden, hidden);
  ZeroOptions o;
  o.stage = r.zero;
  o.world = r.dp;
  o.reduce_bucket = or_automatic(r.reduce_bucket_size, square);
  o.prefetch_bucket = or_automatic(r.prefetch_bucket_size, square / 10 * 9 + square % 10 * 9 / 10);
  o.persistence = or_automatic(r.param_persistence_threshold, times(10, hidden));
  o.max_live = r.max_live_parameters;
  o.max_reuse = r.max_reuse_distance;
  o.sub_group = r.sub_group_size;
  o.overlap = overlaps_communication(r);
  o.reduce_scatter = r.reduce_scatter;
  o.offload_optimizer = r.offload == Offload::optimizer || r.offload == Offload::params;
  o.offload_parameters = r.offload == Offload::params;
  o.dtype = dtype;
  o.clones_first = r.deepspeed == DeepSpeed::v0_18_2;
  return o;
}

std::unique_ptr<Zero> make_zero(Tape& tape, const ZeroOptions& options, const MakeStep& make_step) {
  return options.stage == 3 ? make_zero3(tape, options, make_step) : make_zero12(tape, options, make_step);
}

namespace zero {

std::vector<std::vector<std::size_t>> parameter_groups(const std::vector<Tensor>& parameters) {
  std::vector<std::vector<std::size_t>> groups(2);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const TensorImpl& impl = *parameters[i].impl();
    const bool decays = impl.tape->trace().parameters[static_cast<std::size_t>(impl.parameter)].decays();
    groups[decays ? 0 : 1].push_back(i);
  }
  std::erase_if(groups, [](const std::vector<std::size_t>& group) { return group.empty(); });  // engine.py
  return groups;
}

DType master_dtype(DType model) {
  return model == DType::f64 ? DType::f64 : DType::f32;
}

Tensor norm_of(Tape& tape, const std::vector<Tensor>& gradients) {
  const Aside aside(tape, "zero.norm", Category::temporaries);
  std::vector<Tensor> norms;
  norms.reserve(gradients.size());
  for (const Tensor& gradient : gradients) {
    const Tensor copy = to(gradient, DType::f64);
    norms.push_back(vector_norm(copy));
  }
  if (norms.empty()) return Tensor();
  const Tensor norm = vector_norm(stack(norms, Sym::none));
  all_reduce(norm, ReduceOp::norm);
  return norm;
}

Tensor global_norm(Tape& tape, const std::vector<Tensor>& norms) {
  const Aside aside(tape, "zero.norm", Category::temporaries);
  return norms.empty() ? Tensor() : vector_norm(stack(norms, Sym::none));
}

// In the order of the five lines of _has_inf_or_nan, each of whose names is bound to the end.
void check_finite(const Tensor& gradient) {
  Tape& tape = gradient.tape();
  const Aside aside(tape, "zero.overflow", Category::temporaries);
  const Tensor copy = to(gradient, DType::f32);
  const Tensor nan = bookkeeping(tape, gradient.shape(), DType::boolean);
  const Tensor inf = bookkeeping(tape, gradient.shape(), DType::boolean);
  const Tensor either = bookkeeping(tape, gradient.shape(), DType::boolean);
  bookkeeping(tape, gradient.shape(), DType::f32);
}

void unscale_and_clip(Tape& tape, const Tensor& gradient, const Tensor& norm) {
  const Aside aside(tape, "zero.clip", Category::temporaries);
  const Tensor scale = norm ? clamp_max(reciprocal(norm + 1e-6), 1.0) : full(tape, Shape{}, 1, DType::f32);
  mul_inplace(gradient, scale);
}

}  // namespace zero
}  // namespace ledger
