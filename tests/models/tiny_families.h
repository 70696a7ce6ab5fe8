// tiny_families.h - one small model of every family whose step is traced.
#pragma once

#include <string>
#include <vector>

#include "core/config/model_config.h"

namespace ledger::tiny {

struct TinyFamily {
  const char* name;    // of the test
  const char* config;  // without the sizes below
};

inline constexpr TinyFamily kFamilies[] = {
    {"llama", R"("model_type":"llama","num_key_value_heads":2)"},
    {"mistral", R"("model_type":"mistral","num_key_value_heads":2)"},
    {"qwen2", R"("model_type":"qwen2","num_key_value_heads":2)"},
    {"qwen3", R"("model_type":"qwen3","num_key_value_heads":2,"head_dim":8)"},
    {"mixtral", R"("model_type":"mixtral","num_key_value_heads":2,"num_local_experts":4)"},
    {"qwen2_moe", R"("model_type":"qwen2_moe","num_key_value_heads":2,"num_experts":4,"num_experts_per_tok":2,)"
                  R"("moe_intermediate_size":24,"shared_expert_intermediate_size":40)"},
    {"qwen3_moe",
     R"("model_type":"qwen3_moe","num_key_value_heads":2,"head_dim":8,"num_experts":4,"num_experts_per_tok":3,)"
     R"("moe_intermediate_size":24,"norm_topk_prob":true,"mlp_only_layers":[1])"},
    {"olmoe", R"("model_type":"olmoe","num_experts":4,"num_experts_per_tok":2)"},
    {"granite",
     R"("model_type":"granite","num_key_value_heads":2,"embedding_multiplier":3.0,"residual_multiplier":0.5,)"
     R"("attention_multiplier":0.2,"logits_scaling":2.0)"},
    {"smollm3", R"("model_type":"smollm3","num_key_value_heads":2,"no_rope_layer_interval":2)"},
    {"gemma", R"("model_type":"gemma","num_key_value_heads":1,"head_dim":16)"},
    {"gemma2", R"("model_type":"gemma2","num_key_value_heads":2,"head_dim":16,"query_pre_attn_scalar":24)"},
    {"gemma3_text", R"("model_type":"gemma3_text","num_key_value_heads":1,"head_dim":16,"sliding_window_pattern":2)"},
    {"phi", R"("model_type":"phi")"},
    {"phi_normed_heads", R"("model_type":"phi","qk_layernorm":true)"},
    {"phi_relu", R"("model_type":"phi","hidden_act":"relu")"},
    {"phi3", R"("model_type":"phi3","num_key_value_heads":2)"},
    {"phi3_partial", R"("model_type":"phi3","num_key_value_heads":2,"partial_rotary_factor":0.5)"},
    {"starcoder2", R"("model_type":"starcoder2","num_key_value_heads":2)"},
    {"cohere", R"("model_type":"cohere","num_key_value_heads":2,"logit_scale":0.8)"},
    {"cohere2", R"("model_type":"cohere2","num_key_value_heads":2,"logit_scale":0.8,"sliding_window_pattern":2)"},
    {"olmo", R"("model_type":"olmo")"},
    {"olmo2", R"("model_type":"olmo2","num_key_value_heads":2)"},
    {"glm", R"("model_type":"glm","num_key_value_heads":2,"head_dim":8)"},
    {"glm4", R"("model_type":"glm4","num_key_value_heads":2,"head_dim":8)"},
    {"gpt_neox", R"("model_type":"gpt_neox","rotary_pct":0.5)"},
    {"gpt_neox_sequential", R"("model_type":"gpt_neox","rotary_pct":0.5,"use_parallel_residual":false)"},
    {"opt", R"("model_type":"opt","dropout":0.1)"},
    {"bloom", R"("model_type":"bloom")"},
    {"falcon", R"("model_type":"falcon")"},
    {"falcon_groups", R"("model_type":"falcon","new_decoder_architecture":true,"num_kv_heads":2)"},
    {"falcon_groups_one_norm",
     R"("model_type":"falcon","new_decoder_architecture":true,"num_kv_heads":2,"num_ln_in_parallel_attn":1)"},
    {"falcon_heads", R"("model_type":"falcon","multi_query":false,"bias":true)"},
    {"gpt_oss", R"("model_type":"gpt_oss","num_key_value_heads":2,"head_dim":8,"num_local_experts":4,)"
                R"("num_experts_per_tok":2,"sliding_window":5)"},
    {"deepseek_v2", R"("model_type":"deepseek_v2","q_lora_rank":null,"kv_lora_rank":8,"qk_nope_head_dim":8,)"
                    R"("qk_rope_head_dim":4,"v_head_dim":8,"n_routed_experts":4,"num_experts_per_tok":2,)"
                    R"("moe_intermediate_size":24,"n_shared_experts":2,"first_k_dense_replace":1)"},
    {"deepseek_v2_groups", R"("model_type":"deepseek_v2","q_lora_rank":12,"kv_lora_rank":8,"qk_nope_head_dim":8,)"
                           R"("qk_rope_head_dim":4,"v_head_dim":4,"n_routed_experts":6,"num_experts_per_tok":2,)"
                           R"("moe_intermediate_size":24,"n_shared_experts":1,"topk_method":"group_limited_greedy",)"
                           R"("n_group":3,"topk_group":2,"routed_scaling_factor":4.0)"},
    {"deepseek_v3", R"("model_type":"deepseek_v3","q_lora_rank":12,"kv_lora_rank":8,"qk_nope_head_dim":8,)"
                    R"("qk_rope_head_dim":4,"v_head_dim":8,"n_routed_experts":8,"num_experts_per_tok":2,)"
                    R"("moe_intermediate_size":24,"first_k_dense_replace":1,"n_group":4,"topk_group":2)"},
    {"deepseek_v3_halves", R"("model_type":"deepseek_v3","q_lora_rank":null,"kv_lora_rank":8,"qk_nope_head_dim":8,)"
                           R"("qk_rope_head_dim":4,"v_head_dim":12,"n_routed_experts":4,"num_experts_per_tok":2,)"
                           R"("moe_intermediate_size":24,"first_k_dense_replace":0,"n_group":1,"topk_group":1,)"
                           R"("rope_interleave":false)"},
    {"stablelm", R"("model_type":"stablelm","num_key_value_heads":2,"partial_rotary_factor":0.5)"},
    {"stablelm_parallel",
     R"("model_type":"stablelm","num_key_value_heads":4,"use_parallel_residual":true,"use_qkv_bias":true)"},
    {"stablelm_normed_heads", R"("model_type":"stablelm","num_key_value_heads":2,"qk_layernorm":true)"},
    {"internlm2", R"("model_type":"internlm2","num_key_value_heads":2,"bias":false,)"
                  R"("rope_scaling":{"type":"dynamic","factor":2.0})"},
    {"internlm2_sdpa", R"("model_type":"internlm2","num_key_value_heads":2,"attn_implementation":"sdpa",)"
                       R"("rope_scaling":{"type":"linear","factor":2.0})"},
    {"internlm2_ungrouped", R"("model_type":"internlm2","num_key_value_heads":4,"attn_implementation":"sdpa")"},
    {"gptj", R"("model_type":"gptj","rotary_dim":4)"},
    {"gptj_whole_heads", R"("model_type":"gptj","rotary_dim":8)"},
    {"llama4_text", R"("model_type":"llama4_text","num_key_value_heads":2,"head_dim":8,"num_local_experts":4,)"
                    R"("intermediate_size_mlp":40,"interleave_moe_layer_step":2,"no_rope_layer_interval":2,)"
                    R"("attention_chunk_size":5,"floor_scale":3)"},
    {"bert", R"("model_type":"bert","architectures":["BertForMaskedLM"],"attention_probs_dropout_prob":0.0)"},
    {"roberta", R"("model_type":"roberta","architectures":["RobertaForMaskedLM"],"hidden_dropout_prob":0.0,)"
                R"("attention_probs_dropout_prob":0.0,"type_vocab_size":1)"},
    {"t5", R"("model_type":"t5","d_kv":8,"relative_attention_num_buckets":8,"relative_attention_max_distance":10)"},
    {"t5_gated", R"("model_type":"t5","d_kv":6,"feed_forward_proj":"gated-gelu","num_decoder_layers":1,)"
                 R"("tie_word_embeddings":false,"dropout_rate":0.0)"},
    {"vit", R"("model_type":"vit","image_size":12,"patch_size":4,"num_labels":5)"},
    {"vit_quick", R"("model_type":"vit","image_size":13,"patch_size":4,"num_labels":3,"qkv_bias":false,)"
                  R"("hidden_act":"quick_gelu","hidden_dropout_prob":0.1,"num_channels":1)"},
    {"llava", R"("model_type":"llava","image_token_index":7,"text_config":{"model_type":"llama","hidden_size":32,)"
              R"("num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":48,)"
              R"("vocab_size":61},"vision_config":{"model_type":"clip_vision_model","hidden_size":24,)"
              R"("intermediate_size":40,"num_hidden_layers":3,"num_attention_heads":2,"image_size":8,"patch_size":4})"},
    {"llava_of_siglip_and_mistral",
     R"("model_type":"llava","image_token_index":7,"vision_feature_layer":-1,"vision_feature_select_strategy":"full",)"
     R"("multimodal_projector_bias":false,"text_config":{"model_type":"mistral","hidden_size":32,"sliding_window":5,)"
     R"("num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":48,)"
     R"("vocab_size":61},"vision_config":{"model_type":"siglip_vision_model","hidden_size":24,"vision_use_head":false,)"
     R"("intermediate_size":40,"num_hidden_layers":2,"num_attention_heads":2,"image_size":8,"patch_size":4})"},
    {"gemma3", R"("model_type":"gemma3","image_token_index":7,"mm_tokens_per_image":4,"text_config":{"hidden_size":32,)"
               R"("model_type":"gemma3_text","num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":1,)"
               R"("head_dim":16,"intermediate_size":48,"vocab_size":61,"sliding_window":5,)"
               R"("sliding_window_pattern":2},"vision_config":{"model_type":"siglip_vision_model","hidden_size":24,)"
               R"("intermediate_size":40,"num_hidden_layers":2,"num_attention_heads":2,"image_size":16,)"
               R"("patch_size":4,"vision_use_head":false})"},
    {"qwen2_vl", R"("model_type":"qwen2_vl","image_token_id":7,"text_config":{"hidden_size":32,"num_hidden_layers":2,)"
                 R"("num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":48,"vocab_size":61,)"
                 R"("rope_scaling":{"type":"mrope","mrope_section":[2,1,1]}},"vision_config":{"embed_dim":8,"depth":2,)"
                 R"("num_heads":2,"mlp_ratio":2,"hidden_size":32,"in_channels":1,"patch_size":64,)"
                 R"("spatial_merge_size":6,"temporal_patch_size":1})"},
    {"qwen2_vl_flat",
     R"("model_type":"qwen2_vl","image_token_id":7,"num_key_value_heads":4,"tie_word_embeddings":true,)"
     R"("vision_config":{"embed_dim":8,"depth":1,"num_heads":1,"mlp_ratio":3,"hidden_size":32,)"
     R"("in_channels":1,"patch_size":128,"spatial_merge_size":3,"temporal_patch_size":2},)"
     R"("rope_scaling":{"type":"mrope","mrope_section":[1,1,2]})"},
    {"qwen2_5_vl",
     R"("model_type":"qwen2_5_vl","image_token_id":7,"text_config":{"hidden_size":32,"num_hidden_layers":2,)"
     R"("num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":48,"vocab_size":61,)"
     R"("rope_scaling":{"type":"mrope","mrope_section":[2,1,1]}},"vision_config":{"hidden_size":8,"depth":3,)"
     R"("num_heads":2,"intermediate_size":12,"out_hidden_size":32,"in_channels":1,"patch_size":64,)"
     R"("spatial_merge_size":6,"temporal_patch_size":1,"window_size":384,"fullatt_block_indexes":[1]})"},
    {"llama4", R"("model_type":"llama4","image_token_index":7,"text_config":{"hidden_size":32,"num_hidden_layers":2,)"
               R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"intermediate_size":48,"vocab_size":61,)"
               R"("num_local_experts":4,"intermediate_size_mlp":40,"interleave_moe_layer_step":2,)"
               R"("no_rope_layer_interval":2,"attention_chunk_size":5,"floor_scale":3},"vision_config":{)"
               R"("hidden_size":8,"intermediate_size":32,"num_hidden_layers":2,"num_attention_heads":2,)"
               R"("image_size":8,"patch_size":2,"projector_input_dim":12,"projector_output_dim":12,)"
               R"("vision_output_dim":12})"},
    {"gpt2", R"("model_type":"gpt2","attn_pdrop":0.0,"resid_pdrop":0.2,"embd_pdrop":0.1)"},
};

inline std::string text_of(const TinyFamily& family) {
  return std::string("{") + family.config +
         R"(,"hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":48,"vocab_size":61,)"
         R"("max_position_embeddings":64})";
}

}  // namespace ledger::tiny
