// comparison.h - a measured file beside the prediction for the same run, every byte of the difference on a named line.
#pragma once

#include <string>

#include "core/base/json.h"
#include "core/base/problem.h"

namespace ledger {

// `measured`: a document of kind "measured" and schema_version 1.x. Problems: missing_key, wrong_type, schema_version,
// and those of its model and recipe. Returns the comparison document (docs/file-formats.md).
Result<std::string> compare_measured(const Json& measured);

}  // namespace ledger
