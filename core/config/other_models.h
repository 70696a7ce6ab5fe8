// other_models.h - families that are no decoder: encoders, encoder-decoders, vision towers and what joins them to text.
//
// Their parameters are counted exactly; their training step is not traced.
#pragma once

#include "core/config/fields.h"
#include "core/config/model_config.h"

namespace ledger {

void count_bert(Fields& fields, ModelConfig& config);  // and roberta
void count_t5(Fields& fields, ModelConfig& config);
void count_vit(Fields& fields, ModelConfig& config);
void count_llava(Fields& fields, ModelConfig& config);
void count_gemma3(Fields& fields, ModelConfig& config);
void count_llama4(Fields& fields, ModelConfig& config);
void count_qwen2_vl(Fields& fields, ModelConfig& config);  // and qwen2_5_vl

}  // namespace ledger
