// step_cases.h - tiny models and recipes whose losses a device must share with the host: one for each way through the
// operators. Used by the tests on the emulated device and by probe_gpu_check on a GPU.
#pragma once

#include <ostream>

#include "core/config/recipe.h"
#include "tests/probe/tiny_configs.h"

namespace ledger {

struct StepCase {
  const char* name;
  const char* config;
  void (*set)(Recipe&);
};

inline void PrintTo(const StepCase& c, std::ostream* out) {
  *out << c.name;
}

inline constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64,
  "n_positions": 64, "attn_pdrop": 0})";
inline constexpr const char* kWindowed = R"({"model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64, "sliding_window": 5})";

inline constexpr const char* kGemma = R"({"model_type": "gemma", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 64, "vocab_size": 64})";
inline constexpr const char* kGemma3 = R"({"model_type": "gemma3_text", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 64, "vocab_size": 64,
  "sliding_window_pattern": 2})";
inline constexpr const char* kPhi3 = R"({"model_type": "phi3", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";
inline constexpr const char* kOlmo2 = R"({"model_type": "olmo2", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";

inline const StepCase kSteps[] = {
    {"full", tiny::kLlama, [](Recipe&) {}},
    {"fp32", tiny::kLlama, [](Recipe& r) { r.precision = Precision::fp32; }},
    {"amp_bf16", tiny::kLlama, [](Recipe& r) { r.precision = Precision::amp_bf16; }},
    {"tied", tiny::kTied, [](Recipe&) {}},
    {"qwen2", tiny::kQwen2, [](Recipe&) {}},
    {"qwen3", tiny::kQwen3, [](Recipe&) {}},
    {"torchtitan_experts", tiny::kTitanExperts, [](Recipe& r) { r.stack = Stack::torchtitan; }},
    {"gpt2", kGpt2, [](Recipe&) {}},
    {"lora", tiny::kLlama, [](Recipe& r) { r.method = Method::lora; }},
    {"lora_dropout", tiny::kLlama,
     [](Recipe& r) {
       r.method = Method::lora;
       r.lora_dropout = 0.3;
       r.checkpointing = Checkpointing::full;
     }},
    {"qlora", tiny::kLlama, [](Recipe& r) { r.method = Method::qlora; }},
    {"qlora_single", tiny::kLlama,
     [](Recipe& r) {
       r.method = Method::qlora;
       r.double_quant = false;
       r.autocast = true;
     }},
    {"checkpointing", tiny::kLlama, [](Recipe& r) { r.checkpointing = Checkpointing::full; }},
    {"checkpointing_offload", tiny::kLlama, [](Recipe& r) { r.checkpointing = Checkpointing::offload; }},
    {"eager", tiny::kLlama, [](Recipe& r) { r.attention = Attention::eager; }},
    {"math", tiny::kUngrouped, [](Recipe& r) { r.attention = Attention::math; }},
    {"efficient", tiny::kUngrouped, [](Recipe& r) { r.attention = Attention::efficient; }},
    {"cudnn", tiny::kLlama, [](Recipe& r) { r.attention = Attention::cudnn; }},
    {"windowed", kWindowed, [](Recipe&) {}},
    {"foreach", tiny::kLlama, [](Recipe& r) { r.optimizer = Optimizer::adamw_foreach; }},
    {"forloop", tiny::kLlama, [](Recipe& r) { r.optimizer = Optimizer::adamw_forloop; }},
    {"sgd_momentum", tiny::kLlama, [](Recipe& r) { r.optimizer = Optimizer::sgd_momentum; }},
    {"accumulation", tiny::kLlama, [](Recipe& r) { r.grad_accum = 2; }},
    {"liger", tiny::kLlama, [](Recipe& r) { r.loss = Loss::fused_linear; }},
    {"liger_0_6", tiny::kLlama, [](Recipe& r) { r.loss = Loss::fused_linear_0_6; }},
    {"liger_kernels", tiny::kQwen3,
     [](Recipe& r) {
       r.liger = true;
       r.loss = Loss::fused_linear;
     }},
    {"liger_kernels_amp", tiny::kLlama,
     [](Recipe& r) {
       r.liger = true;
       r.precision = Precision::amp_bf16;
     }},
    {"liger_gemma", kGemma, [](Recipe& r) { r.liger = true; }},
    {"liger_gemma3", kGemma3,
     [](Recipe& r) {
       r.liger = true;
       r.precision = Precision::amp_bf16;
     }},
    {"liger_phi3", kPhi3, [](Recipe& r) { r.liger = true; }},
    {"liger_olmo2", kOlmo2, [](Recipe& r) { r.liger = true; }},
    {"cut", tiny::kLlama, [](Recipe& r) { r.loss = Loss::cut; }},
    {"chunked", tiny::kLlama, [](Recipe& r) { r.loss = Loss::chunked; }},
    {"native", tiny::kLlama, [](Recipe& r) { r.stack = Stack::native; }},
    {"native_qwen3", tiny::kQwen3, [](Recipe& r) { r.stack = Stack::native; }},
    {"native_qlora", tiny::kWide,
     [](Recipe& r) {
       r.stack = Stack::native;
       r.method = Method::qlora;
     }},
    {"native_lora", tiny::kQwen2,
     [](Recipe& r) {
       r.stack = Stack::native;
       r.method = Method::lora;
       r.checkpointing = Checkpointing::full;
     }},
    {"native_cudnn", tiny::kTied,
     [](Recipe& r) {
       r.stack = Stack::native;
       r.attention = Attention::cudnn;
       r.grad_accum = 2;
     }},
    {"megatron", tiny::kLlama,
     [](Recipe& r) {
       r.stack = Stack::megatron;
       r.precision = Precision::megatron_bf16;
       r.micro_batches = 2;
     }},
    {"megatron_gpt", kGpt2,
     [](Recipe& r) {
       r.stack = Stack::megatron;
       r.precision = Precision::megatron_bf16_bf16grad;
       r.checkpointing = Checkpointing::selective;
     }},
    {"plain", R"({"layers": [{"linear": [24, 40]}, {"linear": [40, 8]}]})", [](Recipe&) {}},
};

}  // namespace ledger
