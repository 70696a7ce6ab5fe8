#include "probe/measured.h"

#include <algorithm>
#include <cmath>

#include "core/answer/report.h"
#include "core/api.h"

namespace ledger {
namespace {

// Milliseconds of the phases named "stepN.*".
double step_ms(const Trace& trace, const std::vector<double>& phase_ms, std::uint32_t step) {
  const std::string prefix = "step" + std::to_string(step) + ".";
  double total = 0;
  for (std::size_t i = 0; i < trace.phases.size() && i < phase_ms.size(); ++i) {
    if (trace.phases[i].starts_with(prefix)) total += phase_ms[i];
  }
  return total;
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

void write_speed(JsonWriter& out, double tokens_per_second) {
  out.key("speed").begin_object();
  if (tokens_per_second > 0) {
    out.member("tokens_per_s", tokens_per_second);
  } else {
    out.key("tokens_per_s").null();
  }
  out.end_object();
}

// One a training step; none while generating.
void write_steps(JsonWriter& out, const MeasuredRun& m) {
  const Trace& trace = m.prediction->trace;
  double counted_ms = 0;
  std::uint32_t counted = 0;
  out.key("steps").begin_array();
  for (std::uint32_t step = 1; step <= m.steps && step <= m.run->losses.size(); ++step) {
    const double ms = step_ms(trace, m.run->phase_ms, step);
    out.begin_object().member("ms", ms).member("loss", m.run->losses[step - 1]).end_object();
    if (step > m.warmup) {
      counted_ms += ms;
      ++counted;
    }
  }
  out.end_array();
  const Recipe& recipe = m.prediction->recipe;
  const auto tokens = static_cast<double>(times(recipe.batch, recipe.seq)) * counted;
  if (recipe.task == Task::generate) return write_speed(out, decoding_speed(m));
  write_speed(out, counted_ms > 0 ? 1000 * tokens / counted_ms : 0);
}

void write_error(JsonWriter& out, const MeasuredRun& m) {
  const Replay& replay = m.run->replay;
  out.key("error");
  if (m.run->failure) {
    out.begin_object().member("kind", "executor").member("what", m.run->failure->what).end_object();
  } else if (replay.out_of_memory) {
    const Trace& trace = m.prediction->trace;
    const StorageInfo& storage = trace.storages[replay.oom_storage];
    out.begin_object().member("kind", "out_of_memory").member("name", trace.names[storage.scope]);
    out.member("op", op_name(storage.op)).member("layer", storage.layer);
    out.member("phase", replay.phases.empty() ? "" : trace.phases[replay.phases.back().phase]);
    out.member("requested_bytes", replay.oom_requested_bytes).member("segment_bytes", replay.oom_segment_bytes);
    out.member("allocated_bytes", replay.allocator.allocated).member("reserved_bytes", replay.allocator.reserved);
    out.member("predicted_peak_allocated_bytes", m.prediction->replay.peak_allocated_bytes).end_object();
  } else {
    out.null();
  }
}

const char* status_of(const HostRun& run) {
  if (run.failure) return "error";
  return run.replay.out_of_memory ? "oom" : "ok";
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
  out.key("tool")
      .begin_object()
      .member("name", "probe")
      .member("version", version())
      .member("backend", "host")
      .end_object();
  out.member("status", status_of(*m.run));
  out.key("environment").begin_object().member("device", "host").key("gpu").null().member("os", "linux").end_object();
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
  write_peaks(out, p.trace, replay, nullptr);
  write_phases(out, p.trace, replay, m.run->phase_ms.data());
  write_at_peak(out, p.config, p.recipe, p.trace, replay, ledger_at(p.trace, replay.peak_event));
  write_steps(out, m);
  out.key("prediction").begin_object();
  write_peaks(out, p.trace, p.replay, nullptr);
  write_phases(out, p.trace, p.replay);
  out.member("events_identical", identical(p.replay, replay)).end_object();
  out.key("not_measured").begin_array().value("device_bytes").end_array();
  write_error(out, m);
  out.end_object();
  return out.take();
}

}  // namespace ledger
