// megatron_support.cc - what Megatron-Core's modules cannot be asked for, or are not computed with yet.
#include <algorithm>

#include "core/models/megatron.h"
#include "core/parallel/mesh_of.h"
#include "core/training/megatron_step.h"
#include "core/training/refusal.h"

namespace ledger {
namespace {

bool is_latent(const ModelConfig& c) {
  return c.style.projections == Projections::latent;
}

// Experts chosen by a softmax of their logits, all among all, with SwiGLU and no biases.
bool builds_experts(const ModelConfig& c) {
  const bool some = std::find(c.moe.layers.begin(), c.moe.layers.end(), true) != c.moe.layers.end();
  if (c.moe.experts == 0 || (is_latent(c) && !some)) return true;
  const bool by_softmax = c.style.routing == Routing::softmax || c.style.routing == Routing::softmax_cast;
  return by_softmax && c.moe.groups == 1 && c.moe.scale == 1 && !c.style.expert_bias && !is_latent(c) &&
         c.style.norm == NormKind::rms;
}

// GPT with LayerNorm, biases and GELU, its positions learned or rotary, or Llama with RMSNorm, SwiGLU and rotary ones.
bool megatron_builds(const ModelConfig& c) {
  if (c.architecture != Architecture::llama || c.style.layout != Layout::pre || !builds_experts(c)) return false;
  const bool norms_heads = c.qk_norm && c.style.norm == NormKind::rms;  // --qk-layernorm
  const bool plain_heads = (norms_heads || c.style.qk_norm == QkNorm::none) && c.sliding_window == 0;
  const bool positions =
      c.style.position == Position::learned || (c.style.position == Position::rotary && c.nope_layers.empty());
  const bool gpt = c.style.norm == NormKind::layer && c.style.feed == Feed::plain && positions && c.act != Act::relu;
  const bool llama = c.style.norm == NormKind::rms && c.style.feed == Feed::gated &&
                     c.style.position == Position::rotary && c.act == Act::silu && !c.mlp_bias && !c.attention_bias;
  return plain_heads && (gpt || llama);
}

// FusedScaleMaskSoftmax.is_kernel_available, which asks the kernel (get_batch_per_block) how many rows a block takes.
bool softmax_is_fused(const ModelConfig& c, const Recipe& r) {
  const std::uint64_t rows = times(r.batch, c.num_attention_heads / r.tp), block = r.seq <= 128 ? 8 : 4;
  return r.seq > 16 && r.seq <= 4096 && divides(4, r.seq) && divides(block, rows);
}

bool has_a_plain_layer(const ModelConfig& c) {
  return c.moe.layers.empty() || std::find(c.moe.layers.begin(), c.moe.layers.end(), false) != c.moe.layers.end();
}

bool ranks_divide_heads(const ModelConfig& c, const Recipe& r) {
  const std::uint64_t ranks = exchanging_ranks(r), shared = times(ranks, r.tp);
  const bool heads = divides(shared, c.num_attention_heads) && divides(shared, c.num_key_value_heads);
  return divides(ranks, r.cp) && (ranks == 1 || heads);
}

constexpr Refusal kMegatronRefusals[] = {
    {"stack", "megatron_builds_gpt_and_llama", [](const ModelConfig& c, const Recipe&) { return !megatron_builds(c); }},
    {"task", "only_in_training", [](const ModelConfig&, const Recipe& r) { return r.task != Task::training; }},
    {"method", "megatron_trains_in_full",
     [](const ModelConfig&, const Recipe& r) { return r.method != Method::full || r.weights != Weights::unquantised; }},
    {"precision", "megatron_has_precisions_of_its_own",
     [](const ModelConfig&, const Recipe& r) {
       const bool own = r.precision == Precision::megatron_bf16 || r.precision == Precision::megatron_bf16_bf16grad;
       return !own || r.autocast;
     }},
    {"optimizer", "megatron_steps_with_adam",
     [](const ModelConfig&, const Recipe& r) { return r.optimizer != Optimizer::adamw_fused; }},
    {"tp", "tp_cuts_heads_and_width",
     [](const ModelConfig& c, const Recipe& r) {
       return !divides(r.tp, c.num_attention_heads) || !divides(r.tp, c.num_key_value_heads) ||
              (has_a_plain_layer(c) && !divides(r.tp, c.intermediate_size)) || !divides(r.tp, c.moe.shared_width);
     }},
    {"sequence_parallel", "sequence_parallel_needs_tp",
     [](const ModelConfig&, const Recipe& r) { return r.sequence_parallel && r.tp == 1; }},
    {"seq", "sequence_parallel_cuts_the_sequence",
     [](const ModelConfig&, const Recipe& r) { return r.sequence_parallel && !divides(times(r.tp, r.cp), r.seq); }},
    {"pp", "pp_cuts_layers_evenly",
     [](const ModelConfig& c, const Recipe& r) { return !sets_stages(r) && layers_of_stage(c, stage_cut(r), 0) == 0; }},
    {"pp", "stages_of_unequal_layers",
     [](const ModelConfig& c, const Recipe& r) {
       const bool plain = r.pp > 1 && r.pipeline_schedule == PipelineSchedule::one_f_one_b;
       return sets_stages(r) && (!plain || layers_of_stage(c, stage_cut(r), 0) == 0);
     }},
    {"cp", "cp_cuts_the_sequence_in_pairs",
     [](const ModelConfig&, const Recipe& r) { return r.cp != 1 && !divides(times(2, r.cp), r.seq); }},
    {"attention", "cp_wants_fused_attention",
     [](const ModelConfig&, const Recipe& r) { return r.cp != 1 && r.attention == Attention::eager; }},
    {"cp_comm_type", "cp_a2a_ranks_divide",
     [](const ModelConfig& c, const Recipe& r) { return r.cp_comm_type == CpComm::a2a && !ranks_divide_heads(c, r); }},
    {"cp_a2a_ranks", "cp_a2a_ranks_divide",
     [](const ModelConfig& c, const Recipe& r) { return !ranks_divide_heads(c, r); }},
    {"ep", "ep_needs_experts",
     [](const ModelConfig& c, const Recipe& r) { return (r.ep != 1 || r.etp != 0) && c.moe.experts == 0; }},
    {"ep", "ep_divides_the_experts",
     [](const ModelConfig& c, const Recipe& r) { return r.ep != 1 && !divides(r.ep, c.moe.experts); }},
    {"etp", "etp_cuts_the_experts_width",
     [](const ModelConfig& c, const Recipe& r) {
       return c.moe.experts != 0 && !divides(expert_tensor_ranks(r), c.moe.width);
     }},
    {"ep", "ep_divides_the_ranks",
     [](const ModelConfig& c, const Recipe& r) {
       const std::uint64_t ranks = times(times(r.tp, r.cp), r.dp);
       return c.moe.experts != 0 && !divides(times(expert_tensor_ranks(r), r.ep), ranks);
     }},
    {"sequence_parallel", "experts_want_the_sequence_cut",
     [](const ModelConfig& c, const Recipe& r) { return c.moe.experts != 0 && r.tp != 1 && !r.sequence_parallel; }},
    {"zero", "megatron_shards_the_optimizer",
     [](const ModelConfig&, const Recipe& r) { return r.zero > 1 || r.fsdp != 0; }},
    {"pipeline_schedule", "chunks_cut_interleaved_stages",
     [](const ModelConfig& c, const Recipe& r) {
       return sets_chunks(r) &&
              (r.pipeline_schedule != PipelineSchedule::interleaved || chunks_of_stage(c, stage_cut(r), 0) == 0);
     }},
    {"micro_batches", "interleaving_takes_micro_batches_in_groups",
     [](const ModelConfig&, const Recipe& r) {
       return r.pipeline_schedule == PipelineSchedule::interleaved && (r.pp < 2 || !divides(r.pp, r.micro_batches));
     }},
    {"grad_accum", "megatron_counts_micro_batches",
     [](const ModelConfig&, const Recipe& r) { return r.grad_accum != 1; }},
    {"attention", "megatron_attention_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       return r.attention != Attention::sdpa && r.attention != Attention::cudnn && r.attention != Attention::eager &&
              r.attention != Attention::flash;
     }},
    {"attention", "megatron_latent_attention",
     [](const ModelConfig& c, const Recipe& r) {
       const bool cut_apart = r.cp != 1 || (r.tp != 1 && !r.sequence_parallel);
       return is_latent(c) && (r.attention != Attention::eager || cut_apart || r.transformer_impl != TransformerImpl{});
     }},
    {"transformer_impl", "local_modules_are_megatrons",
     [](const ModelConfig& c, const Recipe& r) {
       return r.transformer_impl == TransformerImpl::local &&
              (c.style.norm != NormKind::layer || r.attention != Attention::eager || !softmax_is_fused(c, r));
     }},
    {"checkpointing", "megatron_recomputes_none_core_or_full",
     [](const ModelConfig&, const Recipe& r) {
       return r.checkpointing == Checkpointing::full_reentrant || r.checkpointing == Checkpointing::offload;
     }},
    {"recompute_method", "recomputed_layers_want_full",
     [](const ModelConfig&, const Recipe& r) { return sets_recompute(r) && r.checkpointing != Checkpointing::full; }},
    {"loss", "megatron_loss_is_vocab_parallel",
     [](const ModelConfig&, const Recipe& r) { return r.loss != Loss::full && r.loss < Loss::vocab_parallel; }},
    {"liger", "liger_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.liger; }},
    {"compile", "compile_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.compile; }},
    {"float8", "float8_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.float8 || r.float8_all_gather; }},
    {"keep_outputs", "stack_drops_outputs", [](const ModelConfig&, const Recipe& r) { return r.keep_outputs; }},
    {"offload", "offload_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.offload != Offload::none; }},
    {"seq", "seq_beyond_positions",
     [](const ModelConfig& c, const Recipe& r) {
       return c.style.position == Position::learned && r.seq > c.max_position_embeddings;
     }},
};

}  // namespace

std::optional<Problem> unsupported_in_megatron(const ModelConfig& config, const Recipe& recipe) {
  return first_of(kMegatronRefusals, config, recipe);
}

}  // namespace ledger
