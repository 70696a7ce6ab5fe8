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
  Bucket& bucket = *buckets_.emplace_back(std::make_unique<Bucket>());
  bucket.memory = tape.empty(OpKind::zeros, {{elements, Sym::none}}, members.front()->dtype());
  std::uint64_t offset = 0;
  for (const Tensor* member : members) {
    const Tensor view = tape.view_of(bucket.memory, member->shape(), member->impl()->strides, offset);
    bucket.members.push_back({*member, view});
    offset = plus(offset, member->shape().numel());
  }
  for (const Member& member : bucket.members) {
    tape.after_accumulation(member.parameter, [this, &bucket, &member, bucket_view](Tensor& gradient) {
      on_gradient(bucket, member, gradient, bucket_view);
    });
  }
}

// mark_variable_ready_dense; the last gradient of a bucket starts its all-reduce, finalize_bucket_dense copies back.
void Ddp::on_gradient(Bucket& bucket, const Member& member, Tensor& gradient, bool bucket_view) {
  if (gradient.impl()->storage != member.view.impl()->storage) copy_into(member.view, gradient);
  if (bucket_view) gradient = member.view;
  if (++bucket.arrived < bucket.members.size()) return;
  bucket.arrived = 0;
  all_reduce(bucket.memory, ReduceOp::mean);
  if (bucket_view) return;
  for (const Member& other : bucket.members)
    copy_into(other.parameter.grad(), other.view);
}

}  // namespace ledger
