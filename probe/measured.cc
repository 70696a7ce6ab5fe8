#include "probe/measured.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/answer/flops.h"
#include "core/answer/report.h"
#include "core/api.h"
#include "probe/card.h"
#include "probe/measured_error.h"
#include "probe/ranks/gathered.h"
#include "probe/write_optional.h"

namespace ledger {
namespace {

// "9.0" for 90.
std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// Milliseconds of the phases named "stepN.*".
double step_ms(const Trace& trace, const std::vector<double>& phase_ms, std::uint32_t step) {
  const std::string prefix = "step" + std::to_string(step) + ".";
  double total = 0;
  for (std::size_t i = 0; i < trace.phases.size() && i < phase_ms.size(); ++i) {
    if (trace.phases[i].starts_with(prefix)) total += phase_ms[i];
  }
  return total;
}

// Whether every phase of the step ran to its end.
bool complete(const Trace& trace, std::uint32_t phases_done, std::uint32_t step) {
  const std::string prefix = "step" + std::to_string(step) + ".";
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < trace.phases.size(); ++i)
    last = trace.phases[i].starts_with(prefix) ? i : last;
  return last < phases_done;
}

// Tokens a second of all decoding passes together; 0 when there are none.
double decoding_speed(const MeasuredRun& m) {
  const std::vector<std::string>& phases = m.prediction->trace.phases;
  double total_ms = 0;
  std::uint32_t passes = 0;
  for (std::size_t i = 0; i < phases.size() && i < m.run->phase_ms.size(); ++i) {
    if (!phases[i].starts_with("decode")) continue;
    total_ms += m.run->phase_ms[i];
    ++passes;
  }
  const auto tokens = static_cast<double>(times(m.prediction->recipe.batch, passes));
  return total_ms > 0 ? 1000 * tokens / total_ms : 0;
}

void write_positive(JsonWriter& out, const char* key, double value) {
  out.key(key);
  if (value > 0) {
    out.value(value);
  } else {
    out.null();
  }
}

// TFLOP/s count what the model needs, not what a kernel does (core/answer/flops.h); MFU is against the card's dense
// bf16 figure, where the catalogue knows the card.
void write_speed(JsonWriter& out, const MeasuredRun& m, double tokens_per_second, double step_seconds) {
  out.key("speed").begin_object();
  write_positive(out, "tokens_per_s", tokens_per_second);
  if (m.device != nullptr) {
    const std::optional<StepFlops> flops = step_flops(m.prediction->trace);
    const auto count =
        flops ? static_cast<double>(flops->layers.total()) + static_cast<double>(flops->rest.total()) : 0;
    const double tflops = step_seconds > 0 ? count / step_seconds * 1e-12 : 0;
    const Gpu* card = find_card(m.device->facts.name, m.device->facts.total_bytes);
    const double peak = card == nullptr ? 0 : card->dense_bf16_tflops;
    write_positive(out, "tflops", tflops);
    write_positive(out, "mfu", peak > 0 ? tflops / peak : 0);
    write_positive(out, "peak_tflops", peak);
  }
  out.end_object();
}

// The mean over the micro-batches of a step, from 1; NaN where this rank knows none.
double loss_of_step(const MeasuredRun& m, std::uint32_t step) {
  const std::vector<double>& losses = m.run->losses;
  const std::size_t micro_batches = losses.size() / std::max<std::size_t>(m.steps, 1);
  if (micro_batches == 0) return std::numeric_limits<double>::quiet_NaN();
  const auto first = losses.begin() + static_cast<std::ptrdiff_t>((step - 1) * micro_batches);
  const double sum = std::accumulate(first, first + static_cast<std::ptrdiff_t>(micro_batches), 0.0);
  return sum / static_cast<double>(micro_batches);
}

// One a training step; none while generating.
void write_steps(JsonWriter& out, const MeasuredRun& m) {
  const Trace& trace = m.prediction->trace;
  const std::uint32_t steps = m.prediction->recipe.task == Task::training ? m.steps : 0;
  double counted_ms = 0;
  std::uint32_t counted = 0;
  out.key("steps").begin_array();
  for (std::uint32_t step = 1; step <= steps; ++step) {
    const double ms = step_ms(trace, m.run->phase_ms, step);
    if (ms == 0) break;  // the run ended before it
    out.begin_object().member("ms", ms).member("loss", loss_of_step(m, step)).end_object();
    if (step > m.warmup && complete(trace, m.run->phases_done, step)) {
      counted_ms += ms;
      ++counted;
    }
  }
  out.end_array();
  const Recipe& recipe = m.prediction->recipe;
  const auto tokens = static_cast<double>(times(recipe.batch, recipe.seq)) * counted;
  if (recipe.task == Task::generate) return write_speed(out, m, decoding_speed(m), 0);
  const double step_seconds = counted > 0 ? counted_ms / 1000 / counted : 0;
  write_speed(out, m, counted_ms > 0 ? 1000 * tokens / counted_ms : 0, step_seconds);
}

void write_gpu(JsonWriter& out, const DeviceFacts& f) {
  out.key("gpu").begin_object().member("name", f.name).member("compute_capability", capability_text(f.capability));
  out.member("multiprocessors", f.multiprocessors).member("total_bytes", f.total_bytes);
  out.member("driver_reserved_bytes", f.driver_reserved_bytes).member("mig", f.mig).member("mps", f.mps);
  out.member("memory_kind", f.integrated ? "unified" : "discrete").end_object();
  out.key("driver");
  if (f.driver.empty()) {
    out.null();
  } else {
    out.value(f.driver);
  }
  out.member("driver_cuda", f.driver_cuda).member("runtime_cuda", f.runtime_cuda).member("cublaslt", f.cublaslt);
  write_optional(out, "cudnn", f.cudnn == 0 ? std::nullopt : std::optional(f.cudnn));
  write_optional(out, "nccl", f.nccl == 0 ? std::nullopt : std::optional(f.nccl));
  out.member("wsl", f.wsl).member("clean", f.clean);
}

void write_world(JsonWriter& out, const RanksOfRun* ranks) {
  const RankPlace place = ranks == nullptr ? RankPlace() : ranks->place;
  out.key("world").begin_object().member("size", place.world).member("rank", place.rank);
  out.member("launcher", place.launcher).key("emulated");
  if (ranks != nullptr && ranks->stand_in) {
    out.begin_object().member("collectives", "local-copy").end_object();
  } else {
    out.null();
  }
  out.end_object();
}

// One a rank, where several ran and none was lost.
void write_ranks(JsonWriter& out, const RanksOfRun* ranks) {
  if (ranks == nullptr || ranks->peaks.empty()) return;
  out.key("ranks").begin_array();
  for (std::size_t i = 0; i < ranks->peaks.size(); ++i) {
    const RankPeaks& p = ranks->peaks[i];
    out.begin_object().member("rank", static_cast<std::uint64_t>(i));
    out.key("peaks").begin_object().member("tensor_bytes", p.tensor_bytes);
    out.member("workspace_bytes", p.workspace_bytes).member("allocated_bytes", p.allocated_bytes);
    out.member("reserved_bytes", p.reserved_bytes).end_object();
    out.member("predicted_allocated_bytes", p.predicted_allocated_bytes);
    out.member("events_identical", p.events_identical);
    write_optional(out, "nccl_bytes", p.nccl_bytes);
    out.end_object();
  }
  out.end_array();
}

void write_environment(JsonWriter& out, const DeviceRun* device, const RanksOfRun* ranks) {
  out.key("environment").begin_object().member("device", device == nullptr ? "host" : "cuda");
  if (device != nullptr) {
    write_gpu(out, device->facts);
  } else {
    out.key("gpu").null();
  }
  out.member("os", "linux");
  write_world(out, ranks);
  out.end_object();
}

// Of all communicators, and of each; null where no ranks ran.
void write_nccl(JsonWriter& out, const std::optional<NcclMemory>& nccl) {
  out.key("nccl");
  if (!nccl) {
    out.null();
    return;
  }
  Bytes init = 0, connect = 0;
  for (const NcclMemory::OfCommunicator& one : nccl->communicators) {
    init = plus(init, one.init_bytes);
    connect = plus(connect, one.connect_bytes);
  }
  out.begin_object().member("init_bytes", init).member("connect_bytes", connect);
  write_optional(out, "stats_bytes", nccl->stats_bytes);
  out.key("communicators").begin_array();
  for (const NcclMemory::OfCommunicator& one : nccl->communicators) {
    out.begin_object().member("ranks", one.ranks).member("init_bytes", one.init_bytes);
    out.member("connect_bytes", one.connect_bytes).end_object();
  }
  out.end_array().end_object();
}

// Device-wide bytes, apart from the allocator's; what could not be had is null.
void write_device_memory(JsonWriter& out, const DeviceRun* device) {
  if (device == nullptr) return;
  const DeviceMemory& m = device->memory;
  out.key("device_memory").begin_object();
  write_optional(out, "context_bytes", m.context_bytes);
  write_optional(out, "libraries_bytes", m.libraries_bytes);
  out.member("executor_bytes", m.executor_bytes);
  write_nccl(out, m.nccl);
  write_optional(out, "grown_bytes", m.grown_bytes);
  out.member("peak_bytes", m.peak_bytes).key("unexplained_bytes");
  if (m.unexplained_bytes) {
    out.value(*m.unexplained_bytes);
  } else {
    out.null();
  }
  out.end_object();
}

void write_not_measured(JsonWriter& out, const MeasuredRun& m) {
  const DeviceRun* const device = m.device;
  out.key("not_measured").begin_array();
  if (device == nullptr) {
    out.value("device_bytes");
  } else {
    if (!device->memory.context_bytes) out.value("context_bytes");
    if (!device->memory.grown_bytes) out.value("grown_bytes");
    if (device->facts.wsl) out.value("device_bytes");  // the driver may spill into system memory without a word
  }
  if (m.ranks != nullptr && m.ranks->stand_in && m.ranks->place.world > 1) {
    out.value("loss");
    out.value("collectives");
  }
  out.end_array();
}

}  // namespace

bool identical(const Replay& predicted, const Replay& measured) {
  const auto same_sample = [](const Sample& a, const Sample& b) {
    return a.event == b.event && a.tensor_bytes == b.tensor_bytes && a.allocated == b.allocated &&
           a.reserved == b.reserved;
  };
  return predicted.addresses == measured.addresses &&
         std::equal(predicted.samples.begin(), predicted.samples.end(), measured.samples.begin(),
                    measured.samples.end(), same_sample);
}

std::string write_measured(const MeasuredRun& m) {
  const Prediction& p = *m.prediction;
  const Replay& replay = m.run->replay;
  JsonWriter out;
  out.begin_object().member("schema_version", kSchemaVersion).member("kind", "measured");
  out.key("tool").begin_object().member("name", "probe").member("version", version());
  out.member("backend", m.device == nullptr ? "host" : "cuda").end_object();
  out.member("status", run_status_name(m.run->status));
  write_environment(out, m.device, m.ranks);
  write_model(out, p);
  out.key("recipe");
  write_recipe(out, p.recipe);
  out.key("options").begin_object().member("steps", m.steps).member("warmup", m.warmup).key("memory_limit_bytes");
  if (p.recipe.memory_limit_bytes != 0) {
    out.value(p.recipe.memory_limit_bytes);
  } else {
    out.null();
  }
  out.end_object();
  out.key("allocator").begin_object().member("rules", recipe_value(p.recipe, "allocator"));
  out.member("segments", replay.allocator.segments).member("retries", replay.allocator.retries).end_object();
  const bool counted = m.device != nullptr && !m.device->facts.wsl;
  write_peaks(out, p.trace, replay, nullptr,
              counted ? std::optional<Bytes>(m.device->memory.peak_bytes) : std::nullopt);
  write_device_memory(out, m.device);
  write_phases(out, p.trace, replay, m.run->phase_ms.data());
  write_at_peak(out, p.config, p.recipe, p.trace, replay, ledger_at(p.trace, replay.peak_event));
  if (!replay.samples.empty()) write_timeline(out, p.trace, replay);
  write_steps(out, m);
  out.key("prediction").begin_object();
  write_peaks(out, p.trace, p.replay, nullptr);
  write_phases(out, p.trace, p.replay);
  out.member("events_identical", identical(p.replay, replay)).end_object();
  write_ranks(out, m.ranks);
  write_not_measured(out, m);
  write_error(out, m);
  out.end_object();
  return out.take();
}

}  // namespace ledger
