#include "core/config/other_models.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/counting.h"
#include "core/config/decoder_keys.h"
#include "core/config/vision_towers.h"

namespace ledger {
namespace {

using namespace counting;

// What the report shows of any of these.
void read_width(Fields& fields, ModelConfig& config) {
  config.hidden_size = size(fields, "hidden_size");
  config.intermediate_size = size(fields, "intermediate_size", kMaxIntermediateSize);
  config.num_hidden_layers = size(fields, "num_hidden_layers", kMaxLayers);
  config.num_attention_heads = config.num_key_value_heads = size(fields, "num_attention_heads", kMaxHeads);
  config.head_dim = config.hidden_size / config.num_attention_heads;
}

std::string architecture_name(const Fields& fields) {
  const Json* list = fields.object().find("architectures");
  if (list == nullptr || list->items().empty()) return "";
  return std::string(list->items().front().as_string().value_or(""));
}

// id2label, or num_labels of files before it was written; `otherwise` is said in a note.
Count labels(Fields& fields, ModelConfig& config, Count otherwise) {
  const Json* names = fields.object().find("id2label");
  if (names != nullptr && !names->members().empty()) return names->members().size();
  if (fields.object().find("num_labels") == nullptr)
    config.notes.emplace_back("labels_assumed", std::to_string(otherwise));
  return size(fields, "num_labels", kMaxVocabSize, otherwise);
}

// What the step needs beside the sizes; a decoder with BERT's layers is another model.
void read_masked_lm(Fields& fields, ModelConfig& config) {
  bool decoder = false;
  fields.flag("is_decoder", decoder);
  const bool even = config.hidden_size % config.num_attention_heads == 0;  // else the class refuses
  if (decoder || !even) return;
  config.untraced.clear();
  config.architecture = Architecture::bert;
  config.tie_word_embeddings = true;
  config.style.norm = NormKind::layer;
  config.style.feed = Feed::plain;
  config.style.position = Position::learned;
  config.style.head_bias = true;
  fields.real("rms_norm_eps", 0, 1, config.rms_norm_eps);
  fields.real("hidden_dropout_prob", 0, 1, config.residual_dropout);
  fields.real("attention_probs_dropout_prob", 0, 1, config.attention_dropout);
  config.type_vocab_size = size(fields, "type_vocab_size", kMaxVocabSize);
  read_activation(fields, config.act);
  fields.given("architectures");
}

// What T5's step needs beside the sizes. Other heads than the one for text, and activations that nothing here computes,
// are counted.
void read_t5_step(Fields& fields, ModelConfig& config, const std::string& feed) {
  config.untraced = "variant_step_not_modelled";
  const std::string name = architecture_name(fields);
  const bool for_text = name.empty() || name == "T5ForConditionalGeneration" || name == "T5WithLMHeadModel";
  // feed_forward_proj is "ACT" or "gated-ACT"; gated-gelu means gelu_new (T5Config.__post_init__).
  const bool gated = feed.starts_with("gated-");
  const std::optional<Act> act =
      feed == "gated-gelu" ? Act::gelu_new : activation_named(gated ? std::string_view(feed).substr(6) : feed);
  EncoderDecoderConfig& t5 = config.t5;
  t5.buckets = size(fields, "relative_attention_num_buckets", kMaxPositions);
  t5.max_distance = size(fields, "relative_attention_max_distance", kMaxPositions);
  const bool buckets = t5.buckets >= 4 && t5.buckets % 4 == 0 && t5.max_distance > t5.buckets / 2;
  if (!for_text || !act || !buckets) return;
  config.untraced.clear();
  config.architecture = Architecture::t5;
  config.act = *act;
  config.tie_word_embeddings = true;
  config.style.norm = NormKind::rms_t5;
  config.style.feed = gated ? Feed::gated : Feed::plain;
  config.style.position = Position::relative;
  fields.real("rms_norm_eps", 0, 1, config.rms_norm_eps);
  fields.real("dropout_rate", 0, 1, config.residual_dropout);
  // Untied in files of T5 1.1, which tells its code that outputs are not scaled; newer files say that by name.
  t5.scales_outputs = true;
  fields.flag("tie_word_embeddings", t5.scales_outputs);
  fields.flag("scale_decoder_outputs", t5.scales_outputs);
  fields.given("architectures");
}

}  // namespace

// transformers models/bert/modeling_bert.py. Without architectures: the model with its pooler and no head.
void count_bert(Fields& fields, ModelConfig& config) {
  read_width(fields, config);
  config.vocab_size = size(fields, "vocab_size", kMaxVocabSize);
  config.max_position_embeddings = size(fields, "max_position_embeddings", kMaxPositions);
  const Count h = config.hidden_size, types = size(fields, "type_vocab_size", kMaxVocabSize);
  Count sum = sum_of({times(config.vocab_size, h), times(config.max_position_embeddings, h), times(types, h),
                      layer_norm(h), times(config.num_hidden_layers, encoder_layer(h, config.intermediate_size))});
  const std::string name = architecture_name(fields);
  if (name.ends_with("ForMaskedLM") || name.ends_with("ForPreTraining") || name.ends_with("LMHeadModel"))
    sum = sum_of({sum, linear(h, h), layer_norm(h), config.vocab_size});
  const bool pooled = name.empty() || name.ends_with("Model") || name.ends_with("ForPreTraining") ||
                      name == "BertForSequenceClassification" || name.ends_with("ForNextSentencePrediction") ||
                      name.ends_with("ForMultipleChoice");
  if (pooled && !name.ends_with("LMHeadModel")) sum = plus(sum, linear(h, h));
  if (name.ends_with("ForPreTraining") || name.ends_with("ForNextSentencePrediction")) sum = plus(sum, linear(h, 2));
  if (name == "RobertaForSequenceClassification") sum = plus(sum, linear(h, h));
  if (name.ends_with("ForSequenceClassification") || name.ends_with("ForTokenClassification"))
    sum = plus(sum, linear(h, labels(fields, config, 2)));
  if (name.ends_with("ForQuestionAnswering")) sum = plus(sum, linear(h, 2));
  if (name.ends_with("ForMultipleChoice")) sum = plus(sum, linear(h, 1));
  config.counted = sum;
  config.untraced = "variant_step_not_modelled";
  if (name == "BertForMaskedLM" || name == "RobertaForMaskedLM") read_masked_lm(fields, config);
}

// transformers models/t5/modeling_t5.py; since version 5 the output layer is tied whatever the file says.
void count_t5(Fields& fields, ModelConfig& config) {
  read_width(fields, config);
  config.vocab_size = size(fields, "vocab_size", kMaxVocabSize);
  const Count h = config.hidden_size, heads = config.num_attention_heads;
  config.head_dim = size(fields, "d_kv", kMaxHeadDim);
  const Count inner = times(heads, config.head_dim);
  const Count decoders = size(fields, "num_decoder_layers", kMaxLayers, config.num_hidden_layers);
  const Count buckets = size(fields, "relative_attention_num_buckets", kMaxPositions);
  std::string feed;
  fields.text("feed_forward_proj", feed);
  const Count attention = times(4, times(h, inner));
  const Count mlp = times(feed.starts_with("gated") ? 3 : 2, times(h, config.intermediate_size));
  config.counted = sum_of(
      {times(config.vocab_size, h), times(config.num_hidden_layers, sum_of({attention, mlp, times(2, h)})),
       times(decoders, sum_of({times(2, attention), mlp, times(3, h)})), times(2, times(buckets, heads)), times(2, h)});
  config.t5.decoder_layers = decoders;
  if (fields.ok()) read_t5_step(fields, config, feed);
}

namespace {

// What the step needs of ViTForImageClassification with one label an image.
void read_vit(Fields& fields, ModelConfig& config, Count labels) {
  VisionConfig& vision = config.vision;
  vision.model_type = "vit";
  vision.labels = labels;
  const bool built = read_image_encoder(fields, vision);
  std::string problem = "single_label_classification";
  fields.text("problem_type", problem);
  const bool classifies = labels > 1 && problem == "single_label_classification";
  if (!classifies || !built) return;
  config.untraced.clear();
  config.architecture = Architecture::vit;
  config.style.head_bias = true;
  for (const char* key : {"architectures", "id2label", "num_labels"})
    fields.given(key);
}

}  // namespace

// transformers models/vit/modeling_vit.py, ViTForImageClassification.
void count_vit(Fields& fields, ModelConfig& config) {
  read_width(fields, config);
  const Count h = config.hidden_size, patch = size(fields, "patch_size", kMaxImageSide);
  const Count patches = squared(size(fields, "image_size", kMaxImageSide) / patch);
  const Count channels = size(fields, "num_channels", kMaxImageSide);
  bool qkv_bias = true;
  fields.flag("qkv_bias", qkv_bias);
  Count sum =
      sum_of({linear(times(channels, squared(patch)), h), h, times(plus(patches, 1), h),
              times(config.num_hidden_layers, encoder_layer(h, config.intermediate_size, qkv_bias)), layer_norm(h)});
  const std::string name = architecture_name(fields);
  config.untraced = "variant_step_not_modelled";
  if (name == "ViTModel") {
    sum = plus(sum, linear(h, h));  // the pooler
  } else {
    const Count classes = labels(fields, config, 1000);  // ImageNet's, as the published checkpoints
    sum = plus(sum, linear(h, classes));
    if (name.empty() || name == "ViTForImageClassification") read_vit(fields, config, classes);
  }
  config.counted = sum;
}

namespace {

constexpr KeyAlias kTowerAliases[] = {
    {"num_hidden_layers", "depth"},
    {"hidden_activation", "hidden_act"},
    {"rms_norm_eps", "layer_norm_eps"},
    {"num_attention_heads", "num_heads"},
};

// A nested configuration as its class reads it: its type and what it said of all that was asked for.
Json echo_of(std::string_view model_type, const std::vector<std::pair<std::string, Json>>& used) {
  std::vector<Json::Member> members{{"model_type", Json::of_string(std::string(model_type))}};
  members.insert(members.end(), used.begin(), used.end());
  return Json::of_object(std::move(members));
}

const Json& empty_object() {
  static const Json none = Json::of_object({});
  return none;
}

// The text's numbers become the model's; what the file nests under `where` and gets wrong is said with that path.
void take_text(Fields& fields, ModelConfig& config, const Json& text, const char* fallback, bool nested) {
  Result<ModelConfig> read = read_text_config(text, fallback);
  if (!read.ok()) {
    Problem problem = read.problem();
    if (nested && !problem.where.starts_with("text_config")) problem.where = "text_config." + problem.where;
    return fields.fail(std::move(problem));
  }
  const std::string model_type = config.model_type;
  config = std::move(read.value());
  config.text_type = config.model_type;
  config.used = {{"text_config", echo_of(config.text_type, config.used)}};
  // The whole model's word on tying holds where the text says nothing.
  if (text.find("tie_word_embeddings") == nullptr) fields.flag("tie_word_embeddings", config.tie_word_embeddings);
  config.counted = parameter_count(config);
  config.architecture = Architecture::counted;
  config.model_type = model_type;
}

// The tower's parameters and the width that it ends in.
struct Seen {
  Count count = 0, width = 0;
};

// The tower's sizes go to `config.vision`; its model_type stays empty where core/models does not build it.
Seen take_vision(Fields& fields, ModelConfig& config, const char* fallback, const Json* class_defaults) {
  const Json* given = fields.object().find("vision_config");
  const Json& vision = given != nullptr && given->is_object() ? *given : empty_object();
  const Json* type = vision.find("model_type");
  const auto name = type == nullptr ? std::nullopt : type->as_string();
  const Tower* tower = find_tower(name.value_or(fallback));
  if (tower == nullptr) {
    fields.fail({ProblemCode::unknown_model_type, "vision_config.model_type", type->brief(), "", ""});
    return {};
  }
  const Result<Json> defaults = parse_json(tower->defaults);
  // LlavaConfig builds another CLIP than CLIPVisionConfig's default when the file says nothing of it.
  const bool by_owner = given == nullptr && class_defaults != nullptr;
  Fields v(by_owner ? *class_defaults : vision, &defaults.value(), kTowerAliases);
  Seen seen{tower->count(v), 0};
  seen.width = size(v, "hidden_size");
  config.vision.model_type = tower->model_type;
  if (!tower->read(v, config.vision)) config.vision.model_type.clear();
  if (v.problem()) {
    Problem problem = *v.problem();
    problem.where = "vision_config." + problem.where;
    fields.fail(std::move(problem));
  }
  std::vector<std::pair<std::string, Json>> used;
  for (const Fields::Used& key : v.used())
    used.emplace_back(key.first, *key.second);
  config.used.emplace_back("vision_config", echo_of(tower->model_type, used));
  return seen;
}

const Json& text_of(const Fields& fields, const char* key = "text_config") {
  const Json* given = fields.object().find(key);
  return given != nullptr && given->is_object() ? *given : empty_object();
}

void finish(Fields& fields, ModelConfig& config, Count more) {
  if (!fields.ok()) return;
  config.counted = plus(config.counted, more);
  config.untraced = "family_step_not_modelled";
}

// Whether core/models puts the family together with such a tower.
bool takes_tower(const ModelConfig& config) {
  const std::string& tower = config.vision.model_type;
  if (config.model_type == "llama4") return tower == "llama4_vision_model";
  if (config.model_type == "llava" || config.model_type == "gemma3")
    return tower == "clip_vision_model" || tower == "siglip_vision_model";
  return tower == config.model_type;
}

// Traced where core/models builds both halves, and what joins them is not `otherwise`.
void trace_images(Fields& fields, ModelConfig& config, std::initializer_list<std::string_view> texts, bool text_traced,
                  bool otherwise) {
  VisionConfig& vision = config.vision;
  fields.integer("image_token_index", 0, kMaxVocabSize, vision.token_id);
  for (const Fields::Used& key : fields.used()) {
    if (key.first != "text_config" && key.first != "vision_config") config.used.emplace_back(key.first, *key.second);
  }
  const bool known = std::find(texts.begin(), texts.end(), config.text_type) != texts.end();
  if (!fields.ok() || !known) return;
  config.untraced = "variant_step_not_modelled";
  const bool counted = vision.tokens != 0 || vision.any_size();
  const bool built = takes_tower(config) && counted && vision.token_id < config.vocab_size;
  if (otherwise || !text_traced || !built) return;
  config.untraced.clear();
  config.architecture = Architecture::image_text;
}

// Which of the layers + 1 hidden states goes on; nothing where the file names several, or one that is not there.
std::optional<Count> feature_layer(const Fields& fields, const VisionConfig& vision) {
  const Json* given = fields.given("vision_feature_layer");
  if (given != nullptr && given->is_array() && given->items().size() == 1) given = &given->items().front();
  const auto states = static_cast<double>(vision.layers + 1);
  const std::optional<double> said = given == nullptr ? std::optional<double>(-2) : given->as_real();
  if (!said || std::floor(*said) != *said || *said >= states || *said < -states) return std::nullopt;
  return static_cast<Count>(*said < 0 ? *said + states : *said);
}

// Tokens of an image, with LLaVA's choice among them.
void read_features(Fields& fields, VisionConfig& vision) {
  std::string strategy = "default";
  fields.text("vision_feature_select_strategy", strategy);
  vision.drops_first = strategy == "default";
  const Count all = plus(vision.patches(), vision.model_type == "clip_vision_model" ? 1 : 0);
  vision.tokens = vision.drops_first && all != 0 ? all - 1 : all;
}

}  // namespace

// transformers models/llava/modeling_llava.py: two linear layers from the features of one or several layers.
void count_llava(Fields& fields, ModelConfig& config) {
  take_text(fields, config, text_of(fields), "llama", true);
  if (!fields.ok()) return;
  const bool text_traced = config.untraced.empty();
  const Seen vision = take_vision(fields, config, "clip_vision_model", fields.given("vision_config"));
  const Json* layers = fields.given("vision_feature_layer");
  const Count features = layers != nullptr && layers->is_array() ? layers->items().size() : 1;
  bool bias = true;
  fields.flag("multimodal_projector_bias", bias);
  const Count text = config.hidden_size;
  finish(fields, config,
         sum_of({vision.count, linear(times(vision.width, features), text, bias), linear(text, text, bias)}));
  if (!fields.ok() || config.vision.layers == 0) return;
  config.vision.projector_bias = bias;
  std::string act;
  fields.text("projector_hidden_act", act);
  config.vision.projector_act = activation_named(act).value_or(Act::gelu);
  read_features(fields, config.vision);
  const std::optional<Count> layer = feature_layer(fields, config.vision);
  config.vision.feature_layer = layer.value_or(0);
  trace_images(fields, config, {"llama", "mistral", "qwen2"}, text_traced, !layer || !activation_named(act));
}

namespace {

// mm_tokens_per_image is the square of a side that the squares of patches make.
bool pools_evenly(const VisionConfig& vision) {
  if (vision.patches() == 0) return false;
  const Count side = vision.image_size / vision.patch_size;
  Count kept = 1;
  while (squared(kept + 1) <= vision.tokens)
    ++kept;
  return squared(kept) == vision.tokens && kept <= side && side / (side / kept) == kept;
}

}  // namespace

// transformers models/gemma3/modeling_gemma3.py, Gemma3MultiModalProjector.
void count_gemma3(Fields& fields, ModelConfig& config) {
  take_text(fields, config, text_of(fields), "gemma3_text", true);
  if (!fields.ok()) return;
  const bool text_traced = config.untraced.empty();
  const Seen vision = take_vision(fields, config, "siglip_vision_model", nullptr);
  finish(fields, config, sum_of({vision.count, vision.width, times(vision.width, config.hidden_size)}));
  if (!fields.ok() || config.vision.layers == 0) return;
  fields.integer("mm_tokens_per_image", 1, kMaxPositions, config.vision.tokens);
  trace_images(fields, config, {"gemma3_text"}, text_traced, !pools_evenly(config.vision));
}

// transformers models/llama4/modeling_llama4.py, Llama4MultiModalProjector: one linear layer from vision_output_dim.
void count_llama4(Fields& fields, ModelConfig& config) {
  take_text(fields, config, text_of(fields), "llama4_text", true);
  if (!fields.ok()) return;
  const bool text_traced = config.untraced.empty();
  const Seen vision = take_vision(fields, config, "llama4_vision_model", nullptr);
  Fields v(text_of(fields, "vision_config"));
  const Count out = size(v, "vision_output_dim", kMaxHiddenSize, 7680);
  if (v.problem()) fields.fail(*v.problem());
  finish(fields, config, sum_of({vision.count, times(out, config.hidden_size)}));
  if (fields.ok()) trace_images(fields, config, {"llama4_text"}, text_traced, false);
}

namespace {

// How much of half a head time, row and column turn. Files that do not say it are taken to mean the published
// checkpoints' shares, 16, 24 and 24 of 64; false where they do not make up the half.
bool read_rope_sections(const Json& text, ModelConfig& config) {
  const Json* rope = nullptr;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* given = text.find(key);
    if (given != nullptr && given->is_object()) rope = given;
  }
  const Count half = config.head_dim / 2;
  auto& sections = config.rope_sections;
  const Json* list = rope == nullptr ? nullptr : rope->find("mrope_section");
  if (list == nullptr) {
    sections = {half / 4, 3 * half / 8, 3 * half / 8};
    config.notes.emplace_back("mrope_section_assumed", "");
  } else {
    if (!list->is_array() || list->items().size() != sections.size()) return false;
    for (std::size_t i = 0; i < sections.size(); ++i) {
      if (read_unsigned(list->items()[i], "mrope_section", 0, kMaxHeadDim, sections[i])) return false;
    }
  }
  return sections[0] != 0 && sum_of({sections[0], sections[1], sections[2]}) == half;
}

}  // namespace

// Older files have the text's keys at the top.
void count_qwen2_vl(Fields& fields, ModelConfig& config) {
  const bool nested = text_of(fields).find("hidden_size") != nullptr;
  const bool newer = config.model_type == "qwen2_5_vl";
  const char* text = newer ? "qwen2_5_vl_text" : "qwen2_vl_text";
  bool sections = false;
  if (nested) {
    take_text(fields, config, text_of(fields), text, true);
    if (fields.ok()) sections = read_rope_sections(text_of(fields), config);
  } else {
    std::vector<Json::Member> members = fields.object().members();
    std::erase_if(members, [](const Json::Member& m) { return m.first == "model_type" || m.first == "vision_config"; });
    const Json flat = Json::of_object(std::move(members));
    take_text(fields, config, flat, text, false);
    if (fields.ok()) sections = read_rope_sections(flat, config);
  }
  if (!fields.ok()) return;
  // By itself the text's class is none that a step is traced of; as a part of this one it is Qwen2's.
  const bool text_traced = config.untraced == "family_step_not_modelled";
  finish(fields, config, take_vision(fields, config, newer ? "qwen2_5_vl" : "qwen2_vl", nullptr).count);
  if (!fields.ok()) return;
  const bool fits = config.vision.out_width == config.hidden_size && config.head_dim % 2 == 0;
  trace_images(fields, config, {text}, text_traced, !sections || !fits);
}

}  // namespace ledger
