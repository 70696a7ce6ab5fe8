#include "core/training/support.h"

#include <string>

namespace ledger {
namespace {

struct Refusal {
  const char* key;
  const char* reason;  // id; web and probe say it in words
  bool (*applies)(const ModelConfig&, const Recipe&);
};

// Order: what no framework can run, then what is not modelled yet.
constexpr Refusal kRefusals[] = {
    {"stack", "stack_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.stack != Stack::hf; }},
    {"method", "method_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.method != Method::full; }},
    {"precision", "precision_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       const bool fp32_stack = c.architecture == Architecture::plain && r.precision == Precision::fp32;
       return r.precision != Precision::bf16 && r.precision != Precision::amp_bf16 && !fp32_stack;
     }},
    {"optimizer", "optimizer_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.optimizer != Optimizer::adamw_fused; }},
    {"grad_accum", "grad_accum_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.grad_accum != 1; }},
    {"attention", "attention_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.attention != Attention::sdpa && r.attention != Attention::flash; }},
    {"checkpointing", "checkpointing_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       return r.checkpointing != Checkpointing::none && r.checkpointing != Checkpointing::full;
     }},
    {"checkpointing", "plain_stack_has_no_layers_to_checkpoint",
     [](const ModelConfig& c, const Recipe& r) {
       return c.architecture == Architecture::plain && r.checkpointing != Checkpointing::none;
     }},
    {"loss", "loss_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.loss != Loss::full; }},
    {"compile", "compile_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.compile; }},
    {"keep_outputs", "keep_outputs_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.keep_outputs; }},
    {"dp", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.dp != 1; }},
    {"tp", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.tp != 1; }},
    {"pp", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.pp != 1; }},
    {"cp", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.cp != 1; }},
    {"ep", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.ep != 1; }},
    {"zero", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.zero != 0; }},
    {"fsdp", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.fsdp != 0; }},
    {"sequence_parallel", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.sequence_parallel; }},
    {"offload", "offload_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.offload != Offload::none; }},
};

}  // namespace

std::optional<Problem> unsupported(const ModelConfig& config, const Recipe& recipe) {
  for (const Refusal& refusal : kRefusals) {
    if (refusal.applies(config, recipe)) {
      return Problem{ProblemCode::unsupported_recipe, refusal.key, recipe_value(recipe, refusal.key), refusal.reason, ""};
    }
  }
  return std::nullopt;
}

}  // namespace ledger
