// runs.h - small models and recipes that every test of whole steps walks over.
#pragma once

#include <string>
#include <vector>

#include "core/training/step.h"
#include "core/training/support.h"

namespace ledger {

// A Llama of odd sizes: nothing divides anything, heads do not make up the hidden size.
inline ModelConfig odd_llama(std::uint64_t layers = 2) {
  ModelConfig c;
  c.architecture = Architecture::llama;
  c.model_type = "llama";
  c.hidden_size = 48;
  c.num_hidden_layers = layers;
  c.num_attention_heads = 6;
  c.num_key_value_heads = 2;
  c.head_dim = 16;  // 6 x 16 = 96
  c.intermediate_size = 77;
  c.vocab_size = 259;
  c.max_position_embeddings = 64;
  return c;
}

inline ModelConfig plain_stack(std::vector<PlainLinear> layers) {
  ModelConfig c;
  c.architecture = Architecture::plain;
  c.model_type = "plain";
  c.layers = std::move(layers);
  return c;
}

struct NamedConfig {
  const char* name;
  ModelConfig config;
};

inline std::vector<NamedConfig> small_configs() {
  ModelConfig tied = odd_llama();
  tied.tie_word_embeddings = true;
  ModelConfig biased = odd_llama();
  biased.attention_bias = biased.mlp_bias = true;
  ModelConfig one_head = odd_llama(1);
  one_head.num_key_value_heads = 6;
  return {{"llama", odd_llama()},
          {"tied", tied},
          {"biased", biased},
          {"ungrouped", one_head},
          {"plain", plain_stack({{7, 13, true}, {13, 5, false}, {5, 3, true}})}};
}

// Texts of with_recipe_text, key by key: "precision=amp-bf16 checkpointing=full".
using Settings = std::vector<std::pair<const char*, const char*>>;

inline Recipe recipe_of(const Settings& settings) {
  Recipe recipe;
  recipe.batch = 3;
  recipe.seq = 19;
  for (const auto& [key, text] : settings) {
    const Result<Recipe> next = with_recipe_text(recipe, key, text);
    if (next.ok()) recipe = next.value();
  }
  return recipe;
}

inline std::vector<Settings> recipe_grid() {
  std::vector<Settings> grid;
  for (const char* method : {"full", "lora", "qlora"}) {
    for (const char* precision : {"bf16", "amp-bf16", "fp32"}) {
      for (const char* checkpointing : {"none", "full", "full-reentrant"}) {
        grid.push_back({{"method", method}, {"precision", precision}, {"checkpointing", checkpointing}});
      }
    }
  }
  for (const char* optimizer : {"adamw_foreach", "adamw_forloop", "adamw_8bit", "sgd", "sgd_momentum"}) {
    grid.push_back({{"optimizer", optimizer}});
  }
  for (const char* attention : {"flash", "efficient", "math", "eager"})
    grid.push_back({{"attention", attention}});
  for (const char* checkpointing : {"selective", "offload"}) {
    for (const char* method : {"full", "lora", "qlora"})
      grid.push_back({{"method", method}, {"checkpointing", checkpointing}});
    grid.push_back({{"precision", "amp-bf16"}, {"checkpointing", checkpointing}, {"grad_accum", "2"}});
  }
  for (const char* loss : {"chunked", "fused_linear", "cut"}) {
    for (const char* precision : {"bf16", "amp-bf16", "amp-fp16", "fp32"})
      grid.push_back({{"loss", loss}, {"precision", precision}});
    for (const char* method : {"lora", "qlora"})
      grid.push_back({{"loss", loss}, {"method", method}, {"autocast", "true"}, {"checkpointing", "full"}});
    grid.push_back({{"loss", loss}, {"grad_accum", "2"}, {"keep_outputs", "true"}});
  }
  for (const char* precision : {"bf16", "amp-bf16", "fp32"})
    grid.push_back({{"stack", "hf-4"}, {"precision", precision}, {"keep_outputs", "true"}});
  grid.push_back({{"attention", "cudnn"}});
  for (const char* checkpointing : {"none", "full"}) {
    for (const char* prepare : {"true", "false"})
      grid.push_back(
          {{"method", "lora"}, {"weights", "int8"}, {"prepare_kbit", prepare}, {"checkpointing", checkpointing}});
  }
  grid.push_back({{"method", "lora"}, {"weights", "int8"}, {"autocast", "true"}});
  grid.push_back({{"dp", "2"}, {"grad_accum", "2"}});
  for (const char* method : {"full", "lora", "qlora"})
    grid.push_back({{"dp", "3"}, {"ddp_bucket_view", "true"}, {"method", method}});
  for (const char* checkpointing : {"none", "full", "selective"}) {
    for (const char* reshard : {"true", "false"})
      grid.push_back({{"dp", "5"},
                      {"fsdp", "2"},
                      {"precision", "fp32"},
                      {"reshard_after_forward", reshard},
                      {"checkpointing", checkpointing}});
  }
  grid.push_back({{"dp", "2"}, {"fsdp", "2"}, {"method", "lora"}, {"grad_accum", "2"}});
  grid.push_back({{"dp", "2"}, {"fsdp", "2"}, {"units", "titan"}, {"reduce_dtype", "bf16"}, {"checkpointing", "full"}});
  for (const char* precision : {"bf16", "fp32"}) {
    grid.push_back({{"optimizer", "muon"}, {"precision", precision}});
    grid.push_back({{"optimizer", "galore_adamw"}, {"precision", precision}});
  }
  grid.push_back({{"autocast", "true"}});
  grid.push_back({{"autocast", "true"}, {"checkpointing", "full"}});
  grid.push_back({{"grad_accum", "2"}});
  grid.push_back({{"allocator", "torch_expandable"}});
  grid.push_back({{"batch", "1"}, {"seq", "1"}});
  return grid;
}

struct NamedRun {
  std::string name;  // letters, digits and underscores, as GoogleTest wants
  ModelConfig config;
  Recipe recipe;
};

// torchtune builds models whose heads make up the hidden size.
inline std::vector<NamedConfig> torchtune_configs() {
  ModelConfig square = odd_llama();
  square.hidden_size = 96;
  ModelConfig tied = square;
  tied.tie_word_embeddings = true;
  return {{"square", square}, {"square_tied", tied}};
}

inline std::vector<NamedConfig> torchtitan_configs() {
  ModelConfig square = odd_llama();
  square.hidden_size = 96;
  // Of a sequence of an even length each expert gets as many tokens as the next.
  const Result<ModelConfig> experts = read_model_config(
      R"({"model_type": "deepseek_v3", "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2,
      "num_key_value_heads": 2, "intermediate_size": 21, "vocab_size": 61, "q_lora_rank": 9, "kv_lora_rank": 7,
      "qk_nope_head_dim": 12, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
      "n_shared_experts": 1, "moe_intermediate_size": 11, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1})");
  return {{"square", square}, {"experts", experts.value()}};
}

inline std::vector<Settings> torchtitan_grid() {
  std::vector<Settings> grid;
  for (const char* stack : {"torchtitan", "torchtitan-0.2.0", "torchtitan-0.1", "torchtitan-0.0.2"}) {
    for (const char* precision : {"bf16", "fp32", "amp-bf16"}) {
      for (const char* checkpointing : {"none", "full", "selective"})
        grid.push_back({{"stack", stack}, {"precision", precision}, {"checkpointing", checkpointing}});
    }
  }
  return grid;
}

inline std::vector<Settings> torchtune_grid() {
  std::vector<Settings> grid;
  for (const char* precision : {"bf16", "fp32"}) {
    for (const char* checkpointing : {"none", "full"}) {
      for (const char* loss : {"full", "chunked"}) {
        grid.push_back(
            {{"stack", "torchtune"}, {"precision", precision}, {"checkpointing", checkpointing}, {"loss", loss}});
      }
      grid.push_back({{"stack", "torchtune"},
                      {"method", "lora"},
                      {"adapter_dtype", precision},
                      {"precision", precision},
                      {"checkpointing", checkpointing},
                      {"grad_accum", "2"}});
    }
  }
  return grid;
}

inline std::vector<Settings> native_grid() {
  std::vector<Settings> grid;
  for (const char* precision : {"bf16", "fp32"}) {
    for (const char* checkpointing : {"none", "full"}) {
      for (const char* method : {"full", "lora"}) {
        grid.push_back(
            {{"stack", "native"}, {"precision", precision}, {"checkpointing", checkpointing}, {"method", method}});
      }
    }
  }
  grid.push_back({{"stack", "native"}, {"grad_accum", "2"}, {"attention", "cudnn"}, {"optimizer", "sgd"}});
  return grid;
}

inline void add_runs(std::vector<NamedRun>& runs, const std::vector<NamedConfig>& configs,
                     const std::vector<Settings>& grid) {
  for (const auto& [config_name, config] : configs) {
    for (const Settings& settings : grid) {
      const Recipe recipe = recipe_of(settings);
      if (unsupported(config, recipe)) continue;
      std::string name = config_name;
      for (const auto& [key, text] : settings)
        name.append("_").append(text);
      for (char& c : name)
        c = c == '-' || c == '.' ? '_' : c;
      runs.push_back({name, config, recipe});
    }
  }
}

// Every combination that the core can trace; what it refuses is not here.
inline std::vector<NamedRun> small_runs() {
  std::vector<NamedRun> runs;
  add_runs(runs, small_configs(), recipe_grid());
  add_runs(runs, torchtune_configs(), torchtune_grid());
  add_runs(runs, torchtitan_configs(), torchtitan_grid());
  add_runs(runs, small_configs(), native_grid());
  return runs;
}

inline void PrintTo(const NamedRun& run, std::ostream* out) {
  *out << run.name;
}

}  // namespace ledger
