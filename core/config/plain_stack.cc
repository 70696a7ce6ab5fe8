#include "core/config/plain_stack.h"

#include <optional>
#include <span>
#include <string>

#include "core/base/nearest.h"
#include "core/base/utf8.h"
#include "core/config/fields.h"

namespace ledger {
namespace {

constexpr const char* kRootKeys[] = {"layers", "model_type"};
constexpr const char* kLayerKeys[] = {"linear", "bias"};

std::optional<Problem> check_keys(const Json& object, const std::string& where, std::span<const char* const> known) {
  for (const auto& [key, value] : object.members()) {
    bool found = false;
    for (const char* name : known)
      found = found || key == name;
    if (!found) {
      const std::string at = where + std::string(utf8_prefix(key, 80));
      return Problem{ProblemCode::unknown_key, at, "", "", nearest(key, known)};
    }
  }
  return std::nullopt;
}

std::optional<Problem> read_linear(const Json& layer, const std::string& where, PlainLinear& linear) {
  if (!layer.is_object()) return wrong_type(where, layer, "object");
  if (auto problem = check_keys(layer, where + ".", kLayerKeys)) return problem;
  const Fields fields(layer);
  const std::string at = where + ".linear";
  const Json* sizes = fields.given("linear");
  if (sizes == nullptr) return Problem{ProblemCode::missing_key, at, "", "[in,out]", ""};
  if (!sizes->is_array() || sizes->items().size() != 2) return wrong_type(at, *sizes, "[in,out]");
  if (auto problem = read_unsigned(sizes->items()[0], at + "[0]", 1, kMaxPlainSize, linear.in)) return problem;
  if (auto problem = read_unsigned(sizes->items()[1], at + "[1]", 1, kMaxPlainSize, linear.out)) return problem;
  const Json* bias = fields.given("bias");
  return bias == nullptr ? std::nullopt : read_bool(*bias, where + ".bias", linear.bias);
}

Problem mismatch(std::size_t index, const PlainLinear& before, const PlainLinear& after) {
  const std::string first = "layers[" + std::to_string(index - 1) + "].linear[1]";
  const std::string second = "layers[" + std::to_string(index) + "].linear[0]";
  return {ProblemCode::inconsistent_config, first + "," + second,
          std::to_string(before.out) + "," + std::to_string(after.in), "equal", ""};
}

}  // namespace

bool is_plain_stack(const Json& root) {
  const Json* type = root.find("model_type");
  if (type != nullptr && !type->is_null()) return type->as_string() == std::optional<std::string_view>("plain");
  const Json* layers = root.find("layers");
  return layers != nullptr && layers->is_array();
}

Result<ModelConfig> read_plain_stack(const Json& root) {
  if (auto problem = check_keys(root, "", kRootKeys)) return *problem;
  const Json* layers = Fields(root).given("layers");
  if (layers == nullptr) return Problem{ProblemCode::missing_key, "layers", "", "array", ""};
  if (!layers->is_array()) return wrong_type("layers", *layers, "array");
  const std::size_t count = layers->items().size();
  if (count == 0 || count > kMaxLayers) {
    return Problem{ProblemCode::out_of_range, "layers", std::to_string(count), "1.." + std::to_string(kMaxLayers), ""};
  }
  ModelConfig config;
  config.architecture = Architecture::plain;
  config.model_type = "plain";
  for (std::size_t i = 0; i < count; ++i) {
    PlainLinear linear;
    if (auto problem = read_linear(layers->items()[i], "layers[" + std::to_string(i) + "]", linear)) return *problem;
    if (i > 0 && config.layers.back().out != linear.in) return mismatch(i, config.layers.back(), linear);
    config.layers.push_back(linear);
  }
  return config;
}

}  // namespace ledger
