#include "core/models/names.h"

#include <algorithm>

#include "core/models/image_encoder.h"
#include "core/models/parameter_adapter.h"

namespace ledger {
namespace {

struct NamesRow {
  const char* model_type;
  ModuleNames names;
};

// transformers 5.12 models/*/modeling_*.py; families that are not here are named as Llama's.
constexpr NamesRow kRows[] = {
    {"phi",
     {.final_norm = "final_layernorm",
      .o = "dense",
      .q_norm = "q_layernorm",
      .k_norm = "k_layernorm",
      .up = "fc1",
      .down = "fc2"}},
    {"stablelm", {.q_norm = "q_layernorm", .k_norm = "k_layernorm"}},
    {"internlm2",
     {.embed = "tok_embeddings",
      .head = "output",
      .input_norm = "attention_norm",
      .attention_norm = "ffn_norm",
      .attention = "attention",
      .qkv = "wqkv",
      .o = "wo",
      .mlp = "feed_forward",
      .gate = "w1",
      .up = "w3",
      .down = "w2"}},
    {"glm4",
     {.attention_norm = "post_self_attn_layernorm",
      .feed_norm = "post_attention_layernorm",
      .output_norm = "post_mlp_layernorm"}},
    {"starcoder2", {.up = "c_fc", .down = "c_proj"}},
    {"gpt_neox",
     {.base = "gpt_neox",
      .embed = "embed_in",
      .final_norm = "final_layer_norm",
      .head = "embed_out",
      .attention = "attention",
      .qkv = "query_key_value",
      .o = "dense",
      .up = "dense_h_to_4h",
      .down = "dense_4h_to_h"}},
    {"opt",
     {.base = "model.decoder",
      .positions = "embed_positions",
      .final_norm = "final_layer_norm",
      .input_norm = "self_attn_layer_norm",
      .attention_norm = "final_layer_norm",
      .o = "out_proj",
      .mlp = "",
      .up = "fc1",
      .down = "fc2"}},
    {"llama4_text", {.mlp = "feed_forward"}},
    {"gptj",
     {.base = "transformer",
      .embed = "wte",
      .layers = "h",
      .final_norm = "ln_f",
      .input_norm = "ln_1",
      .attention = "attn",
      .o = "out_proj",
      .up = "fc_in",
      .down = "fc_out"}},
    {"gpt2",
     {.base = "transformer",
      .embed = "wte",
      .layers = "h",
      .final_norm = "ln_f",
      .input_norm = "ln_1",
      .attention_norm = "ln_2",
      .attention = "attn",
      .qkv = "c_attn",
      .o = "c_proj",
      .up = "c_fc",
      .down = "c_proj"}},
    {"bloom",
     {.base = "transformer",
      .embed = "word_embeddings",
      .layers = "h",
      .final_norm = "ln_f",
      .attention = "self_attention",
      .qkv = "query_key_value",
      .o = "dense",
      .up = "dense_h_to_4h",
      .down = "dense_4h_to_h"}},
    {"falcon",
     {.base = "transformer",
      .embed = "word_embeddings",
      .layers = "h",
      .final_norm = "ln_f",
      .attention = "self_attention",
      .qkv = "query_key_value",
      .o = "dense",
      .up = "dense_h_to_4h",
      .down = "dense_4h_to_h"}},
};

constexpr ModuleNames kLlama;
constexpr ModuleNames kBehindImages = {.base = "model.language_model"};
constexpr ModuleNames kLlama4BehindImages = {
    .base = "language_model.model", .head = "language_model.lm_head", .mlp = "feed_forward"};

constexpr ModuleNames kFalconTwoNorms = {.base = "transformer",
                                         .embed = "word_embeddings",
                                         .layers = "h",
                                         .final_norm = "ln_f",
                                         .input_norm = "ln_attn",
                                         .attention_norm = "ln_mlp",
                                         .attention = "self_attention",
                                         .qkv = "query_key_value",
                                         .o = "dense",
                                         .up = "dense_h_to_4h",
                                         .down = "dense_4h_to_h"};

// torchtune modules/{transformer,attention,feed_forward}.py.
constexpr ModuleNames kTorchtune = {.base = "",
                                    .embed = "tok_embeddings",
                                    .head = "output",
                                    .input_norm = "sa_norm",
                                    .attention_norm = "mlp_norm",
                                    .attention = "attn",
                                    .o = "output_proj",
                                    .gate = "w1",
                                    .up = "w3",
                                    .down = "w2"};

// torchtitan models/{llama3,qwen3}/model/model.py.
constexpr ModuleNames kTorchtitan = {.base = "",
                                     .embed = "tok_embeddings",
                                     .head = "output",
                                     .input_norm = "attention_norm",
                                     .attention_norm = "ffn_norm",
                                     .attention = "attention",
                                     .q = "wq",
                                     .k = "wk",
                                     .v = "wv",
                                     .o = "wo",
                                     .mlp = "feed_forward",
                                     .gate = "w1",
                                     .up = "w3",
                                     .down = "w2"};

}  // namespace

const ModuleNames& names_of(const ModelConfig& config, Stack stack) {
  if (config.model_type == "falcon" && config.style.layout == Layout::parallel_two) return kFalconTwoNorms;
  if (config.architecture == Architecture::llama && !config.vision.model_type.empty())
    return config.model_type == "llama4_text" ? kLlama4BehindImages : kBehindImages;
  if (stack == Stack::torchtune) return kTorchtune;
  if (is_torchtitan(stack)) return kTorchtitan;
  for (const NamesRow& row : kRows) {
    if (config.model_type == row.model_type) return row.names;
  }
  return kLlama;
}

bool is_like_llama(const ModelConfig& c) {
  return c.model_type == "llama" || c.model_type == "mistral" || c.model_type == "qwen2" || c.model_type == "qwen3";
}

namespace {

// As adapters' targets name them. PEFT finds Qwen's convolution, too, by the name "proj" that its attention's output
// has.
std::vector<std::string_view> tower_linears(const VisionConfig& vision) {
  if (vision.model_type == "qwen2_vl") return {"qkv", "attn.proj", "fc1", "fc2", "mlp.0", "mlp.2"};
  if (vision.model_type == "qwen2_5_vl")
    return {"qkv", "attn.proj", "gate_proj", "up_proj", "down_proj", "mlp.0", "mlp.2"};
  if (vision.model_type == "llama4_vision_model")
    return {"linear", "q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2", "linear_1"};
  return encoder_linears(vision);
}

// Those of the tower and of what stands beside it, and of the text.
std::vector<std::string_view> linears_of_images(const ModelConfig& config) {
  std::vector<std::string_view> list = tower_linears(config.vision);
  if (config.architecture == Architecture::vit) {
    list.push_back("classifier");
    return list;
  }
  ModelConfig text = config;
  text.model_type = config.text_type;
  text.vision = {};
  for (const std::string_view name : linear_names(text))
    list.push_back(name);
  if (config.model_type == "llava") list.insert(list.end(), {"linear_1", "linear_2"});
  return list;
}

}  // namespace

std::vector<std::string_view> linear_names(const ModelConfig& config, Stack stack) {
  if (config.architecture == Architecture::bert) return {"query", "key", "value", "dense"};
  if (config.architecture == Architecture::t5) {
    if (config.style.feed == Feed::gated) return {"q", "k", "v", "o", "wi_0", "wi_1", "wo"};
    return {"q", "k", "v", "o", "wi", "wo"};
  }
  if (!config.vision.model_type.empty()) return linears_of_images(config);
  const ModuleNames& names = names_of(config, stack);
  std::vector<std::string_view> list;
  if (config.style.projections == Projections::latent) {
    list = {"kv_a_proj_with_mqa", "kv_b_proj", names.o};
    if (config.latent.q_rank == 0) {
      list.push_back(names.q);
    } else {
      list.insert(list.end(), {"q_a_proj", "q_b_proj"});
    }
  } else if (config.style.projections == Projections::separate) {
    list = {names.q, names.k, names.v, names.o};
  } else {
    list = {names.qkv, names.o};
  }
  if (const ExpertTargets* targets = expert_targets(config)) {
    if (targets->router[0] != '\0') list.push_back(targets->router);
    list.insert(list.end(), {targets->gate, targets->up, targets->down});
    if (config.style.shared_gate) list.push_back("shared_expert_gate");
    return list;
  }
  const auto& sparse = config.moe.layers;
  if (config.moe.shared_width == 0 && !sparse.empty() && std::find(sparse.begin(), sparse.end(), false) == sparse.end())
    return list;  // gpt-oss
  if (config.style.feed == Feed::gated) list.push_back(names.gate);
  list.push_back(config.style.feed == Feed::gated_fused ? names.gate_up : names.up);
  list.push_back(names.down);
  return list;
}

}  // namespace ledger
