// support.cc - which recipes can generate.

#include "core/training/support.h"

#include "core/inference/generate.h"
#include "core/models/names.h"

namespace ledger {
namespace {

struct Refusal {
  const char* key;
  const char* reason;
  bool (*applies)(const ModelConfig&, const Recipe&);
};

bool quantised(const Recipe& r) {
  return r.weights != Weights::unquantised;
}

// quanto cuts each sequence's keys and values into groups of 64 (tensor/grouped.py).
bool ragged_groups(const ModelConfig& c, const Recipe& r) {
  return times(times(c.num_key_value_heads, c.head_dim), r.seq) % 64 != 0 ||
         c.num_key_value_heads * c.head_dim % 64 != 0;
}

bool window_fills(const ModelConfig& c, const Recipe& r) {
  return c.sliding_window != 0 && plus(r.seq, r.new_tokens - 1) >= c.sliding_window;
}

constexpr Refusal kRefusals[] = {
    // What no framework runs, or what has no meaning while generating.
    {"task", "plain_stack_generates_nothing",
     [](const ModelConfig& c, const Recipe&) { return c.architecture == Architecture::plain; }},
    {"checkpointing", "only_in_training",
     [](const ModelConfig&, const Recipe& r) { return r.checkpointing != Checkpointing::none; }},
    {"grad_accum", "only_in_training", [](const ModelConfig&, const Recipe& r) { return r.grad_accum != 1; }},
    {"loss", "only_in_training", [](const ModelConfig&, const Recipe& r) { return r.loss != Loss::full; }},
    {"liger", "only_in_training", [](const ModelConfig&, const Recipe& r) { return r.liger; }},
    {"keep_outputs", "only_in_training", [](const ModelConfig&, const Recipe& r) { return r.keep_outputs; }},
    {"weights", "quantised_weights_compute_in_16_bits",
     [](const ModelConfig&, const Recipe& r) { return quantised(r) && r.precision == Precision::fp32; }},
    {"kv_cache", "quantized_cache_needs_groups_of_64",
     [](const ModelConfig& c, const Recipe& r) { return r.kv_cache == KvCacheKind::quantized && ragged_groups(c, r); }},
    {"kv_cache", "quantized_cache_has_no_window",
     [](const ModelConfig& c, const Recipe& r) {
       return r.kv_cache == KvCacheKind::quantized && c.sliding_window != 0;
     }},
    // What is not modelled yet.
    {"stack", "stack_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.stack != Stack::hf; }},
    {"task", "generation_not_modelled_for_family",
     [](const ModelConfig& c, const Recipe&) { return !is_like_llama(c); }},
    // Qwen windows only the layers from max_window_layers on; of Mistral all are windowed.
    {"task", "window_of_some_layers_not_modelled",
     [](const ModelConfig& c, const Recipe&) { return c.sliding_window != 0 && c.model_type.starts_with("qwen"); }},
    {"method", "adapters_not_modelled_in_generation",
     [](const ModelConfig&, const Recipe& r) { return r.method != Method::full; }},
    {"autocast", "autocast_not_modelled_in_generation", [](const ModelConfig&, const Recipe& r) { return r.autocast; }},
    {"precision", "precision_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       return r.precision != Precision::bf16 && r.precision != Precision::fp32;
     }},
    {"attention", "masked_attention_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       const bool mask = r.kv_cache == KvCacheKind::fixed || window_fills(c, r);
       const bool no_kernel = r.attention == Attention::math || r.attention == Attention::cudnn;
       return (mask && no_kernel) || (r.kv_cache == KvCacheKind::fixed && r.attention == Attention::flash);
     }},
    {"kv_cache", "static_window_cache_not_modelled",
     [](const ModelConfig& c, const Recipe& r) { return r.kv_cache == KvCacheKind::fixed && window_fills(c, r); }},
    {"no_grad", "graph_not_modelled_with_this_cache",
     [](const ModelConfig& c, const Recipe& r) {
       const bool biased = window_fills(c, r) && r.attention != Attention::flash && r.attention != Attention::eager;
       return !r.no_grad && (r.kv_cache != KvCacheKind::dynamic || biased);
     }},
};

// The recipe as training would meet it, where generation asks the same of it: modules, kernels, devices.
Recipe in_training(const Recipe& recipe) {
  Recipe alike = recipe;
  const Recipe defaults;
  alike.task = Task::training;
  alike.weights = defaults.weights;
  alike.new_tokens = defaults.new_tokens;
  alike.kv_cache = defaults.kv_cache;
  alike.prefill_logits = defaults.prefill_logits;
  alike.no_grad = defaults.no_grad;
  alike.optimizer = defaults.optimizer;
  alike.seq = 1;  // masks of windows are asked for above
  return alike;
}

}  // namespace

std::optional<Problem> unsupported_generation(const ModelConfig& config, const Recipe& recipe) {
  for (const Refusal& refusal : kRefusals) {
    if (refusal.applies(config, recipe)) {
      return Problem{ProblemCode::unsupported_recipe, refusal.key, recipe_value(recipe, refusal.key), refusal.reason,
                     ""};
    }
  }
  return unsupported(config, in_training(recipe));
}

}  // namespace ledger
