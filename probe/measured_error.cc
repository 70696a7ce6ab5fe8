#include "probe/measured_error.h"

#include "probe/write_optional.h"

namespace ledger {
namespace {

// Memory that was wanted beside the allocator's: nobody knows what of the trace would have fitted with less of it.
void write_shortage(JsonWriter& out, const MeasuredRun& m) {
  const RunFailure& failure = *m.run->failure;
  const Replay& replay = m.run->replay;
  const Trace& trace = m.prediction->trace;
  const Run& run = trace.runs[failure.run];
  out.begin_object().member("kind", "out_of_memory").member("by", failure.shortage->by).member("what", failure.what);
  out.member("name", trace.names[run.scope]).member("op", op_name(run.op)).member("layer", run.layer);
  out.member("phase", replay.phases.empty() ? "" : trace.phases[replay.phases.back().phase]);
  write_optional(out, "requested_bytes", failure.shortage->requested_bytes);
  write_optional(out, "taken_bytes", failure.shortage->taken_bytes);
  write_optional(out, "device_bytes_in_use", failure.shortage->device_bytes_in_use);
  out.member("allocated_bytes", replay.allocator.allocated).member("reserved_bytes", replay.allocator.reserved);
  out.member("predicted_peak_allocated_bytes", m.prediction->replay.peak_allocated_bytes);
  out.key("short_by_bytes").null();
  out.end_object();
}

}  // namespace

void write_error(JsonWriter& out, const MeasuredRun& m) {
  const Replay& replay = m.run->replay;
  out.key("error");
  if (m.run->failure && m.run->failure->shortage) {
    write_shortage(out, m);
  } else if (m.run->failure) {
    out.begin_object().member("kind", "executor").member("what", m.run->failure->what).end_object();
  } else if (replay.out_of_memory) {
    const Trace& trace = m.prediction->trace;
    const StorageInfo& storage = trace.storages[replay.oom_storage];
    out.begin_object().member("kind", "out_of_memory").member("name", trace.names[storage.scope]);
    out.member("op", op_name(storage.op)).member("layer", storage.layer);
    out.member("phase", replay.phases.empty() ? "" : trace.phases[replay.phases.back().phase]);
    out.member("requested_bytes", replay.oom_requested_bytes).member("segment_bytes", replay.oom_segment_bytes);
    out.member("allocated_bytes", replay.allocator.allocated).member("reserved_bytes", replay.allocator.reserved);
    out.member("predicted_peak_allocated_bytes", m.prediction->replay.peak_allocated_bytes);
    const Bytes needed = m.prediction->replay.peak_allocated_bytes;
    out.member("short_by_bytes", needed > replay.allocator.reserved ? needed - replay.allocator.reserved : 0);
    out.end_object();
  } else {
    out.null();
  }
}

}  // namespace ledger
