// advice.h - what to do about a cause, in order; where the numbers allow it, what each would save.
#pragma once

#include <optional>
#include <vector>

#include "core/oom/diagnosis.h"

namespace ledger::oom {

struct Advice {
  const char* id;
  const char* key = "";    // of a recipe, where the advice is a change of recipe: "checkpointing"
  const char* value = "";  // "full"
  std::optional<Bytes> saves_bytes;
};

// Every id that advise() can give, for tests of their texts.
std::vector<const char*> advice_ids();

std::vector<Advice> advise(const Diagnosis& diagnosis, const Message* message);

}  // namespace ledger::oom
