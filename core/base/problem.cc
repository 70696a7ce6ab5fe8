#include "core/base/problem.h"

#include <array>
#include <cstddef>

namespace ledger {
namespace {

constexpr std::array<const char*, static_cast<std::size_t>(ProblemCode::count_)> kIds = {{
    "json_syntax",
    "json_too_large",
    "json_too_deep",
    "not_an_object",
    "missing_key",
    "wrong_type",
    "out_of_range",
    "not_one_of",
    "unknown_key",
    "wrong_file",
    "unknown_model_type",
    "inconsistent_config",
    "unsupported_recipe",
    "too_large_to_trace",
    "overflow",
    "schema_version",
}};

}  // namespace

const char* problem_id(ProblemCode code) {
  return kIds[static_cast<std::size_t>(code)];
}

}  // namespace ledger
