// native_support.cc - what the probe's own fused operators are not written for.

#include "core/models/names.h"
#include "core/training/refusal.h"
#include "core/training/support.h"

namespace ledger {
namespace {

constexpr Refusal kNativeRefusals[] = {
    {"stack", "native_computes_llama_and_its_like",
     [](const ModelConfig& c, const Recipe&) {
       return !is_like_llama(c) || c.act != Act::silu || c.rotary_dim != 0 || c.attention_dropout != 0;
     }},
    {"weights", "native_has_no_int8",
     [](const ModelConfig&, const Recipe& r) { return r.weights != Weights::unquantised; }},
    {"precision", "native_has_no_autocast",
     [](const ModelConfig&, const Recipe& r) {
       return r.precision != Precision::bf16 && r.precision != Precision::fp32;
     }},
    {"autocast", "native_has_no_autocast", [](const ModelConfig&, const Recipe& r) { return r.autocast; }},
    {"optimizer", "native_steps_in_one_kernel",
     [](const ModelConfig&, const Recipe& r) {
       return r.optimizer != Optimizer::adamw_fused && r.optimizer != Optimizer::sgd;
     }},
    {"attention", "native_attention",
     [](const ModelConfig&, const Recipe& r) {
       return r.attention != Attention::sdpa && r.attention != Attention::flash && r.attention != Attention::cudnn;
     }},
    {"seq", "native_has_no_window", takes_window_mask},
    {"checkpointing", "native_checkpointing",
     [](const ModelConfig&, const Recipe& r) {
       return r.checkpointing != Checkpointing::none && r.checkpointing != Checkpointing::full;
     }},
    {"loss", "native_loss_is_in_place", [](const ModelConfig&, const Recipe& r) { return r.loss != Loss::full; }},
    {"keep_outputs", "stack_drops_outputs", [](const ModelConfig&, const Recipe& r) { return r.keep_outputs; }},
    {"dora", "native_adapters_are_plain", [](const ModelConfig&, const Recipe& r) { return r.dora; }},
    {"zero", "native_shards_nothing", [](const ModelConfig&, const Recipe& r) { return r.zero != 0; }},
    {"fsdp", "native_shards_nothing", [](const ModelConfig&, const Recipe& r) { return r.fsdp != 0; }},
    {"ddp_bucket_view", "native_has_no_buckets", [](const ModelConfig&, const Recipe& r) { return r.ddp_bucket_view; }},
};

}  // namespace

std::optional<Problem> unsupported_in_native(const ModelConfig& config, const Recipe& recipe) {
  return first_of(kNativeRefusals, config, recipe);
}

}  // namespace ledger
