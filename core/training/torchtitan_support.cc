// torchtitan_support.cc - what torchtitan cannot be asked for, or is not computed with yet.

#include <algorithm>

#include "core/models/torchtitan.h"
#include "core/training/refusal.h"
#include "core/training/support.h"
#include "core/training/titan_pipeline.h"

namespace ledger {
namespace {

// Llama 3 without biases, its heads making up the hidden size; since 0.2 Qwen 3 with a norm on queries and keys, with
// experts in all layers or in none, and DeepSeek V3, of which V2 is another size.
bool torchtitan_builds(const ModelConfig& c, const Recipe& r) {
  const TitanVersion& titan = *titan_version(r.stack);
  const bool biased = c.attention_bias || c.qkv_bias || c.mlp_bias;
  const bool llama = c.model_type == "llama" && times(c.num_attention_heads, c.head_dim) == c.hidden_size;
  const bool qwen3 = c.model_type == "qwen3" && titan.models_qwen3;
  const bool everywhere = std::find(c.moe.layers.begin(), c.moe.layers.end(), false) == c.moe.layers.end();
  const bool qwen3_moe = c.model_type == "qwen3_moe" && everywhere && titan.models_experts;
  const bool deepseek = (c.model_type == "deepseek_v2" || c.model_type == "deepseek_v3") && titan.models_experts;
  return !biased && c.sliding_window == 0 && (llama || qwen3 || qwen3_moe || deepseek);
}

// Ranks that have the same experts' shards.
std::uint64_t ranks_of_an_expert(const Recipe& r) {
  return times(r.dp, r.cp) / r.ep;
}

constexpr Refusal kTorchtitanRefusals[] = {
    {"stack", "torchtitan_builds_llama_and_qwen3",
     [](const ModelConfig& c, const Recipe& r) { return !torchtitan_builds(c, r); }},
    {"method", "torchtitan_trains_in_full",
     [](const ModelConfig&, const Recipe& r) { return r.method != Method::full || r.weights != Weights::unquantised; }},
    {"precision", "torchtitan_precisions",
     [](const ModelConfig&, const Recipe& r) { return r.precision == Precision::amp_fp16 || r.autocast; }},
    {"optimizer", "torchtitan_steps_with_adamw", [](const ModelConfig&, const Recipe& r) { return !plain_adamw(r); }},
    {"attention", "torchtitan_calls_sdpa",
     [](const ModelConfig& c, const Recipe& r) {
       const bool fused = r.attention == Attention::flash || r.attention == Attention::cudnn;
       return r.attention != Attention::sdpa && !(fused && c.style.projections != Projections::latent);
     }},
    {"checkpointing", "torchtitan_checkpointing_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       return r.checkpointing == Checkpointing::full_reentrant || r.checkpointing == Checkpointing::offload;
     }},
    {"loss", "torchtitan_loss_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       const TitanChunks chunks = titan_version(r.stack)->chunks;
       // DDP's hooks would see the output layer's gradient eight times.
       const bool replicated = r.dp != 1 && r.fsdp == 0;
       const bool computed = chunks == TitanChunks::tokens ? !replicated : chunks == TitanChunks::logits && r.tp == 1;
       return r.loss != Loss::full && !(r.loss == Loss::chunked && computed && r.pp == 1);
     }},
    {"seq", "torchtitan_chunks_are_equal",
     [](const ModelConfig&, const Recipe& r) {
       const bool of_all = titan_version(r.stack)->chunks == TitanChunks::tokens;
       const std::uint64_t tokens = of_all ? times(r.batch, r.seq / r.cp) : r.seq / r.cp;
       return r.loss == Loss::chunked && tokens % kTitanChunks != 0;
     }},
    {"keep_outputs", "stack_drops_outputs",
     [](const ModelConfig&, const Recipe& r) {
       return r.keep_outputs && (r.stack != Stack::torchtitan_0_0_2 || r.tp != 1 || r.pp != 1);
     }},
    {"tp", "torchtitan_experts_by_data_alone",
     [](const ModelConfig& c, const Recipe& r) { return c.moe.experts != 0 && r.tp != 1; }},
    {"cp", "torchtitan_experts_by_data_alone",
     [](const ModelConfig& c, const Recipe& r) { return c.moe.experts != 0 && r.cp != 1; }},
    {"pp", "torchtitan_experts_by_data_alone",
     [](const ModelConfig& c, const Recipe& r) { return c.moe.experts != 0 && r.pp != 1; }},
    {"offload", "torchtitan_experts_by_data_alone",
     [](const ModelConfig& c, const Recipe& r) { return c.moe.experts != 0 && r.offload != Offload::none; }},
    {"tp", "tp_cuts_heads_and_width",
     [](const ModelConfig& c, const Recipe& r) {
       return c.num_attention_heads % r.tp != 0 || c.num_key_value_heads % r.tp != 0 || c.intermediate_size % r.tp != 0;
     }},
    {"tp", "tp_cuts_the_vocabulary",
     [](const ModelConfig& c, const Recipe& r) {
       return c.vocab_size % r.tp != 0 || (r.tp != 1 && c.tie_word_embeddings);
     }},
    {"float8", "float8_not_modelled",
     [](const ModelConfig& c, const Recipe& r) { return c.moe.experts != 0 && r.float8; }},
    {"ep", "ep_needs_experts", [](const ModelConfig& c, const Recipe& r) { return r.ep != 1 && c.moe.experts == 0; }},
    {"ep", "ep_divides_the_experts",
     [](const ModelConfig& c, const Recipe& r) { return r.ep != 1 && !divides(r.ep, c.moe.experts); }},
    {"ep", "ep_divides_the_ranks",
     [](const ModelConfig&, const Recipe& r) { return !divides(r.ep, times(r.dp, r.cp)); }},
    {"ep", "torchtitan_ep_shards", [](const ModelConfig&, const Recipe& r) { return r.ep != 1 && r.fsdp != 2; }},
    // More ranks than experts: apply_fsdp cuts the rows of each instead.
    {"ep", "torchtitan_cuts_experts_apart",
     [](const ModelConfig& c, const Recipe& r) {
       return r.ep != 1 && times(ranks_of_an_expert(r), r.ep) > c.moe.experts;
     }},
    {"sequence_parallel", "torchtitan_cuts_the_sequence",
     [](const ModelConfig&, const Recipe& r) { return r.sequence_parallel != (r.tp != 1); }},
    {"cp", "torchtitan_cp_shards", [](const ModelConfig&, const Recipe& r) { return r.cp != 1 && r.fsdp == 0; }},
    {"cp", "cp_cuts_the_sequence_in_pairs",
     [](const ModelConfig&, const Recipe& r) { return r.cp != 1 && r.seq % times(2, r.cp) != 0; }},
    {"cp_comm_type", "torchtitan_rotates_keys_and_values",
     [](const ModelConfig&, const Recipe& r) {
       return r.cp != 1 && (r.cp_comm_type == CpComm::a2a || r.cp_comm_type == CpComm::a2a_p2p);
     }},
    {"seq", "sequence_parallel_cuts_the_sequence",
     [](const ModelConfig&, const Recipe& r) { return r.seq / r.cp % r.tp != 0; }},
    {"units", "torchtitan_has_units_of_its_own",
     [](const ModelConfig&, const Recipe& r) {
       const Units own = titan_version(r.stack)->ends_in_root ? Units::layers : Units::titan;
       return r.fsdp != 0 && r.units != own;
     }},
    {"pp", "torchtitan_stages_have_layers",
     [](const ModelConfig& c, const Recipe& r) {
       return titan_parts(c, *titan_version(r.stack), titan_stages(r)).empty();
     }},
    {"pp", "torchtitan_stages_share_no_weight",
     [](const ModelConfig& c, const Recipe& r) { return r.pp != 1 && c.tie_word_embeddings; }},
    {"pp", "torchtitan_pipelines_of_shards",
     [](const ModelConfig&, const Recipe& r) { return r.pp != 1 && (r.cp != 1 || (r.dp != 1 && r.fsdp == 0)); }},
    {"precision", "torchtitan_pipelines_of_shards",
     [](const ModelConfig&, const Recipe& r) { return r.pp != 1 && r.precision == Precision::amp_bf16; }},
    {"grad_accum", "torchtitan_counts_micro_batches",
     [](const ModelConfig&, const Recipe& r) { return r.pp != 1 && r.grad_accum != 1; }},
    {"pipeline_schedule", "torchtitan_interleaving",
     [](const ModelConfig&, const Recipe& r) {
       return r.pipeline_schedule == PipelineSchedule::interleaved &&
              (r.pp == 1 || !titan_version(r.stack)->interleaves ||
               pipeline_turns(0, r.pp, 2, r.micro_batches).empty());
     }},
};

}  // namespace

std::optional<Problem> unsupported_in_torchtitan(const ModelConfig& config, const Recipe& recipe) {
  return first_of(kTorchtitanRefusals, config, recipe);
}

}  // namespace ledger
