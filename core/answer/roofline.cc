#include "core/answer/roofline.h"

#include <algorithm>

#include "core/answer/flops.h"

namespace ledger {
namespace {

constexpr double kGigabyte = 1e9, kTeraflop = 1e12;

// fp32 products outside the tensor cores, of the 16-bit peak: 19.5 of 312 TFLOP/s on an A100, 67 of 989 on an H100
// (NVIDIA's data sheets). PyTorch does not take TF32 unless told to.
constexpr double kFp32Share = 1.0 / 16;

double bytes_of(const View& view) {
  double count = static_cast<double>(element_bytes(view.dtype));
  for (std::size_t i = 0; i < view.rank; ++i) {
    if (view.strides[i] != 0) count *= static_cast<double>(view.sizes[i]);
  }
  return count;
}

bool stays(Category category) {
  return category == Category::weights || category == Category::master_weights || category == Category::gradients ||
         category == Category::optimizer_states || category == Category::buffers;
}

// Storages as large for any batch: what is kept, and what becomes a gradient.
std::vector<bool> fixed_storages(const Trace& trace) {
  std::vector<bool> fixed(trace.storages.size());
  for (std::size_t i = 0; i < fixed.size(); ++i)
    fixed[i] = stays(trace.storages[i].category);
  for (const Event& event : trace.events) {
    if (event.type == EventType::label && event.category == Category::gradients) fixed[event.id] = true;
  }
  return fixed;
}

// Whose time is that of the links (step_time.h).
bool sends(OpKind op) {
  return op == OpKind::all_gather || op == OpKind::reduce_scatter || op == OpKind::all_reduce || op == OpKind::send ||
         op == OpKind::receive || op == OpKind::copy_to_host || op == OpKind::copy_from_host;
}

// What is copied to and from host memory, and what is computed there: not the GPU's time.
bool reaches_host(const Trace& trace, const Run& run) {
  const View* const view = &trace.views[run.first_view];
  return std::any_of(view, view + run.input_count() + run.outputs,
                     [&](const View& one) { return one.storage != kNoStorage && trace.storages[one.storage].on_host; });
}

// A causal kernel skips half of the scores (step_time.h counts so, too).
double flops_done(const Trace& trace, const Run& run) {
  const double all = static_cast<double>(flops_of_run(trace, run));
  switch (run.op) {
    case OpKind::cudnn_attention:
    case OpKind::cudnn_attention_backward:
    case OpKind::flash_attention:
    case OpKind::flash_attention_backward:
    case OpKind::efficient_attention:
    case OpKind::efficient_attention_backward:
      return run.attr.i[1] == 0 ? all / 2 : all;
    default:
      return all;
  }
}

}  // namespace

std::optional<Roofline> Roofline::of(const Trace& trace, const Gpu& gpu) {
  if (!trace.has_operands || gpu.dense_bf16_tflops <= 0 || gpu.bandwidth_gb_per_s <= 0) return std::nullopt;
  const std::vector<bool> fixed = fixed_storages(trace);
  const double rate = gpu.bandwidth_gb_per_s * kGigabyte;
  Roofline roofline;
  bool loading = true, updating = false;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark) {
      const std::string& phase = trace.phases[event.id];
      loading = phase == "load";
      updating = phase.ends_with("optimizer") || phase.ends_with("zero_grad");
    }
    if (event.type != EventType::run || loading) continue;
    const Run& run = trace.runs[event.id];
    if (sends(run.op) || reaches_host(trace, run)) continue;
    Work work{0, 0, 0, 1};
    const View* view = &trace.views[run.first_view];
    const std::uint32_t count = run.input_count() + run.outputs;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (view[i].storage == kNoStorage) continue;
      const bool table = run.op == OpKind::embedding && i == 0;  // of which rows are read, as long as the output
      double& part = fixed[view[i].storage] && !table ? work.fixed : work.scaled;
      part += bytes_of(table ? view[count - 1] : view[i]) / rate;
    }
    const bool single = view[run.input_count()].dtype == DType::f32;
    const double peak = gpu.dense_bf16_tflops * kTeraflop * (single ? kFp32Share : 1);
    work.computing = run.outputs == 0 ? 0 : flops_done(trace, run) / peak;
    if (updating) {
      roofline.update_ += work.fixed + work.scaled;
    } else {
      roofline.add(work);
    }
  }
  return roofline;
}

// Layers are alike: few works stand for all.
void Roofline::add(const Work& work) {
  for (Work& one : works_) {
    if (one.computing != work.computing || one.fixed != work.fixed || one.scaled != work.scaled) continue;
    one.count += 1;
    return;
  }
  works_.push_back(work);
}

double Roofline::micro_batch_seconds(std::uint64_t batch) const {
  const auto times_as_much = static_cast<double>(batch);
  double seconds = 0;
  for (const Work& work : works_)
    seconds += work.count * std::max(work.computing * times_as_much, work.fixed + work.scaled * times_as_much);
  return seconds;
}

}  // namespace ledger
