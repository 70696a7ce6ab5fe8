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

}  // namespace ledger::tiny
