#include "core/training/support.h"

#include "core/training/optimizer.h"

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
    {"precision", "precision_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       const bool full = r.method == Method::full || r.precision == Precision::bf16;
       return !full || (r.precision != Precision::bf16 && r.precision != Precision::amp_bf16 && r.precision != Precision::fp32);
     }},
    {"optimizer", "optimizer_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return make_optimizer(r.optimizer) == nullptr; }},
    {"attention", "attention_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.attention == Attention::cudnn; }},
    {"checkpointing", "checkpointing_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       return r.checkpointing == Checkpointing::selective || r.checkpointing == Checkpointing::offload;
     }},
    {"checkpointing", "plain_stack_has_no_layers_to_checkpoint",
     [](const ModelConfig& c, const Recipe& r) {
       return c.architecture == Architecture::plain && r.checkpointing != Checkpointing::none;
     }},
    {"loss", "loss_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.loss != Loss::full; }},
    {"compile", "compile_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.compile; }},
    {"dp", "parallelism_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       return r.dp * r.tp * r.pp * r.cp * r.ep != 1 || r.zero != 0 || r.fsdp != 0 || r.sequence_parallel;
     }},
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
