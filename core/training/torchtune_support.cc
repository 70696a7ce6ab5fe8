// torchtune_support.cc - what torchtune's recipes cannot be asked for, or are not computed with yet.

#include "core/models/torchtune.h"
#include "core/training/refusal.h"

namespace ledger {
namespace {

// models/llama*/ and models/mistral/: no biases, and heads that make up the hidden size.
bool torchtune_builds(const ModelConfig& c) {
  const bool family = c.model_type == "llama" || c.model_type == "mistral";
  const bool biased = c.attention_bias || c.qkv_bias || c.mlp_bias;
  return family && !biased && times(c.num_attention_heads, c.head_dim) == c.hidden_size;
}

constexpr Refusal kTorchtuneRefusals[] = {
    {"stack", "torchtune_builds_llama_and_mistral",
     [](const ModelConfig& c, const Recipe&) { return !torchtune_builds(c); }},
    {"seq", "seq_beyond_positions",
     [](const ModelConfig& c, const Recipe& r) { return r.seq > torchtune_max_seq_len(c); }},
    {"method", "torchtune_nf4_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.method == Method::qlora; }},
    {"weights", "torchtune_nf4_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.weights != Weights::unquantised; }},
    {"dora", "torchtune_dora_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.dora; }},
    {"adapter_dtype", "torchtune_adapters_follow_the_model",
     [](const ModelConfig&, const Recipe& r) {
       const bool bf16 = r.adapter_dtype == AdapterDtype::bf16;
       return r.method == Method::lora && bf16 != (r.precision == Precision::bf16);
     }},
    {"precision", "torchtune_has_no_autocast",
     [](const ModelConfig&, const Recipe& r) {
       return (r.precision != Precision::bf16 && r.precision != Precision::fp32) || r.autocast;
     }},
    {"attention", "torchtune_calls_sdpa",
     [](const ModelConfig&, const Recipe& r) { return r.attention != Attention::sdpa; }},
    {"checkpointing", "torchtune_checkpointing_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       return r.checkpointing != Checkpointing::none && r.checkpointing != Checkpointing::full;
     }},
    {"loss", "torchtune_loss_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.loss != Loss::full && r.loss != Loss::chunked; }},
    {"seq", "chunks_need_a_token_each",
     [](const ModelConfig&, const Recipe& r) { return r.loss == Loss::chunked && r.seq < kTorchtuneChunks; }},
    {"keep_outputs", "stack_drops_outputs", [](const ModelConfig&, const Recipe& r) { return r.keep_outputs; }},
    {"dp", "torchtune_shards_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.dp != 1; }},
    {"zero", "torchtune_shards_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.zero != 0; }},
};

}  // namespace

std::optional<Problem> unsupported_in_torchtune(const ModelConfig& config, const Recipe& recipe) {
  return first_of(kTorchtuneRefusals, config, recipe);
}

}  // namespace ledger
