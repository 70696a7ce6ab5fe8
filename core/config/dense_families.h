// dense_families.h - decoders whose layers all have one MLP: rows of families.cc.
#pragma once

#include <array>

#include "core/config/families.h"

namespace ledger {

inline constexpr std::array kDenseFamilies = {
    Family{"llama",
           {.traced = true},
           R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":2048,"rms_norm_eps":1e-6,"hidden_activation":"silu"})",
           "LlamaConfig"},
    Family{
        "mistral",
        {.traced = true},
        R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,)"
        R"("num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":131072,"sliding_window":4096})",
        "MistralConfig"},
    Family{"qwen2",
           {.qkv_bias = true, .traced = true},
           R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"num_key_value_heads":32,"max_position_embeddings":32768,"sliding_window":4096,)"
           R"("use_sliding_window":false,"max_window_layers":28})",
           "Qwen2Config"},
    Family{"qwen3",
           {.qk_norm = QkNorm::head, .traced = true},
           R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"num_key_value_heads":32,"head_dim":128,"max_position_embeddings":32768,)"
           R"("sliding_window":4096,"use_sliding_window":false,"max_window_layers":28})",
           "Qwen3Config"},
    Family{"granite",
           {.traced = true},
           R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":2048,"embedding_multiplier":1.0,)"
           R"("attention_multiplier":1.0,"residual_multiplier":1.0,"logits_scaling":1.0})",
           "GraniteConfig"},
    Family{"smollm3",
           {.traced = true},
           R"({"vocab_size":128256,"hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,)"
           R"("num_attention_heads":16,"num_key_value_heads":4,"max_position_embeddings":32768,"rope_theta":2e6,)"
           R"("no_rope_layer_interval":4,"tie_word_embeddings":true,"use_sliding_window":false})",
           "SmolLM3Config"},
    Family{"internlm2",
           {.projections = Projections::grouped, .traced = true},
           R"({"vocab_size":103168,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":2048,"bias":true,"pretraining_tp":1,)"
           R"("attn_implementation":"eager"})",
           "internlm/internlm2 configuration_internlm2.py InternLM2Config"},
    Family{"gemma",
           {.norm = NormKind::rms_gemma, .traced = true},
           R"({"vocab_size":256000,"hidden_size":3072,"intermediate_size":24576,"num_hidden_layers":28,)"
           R"("num_attention_heads":16,"num_key_value_heads":16,"head_dim":256,"max_position_embeddings":8192,)"
           R"("hidden_activation":"gelu_pytorch_tanh","tie_word_embeddings":true})",
           "GemmaConfig"},
    Family{"gemma2",
           {.norm = NormKind::rms_gemma, .layout = Layout::sandwich, .traced = true},
           R"({"vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,)"
           R"("num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"max_position_embeddings":8192,)"
           R"("hidden_activation":"gelu_pytorch_tanh","tie_word_embeddings":true,"sliding_window":4096,)"
           R"("sliding_window_pattern":2,"query_pre_attn_scalar":256,"final_logit_softcapping":30.0,)"
           R"("attn_logit_softcapping":50.0})",
           "Gemma2Config"},
    Family{"gemma3_text",
           {.norm = NormKind::rms_gemma, .layout = Layout::sandwich, .qk_norm = QkNorm::head, .traced = true},
           R"({"vocab_size":262208,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,)"
           R"("num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"max_position_embeddings":131072,)"
           R"("hidden_activation":"gelu_pytorch_tanh","tie_word_embeddings":true,"sliding_window":4096,)"
           R"("sliding_window_pattern":6,"query_pre_attn_scalar":256,"rope_theta":1e6,"rope_local_base_freq":1e4})",
           "Gemma3TextConfig"},
    Family{
        "phi",
        {.norm = NormKind::layer, .layout = Layout::parallel, .feed = Feed::plain, .head_bias = true, .traced = true},
        R"({"vocab_size":51200,"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":24,)"
        R"("num_attention_heads":32,"max_position_embeddings":2048,"rms_norm_eps":1e-5,)"
        R"("hidden_activation":"gelu_new","attention_bias":true,"mlp_bias":true,"partial_rotary_factor":0.5,)"
        R"("qk_layernorm":false,"resid_pdrop":0.0,"embd_pdrop":0.0})",
        "PhiConfig"},
    Family{"phi3",
           {.projections = Projections::sliced, .feed = Feed::gated_fused, .traced = true},
           R"({"vocab_size":32064,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":4096,"rms_norm_eps":1e-5,"sliding_window":null})",
           "Phi3Config"},
    Family{
        "starcoder2",
        {.norm = NormKind::layer, .feed = Feed::plain, .traced = true},
        R"({"vocab_size":49152,"hidden_size":3072,"intermediate_size":12288,"num_hidden_layers":30,)"
        R"("num_attention_heads":24,"num_key_value_heads":2,"max_position_embeddings":4096,"rms_norm_eps":1e-5,)"
        R"("hidden_activation":"gelu_pytorch_tanh","tie_word_embeddings":true,"use_bias":true,"sliding_window":null})",
        "Starcoder2Config"},
    Family{"cohere",
           {.norm = NormKind::cohere, .layout = Layout::parallel, .traced = true},
           R"({"vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"num_hidden_layers":40,)"
           R"("num_attention_heads":64,"max_position_embeddings":8192,"rms_norm_eps":1e-5,"logit_scale":0.0625,)"
           R"("tie_word_embeddings":true,"use_qk_norm":false})",
           "CohereConfig"},
    Family{"cohere2",
           {.norm = NormKind::cohere, .layout = Layout::parallel, .traced = true},
           R"({"vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"num_hidden_layers":40,)"
           R"("num_attention_heads":64,"max_position_embeddings":8192,"rms_norm_eps":1e-5,"logit_scale":0.0625,)"
           R"("tie_word_embeddings":true,"sliding_window":4096,"sliding_window_pattern":4})",
           "Cohere2Config"},
    Family{"olmo",
           {.norm = NormKind::bare, .traced = true},
           R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":2048})",
           "OlmoConfig"},
    Family{"olmo2",
           {.norm = NormKind::rms_late, .layout = Layout::post, .qk_norm = QkNorm::width, .traced = true},
           R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":2048,"rms_norm_eps":1e-5})",
           "Olmo2Config"},
    Family{"stablelm",
           {.norm = NormKind::layer, .traced = true},
           R"({"vocab_size":50304,"hidden_size":2560,"intermediate_size":6912,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"num_key_value_heads":32,"max_position_embeddings":4096,"rms_norm_eps":1e-5,)"
           R"("partial_rotary_factor":0.25,"use_qkv_bias":false,"qk_layernorm":false,"use_parallel_residual":false,)"
           R"("hidden_dropout":0.0,"attention_dropout":0.0})",
           "StableLmConfig"},
    Family{"glm",
           {.feed = Feed::gated_fused, .bias_skips_o = true, .traced = true},
           R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,)"
           R"("num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,"max_position_embeddings":131072,)"
           R"("rms_norm_eps":1.5625e-7,"attention_bias":true,"partial_rotary_factor":0.5})",
           "GlmConfig"},
    Family{"glm4",
           {.layout = Layout::sandwich, .feed = Feed::gated_fused, .bias_skips_o = true, .traced = true},
           R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,)"
           R"("num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,"max_position_embeddings":131072,)"
           R"("rms_norm_eps":1.5625e-7,"attention_bias":true,"partial_rotary_factor":0.5})",
           "Glm4Config"},
    Family{"gpt_neox",
           {.norm = NormKind::layer,
            .layout = Layout::parallel_two,
            .projections = Projections::by_head,
            .feed = Feed::plain,
            .traced = true},
           R"({"vocab_size":50432,"hidden_size":6144,"intermediate_size":24576,"num_hidden_layers":44,)"
           R"("num_attention_heads":64,"max_position_embeddings":2048,"rms_norm_eps":1e-5,"hidden_activation":"gelu",)"
           R"("attention_bias":true,"mlp_bias":true,"partial_rotary_factor":0.25,"use_parallel_residual":true})",
           "GPTNeoXConfig"},
    Family{"gpt2",
           {.norm = NormKind::layer,
            .projections = Projections::conv,
            .feed = Feed::plain,
            .position = Position::learned,
            .traced = true},
           R"({"vocab_size":50257,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,)"
           R"("max_position_embeddings":1024,"rms_norm_eps":1e-5,"hidden_activation":"gelu_new","attention_bias":true,)"
           R"("mlp_bias":true,"tie_word_embeddings":true,"resid_pdrop":0.1,"embd_pdrop":0.1,"attn_pdrop":0.1})",
           "GPT2Config"},
    Family{"gptj",
           {.norm = NormKind::layer,
            .layout = Layout::parallel,
            .feed = Feed::plain,
            .position = Position::table,
            .head_bias = true,
            .traced = true},
           R"({"vocab_size":50400,"hidden_size":4096,"num_hidden_layers":28,"num_attention_heads":16,)"
           R"("max_position_embeddings":2048,"rms_norm_eps":1e-5,"hidden_activation":"gelu_new","mlp_bias":true,)"
           R"("rotary_dim":64,"resid_pdrop":0.0,"embd_pdrop":0.0,"attn_pdrop":0.0})",
           "GPTJConfig"},
    Family{
        "opt",
        {.norm = NormKind::layer, .feed = Feed::plain, .position = Position::learned, .traced = true},
        R"({"vocab_size":50272,"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,)"
        R"("num_attention_heads":12,"max_position_embeddings":2048,"rms_norm_eps":1e-5,"hidden_activation":"relu",)"
        R"("enable_bias":true,"tie_word_embeddings":true,"dropout":0.1,"word_embed_proj_dim":null,"do_layer_norm_before":true,)"
        R"("_remove_final_layer_norm":false,"layer_norm_elementwise_affine":true})",
        "OPTConfig"},
    Family{"bloom",
           {.norm = NormKind::layer,
            .projections = Projections::by_head,
            .feed = Feed::plain,
            .position = Position::alibi,
            .embedding_norm = true,
            .traced = true},
           R"({"vocab_size":250880,"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":8,)"
           R"("rms_norm_eps":1e-5,"hidden_activation":"gelu","attention_bias":true,"mlp_bias":true,)"
           R"("tie_word_embeddings":true,"hidden_dropout":0.0,"attention_dropout":0.0,)"
           R"("apply_residual_connection_post_layernorm":false,"slow_but_exact":false})",
           "BloomConfig"},
    Family{
        "falcon",
        {.norm = NormKind::layer,
         .layout = Layout::parallel,
         .projections = Projections::falcon,
         .feed = Feed::plain,
         .traced = true},
        R"({"vocab_size":65024,"hidden_size":4544,"num_hidden_layers":32,"num_attention_heads":71,)"
        R"("max_position_embeddings":2048,"rms_norm_eps":1e-5,"hidden_activation":"gelu","multi_query":true,)"
        R"("parallel_attn":true,"new_decoder_architecture":false,"alibi":false,"bias":false,"num_ln_in_parallel_attn":null,)"
        R"("tie_word_embeddings":true,"hidden_dropout":0.0,"attention_dropout":0.0})",
        "FalconConfig"},
    Family{"qwen2_vl_text",
           {.qkv_bias = true},
           R"({"vocab_size":152064,"hidden_size":8192,"intermediate_size":29568,"num_hidden_layers":80,)"
           R"("num_attention_heads":64,"num_key_value_heads":8,"max_position_embeddings":32768,"rms_norm_eps":1e-5,)"
           R"("sliding_window":4096,"use_sliding_window":false,"max_window_layers":80})",
           "Qwen2VLTextConfig"},
    Family{"qwen2_5_vl_text",
           {.qkv_bias = true},
           R"({"vocab_size":152064,"hidden_size":8192,"intermediate_size":29568,"num_hidden_layers":80,)"
           R"("num_attention_heads":64,"num_key_value_heads":8,"max_position_embeddings":32768,"rms_norm_eps":1e-5,)"
           R"("sliding_window":4096,"use_sliding_window":false,"max_window_layers":80})",
           "Qwen2_5_VLTextConfig"},
};

}  // namespace ledger
