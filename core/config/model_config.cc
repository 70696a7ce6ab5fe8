#include "core/config/model_config.h"

#include <limits>
#include <optional>

#include "core/base/bytes.h"
#include "core/config/families.h"
#include "core/config/fields.h"
#include "core/config/plain_stack.h"
#include "core/config/wrong_file.h"

namespace ledger {
namespace {

constexpr double kTiny = std::numeric_limits<double>::min();  // "more than 0" as a lower bound

ModelConfig defaults_of(const Family& family) {
  ModelConfig config;
  config.architecture = family.architecture;
  config.model_type = family.model_type;
  config.vocab_size = family.vocab_size;
  config.hidden_size = family.hidden_size;
  config.intermediate_size = family.intermediate_size;
  config.num_hidden_layers = family.num_hidden_layers;
  config.num_attention_heads = family.num_attention_heads;
  config.num_key_value_heads = family.num_key_value_heads;
  config.head_dim = family.head_dim;
  config.max_position_embeddings = family.max_position_embeddings;
  config.rms_norm_eps = family.rms_norm_eps;
  config.rope_theta = family.rope_theta;
  config.tie_word_embeddings = family.tie_word_embeddings;
  config.attention_bias = family.attention_bias;
  config.mlp_bias = family.mlp_bias;
  config.qkv_bias = family.qkv_bias;
  config.qk_norm = family.qk_norm;
  return config;
}

// Bounds are those of model_config.h.
void read_sizes(Fields& fields, ModelConfig& config) {
  fields.integer("vocab_size", 1, kMaxVocabSize, config.vocab_size);
  fields.integer("hidden_size", 1, kMaxHiddenSize, config.hidden_size);
  fields.integer("intermediate_size", 1, kMaxIntermediateSize, config.intermediate_size);
  fields.integer("num_hidden_layers", 1, kMaxLayers, config.num_hidden_layers);
  fields.integer("num_attention_heads", 1, kMaxHeads, config.num_attention_heads);
  fields.integer("num_key_value_heads", 1, kMaxHeads, config.num_key_value_heads);
  fields.integer("head_dim", 1, kMaxHeadDim, config.head_dim);
  fields.integer("max_position_embeddings", 1, kMaxPositions, config.max_position_embeddings);
  fields.real("rms_norm_eps", 0, 1, config.rms_norm_eps);
  fields.flag("tie_word_embeddings", config.tie_word_embeddings);
  fields.flag("attention_bias", config.attention_bias);
  fields.flag("mlp_bias", config.mlp_bias);
}

Problem inconsistent(const char* keys, std::uint64_t a, std::uint64_t b, const char* rule) {
  return {ProblemCode::inconsistent_config, keys, std::to_string(a) + "," + std::to_string(b), rule, ""};
}

void check_heads(Fields& fields, ModelConfig& config) {
  if (!fields.ok()) return;
  const std::uint64_t heads = config.num_attention_heads;
  if (config.num_key_value_heads == 0) config.num_key_value_heads = heads;
  if (heads % config.num_key_value_heads != 0) {
    return fields.fail(
        inconsistent("num_attention_heads,num_key_value_heads", heads, config.num_key_value_heads, "multiple"));
  }
  if (config.head_dim == 0) {
    if (config.hidden_size % heads != 0) {
      return fields.fail(inconsistent("hidden_size,num_attention_heads", config.hidden_size, heads, "multiple"));
    }
    config.head_dim = config.hidden_size / heads;
    if (config.head_dim > kMaxHeadDim) {
      return fields.fail({ProblemCode::out_of_range, "head_dim", std::to_string(config.head_dim),
                          "1.." + std::to_string(kMaxHeadDim), ""});
    }
  }
  // Rotary embedding turns pairs.
  if (config.head_dim % 2 != 0) {
    fields.fail({ProblemCode::inconsistent_config, "head_dim", std::to_string(config.head_dim), "even", ""});
  }
}

void check_activation(Fields& fields, const Family& family) {
  std::string activation = family.hidden_act;
  fields.text("hidden_act", activation);
  // "swish" is another name of the same function (transformers activations.py ACT2CLS).
  if (fields.ok() && activation != family.hidden_act && activation != "swish") {
    fields.fail({ProblemCode::not_one_of, "hidden_act", Json::of_string(activation).brief(), family.hidden_act,
                 family.hidden_act});
  }
}

// transformers 5 writes rope_parameters with everything in it; before, rope_scaling with "rope_type" (4.43) or "type"
// (older), and rope_theta beside it. Numerics only: no size depends on them, so a type that is not computed is a note.
void read_rope(Fields& fields, ModelConfig& config) {
  fields.real("rope_theta", kTiny, 1e15, config.rope_theta);
  const char* key = fields.given("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* given = fields.given(key);
  if (!fields.ok() || given == nullptr) return;
  if (!given->is_object()) return fields.fail(wrong_type(key, *given, "object"));

  Fields rope(*given);
  std::string type = "default";
  rope.text("type", type);
  rope.text("rope_type", type);
  rope.real("rope_theta", kTiny, 1e15, config.rope_theta);
  if (type == "default" || type == "linear" || type == "llama3") {
    config.rope.type = type;
    rope.real("factor", 1e-6, 1e6, config.rope.factor);
    rope.real("low_freq_factor", kTiny, 1e6, config.rope.low_freq_factor);
    rope.real("high_freq_factor", kTiny, 1e6, config.rope.high_freq_factor);
    rope.real("original_max_position_embeddings", 1, 1e12, config.rope.original_max_position_embeddings);
  } else {
    config.notes.emplace_back("rope_scaling_type_not_computed", Json::of_string(type).brief());
  }
  if (rope.problem()) {
    Problem problem = *rope.problem();
    problem.where = std::string(key) + "." + problem.where;
    fields.fail(std::move(problem));
  }
}

// A checkpoint stored in 4 or 8 bits; what is trained from it is said by the recipe's method, not by the file.
void note_quantization(const Fields& fields, ModelConfig& config) {
  const Json* given = fields.given("quantization_config");
  if (given == nullptr) return;
  const Json* method = given->find("quant_method");
  config.notes.emplace_back("quantization_config_ignored", method == nullptr ? "" : method->brief());
}

// null, or use_sliding_window false where the class has that switch, is no window at all.
void read_window(Fields& fields, const Json& root, const Family& family, ModelConfig& config) {
  bool used = !family.window_needs_switch;
  fields.flag("use_sliding_window", used);
  config.sliding_window = family.sliding_window;
  fields.integer("sliding_window", 1, kMaxPositions, config.sliding_window);
  const Json* given = root.find("sliding_window");
  const bool off = family.sliding_window == 0 || !used || (given != nullptr && given->is_null());
  if (off) config.sliding_window = 0;
}

Result<ModelConfig> read_family(const Json& root, const Family& family) {
  ModelConfig config = defaults_of(family);
  Fields fields(root);
  read_sizes(fields, config);
  read_window(fields, root, family, config);
  check_heads(fields, config);
  check_activation(fields, family);
  read_rope(fields, config);
  note_quantization(fields, config);
  if (fields.problem()) return *fields.problem();
  return config;
}

std::uint64_t linear_parameters(std::uint64_t in, std::uint64_t out, bool bias) {
  return plus(times(in, out), bias ? out : 0);
}

std::uint64_t plain_parameters(const ModelConfig& config) {
  std::uint64_t sum = 0;
  for (const PlainLinear& layer : config.layers)
    sum = plus(sum, linear_parameters(layer.in, layer.out, layer.bias));
  return sum;
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
  const bool absent = type == nullptr || type->is_null();
  if (!absent && !type->is_string()) return wrong_type("model_type", *type, "string");
  const Family* family = absent ? nullptr : find_family(*type->as_string());
  if (family != nullptr) return read_family(root, *family);

  const std::string_view wrong = wrong_file_by_keys(root);
  if (!wrong.empty()) return Problem{ProblemCode::wrong_file, "", std::string(wrong), "config.json", ""};
  if (!root.is_object()) return Problem{ProblemCode::not_an_object, "", type_name(root.type()), "object", ""};
  if (absent) return Problem{ProblemCode::missing_key, "model_type", "", family_names(), ""};
  const std::string_view name = *type->as_string();
  return Problem{ProblemCode::unknown_model_type, "model_type", type->brief(), family_names(), nearest_family(name)};
}

// Per layer: q, k, v and o; gate, up and down; two norms. Around them: embedding, final norm, and the output layer
// unless tied.
std::uint64_t parameter_count(const ModelConfig& config) {
  if (config.architecture == Architecture::plain) return plain_parameters(config);
  const std::uint64_t hidden = config.hidden_size;
  const std::uint64_t ffn = config.intermediate_size;
  const std::uint64_t query = times(config.num_attention_heads, config.head_dim);
  const std::uint64_t key = times(config.num_key_value_heads, config.head_dim);
  const bool qkv_bias = config.attention_bias || config.qkv_bias;
  std::uint64_t layer = plus(times(2, hidden), config.qk_norm ? times(2, config.head_dim) : 0);
  layer = plus(layer, linear_parameters(hidden, query, qkv_bias));
  layer = plus(layer, times(2, linear_parameters(hidden, key, qkv_bias)));
  layer = plus(layer, linear_parameters(query, hidden, config.attention_bias));
  layer = plus(layer, times(2, linear_parameters(hidden, ffn, config.mlp_bias)));
  layer = plus(layer, linear_parameters(ffn, hidden, config.mlp_bias));
  const std::uint64_t embeddings = times(config.tie_word_embeddings ? 1 : 2, times(config.vocab_size, hidden));
  return plus(plus(embeddings, hidden), times(config.num_hidden_layers, layer));
}

}  // namespace ledger
