// plain_stack.h - {"layers": [{"linear": [in, out], "bias": true}, ...]}: our own file for stacks of linear layers.
#pragma once

#include "core/base/json.h"
#include "core/base/problem.h"
#include "core/config/model_config.h"

namespace ledger {

bool is_plain_stack(const Json& root);

// Every layer's output is the next one's input. At most 4096 layers, sizes 1..2^24. Unlike a hub file, an unknown key
// here is a typing error, and so a Problem.
Result<ModelConfig> read_plain_stack(const Json& root);

}  // namespace ledger
