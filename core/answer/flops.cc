#include "core/answer/flops.h"

#include "core/trace/window_grid.h"

namespace ledger {
namespace {

std::uint64_t twice(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return times(2, times(a, times(b, c)));
}

// Products are counted by their output and the inner size of their last but one input.
std::uint64_t product(const View& out, const View& left) {
  std::uint64_t numel = 1;
  for (std::size_t i = 0; i < out.rank; ++i)
    numel = times(numel, out.sizes[i]);
  return twice(numel, left.sizes[left.rank - 1u], 1);
}

// q [b,nh,s,d] against keys [b,nkv,t,d] and values [b,nkv,t,dv]: scores and their product with the values.
std::uint64_t attention(const View* qkv) {
  const View &q = qkv[0], &v = qkv[2];
  const std::uint64_t rows = times(times(q.sizes[0], q.sizes[1]), q.sizes[2]);
  return twice(rows, v.sizes[2], plus(q.sizes[3], v.sizes[3]));
}

std::uint64_t flops_of_shapes(const Trace& trace, const Run& run) {
  const View* in = &trace.views[run.first_view];
  const View* out = in + run.input_count();
  switch (run.op) {
    case OpKind::mm:
    case OpKind::bmm:
      return product(out[0], in[0]);
    case OpKind::addmm:
    case OpKind::baddbmm:
      return product(out[0], in[1]);
    case OpKind::convolution:
    case OpKind::convolution_backward: {  // a product of patches and filters; backward has those of the filters alone
      const View& filters = run.op == OpKind::convolution ? in[1] : in[2];
      const View& features = run.op == OpKind::convolution ? out[0] : in[0];
      std::uint64_t patches = features.sizes[0], places = filters.sizes[1];
      for (std::size_t i = 2; i < filters.rank; ++i) {
        patches = times(patches, features.sizes[i]);
        places = times(places, filters.sizes[i]);
      }
      return twice(patches, filters.sizes[0], places);
    }
    case OpKind::grouped_mm:  // a matrix a group: over rows, or over parts of the inner dimension
      return out[0].rank == 2 ? product(out[0], in[0]) : twice(in[0].sizes[0], in[0].sizes[1], in[1].sizes[1]);
    case OpKind::cudnn_attention:
    case OpKind::flash_attention:
    case OpKind::efficient_attention:
      return attention(in);
    case OpKind::cudnn_attention_backward:
    case OpKind::flash_attention_backward:  // gradient, q, k, ...
    case OpKind::efficient_attention_backward:
      return times(2, attention(in + 1));
    default:
      return 0;
  }
}

// The same piece by piece.
std::uint64_t packed_attention(const View* qkv, const Attr& attr) {
  const View& q = qkv[0];
  std::uint64_t count = 0;
  WindowGrid::of(attr).for_each_piece(q.sizes[2], [&](std::uint64_t, std::uint64_t length) {
    count = plus(count, twice(times(q.sizes[1], length), length, times(2, q.sizes[3])));
  });
  return count;
}

bool computes_again(const Trace& trace, const Run& run) {
  const View& out = trace.views[run.first_view + run.input_count()];
  return out.storage != kNoStorage && trace.storages[out.storage].category == Category::activations;
}

}  // namespace

std::uint64_t flops_of_run(const Trace& trace, const Run& run) {
  const View* in = &trace.views[run.first_view];
  if (run.op == OpKind::packed_attention) return packed_attention(in, run.attr);
  if (run.op == OpKind::packed_attention_backward) return times(2, packed_attention(in + 1, run.attr));
  return flops_of_shapes(trace, run);
}

std::optional<StepFlops> step_flops(const Trace& trace) {
  if (!trace.has_operands) return std::nullopt;
  StepFlops flops;
  bool backward = false;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark) {
      const std::string& phase = trace.phases[event.id];
      if (phase.starts_with("step2.")) break;
      backward = phase.ends_with("backward");
    }
    if (event.type != EventType::run) continue;
    const Run& run = trace.runs[event.id];
    const std::uint64_t count = flops_of_run(trace, run);
    if (count == 0) continue;
    Flops& part = run.layer >= 0 ? flops.layers : flops.rest;
    std::uint64_t& sum = !backward ? part.forward : computes_again(trace, run) ? part.recompute : part.backward;
    sum = plus(sum, count);
  }
  return flops;
}

}  // namespace ledger
