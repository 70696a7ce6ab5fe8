#include "core/config/model_config.h"

#include <algorithm>
#include <optional>

#include "core/base/bytes.h"
#include "core/config/decoder_keys.h"
#include "core/config/families.h"
#include "core/config/fields.h"
#include "core/config/plain_stack.h"
#include "core/config/wrong_file.h"

namespace ledger {
namespace {

// A checkpoint stored in 4 or 8 bits; what is trained from it is said by the recipe's method, not by the file.
void note_quantization(const Json& root, ModelConfig& config) {
  const Json* given = root.find("quantization_config");
  if (given == nullptr || given->is_null()) return;
  const Json* method = given->find("quant_method");
  config.notes.emplace_back("quantization_config_ignored", method == nullptr ? "" : method->brief());
}

Result<ModelConfig> read_counted(const Json& root, const Family& family) {
  const Result<Json> defaults = parse_json(family.defaults);
  if (!defaults.ok()) return defaults.problem();
  ModelConfig config;
  config.architecture = Architecture::counted;
  config.model_type = family.model_type;
  for (const char* nested : {"text_config", "vision_config"}) {
    const Json* given = root.find(nested);
    if (given != nullptr && !given->is_null() && !given->is_object()) return wrong_type(nested, *given, "object");
  }
  Fields fields(root, &defaults.value(), key_aliases());
  family.count(fields, config);
  if (fields.problem()) return *fields.problem();
  if (config.architecture == Architecture::image_text) return config;
  if (config.architecture == Architecture::bert || config.architecture == Architecture::t5 ||
      config.architecture == Architecture::vit) {
    for (const Fields::Used& used : fields.used())
      config.used.emplace_back(used.first, *used.second);
    return config;
  }
  config.architecture = Architecture::counted;
  if (config.untraced.empty()) config.untraced = "family_step_not_modelled";
  return config;
}

Result<ModelConfig> read_family(const Json& root, const Family& family) {
  Result<ModelConfig> config = family.count != nullptr ? read_counted(root, family) : read_decoder(root, family);
  if (!config.ok()) return config;
  note_quantization(root, config.value());
  // Sizes within their bounds can still be absurd together.
  if (parameter_count(config.value()) >> 63 != 0) return Problem{ProblemCode::overflow, "model_type", "", "", ""};
  return config;
}

// --- model_types that nobody told us about --------------------------------------------------------------------------

constexpr std::string_view kLlamaKeys[] = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                           "intermediate_size", "vocab_size"};

// Keys of layers that Llama has not: a model with one of them is something else.
constexpr std::string_view kForeignKeys[] = {
    "num_experts",   "num_local_experts", "n_routed_experts", "moe_intermediate_size",  "kv_lora_rank",
    "text_config",   "vision_config",     "audio_config",     "is_encoder_decoder",     "state_size",
    "mamba_d_state", "ssm_cfg",           "conv_kernel",      "linear_num_value_heads", "type_vocab_size",
    "block_types",   "attn_layer_period", "d_state",          "num_decoder_layers",     "mamba_n_heads",
};

bool is_given(const Json& root, std::string_view key) {
  const Json* json = root.find(key);
  return json != nullptr && !json->is_null() && json->as_bool() != std::optional<bool>(false);
}

// The keys of a Llama that `root` lacks, or all of them where it has keys of another kind of model.
std::vector<std::string_view> lacks(const Json& root) {
  std::vector<std::string_view> missing;
  for (const std::string_view key : kLlamaKeys) {
    if (!is_given(root, key)) missing.push_back(key);
  }
  const bool foreign =
      std::any_of(std::begin(kForeignKeys), std::end(kForeignKeys), [&](auto key) { return is_given(root, key); });
  return foreign ? std::vector<std::string_view>(std::begin(kLlamaKeys), std::end(kLlamaKeys)) : missing;
}

// Computed as a Llama with what it says, and a note that this was assumed.
Result<ModelConfig> read_as_llama(const Json& root, const std::string& said) {
  Result<ModelConfig> config = read_family(root, *find_family("llama"));
  if (config.ok()) config.value().notes.emplace_back("assumed_llama", said);
  return config;
}

Problem unknown(const Json* type, const std::vector<std::string_view>& missing) {
  if (type == nullptr) return {ProblemCode::missing_key, "model_type", "", family_names(), ""};
  if (!missing.empty() && missing.size() <= 2) {
    std::string keys;
    for (const std::string_view key : missing)
      keys.append(keys.empty() ? "" : ",").append(key);
    return {ProblemCode::missing_key, keys, type->brief(), "integer", ""};
  }
  return {ProblemCode::unknown_model_type, "model_type", type->brief(), family_names(),
          nearest_family(*type->as_string())};
}

}  // namespace

Result<ModelConfig> read_model_config(std::string_view text) {
  const std::string_view wrong = wrong_file_by_bytes(text);
  if (!wrong.empty()) return Problem{ProblemCode::wrong_file, "", std::string(wrong), "config.json", ""};
  const Result<Json> root = parse_json(text);
  if (!root.ok()) return root.problem();
  return model_config_from(root.value());
}

Result<ModelConfig> model_config_from(const Json& root) {
  if (is_plain_stack(root)) return read_plain_stack(root);
  const Json* type = root.find("model_type");
  if (type != nullptr && type->is_null()) type = nullptr;
  if (type != nullptr && !type->is_string()) return wrong_type("model_type", *type, "string");
  const Family* family = type == nullptr ? nullptr : find_family(*type->as_string());
  if (family != nullptr) return read_family(root, *family);

  const std::string_view wrong = wrong_file_by_keys(root);
  if (!wrong.empty()) return Problem{ProblemCode::wrong_file, "", std::string(wrong), "config.json", ""};
  if (!root.is_object()) return Problem{ProblemCode::not_an_object, "", type_name(root.type()), "object", ""};
  const std::vector<std::string_view> missing = lacks(root);
  if (missing.empty()) return read_as_llama(root, type == nullptr ? "" : type->brief());
  return unknown(type, missing);
}

}  // namespace ledger
