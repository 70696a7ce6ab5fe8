// explain.h - --explain-oom: an error text beside the prediction, and the answer in sentences for the terminal.
#pragma once

#include <string>
#include <string_view>

#include "core/answer/prediction.h"
#include "core/oom/explain.h"

namespace ledger {

// With a prediction: the requested size is looked for among all of its trace's tensors, and each piece of advice that
// is a change of recipe says what it saves, by predicting again.
oom::Explanation explain_text(std::string_view text, const Prediction* prediction);

std::string explanation_text(const oom::Explanation& explanation);

}  // namespace ledger
