// tiny_configs.h - models small enough to train in a test; needs no test framework.
#pragma once

namespace ledger::tiny {

inline constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";
inline constexpr const char* kTied = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 64,
  "tie_word_embeddings": true})";
inline constexpr const char* kUngrouped = R"({"model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 64})";
inline constexpr const char* kQwen2 = R"({"model_type": "qwen2", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";
inline constexpr const char* kQwen3 = R"({"model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 2,
  "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";
// For adapters: what is frozen stays random, and an output layer of weights in [-0.08, 0.08) cannot make logits larger
// than hidden_size x 0.08 / sqrt(3) = 5.9. With 64 tokens that leaves a loss of some ln(1 + 70 / e^5.9) = 0.17.
inline constexpr const char* kWide = R"({"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 64})";

// Latent attention, and experts behind a layer that has none.
inline constexpr const char* kTitanExperts =
    R"({"model_type": "deepseek_v2", "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 21, "vocab_size": 61, "q_lora_rank": null, "kv_lora_rank": 7,
    "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_shared_experts": 2, "moe_intermediate_size": 11, "first_k_dense_replace": 1})";

}  // namespace ledger::tiny
