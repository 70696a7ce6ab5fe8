// other_families.h - what is no decoder by itself: rows of families.cc.
#pragma once

#include <array>

#include "core/config/families.h"
#include "core/config/other_models.h"

namespace ledger {

inline constexpr std::array kOtherFamilies = {
    Family{"bert",
           {.traced = true},
           R"({"vocab_size":30522,"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,)"
           R"("num_attention_heads":12,"max_position_embeddings":512,"type_vocab_size":2,"hidden_activation":"gelu",)"
           R"("rms_norm_eps":1e-12,"hidden_dropout_prob":0.1,"attention_probs_dropout_prob":0.1})",
           "BertConfig",
           count_bert},
    Family{"roberta",
           {.traced = true},
           R"({"vocab_size":50265,"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,)"
           R"("num_attention_heads":12,"max_position_embeddings":512,"type_vocab_size":2,"hidden_activation":"gelu",)"
           R"("rms_norm_eps":1e-12,"hidden_dropout_prob":0.1,"attention_probs_dropout_prob":0.1})",
           "RobertaConfig",
           count_bert},
    Family{"t5",
           {.norm = NormKind::rms_t5, .feed = Feed::plain, .position = Position::relative, .traced = true},
           R"({"vocab_size":32128,"hidden_size":512,"d_kv":64,"intermediate_size":2048,"num_hidden_layers":6,)"
           R"("num_attention_heads":8,"relative_attention_num_buckets":32,"relative_attention_max_distance":128,)"
           R"("rms_norm_eps":1e-6,"dropout_rate":0.1,"feed_forward_proj":"relu"})",
           "T5Config",
           count_t5},
    Family{"vit",
           {.traced = true},
           R"({"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,"num_attention_heads":12,)"
           R"("image_size":224,"patch_size":16,"num_channels":3,"qkv_bias":true,"hidden_activation":"gelu",)"
           R"("rms_norm_eps":1e-12,"hidden_dropout_prob":0.0,"attention_probs_dropout_prob":0.0})",
           "ViTConfig",
           count_vit},
    Family{"llava",
           {.traced = true},
           R"({"text_config":{"model_type":"llama"},"vision_config":{"model_type":"clip_vision_model",)"
           R"("hidden_size":1024,"intermediate_size":4096,"patch_size":14,"image_size":336,"num_hidden_layers":24,)"
           R"("num_attention_heads":16},"multimodal_projector_bias":true,"projector_hidden_act":"gelu",)"
           R"("vision_feature_select_strategy":"default","image_token_index":32000})",
           "LlavaConfig",
           count_llava},
    Family{"gemma3",
           {.traced = true},
           R"({"text_config":{"model_type":"gemma3_text"},"vision_config":{"model_type":"siglip_vision_model"},)"
           R"("mm_tokens_per_image":256,"image_token_index":262144})",
           "Gemma3Config",
           count_gemma3},
    Family{"llama4",
           {.traced = true},
           R"({"text_config":{"model_type":"llama4_text"},"vision_config":{"model_type":"llama4_vision_model"},)"
           R"("image_token_index":200092})",
           "Llama4Config",
           count_llama4},
    Family{"qwen2_vl",
           {.traced = true},
           R"({"text_config":{"model_type":"qwen2_vl_text"},"vision_config":{"model_type":"qwen2_vl"},)"
           R"("image_token_index":151655})",
           "Qwen2VLConfig",
           count_qwen2_vl},
    Family{"qwen2_5_vl",
           {.traced = true},
           R"({"text_config":{"model_type":"qwen2_5_vl_text"},"vision_config":{"model_type":"qwen2_5_vl"},)"
           R"("image_token_index":151655})",
           "Qwen2_5_VLConfig",
           count_qwen2_vl},
};

}  // namespace ledger
