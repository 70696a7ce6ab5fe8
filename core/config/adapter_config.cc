#include "core/config/adapter_config.h"

#include <utility>
#include <vector>

namespace ledger {
namespace {

struct Pair {
  const char* adapter;
  const char* recipe;
};

constexpr Pair kKeys[] = {
    {"r", "rank"}, {"target_modules", "targets"}, {"lora_dropout", "lora_dropout"}, {"use_dora", "dora"}};

// Settings that change what is trained and that no recipe key says.
constexpr const char* kOthers[] = {"modules_to_save", "layers_to_transform", "target_parameters", "rank_pattern",
                                   "exclude_modules"};

bool says_something(const Json* json) {
  return json != nullptr && !json->is_null() && !(json->is_array() && json->items().empty()) &&
         !(json->is_object() && json->members().empty());
}

}  // namespace

bool is_adapter_config(const Json& root) {
  return root.find("peft_type") != nullptr;
}

Result<Json> recipe_of_adapter(const Json& root) {
  const Json* type = root.find("peft_type");
  if (type == nullptr || type->as_string() != std::optional<std::string_view>("LORA")) {
    return Problem{ProblemCode::not_one_of, "peft_type", type == nullptr ? "" : type->brief(), "LORA", "LORA"};
  }
  for (const char* key : kOthers) {
    if (says_something(root.find(key))) {
      return Problem{ProblemCode::unsupported_recipe, key, root.find(key)->brief(), "adapter_setting_not_modelled", ""};
    }
  }
  std::vector<Json::Member> members;
  members.emplace_back("method", Json::of_string("lora"));
  for (const Pair& pair : kKeys) {
    const Json* value = root.find(pair.adapter);
    if (value != nullptr && !value->is_null()) members.emplace_back(pair.recipe, *value);
  }
  return Json::of_object(std::move(members));
}

}  // namespace ledger
