#include "core/answer/report.h"

#include <algorithm>

#include "core/answer/letters.h"
#include "core/answer/sources.h"
#include "core/api.h"
#include "core/inference/generate.h"
#include "core/memory/timeline.h"
#include "core/models/megatron.h"
#include "core/models/names.h"
#include "core/models/torchtitan.h"
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

void write_line(JsonWriter& out, const Trace& trace, Optimizer optimizer, const LedgerLine& line,
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
  out.member("source", source_of(trace.names[line.scope], line.category, line.op, optimizer)).end_object();
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

void write_timeline(JsonWriter& out, const Prediction& p, std::size_t points) {
  out.key("timeline").begin_object().member("events", static_cast<std::uint64_t>(p.trace.events.size()));
  out.key("categories").begin_array();
  for (std::size_t i = 0; i < kCategories; ++i)
    out.value(category_name(static_cast<Category>(i)));
  out.end_array();
  out.key("phases").begin_array();
  for (std::uint32_t i = 0; i < p.trace.events.size(); ++i) {
    const Event& event = p.trace.events[i];
    if (event.type != EventType::mark) continue;
    out.begin_object().member("name", p.trace.phases[event.id]).member("event", i).end_object();
  }
  out.end_array().member("peak_event", p.replay.peak_event);
  out.key("points").begin_array();
  for (const TimelinePoint& point : timeline(p.trace, p.replay, points)) {
    out.begin_object().member("event", point.event).member("tensor_bytes", point.tensor_bytes);
    out.member("allocated_bytes", point.allocated).member("reserved_bytes", point.reserved);
    out.key("categories").begin_array();
    for (Bytes bytes : point.categories)
      out.value(bytes);
    out.end_array().end_object();
  }
  out.end_array().end_object();
}

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

struct NotModelled {
  const char* id;  // docs/not-modelled.md has a paragraph each
  bool (*applies)(const Prediction&);
};

bool traced_decoder(const Prediction& p) {
  return p.config.architecture != Architecture::plain && p.recipe.stack != Stack::course;
}

bool generates(const Prediction& p) {
  return p.recipe.task == Task::generate && traced_decoder(p);
}

bool steps_with(const Prediction& p, Optimizer optimizer) {
  return p.recipe.task == Task::training && p.recipe.optimizer == optimizer;
}

bool trains_decoder(const Prediction& p) {
  return traced_decoder(p) && p.recipe.task == Task::training;
}

bool skips_passes(const Prediction& p) {
  return std::any_of(p.trace.phases.begin(), p.trace.phases.end(),
                     [](const std::string& phase) { return phase.starts_with(kSkippedPhase); });
}

bool under_deepspeed(const Prediction& p) {
  return p.recipe.zero != 0 && p.recipe.stack != Stack::course && p.recipe.stack != Stack::megatron;
}

constexpr NotModelled kNotModelled[] = {
    {"embedding_backward_sort_scratch", trains_decoder},
    {"kernel_launch_scratch", [](const Prediction& p) { return p.recipe.stack != Stack::course; }},
    {"quantised_optimizer_step_scratch",
     [](const Prediction& p) {
       return steps_with(p, Optimizer::adamw_ao_8bit) || steps_with(p, Optimizer::adamw_ao_4bit);
     }},
    {"cudnn_workspace",
     [](const Prediction& p) {
       const TitanVersion* const titan = titan_version(p.recipe.stack);
       const bool first_choice = p.recipe.attention == Attention::sdpa &&
                                 (p.recipe.stack == Stack::megatron || (titan != nullptr && titan->cudnn_first));
       return traced_decoder(p) && (p.recipe.attention == Attention::cudnn || first_choice);
     }},
    {"compiled_kernels", [](const Prediction& p) { return p.recipe.compile; }},
    {"communication_library",
     [](const Prediction& p) {
       return times(times(p.recipe.dp, p.recipe.cp), times(p.recipe.tp, p.recipe.pp)) > 1 &&
              p.recipe.stack != Stack::course;
     }},
    {"deferred_frees_of_side_streams",
     [](const Prediction& p) {
       const bool overlaps = p.recipe.overlap_comm == OverlapComm::automatic ? p.recipe.zero == 3
                                                                             : p.recipe.overlap_comm == OverlapComm::on;
       return under_deepspeed(p) && overlaps;
     }},
    {"pinned_host_rounding", [](const Prediction& p) { return !p.trace.host.empty(); }},
    {"ring_attention_buffers", [](const Prediction& p) { return p.recipe.cp > 1; }},
    {"pipeline_tensors_awaiting_collection", [](const Prediction& p) { return p.stages.size() > 1; }},
    {"svd_workspace", [](const Prediction& p) { return steps_with(p, Optimizer::galore_adamw); }},
    {"decode_passes_between",
     [](const Prediction& p) { return skips_passes(p) && p.recipe.kv_cache != KvCacheKind::fixed; }},
    {"split_attention_scratch",
     [](const Prediction& p) {
       return generates(p) && (p.recipe.attention == Attention::sdpa || p.recipe.attention == Attention::flash);
     }},
    {"nf4_kernel_by_shape", [](const Prediction& p) { return generates(p) && p.recipe.weights == Weights::nf4; }},
    {"int8_outlier_columns", [](const Prediction& p) { return generates(p) && p.recipe.weights == Weights::int8; }},
    {"static_cache_decode_compiled",
     [](const Prediction& p) { return generates(p) && p.recipe.kv_cache == KvCacheKind::fixed; }},
    {"head_dim_padding", [](const Prediction& p) { return traced_decoder(p) && p.config.head_dim % 8 != 0; }},
};

// Recipes that run, but otherwise than they seem to, and choices between two behaviours of PyTorch.
struct Note {
  const char* id;
  bool (*applies)(const Prediction&);
};

bool stays_fp32(const Recipe& r) {
  return fp32_stream(r) && !r.autocast && r.precision != Precision::amp_bf16;
}

// Attention is called with fewer heads of keys and values than of queries.
bool groups_heads(const Prediction& p) {
  const bool repeated =
      p.recipe.stack == Stack::hf_4 || p.recipe.stack == Stack::torchtune || is_torchtitan(p.recipe.stack);
  return !repeated && p.config.num_attention_heads != p.config.num_key_value_heads;
}

bool takes_sdpa(const Prediction& p) {
  return traced_decoder(p) && p.recipe.attention == Attention::sdpa && !writes_attention_out(p.config);
}

constexpr Note kNotes[] = {
    {"attention_written_out",
     [](const Prediction& p) {
       return traced_decoder(p) && p.recipe.attention == Attention::sdpa && writes_attention_out(p.config);
     }},
    {"narrow_values_take_the_efficient_kernel",
     [](const Prediction& p) {
       return takes_sdpa(p) && p.config.latent.v_dim != 0 && p.config.latent.v_dim != p.config.head_dim;
     }},
    {"tied_gradient_summed_out_of_place",
     [](const Prediction& p) {
       return p.config.tie_word_embeddings && p.recipe.method == Method::full && p.recipe.task == Task::training &&
              p.recipe.stack != Stack::megatron;  // its hooks see plain tensors
     }},
    {"pp_counts_embedding_and_loss",
     [](const Prediction& p) {
       return p.recipe.stack == Stack::megatron && counts_embedding_and_loss(p.config, p.recipe.pp);
     }},
    {"sdpa_falls_to_math",
     [](const Prediction& p) { return takes_sdpa(p) && stays_fp32(p.recipe) && groups_heads(p); }},
    {"sdpa_falls_to_efficient",
     [](const Prediction& p) { return takes_sdpa(p) && stays_fp32(p.recipe) && !groups_heads(p); }},
    {"sliding_window_takes_a_mask",
     [](const Prediction& p) {
       const Attention kind = p.recipe.attention;
       return traced_decoder(p) && takes_window_mask(p.config, p.recipe) && !writes_attention_out(p.config) &&
              (kind == Attention::sdpa || kind == Attention::efficient);
     }},
    {"lora_4bit_casts_under_autocast",
     [](const Prediction& p) { return p.recipe.method == Method::qlora && p.recipe.autocast; }},
    {"paged_states_outside_allocator",
     [](const Prediction& p) {
       return p.recipe.task == Task::training && p.recipe.optimizer == Optimizer::paged_adamw_8bit;
     }},
    {"embeddings_keep_32_bit_states",
     [](const Prediction& p) {
       const bool bnb = steps_with(p, Optimizer::adamw_8bit) || steps_with(p, Optimizer::paged_adamw_8bit);
       return bnb && p.recipe.method == Method::full;
     }},
    {"graph_kept_by_cache", [](const Prediction& p) { return generates(p) && !p.recipe.no_grad; }},
    {"window_cache_keeps_the_prompt",
     [](const Prediction& p) {
       return generates(p) && p.config.sliding_window != 0 && p.recipe.seq >= p.config.sliding_window;
     }},
    {"muon_takes_hidden_matrices_only", [](const Prediction& p) { return steps_with(p, Optimizer::muon); }},
    {"galore_keeps_full_gradients", [](const Prediction& p) { return steps_with(p, Optimizer::galore_adamw); }},
    {"layer_inputs_in_host_memory",
     [](const Prediction& p) { return p.recipe.checkpointing == Checkpointing::offload; }},
    {"chunked_loss_copies_the_head",
     [](const Prediction& p) {
       return p.recipe.loss == Loss::chunked && p.recipe.precision == Precision::bf16 &&
              p.recipe.stack != Stack::torchtune;
     }},
    {"liger_copies_the_head_gradient",
     [](const Prediction& p) {
       return p.recipe.loss == Loss::fused_linear && p.recipe.method == Method::full &&
              p.recipe.precision == Precision::bf16;
     }},
    {"zero_numbers_are_rank_0s", under_deepspeed},
    {"zero_first_pass_is_recorded", [](const Prediction& p) { return under_deepspeed(p) && p.recipe.zero == 3; }},
    {"deepspeed_casts_parameters",
     [](const Prediction& p) {
       const Recipe& r = p.recipe;
       const bool adapters = r.method != Method::full && r.zero != 3 && r.adapter_dtype == AdapterDtype::fp32;
       const bool prepared = r.method == Method::qlora && r.prepare_kbit;
       return under_deepspeed(p) && (adapters || prepared || r.precision == Precision::amp_bf16);
     }},
    {"adapters_outside_parameter_count", [](const Prediction& p) { return p.recipe.method != Method::full; }},
};

void write_remarks(JsonWriter& out, const Prediction& p) {
  out.key("not_modelled").begin_array();
  for (const NotModelled& row : kNotModelled) {
    if (row.applies(p)) out.value(row.id);
  }
  out.end_array().key("notes").begin_array();
  for (const auto& [id, detail] : p.config.notes)
    out.begin_object().member("id", id).member("detail", detail).end_object();
  if (p.recipe.stack == Stack::course)
    out.begin_object().member("id", "course_estimate").member("detail", "").end_object();
  for (const Note& note : kNotes) {
    if (p.recipe.stack != Stack::course && note.applies(p)) {
      out.begin_object().member("id", note.id).member("detail", "").end_object();
    }
  }
  out.end_array();
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
    write_line(out, trace, recipe.optimizer, line, letters);
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
  write_timeline(out, p, timeline_points);
  write_verdict(out, p);
  write_remarks(out, p);
  out.end_object();
  return out.take();
}

}  // namespace ledger
