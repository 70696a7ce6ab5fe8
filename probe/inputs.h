// inputs.h - the model and the recipe that probe's flags name: files, checkpoints by name, flags over a recipe.
#pragma once

#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "probe/exit.h"
#include "probe/flags.h"

namespace ledger {

struct Inputs {
  ModelConfig config;
  Recipe recipe;
  int code = kOk;  // set, and a sentence printed, when they cannot be had
};

Inputs read_inputs(const Flags& flags);

}  // namespace ledger
