#include "core/parallel/ddp.h"

namespace ledger {
namespace {

constexpr Bytes kFirstBucket = kMiB;     // kDefaultFirstBucketBytes
constexpr Bytes kBucketCap = 25 * kMiB;  // bucket_cap_mb

Bytes bytes_of(const Tensor& tensor) {
  return times(tensor.shape().numel(), element_bytes(tensor.dtype()));
}

}  // namespace

// compute_bucket_assignment_by_size, from the last parameter to the first: a bucket is closed by the parameter that
// fills it, and holds one dtype.
Ddp::Ddp(Tape& tape, const std::vector<Tensor>& parameters, bool bucket_view) {
  const Tape::Scope scope(tape, "ddp_buckets");
  const Tape::In in(tape, Category::communication);
  std::vector<const Tensor*> members;
  Bytes filled = 0, cap = kFirstBucket;
  const auto close = [&] {
    if (!members.empty()) add_bucket(tape, members, bucket_view);
    members.clear();
    filled = 0;
  };
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (!members.empty() && members.front()->dtype() != parameters[i].dtype()) close();
    members.push_back(&parameters[i]);
    filled = plus(filled, bytes_of(parameters[i]));
    if (filled < cap) continue;
    close();
    cap = kBucketCap;
  }
  close();
}

void Ddp::add_bucket(Tape& tape, const std::vector<const Tensor*>& members, bool bucket_view) {
  std::uint64_t elements = 0;
  for (const Tensor* member : members)
    elements = plus(elements, member->shape().numel());
  const Tensor bucket = tape.empty(OpKind::zeros, {{elements, Sym::none}}, members.front()->dtype());
  buckets_.push_back(bucket);
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Tensor& parameter = *members[i];
    const Tensor view = tape.view_of(bucket, parameter.shape(), parameter.impl()->strides, offset);
    offset = plus(offset, parameter.shape().numel());
    const bool last = i + 1 == members.size();
    // mark_variable_ready_dense; the last gradient of a bucket starts its all-reduce.
    tape.after_accumulation(parameter, [&tape, bucket, view, last, bucket_view](Tensor& gradient) {
      if (gradient.impl()->storage != view.impl()->storage) copy_into(view, gradient);
      if (bucket_view) gradient = view;
      if (last) tape.run(OpKind::all_reduce, {&bucket}, {&bucket});
    });
  }
}

}  // namespace ledger
