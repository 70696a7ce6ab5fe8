#include "core/answer/remarks.h"

#include <algorithm>
#include <string>

#include "core/inference/generate.h"
#include "core/models/megatron.h"
#include "core/models/torchtitan.h"
#include "core/parallel/deepspeed.h"
#include "core/parallel/mesh_of.h"
#include "core/training/support.h"

namespace ledger {
namespace {

struct Remark {
  const char* id;
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

// The probe's own kernels take no memory that no tensor of the trace stands for.
bool own_kernels(const Prediction& p) {
  return p.recipe.stack == Stack::native;
}

bool skips_passes(const Prediction& p) {
  return std::any_of(p.trace.phases.begin(), p.trace.phases.end(),
                     [](const std::string& phase) { return phase.starts_with(kSkippedPhase); });
}

bool under_deepspeed(const Prediction& p) {
  return p.recipe.zero != 0 && p.recipe.stack != Stack::course && p.recipe.stack != Stack::megatron;
}

// docs/not-modelled.md has a paragraph each.
constexpr Remark kNotModelled[] = {
    {"embedding_backward_sort_scratch", [](const Prediction& p) { return trains_decoder(p) && !own_kernels(p); }},
    {"kernel_launch_scratch", [](const Prediction& p) { return p.recipe.stack != Stack::course && !own_kernels(p); }},
    {"quantised_optimizer_step_scratch",
     [](const Prediction& p) {
       return steps_with(p, Optimizer::adamw_ao_8bit) || steps_with(p, Optimizer::adamw_ao_4bit);
     }},
    {"cudnn_workspace",
     [](const Prediction& p) {
       const TitanVersion* const titan = titan_version(p.recipe.stack);
       const bool first_choice = p.recipe.attention == Attention::sdpa &&
                                 (p.recipe.stack == Stack::megatron || (titan != nullptr && titan->cudnn_first));
       return traced_decoder(p) &&
              (p.recipe.attention == Attention::cudnn || first_choice || !p.config.vision.model_type.empty());
     }},
    {"compiled_kernels", [](const Prediction& p) { return p.recipe.compile; }},
    {"compiled_loss", [](const Prediction& p) { return p.recipe.loss == Loss::vocab_parallel_fused; }},
    {"communication_library",
     [](const Prediction& p) {
       return times(times(p.recipe.dp, p.recipe.cp), times(p.recipe.tp, p.recipe.pp)) > 1 &&
              p.recipe.stack != Stack::course;
     }},
    {"deferred_frees_of_side_streams",
     [](const Prediction& p) { return under_deepspeed(p) && overlaps_communication(p.recipe); }},
    {"pinned_host_rounding", [](const Prediction& p) { return !p.trace.host.empty(); }},
    {"ring_attention_streams",
     [](const Prediction& p) {
       return p.recipe.stack == Stack::megatron && exchanging_ranks(p.recipe) != p.recipe.cp;
     }},
    {"router_imbalance", [](const Prediction& p) { return p.recipe.ep > 1; }},
    {"flex_attention",
     [](const Prediction& p) {
       return is_torchtitan(p.recipe.stack) && p.config.style.projections == Projections::latent;
     }},
    {"pipeline_tensors_awaiting_collection",
     [](const Prediction& p) { return p.stages.size() > 1 && p.recipe.stack == Stack::megatron; }},
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
    {"head_dim_padding",
     [](const Prediction& p) { return traced_decoder(p) && !own_kernels(p) && p.config.head_dim % 8 != 0; }},
};

bool stays_fp32(const Recipe& r) {
  return fp32_stream(r) && !r.autocast && r.precision != Precision::amp_bf16;
}

// Attention is called with fewer heads of keys and values than of queries.
bool groups_heads(const Prediction& p) {
  const bool repeated = p.recipe.stack == Stack::hf_4 || p.recipe.stack == Stack::torchtune ||
                        is_torchtitan(p.recipe.stack) || p.config.style.projections == Projections::grouped;
  return !repeated && p.config.num_attention_heads != p.config.num_key_value_heads;
}

bool takes_sdpa(const Prediction& p) {
  return traced_decoder(p) && !own_kernels(p) && p.recipe.attention == Attention::sdpa &&
         !writes_attention_out(p.config);
}

// Recipes that run, but otherwise than they seem to, and choices between two behaviours of PyTorch.
constexpr Remark kNotes[] = {
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
              p.recipe.stack != Stack::megatron && !own_kernels(p);  // theirs are plain tensors
     }},
    {"pp_counts_embedding_and_loss",
     [](const Prediction& p) {
       return p.recipe.stack == Stack::megatron && counts_embedding_and_loss(p.config, stage_cut(p.recipe));
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
              p.recipe.stack != Stack::torchtune && !is_torchtitan(p.recipe.stack);
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

}  // namespace

void write_remarks(JsonWriter& out, const Prediction& p) {
  out.key("not_modelled").begin_array();
  for (const Remark& row : kNotModelled) {
    if (row.applies(p)) out.value(row.id);
  }
  out.end_array().key("notes").begin_array();
  for (const auto& [id, detail] : p.config.notes)
    out.begin_object().member("id", id).member("detail", detail).end_object();
  if (p.recipe.stack == Stack::course)
    out.begin_object().member("id", "course_estimate").member("detail", "").end_object();
  for (const Remark& note : kNotes) {
    if (p.recipe.stack != Stack::course && note.applies(p)) {
      out.begin_object().member("id", note.id).member("detail", "").end_object();
    }
  }
  out.end_array();
}

}  // namespace ledger
