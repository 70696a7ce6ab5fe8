#include "core/config/rope_keys.h"

#include <string>
#include <utility>

namespace ledger {
namespace {

void read_rope_object(Fields& rope, ModelConfig& config, double& theta, double& factor) {
  std::string type = "default";
  rope.text("type", type);
  rope.text("rope_type", type);
  rope.real("rope_theta", kAboveZero, 1e15, theta);
  rope.real("partial_rotary_factor", kAboveZero, 1, factor);
  if (type == "mrope") type = "default";  // Qwen2-VL's configuration classes, which read mrope_section beside it
  if (type == "default" || type == "linear" || type == "llama3") {
    config.rope.type = type;
    rope.real("factor", 1e-6, 1e6, config.rope.factor);
    rope.real("low_freq_factor", kAboveZero, 1e6, config.rope.low_freq_factor);
    rope.real("high_freq_factor", kAboveZero, 1e6, config.rope.high_freq_factor);
    rope.real("original_max_position_embeddings", 1, 1e12, config.rope.original_max_position_embeddings);
  } else {
    config.notes.emplace_back("rope_scaling_type_not_computed", Json::of_string(type).brief());
  }
}

void read_rope_key(Fields& fields, ModelConfig& config, const std::string& key, const Json& given, double& theta,
                   double& factor) {
  if (!given.is_object()) return fields.fail(wrong_type(key, given, "object"));
  Fields rope(given);
  read_rope_object(rope, config, theta, factor);
  if (!rope.problem()) return;
  Problem problem = *rope.problem();
  problem.where = key + "." + problem.where;
  fields.fail(std::move(problem));
}

}  // namespace

// transformers 5 writes rope_parameters with everything in it, one object for each type of layer where they differ;
// before, rope_scaling with "rope_type" (4.43) or "type" (older), and rope_theta beside it. A scaling is numerics only:
// no size depends on it, so a type that is not computed is a note.
void read_rope(Fields& fields, ModelConfig& config) {
  if (config.style.position != Position::rotary) return;
  fields.real("rope_theta", kAboveZero, 1e15, config.rope_theta);
  double factor = 1;
  fields.real("partial_rotary_factor", kAboveZero, 1, factor);
  if (fields.has_default("rope_local_base_freq"))
    fields.real("rope_local_base_freq", kAboveZero, 1e15, config.rope_local_theta);
  const char* key = fields.given("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* given = fields.given(key);
  if (!fields.ok()) return;
  const Json* full = given == nullptr ? nullptr : given->find("full_attention");
  const Json* sliding = given == nullptr ? nullptr : given->find("sliding_attention");
  if (full != nullptr && sliding != nullptr) {
    const std::string prefix = std::string(key) + ".";
    read_rope_key(fields, config, prefix + "sliding_attention", *sliding, config.rope_local_theta, factor);
    config.rope = {};
    read_rope_key(fields, config, prefix + "full_attention", *full, config.rope_theta, factor);
  } else if (given != nullptr) {
    read_rope_key(fields, config, key, *given, config.rope_theta, factor);
  }
  if (factor != 1) config.rotary_dim = static_cast<std::uint64_t>(static_cast<double>(config.head_dim) * factor);
  if (fields.has_default("rotary_dim")) fields.integer("rotary_dim", 2, kMaxHeadDim, config.rotary_dim);
  if (config.rotary_dim >= config.head_dim) config.rotary_dim = 0;
  if (config.rotary_dim % 2 != 0) {
    fields.fail({ProblemCode::inconsistent_config, "rotary_dim", std::to_string(config.rotary_dim), "even", ""});
  }
}

}  // namespace ledger
