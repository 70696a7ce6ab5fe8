#include "core/config/decoder_keys.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/bytes.h"
#include "core/config/moe_keys.h"
#include "core/config/rope_keys.h"

namespace ledger {
namespace {

struct ActName {
  std::string_view name;
  Act act;
};

// transformers activations.py, ACT2CLS: names of the same function on one line.
constexpr ActName kActs[] = {
    {"silu", Act::silu},
    {"swish", Act::silu},
    {"gelu", Act::gelu},
    {"gelu_pytorch_tanh", Act::gelu_tanh},
    {"gelu_new", Act::gelu_new},
    {"relu", Act::relu},
    {"quick_gelu", Act::quick_gelu},
};

}  // namespace

std::optional<Act> activation_named(std::string_view name) {
  const auto known = std::find_if(std::begin(kActs), std::end(kActs), [&](const ActName& a) { return a.name == name; });
  return known == std::end(kActs) ? std::nullopt : std::optional(known->act);
}

void read_activation(Fields& fields, Act& act, const char* key) {
  std::string name = "silu";
  fields.text(key, name);
  if (!fields.ok()) return;
  const std::optional<Act> known = activation_named(name);
  if (!known) {
    return fields.fail({ProblemCode::not_one_of, std::string(fields.name_of(key)), Json::of_string(name).brief(),
                        "silu|gelu|gelu_pytorch_tanh|gelu_new|relu|quick_gelu", ""});
  }
  act = *known;
}

namespace {

// Bounds are those of model_config.h.
void read_sizes(Fields& fields, ModelConfig& config) {
  fields.integer("vocab_size", 1, kMaxVocabSize, config.vocab_size);
  fields.integer("hidden_size", 1, kMaxHiddenSize, config.hidden_size);
  fields.integer("intermediate_size", 1, kMaxIntermediateSize, config.intermediate_size);
  fields.integer("num_hidden_layers", 1, kMaxLayers, config.num_hidden_layers);
  fields.integer("num_attention_heads", 1, kMaxHeads, config.num_attention_heads);
  if (!fields.is_null("num_key_value_heads"))
    fields.integer("num_key_value_heads", 1, kMaxHeads, config.num_key_value_heads);
  if (!fields.is_null("head_dim")) fields.integer("head_dim", 1, kMaxHeadDim, config.head_dim);
  fields.integer("max_position_embeddings", 1, kMaxPositions, config.max_position_embeddings);
  fields.real("rms_norm_eps", 0, 1, config.rms_norm_eps);
  fields.flag("tie_word_embeddings", config.tie_word_embeddings);
  fields.flag("attention_bias", config.attention_bias);
  fields.flag("mlp_bias", config.mlp_bias);
  // Where no class says otherwise the MLP is four times as wide (GPT-2's n_inner null, BLOOM, Falcon).
  if (config.intermediate_size == 0) config.intermediate_size = times(4, config.hidden_size);
}

// The value of a switch that the family's class has; false in all others, whatever the file says.
bool switched_on(Fields& fields, const char* key) {
  bool on = false;
  if (fields.has_default(key)) fields.flag(key, on);
  return on;
}

// A number that the family's class has; 0 where it is null or the class has no such key.
double number(Fields& fields, const char* key, double low, double high) {
  double value = 0;
  if (fields.has_default(key) && !fields.is_null(key)) fields.real(key, low, high, value);
  return value;
}

void read_biases(Fields& fields, ModelConfig& config) {
  if (switched_on(fields, "bias")) config.attention_bias = true;
  if (config.model_type == "falcon") config.mlp_bias = config.attention_bias;
  if (switched_on(fields, "use_bias") || switched_on(fields, "enable_bias"))
    config.attention_bias = config.mlp_bias = true;
  config.qkv_bias = config.style.qkv_bias || switched_on(fields, "qkv_bias") || switched_on(fields, "use_qkv_bias");
}

void read_norms(Fields& fields, ModelConfig& config) {
  Style& style = config.style;
  if (switched_on(fields, "use_qk_norm")) {
    if (config.model_type == "llama4_text") {
      config.qk_l2_norm = true;
    } else {
      style.qk_norm = QkNorm::width;
    }
  }
  if (switched_on(fields, "qk_layernorm"))
    style.qk_norm = style.layout == Layout::parallel ? QkNorm::head : QkNorm::each_head;  // phi; stablelm
  if (fields.has_default("use_parallel_residual")) {
    const bool parallel = switched_on(fields, "use_parallel_residual");
    if (style.layout == Layout::parallel_two && !parallel) style.layout = Layout::pre;  // gpt_neox
    if (style.layout == Layout::pre && parallel) style.layout = Layout::parallel;       // stablelm
  }
  config.qk_norm = style.qk_norm == QkNorm::head && style.norm == NormKind::rms;
}

// transformers models/opt/modeling_opt.py: positions start at 2; opt-350m projects a narrower embedding and norms last.
void read_opt(Fields& fields, ModelConfig& config) {
  config.extra_positions = 2;
  fields.integer("word_embed_proj_dim", 1, kMaxHiddenSize, config.embedding_width);
  if (!switched_on(fields, "layer_norm_elementwise_affine")) config.style.norm = NormKind::bare;
  const bool before = switched_on(fields, "do_layer_norm_before");
  if (!before) config.style.layout = Layout::post;
  config.final_norm = before && !switched_on(fields, "_remove_final_layer_norm");
  const bool as_usual = config.final_norm && config.style.norm == NormKind::layer &&
                        (config.embedding_width == 0 || config.embedding_width == config.hidden_size);
  if (!as_usual) config.untraced = "variant_step_not_modelled";
}

// transformers models/falcon/modeling_falcon.py: three generations in one class.
void read_falcon(Fields& fields, ModelConfig& config) {
  const bool grouped = switched_on(fields, "new_decoder_architecture");
  const bool parallel = switched_on(fields, "parallel_attn") || grouped;
  std::uint64_t norms = grouped ? 2 : 1;
  fields.integer("num_ln_in_parallel_attn", 1, 2, norms);
  if (!grouped) config.num_key_value_heads = switched_on(fields, "multi_query") ? 1 : config.num_attention_heads;
  if (!parallel) {
    config.style.layout = Layout::pre;
  } else if (grouped && norms == 2) {
    config.style.layout = Layout::parallel_two;
  }
  config.style.grouped_heads = grouped;
  if (switched_on(fields, "alibi")) config.style.position = Position::alibi;
  // Falcon-RW's blocks, one after the other and biased by distance, are not built.
  if (!parallel || config.style.position == Position::alibi) config.untraced = "variant_step_not_modelled";
}

// Which of InternLM2's attention classes runs where the recipe asks for none; the flash class is the recipe's to ask
// for. Products cut into pretraining_tp pieces are not built.
void read_internlm2(Fields& fields, ModelConfig& config) {
  std::string attention = "eager";
  fields.text("attn_implementation", attention);
  config.takes_sdpa = attention == "sdpa";
  std::uint64_t pieces = 1;
  fields.integer("pretraining_tp", 1, kMaxHeads, pieces);
  if (pieces != 1 || (attention != "eager" && attention != "sdpa")) config.untraced = "variant_step_not_modelled";
}

// transformers models/bloom/modeling_bloom.py: its MLP knows one activation.
void read_bloom(Fields& fields, ModelConfig& config) {
  config.act = Act::gelu_bloom;
  if (switched_on(fields, "apply_residual_connection_post_layernorm") || switched_on(fields, "slow_but_exact"))
    config.untraced = "variant_step_not_modelled";
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
  if (config.style.position == Position::rotary && config.head_dim % 2 != 0) {
    fields.fail({ProblemCode::inconsistent_config, "head_dim", std::to_string(config.head_dim), "even", ""});
  }
}

void read_latent(Fields& fields, ModelConfig& config) {
  if (config.style.projections != Projections::latent) return;
  LatentConfig& latent = config.latent;
  // Null is read, too: the report's config says so again.
  if (fields.given("q_lora_rank") != nullptr && !fields.is_null("q_lora_rank"))
    fields.integer("q_lora_rank", 1, kMaxHiddenSize, latent.q_rank);
  fields.integer("kv_lora_rank", 1, kMaxHiddenSize, latent.kv_rank);
  fields.integer("qk_nope_head_dim", 1, kMaxHeadDim, latent.nope_dim);
  fields.integer("qk_rope_head_dim", 1, kMaxHeadDim, latent.rope_dim);
  fields.integer("v_head_dim", 1, kMaxHeadDim, latent.v_dim);
  latent.interleaved = switched_on(fields, "rope_interleave");
  config.rotary_dim = latent.rope_dim;
  config.head_dim = plus(latent.nope_dim, latent.rope_dim);
  config.num_key_value_heads = config.num_attention_heads;
}

// A list of numbers or flags by layer, as `keep` reads an entry; nothing where the key is absent.
template <class Keep>
std::vector<bool> by_layer(const Fields& fields, const ModelConfig& config, const char* key, Keep keep) {
  const Json* list = fields.given(key);
  std::vector<bool> layers;
  if (list == nullptr || !list->is_array() || list->items().empty()) return layers;
  for (std::size_t i = 0; i < config.num_hidden_layers && i < list->items().size(); ++i)
    layers.push_back(keep(list->items()[i]));
  layers.resize(static_cast<std::size_t>(config.num_hidden_layers), false);
  return layers;
}

// Which layers look at everything: layer_types in newer files; before, every so many-th (sliding_window_pattern), or
// all below max_window_layers (Qwen).
void read_window(Fields& fields, ModelConfig& config) {
  const bool used = !fields.has_default("use_sliding_window") || switched_on(fields, "use_sliding_window");
  std::uint64_t window = 0;
  if (fields.has_default("sliding_window")) fields.integer("sliding_window", 0, kMaxPositions, window);
  if (!used || fields.is_null("sliding_window") || window == 0) return;
  config.sliding_window = window;
  config.full_layers = by_layer(fields, config, "layer_types", [](const Json& type) {
    return type.as_string() != std::optional<std::string_view>("sliding_attention");
  });
  std::uint64_t pattern = 0, below = 0;
  if (fields.has_default("sliding_window_pattern")) fields.integer("sliding_window_pattern", 1, kMaxLayers, pattern);
  if (fields.has_default("max_window_layers")) fields.integer("max_window_layers", 0, kMaxLayers, below);
  for (std::size_t i = 0; config.full_layers.size() < config.num_hidden_layers; ++i)
    config.full_layers.push_back(pattern != 0 ? (i + 1) % pattern == 0 : i < below);
  const auto end = config.full_layers.end();
  if (std::find(config.full_layers.begin(), end, false) == end) config.sliding_window = 0;
}

// A 1 in no_rope_layers is a layer with rotary embedding (SmolLM3, Llama 4); Cohere 2 turns in its sliding layers only.
void read_nope(Fields& fields, ModelConfig& config) {
  if (config.model_type == "cohere2") {
    config.nope_layers = config.full_layers;
    config.nope_layers.resize(static_cast<std::size_t>(config.num_hidden_layers), true);
  }
  if (!fields.has_default("no_rope_layer_interval")) return;
  std::uint64_t interval = 0;
  fields.integer("no_rope_layer_interval", 1, kMaxLayers, interval);
  config.nope_layers = by_layer(fields, config, "no_rope_layers",
                                [](const Json& flag) { return flag.as_unsigned() == std::optional<std::uint64_t>(0); });
  for (std::size_t i = 0; interval != 0 && config.nope_layers.size() < config.num_hidden_layers; ++i)
    config.nope_layers.push_back((i + 1) % interval == 0);
}

// Llama 4: layers with rotary embedding see their own chunk only, unless layer_types says otherwise.
void read_llama4(Fields& fields, ModelConfig& config) {
  if (!fields.is_null("attention_chunk_size"))
    fields.integer("attention_chunk_size", 1, kMaxPositions, config.attention_chunk);
  config.full_layers = by_layer(fields, config, "layer_types", [](const Json& type) {
    return type.as_string() != std::optional<std::string_view>("chunked_attention");
  });
  if (config.full_layers.empty()) config.full_layers = config.nope_layers;
  if (!switched_on(fields, "attn_temperature_tuning")) return;
  config.temperature_floor = number(fields, "floor_scale", kAboveZero, 1e15);
  config.temperature_scale = number(fields, "attn_scale", -1e9, 1e9);
}

// GPT-J stores a table of sines and cosines in every layer.
void read_gptj(Fields& fields, ModelConfig& config) {
  if (fields.is_null("rotary_dim")) {
    config.untraced = "variant_step_not_modelled";  // the whole head is turned by a table as wide as the model
    return;
  }
  fields.integer("rotary_dim", 2, kMaxHeadDim, config.rotary_dim);
  if (config.rotary_dim % 2 != 0)
    fields.fail({ProblemCode::inconsistent_config, "rotary_dim", std::to_string(config.rotary_dim), "even", ""});
  if (fields.ok() && config.rotary_dim > config.head_dim)
    fields.fail(inconsistent("rotary_dim,head_dim", config.rotary_dim, config.head_dim, "at_most"));
}

void read_numbers(Fields& fields, ModelConfig& config) {
  constexpr double kMost = 1e9;
  config.embedding_multiplier = number(fields, "embedding_multiplier", -kMost, kMost);
  if (config.style.norm == NormKind::rms_gemma)
    config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  config.attention_scale = number(fields, "attention_multiplier", -kMost, kMost);
  if (const double scalar = number(fields, "query_pre_attn_scalar", kAboveZero, kMost); scalar != 0)
    config.attention_scale = 1 / std::sqrt(scalar);
  config.residual_multiplier = number(fields, "residual_multiplier", -kMost, kMost);
  config.logits_divisor = number(fields, "logits_scaling", kAboveZero, kMost);
  config.logits_multiplier = number(fields, "logit_scale", -kMost, kMost);
  config.logits_softcap = number(fields, "final_logit_softcapping", kAboveZero, kMost);
  config.attention_softcap = number(fields, "attn_logit_softcapping", kAboveZero, kMost);
  config.embedding_dropout = number(fields, "embd_pdrop", 0, 1);
  config.residual_dropout = number(fields, "resid_pdrop", 0, 1);
  config.attention_dropout = number(fields, "attn_pdrop", 0, 1);
  if (fields.has_default("dropout")) config.residual_dropout = number(fields, "dropout", 0, 1);
  if (fields.has_default("hidden_dropout")) config.residual_dropout = number(fields, "hidden_dropout", 0, 1);
  if (fields.has_default("attention_dropout")) config.attention_dropout = number(fields, "attention_dropout", 0, 1);
}

// Variants that the modules do not build: counted, not traced.
void note_untraced(Fields& fields, ModelConfig& config) {
  const Json* clip = fields.object().find("clip_qkv");
  const bool clipped = clip != nullptr && !clip->is_null();
  // Mixtral's router with noise, and the loss that balances routers, which these switches add.
  const Json* noise = fields.object().find("router_jitter_noise");
  const Json* balanced = fields.object().find("output_router_logits");
  const bool changed_router =
      config.style.moe != MoeRule::none && ((noise != nullptr && noise->as_real().value_or(0) != 0) ||
                                            (balanced != nullptr && balanced->as_bool().value_or(false)));
  // Cohere's norm of heads, with a weight for each.
  const bool normed_heads = config.style.qk_norm != QkNorm::none && config.style.norm == NormKind::cohere;
  // DeepSeek V2's class leaves the number of experts a token visits to the file.
  const bool visits_none = config.style.moe != MoeRule::none && config.moe.per_token == 0;
  if (config.untraced.empty() && (clipped || normed_heads || changed_router || visits_none))
    config.untraced = "variant_step_not_modelled";
}

void read_kin(Fields& fields, ModelConfig& config) {
  if (config.model_type == "opt") read_opt(fields, config);
  if (config.model_type == "falcon") read_falcon(fields, config);
  if (config.model_type == "internlm2") read_internlm2(fields, config);
}

}  // namespace

Result<ModelConfig> read_decoder(const Json& root, const Family& family) {
  const Result<Json> defaults = parse_json(family.defaults);
  if (!defaults.ok()) return defaults.problem();
  ModelConfig config;
  config.model_type = family.model_type;
  config.style = family.style;
  if (!family.style.traced) config.untraced = "family_step_not_modelled";
  Fields fields(root, &defaults.value(), key_aliases());
  read_sizes(fields, config);
  read_biases(fields, config);
  read_norms(fields, config);
  read_kin(fields, config);
  read_latent(fields, config);
  read_window(fields, config);
  check_heads(fields, config);
  read_activation(fields, config.act);
  if (config.model_type == "bloom") read_bloom(fields, config);
  read_rope(fields, config);
  read_nope(fields, config);
  if (config.model_type == "llama4_text") read_llama4(fields, config);
  if (config.model_type == "gptj") read_gptj(fields, config);
  read_moe(fields, config);
  read_numbers(fields, config);
  note_untraced(fields, config);
  if (fields.problem()) return *fields.problem();
  for (const Fields::Used& used : fields.used())
    config.used.emplace_back(used.first, *used.second);
  return config;
}

Result<ModelConfig> read_text_config(const Json& root, const char* fallback) {
  const Json* type = root.find("model_type");
  const auto name = type == nullptr ? std::nullopt : type->as_string();
  const Family* family = find_family(name.value_or(fallback));
  if (family == nullptr || family->count != nullptr) {
    return Problem{ProblemCode::unknown_model_type, "text_config.model_type", type == nullptr ? "" : type->brief(),
                   family_names(), ""};
  }
  return read_decoder(root, *family);
}

}  // namespace ledger
