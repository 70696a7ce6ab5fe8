// lesson.h - what the course's figures ask: number formats, and the chapter's ledger. Each answers with a JSON object.
#pragma once

#include <string>

#include "core/base/json.h"
#include "core/base/problem.h"

namespace ledger {

// {"about": "formats"}: every number format's layout and range.
Result<std::string> formats_lesson(const Json& request);
// {"about": "number", "format": "bf16", "value": 1.1 | "bits": 16256}: value, neighbours, ulp.
Result<std::string> number_lesson(const Json& request);
// {"about": "update", "weight": 1, "update": 1e-5, "steps": 1000}: the same weight kept in each format.
Result<std::string> update_lesson(const Json& request);
// {"about": "scaling", "gradients": [1e-8], "scale": 65536}: fp16 with and without loss scaling, bf16 beside it.
Result<std::string> scaling_lesson(const Json& request);
// {"about": "tensor", "shape": [1000, 1000]}: its bytes in every element type.
Result<std::string> tensor_lesson(const Json& request);
// {"about": "ledger", "config": ..., "params": 70000000000, "recipe": {...}}: the chapter's bytes.
Result<std::string> ledger_lesson(const Json& request);
// {"about": "cut", "config": ..., "recipe": {...}, "kind": "tensor|pipeline|expert", "ways": 8}.
Result<std::string> cut_lesson(const Json& request);

}  // namespace ledger
