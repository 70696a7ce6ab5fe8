// oom_texts.h - the OOM reader's ids as English sentences for the terminal.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/oom/diagnosis.h"

namespace ledger {

std::string cause_text(oom::Cause cause);
std::string evidence_text(std::string_view id);
std::string advice_text(std::string_view id);
std::string conclusion_text(std::string_view id);

}  // namespace ledger
