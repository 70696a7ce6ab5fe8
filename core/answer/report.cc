#include "core/answer/report.h"

#include <algorithm>

#include "core/answer/letters.h"
#include "core/answer/remarks.h"
#include "core/answer/sources.h"
#include "core/api.h"
#include "core/memory/timeline.h"
#include "core/models/names.h"
#include "core/training/support.h"

namespace ledger {
namespace {

const char* op_at(const Trace& trace, std::uint32_t event) {
  if (event >= trace.events.size()) return "";
  const Event& e = trace.events[event];
  return e.type == EventType::alloc ? op_name(trace.storages[e.id].op) : "";
}

const std::string& phase_name(const Trace& trace, std::uint32_t event) {
  return trace.phases[phase_at(trace, event)];
}

void write_plain_config(JsonWriter& out, const ModelConfig& c) {
  out.key("layers").begin_array();
  for (const PlainLinear& layer : c.layers) {
    out.begin_object().key("linear").begin_array().value(layer.in).value(layer.out).end_array();
    out.member("bias", layer.bias).end_object();
  }
  out.end_array();
}

void write_decoder_config(JsonWriter& out, const ModelConfig& c) {
  out.member("model_type", c.model_type).member("hidden_size", c.hidden_size);
  out.member("num_hidden_layers", c.num_hidden_layers).member("num_attention_heads", c.num_attention_heads);
  out.member("num_key_value_heads", c.num_key_value_heads).member("head_dim", c.head_dim);
  out.member("intermediate_size", c.intermediate_size).member("vocab_size", c.vocab_size);
  out.member("max_position_embeddings", c.max_position_embeddings).member("rms_norm_eps", c.rms_norm_eps);
  out.key("rope_parameters").begin_object().member("rope_type", c.rope.type).member("rope_theta", c.rope_theta);
  if (c.rope.type != "default") out.member("factor", c.rope.factor);
  if (c.rope.type == "llama3") {
    out.member("low_freq_factor", c.rope.low_freq_factor).member("high_freq_factor", c.rope.high_freq_factor);
    out.member("original_max_position_embeddings", c.rope.original_max_position_embeddings);
  }
  out.end_object();
  out.member("tie_word_embeddings", c.tie_word_embeddings).member("attention_bias", c.attention_bias);
  out.member("mlp_bias", c.mlp_bias);
  if (c.sliding_window != 0) {
    out.member("sliding_window", c.sliding_window).member("use_sliding_window", true);
  } else {
    out.key("sliding_window").null();
  }
}

// What the file said, of all that its family reads: other families have more keys than these.
void write_used_config(JsonWriter& out, const ModelConfig& c) {
  out.member("model_type", c.model_type);
  for (const auto& [key, json] : c.used)
    out.key(key).value(json);
}

void write_line(JsonWriter& out, const Trace& trace, const Recipe& recipe, const LedgerLine& line,
                const Letters& letters) {
  out.begin_object().member("name", trace.names[line.scope]).member("op", op_name(line.op));
  out.member("category", category_name(line.category)).member("dtype", info(line.dtype).name);
  out.key("shape").begin_array();
  for (std::size_t i = 0; i < line.shape.rank; ++i)
    out.value(line.shape.sizes[i]);
  out.end_array();
  out.key("factors").begin_array();
  for (const Factor& factor : letters.factors(line.shape)) {
    out.begin_object().member("symbol", info(factor.sym).name).member("value", factor.value).end_object();
  }
  out.end_array();
  out.member("element_bytes", element_bytes(line.dtype)).member("count", line.count).member("bytes", line.bytes);
  out.member("source", source_of(trace.names[line.scope], line.category, line.op, recipe)).end_object();
}

void write_categories(JsonWriter& out, const Ledger& ledger) {
  out.key("categories").begin_object();
  for (std::size_t i = 0; i < kCategories; ++i) {
    if (ledger.categories[i] != 0) out.member(category_name(static_cast<Category>(i)), ledger.categories[i]);
  }
  out.end_object();
}

const Sample* sample_at(const Replay& replay, std::uint32_t event) {
  const auto after = std::upper_bound(replay.samples.begin(), replay.samples.end(), event,
                                      [](std::uint32_t e, const Sample& s) { return e < s.event; });
  return after == replay.samples.begin() ? nullptr : &*(after - 1);
}

}  // namespace

void write_timeline(JsonWriter& out, const Trace& trace, const Replay& replay, std::size_t points) {
  const std::vector<TimelinePoint> curve = timeline(trace, replay, points);
  const std::uint32_t reached = curve.empty() ? 0 : curve.back().event + 1;
  out.key("timeline").begin_object().member("events", static_cast<std::uint64_t>(trace.events.size()));
  out.key("categories").begin_array();
  for (std::size_t i = 0; i < kCategories; ++i)
    out.value(category_name(static_cast<Category>(i)));
  out.end_array();
  out.key("phases").begin_array();
  for (std::uint32_t i = 0; i < reached; ++i) {
    const Event& event = trace.events[i];
    if (event.type != EventType::mark) continue;
    out.begin_object().member("name", trace.phases[event.id]).member("event", i).end_object();
  }
  out.end_array().member("peak_event", replay.peak_event);
  out.key("points").begin_array();
  for (const TimelinePoint& point : curve) {
    out.begin_object().member("event", point.event).member("tensor_bytes", point.tensor_bytes);
    out.member("allocated_bytes", point.allocated).member("reserved_bytes", point.reserved);
    out.key("categories").begin_array();
    for (Bytes bytes : point.categories)
      out.value(bytes);
    out.end_array().end_object();
  }
  out.end_array().end_object();
}

namespace {

void write_verdict(JsonWriter& out, const Prediction& p) {
  const Verdict& v = p.verdict;
  out.key("verdict").begin_object().member("gpu", p.gpu->id).member("gpu_name", p.gpu->name);
  out.member("capacity_bytes", v.capacity_bytes).member("usable_bytes", v.usable_bytes);
  out.member("answer", answer_name(v.answer)).member("headroom_bytes", v.headroom_bytes);
  out.member("fragmentation", v.fragmentation).member("largest_category", category_name(v.largest_category));
  const std::string largest = p.at_peak.lines.empty() ? "" : p.trace.names[p.at_peak.lines.front().scope];
  out.member("largest_line", largest);
  if (v.out_of_memory) {
    const StorageInfo& storage = p.trace.storages[v.oom_storage];
    out.key("out_of_memory").begin_object().member("phase", p.trace.phases[v.oom_phase]);
    out.member("name", p.trace.names[storage.scope]).member("op", op_name(storage.op)).member("bytes", storage.bytes);
    out.member("layer", storage.layer).end_object();
  } else {
    out.key("out_of_memory").null();
  }
  out.end_object();
}

}  // namespace

void write_dims(JsonWriter& out, const ModelConfig& c) {
  out.key("dims").begin_object();
  if (c.architecture == Architecture::plain) {
    out.member("layers", static_cast<std::uint64_t>(c.layers.size()));
    out.member("in", c.layers.front().in).member("out", c.layers.back().out);
  } else {
    out.member("layers", c.num_hidden_layers).member("hidden", c.hidden_size).member("heads", c.num_attention_heads);
    out.member("kv_heads", c.num_key_value_heads).member("head_dim", c.head_dim);
    out.member("ffn", c.intermediate_size).member("vocab", c.vocab_size);
  }
  out.end_object();
}

void write_model(JsonWriter& out, const Prediction& p) {
  out.key("model").begin_object().member("family", p.config.model_type).member("params", p.params);
  out.member("trainable", p.trainable);
  write_dims(out, p.config);
  out.key("config").begin_object();
  if (p.config.architecture == Architecture::plain) {
    write_plain_config(out, p.config);
  } else if (is_like_llama(p.config)) {
    write_decoder_config(out, p.config);
  } else {
    write_used_config(out, p.config);
  }
  out.end_object().end_object();
}

void write_peaks(JsonWriter& out, const Trace& trace, const Replay& replay, const Gpu* gpu,
                 std::optional<Bytes> measured_device_bytes) {
  out.key("peaks").begin_object().member("tensor_bytes", replay.peak_tensor_bytes);
  out.member("workspace_bytes", replay.peak_workspace_bytes).member("allocated_bytes", replay.peak_allocated_bytes);
  out.member("reserved_bytes", replay.peak_reserved_bytes);
  if (gpu != nullptr) {
    const Bytes low = plus(replay.peak_reserved_bytes, gpu->context_low_bytes);
    const Bytes high = plus(replay.peak_reserved_bytes, gpu->context_high_bytes);
    out.member("device_bytes", low + (high - low) / 2);
    out.key("device_band_bytes").begin_array().value(low).value(high).end_array();
  } else if (measured_device_bytes) {
    out.member("device_bytes", *measured_device_bytes);
  } else {
    out.key("device_bytes").null();
  }
  out.member("phase", phase_name(trace, replay.peak_event));
  out.member("op", op_at(trace, replay.peak_event)).end_object();
}

void write_stages(JsonWriter& out, const Prediction& p) {
  if (p.stages.size() < 2) return;
  out.key("pipeline").begin_object().member("stage", p.stage).key("stages").begin_array();
  for (const StagePeak& stage : p.stages)
    out.begin_object()
        .member("tensor_bytes", stage.tensor_bytes)
        .member("allocated_bytes", stage.allocated_bytes)
        .end_object();
  out.end_array().end_object();
}

// What an offloading framework keeps in host memory. Pinned buffers may be larger (docs/not-modelled.md).
void write_host(JsonWriter& out, const Trace& trace) {
  const std::vector<HostLine> lines = host_ledger(trace);
  if (lines.empty()) return;
  Bytes sum = 0;
  for (const HostLine& line : lines)
    sum = plus(sum, line.bytes);
  out.key("host_memory").begin_object().member("tensor_bytes", sum).key("tensors").begin_array();
  for (const HostLine& line : lines) {
    out.begin_object().member("name", line.name).member("category", category_name(line.category));
    out.member("dtype", info(line.dtype).name).member("count", line.count).member("bytes", line.bytes).end_object();
  }
  out.end_array().end_object();
}

void write_phases(JsonWriter& out, const Trace& trace, const Replay& replay, const double* milliseconds) {
  out.key("phases").begin_array();
  for (const PhasePeak& peak : replay.phases) {
    out.begin_object().member("name", trace.phases[peak.phase]).member("start_bytes", peak.start_bytes);
    out.member("peak_bytes", peak.peak_bytes).member("end_bytes", peak.end_bytes);
    out.member("peak_with_workspace_bytes", peak.peak_with_workspace_bytes);
    out.member("allocated_peak_bytes", peak.allocated_peak_bytes);
    out.member("reserved_peak_bytes", peak.reserved_peak_bytes).member("op", op_at(trace, peak.peak_event));
    if (milliseconds != nullptr) out.member("ms", milliseconds[peak.phase]);
    out.end_object();
  }
  out.end_array();
}

void write_at_peak(JsonWriter& out, const ModelConfig& config, const Recipe& recipe, const Trace& trace,
                   const Replay& replay, const Ledger& ledger) {
  const Sample* sample = sample_at(replay, replay.peak_event);
  const Bytes allocated = sample == nullptr ? 0 : sample->allocated;
  const Bytes reserved = sample == nullptr ? 0 : sample->reserved;
  out.key("at_peak").begin_object().member("event", replay.peak_event);
  out.member("phase", phase_name(trace, replay.peak_event));
  out.member("op", op_at(trace, replay.peak_event)).member("tensor_bytes", ledger.tensor_bytes);
  out.member("workspace_bytes", ledger.workspace_bytes);
  out.member("allocator_rounding_bytes", allocated - ledger.tensor_bytes - ledger.workspace_bytes);
  out.member("allocated_bytes", allocated)
      .member("cached_bytes", reserved - allocated)
      .member("reserved_bytes", reserved);
  write_categories(out, ledger);
  const Letters letters(config, recipe);
  out.key("tensors").begin_array();
  for (const LedgerLine& line : ledger.lines)
    write_line(out, trace, recipe, line, letters);
  out.end_array().end_object();
}

std::string write_report(const Prediction& p, std::size_t timeline_points) {
  JsonWriter out;
  out.begin_object().member("schema_version", kSchemaVersion).member("kind", "predicted");
  out.key("tool").begin_object().member("name", "memory-ledger").member("version", version()).end_object();
  write_model(out, p);
  out.key("recipe");
  write_recipe(out, p.recipe);
  write_peaks(out, p.trace, p.replay, p.gpu);
  write_stages(out, p);
  write_phases(out, p.trace, p.replay);
  write_at_peak(out, p.config, p.recipe, p.trace, p.replay, p.at_peak);
  write_host(out, p.trace);
  write_timeline(out, p.trace, p.replay, timeline_points);
  write_verdict(out, p);
  write_remarks(out, p);
  out.end_object();
  return out.take();
}

}  // namespace ledger
