// moe_families.h - mixtures of experts: rows of families.cc.
#pragma once

#include <array>

#include "core/config/families.h"

namespace ledger {

inline constexpr std::array kMoeFamilies = {
    Family{"mixtral",
           {.moe = MoeRule::every, .traced = true},
           R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":131072,"rms_norm_eps":1e-5,)"
           R"("rope_theta":1e6,"num_experts":8,"num_experts_per_tok":2,"sliding_window":null})",
           "MixtralConfig"},
    Family{
        "qwen2_moe",
        {.moe = MoeRule::qwen, .routing = Routing::softmax_cast, .shared_gate = true, .traced = true},
        R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,)"
        R"("num_attention_heads":16,"num_key_value_heads":16,"max_position_embeddings":32768,"sliding_window":4096,)"
        R"("use_sliding_window":false,"max_window_layers":28,"qkv_bias":true,"num_experts":60,)"
        R"("num_experts_per_tok":4,"moe_intermediate_size":1408,"norm_topk_prob":false,"shared_expert_intermediate_size":5632})",
        "Qwen2MoeConfig"},
    Family{
        "qwen3_moe",
        {.qk_norm = QkNorm::head, .moe = MoeRule::qwen, .routing = Routing::softmax_cast, .traced = true},
        R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":24,)"
        R"("num_attention_heads":32,"num_key_value_heads":4,"max_position_embeddings":32768,"sliding_window":4096,)"
        R"("use_sliding_window":false,"num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768,"norm_topk_prob":false})",
        "Qwen3MoeConfig"},
    Family{"olmoe",
           {.qk_norm = QkNorm::width, .moe = MoeRule::every, .routing = Routing::softmax_cast, .traced = true},
           R"({"vocab_size":50304,"hidden_size":2048,"intermediate_size":2048,"num_hidden_layers":16,)"
           R"("num_attention_heads":16,"max_position_embeddings":4096,"rms_norm_eps":1e-5,"num_experts":64,)"
           R"("num_experts_per_tok":8,"norm_topk_prob":false})",
           "OlmoeConfig"},
    Family{"deepseek_v2",
           {.projections = Projections::latent,
            .moe = MoeRule::first_dense,
            .routing = Routing::grouped_softmax,
            .traced = true},
           R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":2048,"num_experts":64,"n_shared_experts":2,)"
           R"("moe_intermediate_size":1407,"first_k_dense_replace":0,"q_lora_rank":1536,"kv_lora_rank":512,)"
           R"("qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"n_group":null,"topk_group":null,)"
           R"("topk_method":"greedy","routed_scaling_factor":1.0})",
           "DeepseekV2Config"},
    Family{"deepseek_v3",
           {.projections = Projections::latent,
            .moe = MoeRule::first_dense,
            .routing = Routing::grouped_sigmoid,
            .traced = true},
           R"({"vocab_size":129280,"hidden_size":7168,"intermediate_size":18432,"num_hidden_layers":61,)"
           R"("num_attention_heads":128,"max_position_embeddings":4096,"num_experts":256,"num_experts_per_tok":8,)"
           R"("n_shared_experts":1,"moe_intermediate_size":2048,"first_k_dense_replace":3,"q_lora_rank":1536,)"
           R"("kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"n_group":8,)"
           R"("topk_group":4,"norm_topk_prob":true,"routed_scaling_factor":2.5,"rope_interleave":true})",
           "DeepseekV3Config"},
    Family{"gpt_oss",
           {.norm = NormKind::rms_late,
            .moe = MoeRule::every,
            .routing = Routing::of_chosen,
            .expert_bias = true,
            .sinks = true,
            .traced = true},
           R"({"vocab_size":201088,"hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":36,)"
           R"("num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"max_position_embeddings":131072,)"
           R"("rms_norm_eps":1e-5,"attention_bias":true,"rope_theta":150000,"sliding_window":128,)"
           R"("sliding_window_pattern":2,"num_experts":128,"num_experts_per_tok":4})",
           "GptOssConfig"},
    Family{"llama4_text",
           {.moe = MoeRule::interleaved, .routing = Routing::every_expert, .traced = true},
           R"({"vocab_size":202048,"hidden_size":5120,"intermediate_size":8192,"intermediate_size_mlp":16384,)"
           R"("num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,)"
           R"("max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":500000,"num_experts":16,)"
           R"("num_experts_per_tok":1,"interleave_moe_layer_step":1,"no_rope_layer_interval":4,)"
           R"("attention_chunk_size":8192,"use_qk_norm":true,"attn_temperature_tuning":true,"floor_scale":8192,)"
           R"("attn_scale":0.1})",
           "Llama4TextConfig"},
};

}  // namespace ledger
