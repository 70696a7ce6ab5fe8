// shared_runs.h - small models that ranks can share, and what a row of their tables (*_cases.h) sets.
#pragma once

#include "core/config/recipe.h"
#include "tests/probe/tiny_configs.h"

namespace ledger {

// Nothing of it can be divided by four, and little by two: shards of every parameter end in padding.
constexpr const char* kOdd = R"({"model_type": "llama", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 35, "vocab_size": 61})";
// Four ranks can share heads, width, vocabulary and sequence; nothing else is even.
constexpr const char* kCuttable = R"({"model_type": "llama", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 36, "vocab_size": 68})";
constexpr const char* kCuttableQwen3 = R"({"model_type": "qwen3", "hidden_size": 20, "head_dim": 6,
  "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 36,
  "vocab_size": 68})";
// Stages with other numbers of layers than their neighbours.
constexpr const char* kTitanDeep = R"({"model_type": "llama", "hidden_size": 12, "num_hidden_layers": 7,
  "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 10, "vocab_size": 30})";
constexpr const char* kTitanQwen3 = R"({"model_type": "qwen3", "hidden_size": 10, "head_dim": 6,
  "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 9,
  "vocab_size": 31})";
// Megatron pads the vocabulary to a multiple of 128 on every rank.
constexpr const char* kMegatronLlama = R"({"model_type": "llama", "hidden_size": 24, "num_hidden_layers": 4,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6, "intermediate_size": 36, "vocab_size": 512})";
constexpr const char* kMegatronDeep = R"({"model_type": "llama", "hidden_size": 12, "num_hidden_layers": 12,
  "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 20, "vocab_size": 128})";
constexpr const char* kMegatronGpt = R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 4, "n_head": 4,
  "vocab_size": 512, "n_positions": 16, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";
constexpr const char* kMegatronLatent = R"({"model_type": "deepseek_v3", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 36, "vocab_size": 512, "q_lora_rank": 9, "kv_lora_rank": 7,
  "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "first_k_dense_replace": 2})";
// Of more positions than the local modules' fused softmax asks for.
constexpr const char* kMegatronLong = R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 4, "n_head": 4,
  "vocab_size": 512, "n_positions": 20, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";
constexpr const char* kExperts = R"({"model_type": "mixtral", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 11, "vocab_size": 61,
  "num_local_experts": 3, "num_experts_per_tok": 2})";
constexpr const char* kGptOss = R"({"model_type": "gpt_oss", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 11, "vocab_size": 61,
  "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 5})";
constexpr const char* kDeepseek2 = R"({"model_type": "deepseek_v2", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 3, "intermediate_size": 35, "vocab_size": 61, "q_lora_rank": null,
  "kv_lora_rank": 7, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 3,
  "num_experts_per_tok": 2, "moe_intermediate_size": 11, "n_shared_experts": 1, "first_k_dense_replace": 1})";
constexpr const char* kLlama4 = R"({"model_type": "llama4_text", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 11, "vocab_size": 61,
  "num_local_experts": 3, "intermediate_size_mlp": 13})";
constexpr const char* kMegatronMixtral = R"({"model_type": "mixtral", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 512,
  "num_local_experts": 4, "num_experts_per_tok": 2})";
constexpr const char* kMegatronQwen3Moe = R"({"model_type": "qwen3_moe", "hidden_size": 24, "num_hidden_layers": 2,
  "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 36, "vocab_size": 512,
  "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "norm_topk_prob": true,
  "decoder_sparse_step": 2})";
constexpr const char* kMegatronQwen2Moe = R"({"model_type": "qwen2_moe", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 36, "vocab_size": 512,
  "num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 14})";
// Latent attention and shared experts behind a layer that has none; an expert's rows are rounded up to eights.
constexpr const char* kDeepseek = R"({"model_type": "deepseek_v3", "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 21, "vocab_size": 61, "q_lora_rank": 9,
  "kv_lora_rank": 7, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 4,
  "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 11, "first_k_dense_replace": 1,
  "n_group": 2, "topk_group": 1})";
constexpr const char* kQwen3Moe = R"({"model_type": "qwen3_moe", "hidden_size": 18, "head_dim": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 13,
  "vocab_size": 61, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 10, "norm_topk_prob": true})";
// Images of 56 by 56 pixels, four tokens in windows of one.
constexpr const char* kImages = R"({"model_type": "qwen2_5_vl", "image_token_id": 7, "text_config": {"hidden_size": 18,
  "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 35, "vocab_size": 61,
  "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]}}, "vision_config": {"hidden_size": 12, "depth": 2,
  "num_heads": 3, "intermediate_size": 10, "out_hidden_size": 18, "window_size": 28, "fullatt_block_indexes": [1],
  "in_channels": 1, "temporal_patch_size": 1}})";
constexpr const char* kTiles = R"({"model_type": "llama4", "image_token_index": 7, "text_config": {"hidden_size": 18,
  "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 11,
  "vocab_size": 61, "num_local_experts": 3, "intermediate_size_mlp": 13}, "vision_config": {"hidden_size": 8,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8, "patch_size": 2,
  "projector_input_dim": 10, "projector_output_dim": 10, "vision_output_dim": 10}})";
constexpr const char* kPooled = R"({"model_type": "gemma3", "image_token_index": 7, "mm_tokens_per_image": 4,
  "text_config": {"model_type": "gemma3_text", "hidden_size": 18, "num_hidden_layers": 2, "num_attention_heads": 3,
  "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 11, "vocab_size": 61, "sliding_window": 5,
  "sliding_window_pattern": 2}, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 15,
  "intermediate_size": 11, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 16, "patch_size": 4,
  "vision_use_head": false}})";
constexpr const char* kPlain =
    R"({"layers": [{"linear": [6, 10]}, {"linear": [10, 7]}, {"linear": [7, 7]}, {"linear": [7, 5]}]})";

struct Shared {
  const char* name;
  const char* config;
  void (*set)(Recipe&);
};

constexpr void zero(Recipe& r, std::uint64_t stage) {
  r.zero = stage;
}

constexpr void lora(Recipe& r) {
  r.method = Method::lora;
  r.rank = 3;
}

constexpr void dora(Recipe& r) {
  lora(r);
  r.dora = true;
}

constexpr void qlora(Recipe& r, std::uint64_t fsdp) {
  r.method = Method::qlora;
  r.precision = Precision::bf16;
  r.prepare_kbit = false;
  r.rank = 3;
  r.fsdp = fsdp;
}

constexpr void offloaded(Recipe& r, std::uint64_t fsdp) {
  r.fsdp = fsdp;
  r.offload = Offload::params;
}

constexpr void native(Recipe& r) {
  r.stack = Stack::native;
  r.attention = Attention::sdpa;
}

constexpr void small_images(Recipe& r) {
  r.image_height = r.image_width = 56;
}

constexpr void tensor(Recipe& r, std::uint64_t tp) {
  r.stack = Stack::torchtitan;
  r.attention = Attention::sdpa;
  r.seq = 8;
  r.tp = tp;
  r.sequence_parallel = tp > 1;
}

constexpr void sharded(Recipe& r) {
  r.fsdp = 2;
  r.units = Units::titan;
}

constexpr void titan_stages(Recipe& r, Stack stack, std::uint64_t pp, std::uint64_t micro_batches) {
  tensor(r, 1);
  r.stack = stack;
  r.pp = pp;
  r.micro_batches = micro_batches;
  r.units = stack == Stack::torchtitan || stack == Stack::torchtitan_0_2_0 ? Units::titan : Units::layers;
}

constexpr void megatron(Recipe& r, std::uint64_t tp, std::uint64_t pp) {
  r.stack = Stack::megatron;
  r.precision = Precision::megatron_bf16;
  r.attention = Attention::sdpa;
  r.seq = 8;
  r.tp = tp;
  r.pp = pp;
  r.micro_batches = 3;
}

// Rows of scores: batch x 4 heads / tp, which must be eights.
constexpr void local_modules(Recipe& r, std::uint64_t tp, std::uint64_t pp) {
  megatron(r, tp, pp);
  r.transformer_impl = TransformerImpl::local;
  r.attention = Attention::eager;
  r.seq = 20;
  r.batch = 2 * tp;
}

constexpr void context(Recipe& r, std::uint64_t cp, CpComm how = CpComm::automatic) {
  r.cp = cp;
  r.cp_comm_type = how;
}

constexpr void experts(Recipe& r, std::uint64_t tp, std::uint64_t pp, std::uint64_t ep, std::uint64_t etp) {
  megatron(r, tp, pp);
  r.sequence_parallel = tp > 1;
  r.ep = ep;
  r.etp = etp;
}

constexpr void titan_experts(Recipe& r, std::uint64_t ep, Checkpointing checkpointing = Checkpointing::none) {
  tensor(r, 1);
  sharded(r);
  r.ep = ep;
  r.checkpointing = checkpointing;
}

}  // namespace ledger
