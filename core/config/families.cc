#include "core/config/families.h"

#include <array>
#include <vector>

#include "core/base/nearest.h"
#include "core/config/other_models.h"

namespace ledger {
namespace {

// Sources: transformers 5.12 models/*/configuration_*.py, class by class; where another is named, that one.
// Keys are the canonical ones of key_aliases(); num_key_value_heads and head_dim are left out where they follow from
// the other sizes.
constexpr std::array kFamilies = {
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
    Family{"mixtral",
           {.moe = MoeRule::every, .traced = true},
           R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":131072,"rms_norm_eps":1e-5,)"
           R"("rope_theta":1e6,"num_experts":8,"num_experts_per_tok":2,"sliding_window":null})",
           "MixtralConfig"},
    Family{"qwen2",
           {.qkv_bias = true, .traced = true},
           R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"num_key_value_heads":32,"max_position_embeddings":32768,"sliding_window":4096,)"
           R"("use_sliding_window":false,"max_window_layers":28})",
           "Qwen2Config"},
    Family{
        "qwen2_moe",
        {.moe = MoeRule::qwen, .routing = Routing::softmax_cast, .shared_gate = true, .traced = true},
        R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,)"
        R"("num_attention_heads":16,"num_key_value_heads":16,"max_position_embeddings":32768,"sliding_window":4096,)"
        R"("use_sliding_window":false,"max_window_layers":28,"qkv_bias":true,"num_experts":60,)"
        R"("num_experts_per_tok":4,"moe_intermediate_size":1408,"norm_topk_prob":false,"shared_expert_intermediate_size":5632})",
        "Qwen2MoeConfig"},
    Family{"qwen3",
           {.qk_norm = QkNorm::head, .traced = true},
           R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"num_key_value_heads":32,"head_dim":128,"max_position_embeddings":32768,)"
           R"("sliding_window":4096,"use_sliding_window":false,"max_window_layers":28})",
           "Qwen3Config"},
    Family{
        "qwen3_moe",
        {.qk_norm = QkNorm::head, .moe = MoeRule::qwen, .routing = Routing::softmax_cast, .traced = true},
        R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":24,)"
        R"("num_attention_heads":32,"num_key_value_heads":4,"max_position_embeddings":32768,"sliding_window":4096,)"
        R"("use_sliding_window":false,"num_experts":128,"num_experts_per_tok":8,"moe_intermediate_size":768,"norm_topk_prob":false})",
        "Qwen3MoeConfig"},
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
           {},
           R"({"vocab_size":103168,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":2048,"bias":true})",
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
    Family{"olmoe",
           {.qk_norm = QkNorm::width, .moe = MoeRule::every, .routing = Routing::softmax_cast, .traced = true},
           R"({"vocab_size":50304,"hidden_size":2048,"intermediate_size":2048,"num_hidden_layers":16,)"
           R"("num_attention_heads":16,"max_position_embeddings":4096,"rms_norm_eps":1e-5,"num_experts":64,)"
           R"("num_experts_per_tok":8,"norm_topk_prob":false})",
           "OlmoeConfig"},
    Family{"stablelm",
           {.norm = NormKind::layer},
           R"({"vocab_size":50304,"hidden_size":2560,"intermediate_size":6912,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"num_key_value_heads":32,"max_position_embeddings":4096,"rms_norm_eps":1e-5,)"
           R"("partial_rotary_factor":0.25,"use_qkv_bias":false,"qk_layernorm":false,"use_parallel_residual":false})",
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
           {.norm = NormKind::layer, .layout = Layout::parallel, .feed = Feed::plain, .head_bias = true},
           R"({"vocab_size":50400,"hidden_size":4096,"num_hidden_layers":28,"num_attention_heads":16,)"
           R"("max_position_embeddings":2048,"rms_norm_eps":1e-5,"hidden_activation":"gelu_new","mlp_bias":true,)"
           R"("rotary_dim":64})",
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
    Family{"deepseek_v2",
           {.projections = Projections::latent, .moe = MoeRule::first_dense},
           R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,)"
           R"("num_attention_heads":32,"max_position_embeddings":2048,"num_experts":64,"n_shared_experts":2,)"
           R"("moe_intermediate_size":1407,"first_k_dense_replace":0,"q_lora_rank":1536,"kv_lora_rank":512,)"
           R"("qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128})",
           "DeepseekV2Config"},
    Family{"deepseek_v3",
           {.projections = Projections::latent, .moe = MoeRule::first_dense},
           R"({"vocab_size":129280,"hidden_size":7168,"intermediate_size":18432,"num_hidden_layers":61,)"
           R"("num_attention_heads":128,"max_position_embeddings":4096,"num_experts":256,"num_experts_per_tok":8,)"
           R"("n_shared_experts":1,"moe_intermediate_size":2048,"first_k_dense_replace":3,"q_lora_rank":1536,)"
           R"("kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128})",
           "DeepseekV3Config"},
    Family{"gpt_oss",
           {.norm = NormKind::rms_late, .moe = MoeRule::every, .expert_bias = true, .sinks = true},
           R"({"vocab_size":201088,"hidden_size":2880,"intermediate_size":2880,"num_hidden_layers":36,)"
           R"("num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"max_position_embeddings":131072,)"
           R"("rms_norm_eps":1e-5,"attention_bias":true,"rope_theta":150000,"sliding_window":128,)"
           R"("sliding_window_pattern":2,"num_experts":128,"num_experts_per_tok":4})",
           "GptOssConfig"},
    Family{"llama4_text",
           {.moe = MoeRule::interleaved},
           R"({"vocab_size":202048,"hidden_size":5120,"intermediate_size":8192,"intermediate_size_mlp":16384,)"
           R"("num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,)"
           R"("max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":500000,"num_experts":16,)"
           R"("num_experts_per_tok":1,"interleave_moe_layer_step":1})",
           "Llama4TextConfig"},
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
    Family{"bert",
           {},
           R"({"vocab_size":30522,"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,)"
           R"("num_attention_heads":12,"max_position_embeddings":512,"type_vocab_size":2})",
           "BertConfig",
           count_bert},
    Family{"roberta",
           {},
           R"({"vocab_size":50265,"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,)"
           R"("num_attention_heads":12,"max_position_embeddings":512,"type_vocab_size":2})",
           "RobertaConfig",
           count_bert},
    Family{"t5",
           {},
           R"({"vocab_size":32128,"hidden_size":512,"d_kv":64,"intermediate_size":2048,"num_hidden_layers":6,)"
           R"("num_attention_heads":8,"relative_attention_num_buckets":32,"feed_forward_proj":"relu"})",
           "T5Config",
           count_t5},
    Family{"vit",
           {},
           R"({"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,"num_attention_heads":12,)"
           R"("image_size":224,"patch_size":16,"num_channels":3,"qkv_bias":true})",
           "ViTConfig",
           count_vit},
    Family{"llava",
           {},
           R"({"text_config":{"model_type":"llama"},"vision_config":{"model_type":"clip_vision_model",)"
           R"("hidden_size":1024,"intermediate_size":4096,"patch_size":14,"image_size":336,"num_hidden_layers":24,)"
           R"("num_attention_heads":16},"multimodal_projector_bias":true})",
           "LlavaConfig",
           count_llava},
    Family{"gemma3",
           {},
           R"({"text_config":{"model_type":"gemma3_text"},"vision_config":{"model_type":"siglip_vision_model"}})",
           "Gemma3Config",
           count_gemma3},
    Family{"llama4",
           {},
           R"({"text_config":{"model_type":"llama4_text"},"vision_config":{"model_type":"llama4_vision_model"}})",
           "Llama4Config",
           count_llama4},
    Family{"qwen2_vl",
           {},
           R"({"text_config":{"model_type":"qwen2_vl_text"},"vision_config":{"model_type":"qwen2_vl"}})",
           "Qwen2VLConfig",
           count_qwen2_vl},
    Family{"qwen2_5_vl",
           {},
           R"({"text_config":{"model_type":"qwen2_5_vl_text"},"vision_config":{"model_type":"qwen2_5_vl"}})",
           "Qwen2_5_VLConfig",
           count_qwen2_vl},
};

// Attribute maps of configuration classes, and keys of files older than them.
constexpr std::array kAliases = {
    KeyAlias{"hidden_size", "n_embd"},
    KeyAlias{"hidden_size", "d_model"},
    KeyAlias{"hidden_size", "n_embed"},
    KeyAlias{"num_hidden_layers", "n_layer"},
    KeyAlias{"num_hidden_layers", "num_layers"},
    KeyAlias{"num_attention_heads", "n_head"},
    KeyAlias{"num_attention_heads", "num_heads"},
    KeyAlias{"num_key_value_heads", "num_kv_heads"},
    KeyAlias{"num_key_value_heads", "n_head_kv"},
    KeyAlias{"intermediate_size", "n_inner"},
    KeyAlias{"intermediate_size", "ffn_dim"},
    KeyAlias{"intermediate_size", "ffn_hidden_size"},
    KeyAlias{"intermediate_size", "d_ff"},
    KeyAlias{"max_position_embeddings", "n_positions"},
    KeyAlias{"max_position_embeddings", "n_ctx"},
    KeyAlias{"rms_norm_eps", "layer_norm_eps"},
    KeyAlias{"rms_norm_eps", "layer_norm_epsilon"},
    KeyAlias{"rms_norm_eps", "norm_epsilon"},
    KeyAlias{"hidden_activation", "hidden_act"},
    KeyAlias{"hidden_activation", "activation_function"},
    KeyAlias{"hidden_activation", "activation"},
    KeyAlias{"partial_rotary_factor", "rotary_pct"},
    KeyAlias{"rope_theta", "rotary_emb_base"},
    KeyAlias{"sliding_window_pattern", "_sliding_window_pattern"},
    KeyAlias{"num_experts", "num_local_experts"},
    KeyAlias{"num_experts", "n_routed_experts"},
    KeyAlias{"num_experts_per_tok", "experts_per_token"},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

std::span<const KeyAlias> key_aliases() {
  return kAliases;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += '|';
    names += family.model_type;
  }
  return names;
}

std::string nearest_family(std::string_view model_type) {
  std::vector<const char*> names;
  for (const Family& family : kFamilies)
    names.push_back(family.model_type);
  return nearest(model_type, names);
}

}  // namespace ledger
