// gptj.h - GPT-J's attention, whose rotary embedding is looked up in a table that every layer holds, and its layer.
//
// Source: transformers 5.12 models/gptj/modeling_gptj.py, GPTJAttention and GPTJBlock: written-out attention only.
#pragma once

#include <utility>

#include "core/models/decoder_layer.h"

namespace ledger {

// create_sinusoidal_positions: fp32 [positions, rot], a buffer.
Tensor position_table(Tape& tape, const ModelConfig& config);

// The layer's output and the weights that it returns beside it.
std::pair<Tensor, Tensor> gptj_layer(const DecoderLayer& layer, const Tensor& input, const LayerContext& context,
                                     const DecoderDims& dims);

}  // namespace ledger
