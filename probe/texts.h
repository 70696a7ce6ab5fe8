// texts.h - the core's problem codes as English sentences for the terminal (the page has its own, in two languages).
#pragma once

#include <string>

#include "core/base/problem.h"

namespace ledger {

// What was read, what was expected, what to do. `document` names the input: "cfg.json", "--batch".
std::string say(const Problem& problem, const std::string& document);

}  // namespace ledger
