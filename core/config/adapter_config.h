// adapter_config.h - PEFT's adapter_config.json as the part of a recipe that it says.
//
// It lies beside adapter weights as config.json lies beside a model's, and is dropped in its place. Source: peft
// tuners/lora/config.py, LoraConfig.
#pragma once

#include "core/base/json.h"
#include "core/base/problem.h"

namespace ledger {

bool is_adapter_config(const Json& root);

// The same as a recipe object: method lora, rank, targets, lora_dropout, dora. What no recipe can say is a Problem.
Result<Json> recipe_of_adapter(const Json& root);

}  // namespace ledger
