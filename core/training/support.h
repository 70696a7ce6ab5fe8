// support.h - which recipes can be traced: a table of refusals, each with the reason's id.
#pragma once

#include <optional>

#include "core/base/problem.h"
#include "core/config/model_config.h"
#include "core/config/recipe.h"

namespace ledger {

// A quantised base that PEFT prepared (prepare_model_for_kbit_training): whatever is not quantised is held in fp32.
bool prepared_for_kbit(const Recipe& recipe);

// PyTorch's AdamW, in any of its three implementations.
bool plain_adamw(const Recipe& recipe);

// The residual stream is fp32, and with it queries and keys where autocast does not cast them.
bool fp32_stream(const Recipe& recipe);

// Some token does not see the first one, and the stack says so with a mask.
bool takes_window_mask(const ModelConfig& config, const Recipe& recipe);

// The shortest sequence that has room for its images; 1 without any.
std::uint64_t least_sequence(const ModelConfig& config, const Recipe& recipe);

// The first reason why `recipe` cannot be computed for `config`, or nullopt. where: key; read: its value; expected:
// reason id.
std::optional<Problem> unsupported(const ModelConfig& config, const Recipe& recipe);

// The part of it that asks whether a training recipe sets what only task: generate reads.
std::optional<Problem> only_while_generating(const Recipe& recipe);

}  // namespace ledger
