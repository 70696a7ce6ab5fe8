#include "core/answer/data_parallel_time.h"

#include <algorithm>

#include "core/parallel/deepspeed.h"

namespace ledger {
namespace {

Bytes width_of(ShardDtype dtype) {
  return dtype == ShardDtype::bf16 ? 2 : 4;
}

// Of a ring of `ranks`, the part that one of them sends to pass `bytes` round once.
Bytes once_round(Bytes bytes, std::uint64_t ranks) {
  return times(bytes, ranks - 1) / ranks;
}

}  // namespace

// How often a step gathers weights and reduces gradients, and how many bytes each time.
struct DataParallelModel::Rounds {
  std::uint64_t gathers = 0, reductions = 0;
  Bytes weights = 0, gradients = 0;
};

std::optional<DataParallelModel> DataParallelModel::of(const Trace& trace, const Gpu& gpu) {
  std::optional<Roofline> roofline = Roofline::of(trace, gpu);
  if (!roofline) return std::nullopt;
  DataParallelModel model(std::move(*roofline));
  model.count(trace);
  return model;
}

void DataParallelModel::count(const Trace& trace) {
  std::uint64_t held = 0;
  for (const Parameter& parameter : trace.parameters) {
    const StorageInfo& storage = trace.storages[parameter.storage];
    const std::uint64_t here = parameter.elements != 0 ? parameter.held : storage.shape.numel();
    const std::uint64_t whole = parameter.elements != 0 ? parameter.elements : here;
    if (storage.dtype == DType::u8 || storage.dtype == DType::i8) {
      packed_bytes_ = plus(packed_bytes_, whole);
      continue;
    }
    elements_ = plus(elements_, whole);
    if (!parameter.trainable) continue;
    held = plus(held, here);
    trained_ = plus(trained_, whole);
    trained_bytes_ = plus(trained_bytes_, times(whole, element_bytes(storage.dtype)));
  }
  if (held != 0) whole_update_ = roofline_.update_seconds() * static_cast<double>(trained_) / static_cast<double>(held);
}

DataParallelModel::Rounds DataParallelModel::fsdp_rounds(const Recipe& r) const {
  const std::uint64_t each = r.reshard_after_forward ? 2 : 1;
  return {.gathers = times(each, r.grad_accum),
          .reductions = r.fsdp == 1 ? 1 : r.grad_accum,
          .weights = weight_bytes(width_of(r.param_dtype)),
          .gradients = times(trained_, width_of(r.reduce_dtype))};
}

// Everything in 16 bits.
DataParallelModel::Rounds DataParallelModel::zero_rounds(const Recipe& r) const {
  const Bytes trained = times(trained_, 2);
  const std::uint64_t reductions = r.zero == 1 ? 1 : r.grad_accum;
  if (r.zero != 3) return {.gathers = 1, .reductions = reductions, .weights = trained, .gradients = trained};
  return {
      .gathers = times(2, r.grad_accum), .reductions = reductions, .weights = weight_bytes(2), .gradients = trained};
}

DataParallelModel::Rounds DataParallelModel::rounds_of(const Recipe& r) const {
  if (r.fsdp != 0) return fsdp_rounds(r);
  if (r.zero != 0) return zero_rounds(r);
  return {.gathers = 0, .reductions = 2, .weights = 0, .gradients = trained_bytes_};
}

Bytes DataParallelModel::sent_bytes(const Recipe& recipe) const {
  if (recipe.dp == 1) return 0;
  const Rounds rounds = rounds_of(recipe);
  return plus(times(rounds.gathers, once_round(rounds.weights, recipe.dp)),
              times(rounds.reductions, once_round(rounds.gradients, recipe.dp)));
}

StepTime DataParallelModel::time(const Recipe& recipe, const Links& links) const {
  const std::uint64_t owners = recipe.fsdp != 0 || recipe.zero != 0 ? recipe.dp : 1;  // that share the update
  StepTime time;
  time.compute = static_cast<double>(recipe.grad_accum) * roofline_.micro_batch_seconds(recipe.batch) +
                 whole_update_ / static_cast<double>(owners);
  time.data_bytes = sent_bytes(recipe);
  time.data = seconds_on(links, time.data_bytes, recipe.dp);
  if (recipe.zero == 0 || overlaps_communication(recipe)) time.data = std::max(time.data - time.compute, 0.0);
  return time;
}

}  // namespace ledger
