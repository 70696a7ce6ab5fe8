#include "core/config/recipe.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>

#include "core/base/nearest.h"
#include "core/base/utf8.h"
#include "core/config/adapter_config.h"
#include "core/config/fields.h"
#include "core/config/gpu.h"
#include "core/config/image_grid.h"
#include "core/config/recipe_text.h"

namespace ledger {
namespace {

using Kind = RecipeKey::Kind;

// Spellings in the order of the enumerators.
constexpr const char* kStack[] = {
    "hf",     "hf-4",     "torchtune", "torchtitan", "torchtitan-0.2.0", "torchtitan-0.1", "torchtitan-0.0.2",
    "litgpt", "megatron", "native",    "course"};
constexpr const char* kMethod[] = {"full", "lora", "qlora"};
constexpr const char* kPrecision[] = {"bf16", "amp-bf16",      "amp-fp16",
                                      "fp32", "megatron-bf16", "megatron-bf16-bf16grad"};
constexpr const char* kOptimizer[] = {
    "adamw_fused",   "adamw_foreach", "adamw_forloop", "adamw_8bit",   "paged_adamw_8bit",
    "adamw_ao_8bit", "adamw_ao_4bit", "sgd",           "sgd_momentum", "adafactor_torch",
    "adafactor_hf",  "lion",          "muon",          "galore_adamw"};
constexpr const char* kAttention[] = {"sdpa", "flash", "efficient", "math", "eager", "cudnn"};
constexpr const char* kCheckpointing[] = {"none", "full", "full-reentrant", "selective", "offload"};
constexpr const char* kRecomputeMethod[] = {"uniform", "block"};
constexpr const char* kTransformerImpl[] = {"transformer_engine", "local"};
constexpr const char* kLoss[] = {"full", "chunked",        "fused_linear",        "fused_linear_0.6",
                                 "cut",  "vocab_parallel", "vocab_parallel_fused"};
constexpr const char* kAdapterDtype[] = {"fp32", "bf16"};
constexpr const char* kUnitChoices[] = {"layers", "titan"};
constexpr const char* kShardDtype[] = {"bf16", "fp32"};
constexpr const char* kOffload[] = {"none", "optimizer", "params", "activations"};
constexpr const char* kAllocator[] = {"torch", "torch_expandable"};
constexpr const char* kTask[] = {"training", "generate"};
constexpr const char* kWeights[] = {"unquantised", "int8", "nf4"};
constexpr const char* kKvCache[] = {"dynamic", "static", "quantized"};
constexpr const char* kPrefillLogits[] = {"last", "all"};
constexpr const char* kPipelineSchedule[] = {"1f1b", "interleaved"};
constexpr const char* kOverlapComm[] = {"auto", "on", "off"};
constexpr const char* kDeepSpeed[] = {"0.19", "0.18.2"};
constexpr const char* kCpComm[] = {"auto", "p2p", "all_gather", "a2a", "a2a_p2p"};

static_assert(std::size(kStack) == static_cast<std::size_t>(Stack::course) + 1);
static_assert(std::size(kPrecision) == static_cast<std::size_t>(Precision::megatron_bf16_bf16grad) + 1);
static_assert(std::size(kOptimizer) == static_cast<std::size_t>(Optimizer::galore_adamw) + 1);
static_assert(std::size(kAttention) == static_cast<std::size_t>(Attention::cudnn) + 1);
static_assert(std::size(kCheckpointing) == static_cast<std::size_t>(Checkpointing::offload) + 1);
static_assert(std::size(kTransformerImpl) == static_cast<std::size_t>(TransformerImpl::local) + 1);
static_assert(std::size(kLoss) == static_cast<std::size_t>(Loss::vocab_parallel_fused) + 1);
static_assert(std::size(kWeights) == static_cast<std::size_t>(Weights::nf4) + 1);
static_assert(std::size(kKvCache) == static_cast<std::size_t>(KvCacheKind::quantized) + 1);
static_assert(std::size(kOffload) == static_cast<std::size_t>(Offload::activations) + 1);

constexpr std::uint64_t kMaxRanks = 65536;                      // of one kind of parallelism
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;  // of a buffer or a limit of DeepSpeed's
constexpr std::uint64_t kMostLayers = 4096;                     // of a stage or of a unit
constexpr std::uint64_t kMaxNames = 64;                         // LoRA targets
constexpr std::uint64_t kMaxNameBytes = 128;                    // of one target
constexpr std::uint64_t kMaxMemory = std::uint64_t{1} << 50;

using Read = std::optional<Problem> (*)(const RecipeKey& key, const Json& json, Recipe& recipe);
using Write = void (*)(JsonWriter& out, const RecipeKey& key, const Recipe& recipe);

struct Row {
  RecipeKey key;
  Read read;
  Write write;
};

std::string joined(std::span<const char* const> choices) {
  std::string all;
  for (const char* choice : choices) {
    if (!all.empty()) all += '|';
    all += choice;
  }
  return all;
}

// Index of the spelling in `choices`.
Result<std::size_t> read_spelling(const RecipeKey& key, const Json& json) {
  const std::optional<std::string_view> text = json.as_string();
  if (!text) return wrong_type(key.name, json, "string");
  for (std::size_t i = 0; i < key.choices.size(); ++i) {
    if (*text == key.choices[i]) return i;
  }
  return Problem{ProblemCode::not_one_of, key.name, json.brief(), joined(key.choices), nearest(*text, key.choices)};
}

template <auto Member>
constexpr Row choice(const char* name, std::span<const char* const> choices) {
  using Enum = std::remove_reference_t<decltype(std::declval<Recipe&>().*Member)>;
  return {{name, Kind::choice, choices, 0, 0},
          [](const RecipeKey& key, const Json& json, Recipe& recipe) -> std::optional<Problem> {
            const Result<std::size_t> index = read_spelling(key, json);
            if (!index.ok()) return index.problem();
            recipe.*Member = static_cast<Enum>(index.value());
            return std::nullopt;
          },
          [](JsonWriter& out, const RecipeKey& key, const Recipe& recipe) {
            out.value(key.choices[static_cast<std::size_t>(recipe.*Member)]);
          }};
}

template <auto Member>
constexpr Row flag(const char* name) {
  return {
      {name, Kind::flag, {}, 0, 0},
      [](const RecipeKey& key, const Json& json, Recipe& recipe) { return read_bool(json, key.name, recipe.*Member); },
      [](JsonWriter& out, const RecipeKey&, const Recipe& recipe) { out.value(recipe.*Member); }};
}

template <auto Member>
constexpr Row integer(const char* name, std::uint64_t low, std::uint64_t high) {
  return {{name, Kind::integer, {}, low, high},
          [](const RecipeKey& key, const Json& json, Recipe& recipe) {
            return read_unsigned(json, key.name, key.low, key.high, recipe.*Member);
          },
          [](JsonWriter& out, const RecipeKey&, const Recipe& recipe) { out.value(recipe.*Member); }};
}

std::optional<Problem> read_dropout(const RecipeKey& key, const Json& json, Recipe& recipe) {
  return read_real(json, key.name, static_cast<double>(key.low), static_cast<double>(key.high), recipe.lora_dropout);
}

std::optional<Problem> read_name(const RecipeKey& key, const Json& json, std::vector<std::string>& names) {
  const std::optional<std::string_view> text = json.as_string();
  if (!text) return wrong_type(key.name, json, "string");
  if (text->empty() || text->size() > kMaxNameBytes) {
    return Problem{ProblemCode::out_of_range, key.name, json.brief(), "1.." + std::to_string(kMaxNameBytes), ""};
  }
  // Flags, links and embeds write names with commas between them, so one with a comma or a blank would come back as
  // others.
  const auto plain = [](char c) { return c > ' ' && c < '\x7f' && c != ','; };
  if (!std::all_of(text->begin(), text->end(), plain)) return wrong_type(key.name, json, "module name");
  names.emplace_back(*text);
  return std::nullopt;
}

std::optional<Problem> read_targets(const RecipeKey& key, const Json& json, Recipe& recipe) {
  std::vector<std::string> names;
  if (json.is_array()) {
    const std::size_t count = json.items().size();
    if (count == 0 || count > kMaxNames) {
      return Problem{ProblemCode::out_of_range, key.name, std::to_string(count), "1.." + std::to_string(kMaxNames), ""};
    }
    for (const Json& item : json.items()) {
      if (auto problem = read_name(key, item, names)) return problem;
    }
  } else if (json.is_string()) {
    if (auto problem = read_name(key, json, names)) return problem;
  } else {
    return wrong_type(key.name, json, "string|array");
  }
  recipe.targets = std::move(names);
  return std::nullopt;
}

void write_targets(JsonWriter& out, const RecipeKey&, const Recipe& recipe) {
  if (recipe.targets.size() == 1) {
    out.value(recipe.targets.front());
    return;
  }
  out.begin_array();
  for (const std::string& name : recipe.targets)
    out.value(name);
  out.end_array();
}

std::optional<Problem> read_gpu(const RecipeKey& key, const Json& json, Recipe& recipe) {
  const Result<std::size_t> index = read_spelling(key, json);
  if (!index.ok()) return index.problem();
  recipe.gpu = key.choices[index.value()];
  return std::nullopt;
}

// One row per key, in the order of reports, forms and help.
constexpr std::array kRows = {
    choice<&Recipe::stack>("stack", kStack),
    choice<&Recipe::method>("method", kMethod),
    choice<&Recipe::precision>("precision", kPrecision),
    flag<&Recipe::autocast>("autocast"),
    choice<&Recipe::optimizer>("optimizer", kOptimizer),
    integer<&Recipe::batch>("batch", 1, 65536),
    integer<&Recipe::seq>("seq", 1, 16777216),
    integer<&Recipe::decoder_seq>("decoder_seq", 0, 16777216),
    integer<&Recipe::grad_accum>("grad_accum", 1, 65536),
    choice<&Recipe::attention>("attention", kAttention),
    choice<&Recipe::transformer_impl>("transformer_impl", kTransformerImpl),
    choice<&Recipe::checkpointing>("checkpointing", kCheckpointing),
    choice<&Recipe::recompute_method>("recompute_method", kRecomputeMethod),
    integer<&Recipe::recompute_num_layers>("recompute_num_layers", 1, kMostLayers),
    choice<&Recipe::loss>("loss", kLoss),
    flag<&Recipe::liger>("liger"),
    flag<&Recipe::compile>("compile"),
    flag<&Recipe::float8>("float8"),
    flag<&Recipe::float8_all_gather>("float8_all_gather"),
    flag<&Recipe::keep_outputs>("keep_outputs"),
    integer<&Recipe::images>("images", 1, 4096),
    integer<&Recipe::image_height>("image_height", 0, kMostImageSide),
    integer<&Recipe::image_width>("image_width", 0, kMostImageSide),
    flag<&Recipe::freeze_vision_tower>("freeze_vision_tower"),
    integer<&Recipe::rank>("rank", 1, 65536),
    Row{{"targets", Kind::names, {}, 1, kMaxNames}, read_targets, write_targets},
    Row{{"lora_dropout", Kind::real, {}, 0, 1},
        read_dropout,
        [](JsonWriter& out, const RecipeKey&, const Recipe& recipe) { out.value(recipe.lora_dropout); }},
    choice<&Recipe::adapter_dtype>("adapter_dtype", kAdapterDtype),
    flag<&Recipe::dora>("dora"),
    flag<&Recipe::double_quant>("double_quant"),
    flag<&Recipe::prepare_kbit>("prepare_kbit"),
    choice<&Recipe::task>("task", kTask),
    choice<&Recipe::weights>("weights", kWeights),
    integer<&Recipe::new_tokens>("new_tokens", 1, 16777216),
    choice<&Recipe::kv_cache>("kv_cache", kKvCache),
    choice<&Recipe::prefill_logits>("prefill_logits", kPrefillLogits),
    flag<&Recipe::no_grad>("no_grad"),
    integer<&Recipe::dp>("dp", 1, kMaxRanks),
    integer<&Recipe::tp>("tp", 1, kMaxRanks),
    integer<&Recipe::pp>("pp", 1, kMaxRanks),
    integer<&Recipe::cp>("cp", 1, kMaxRanks),
    choice<&Recipe::cp_comm_type>("cp_comm_type", kCpComm),
    integer<&Recipe::cp_a2a_ranks>("cp_a2a_ranks", 1, kMaxRanks),
    integer<&Recipe::ep>("ep", 1, kMaxRanks),
    integer<&Recipe::etp>("etp", 0, kMaxRanks),
    flag<&Recipe::sequence_parallel>("sequence_parallel"),
    integer<&Recipe::zero>("zero", 0, 3),
    integer<&Recipe::reduce_bucket_size>("reduce_bucket_size", 0, kMaxElements),
    integer<&Recipe::prefetch_bucket_size>("prefetch_bucket_size", 0, kMaxElements),
    integer<&Recipe::param_persistence_threshold>("param_persistence_threshold", 0, kMaxElements),
    integer<&Recipe::max_live_parameters>("max_live_parameters", 0, kMaxElements),
    integer<&Recipe::max_reuse_distance>("max_reuse_distance", 0, kMaxElements),
    integer<&Recipe::sub_group_size>("sub_group_size", 1, kMaxElements),
    choice<&Recipe::overlap_comm>("overlap_comm", kOverlapComm),
    flag<&Recipe::reduce_scatter>("reduce_scatter"),
    choice<&Recipe::deepspeed>("deepspeed", kDeepSpeed),
    choice<&Recipe::pipeline_schedule>("pipeline_schedule", kPipelineSchedule),
    integer<&Recipe::num_layers_per_virtual_pipeline_stage>("num_layers_per_virtual_pipeline_stage", 1, kMostLayers),
    integer<&Recipe::decoder_first_pipeline_num_layers>("decoder_first_pipeline_num_layers", 0, kMostLayers),
    integer<&Recipe::decoder_last_pipeline_num_layers>("decoder_last_pipeline_num_layers", 0, kMostLayers),
    integer<&Recipe::micro_batches>("micro_batches", 1, 65536),
    integer<&Recipe::fsdp>("fsdp", 0, 2),
    choice<&Recipe::units>("units", kUnitChoices),
    flag<&Recipe::reshard_after_forward>("reshard_after_forward"),
    flag<&Recipe::fsdp_activation_checkpointing>("fsdp_activation_checkpointing"),
    choice<&Recipe::param_dtype>("param_dtype", kShardDtype),
    choice<&Recipe::reduce_dtype>("reduce_dtype", kShardDtype),
    flag<&Recipe::ddp_bucket_view>("ddp_bucket_view"),
    choice<&Recipe::offload>("offload", kOffload),
    Row{{"gpu", Kind::text, {}, 0, 0},
        read_gpu,
        [](JsonWriter& out, const RecipeKey&, const Recipe& recipe) { out.value(recipe.gpu); }},
    integer<&Recipe::memory_limit_bytes>("memory_limit_bytes", 0, kMaxMemory),
    choice<&Recipe::allocator>("allocator", kAllocator),
};

// The keys as callers see them; the GPU catalogue's ids are the choices of "gpu".
const std::array<RecipeKey, kRows.size()>& keys() {
  static const std::array<RecipeKey, kRows.size()> all = [] {
    std::array<RecipeKey, kRows.size()> copy{};
    for (std::size_t i = 0; i < kRows.size(); ++i) {
      copy[i] = kRows[i].key;
      if (copy[i].kind == Kind::text) copy[i].choices = gpu_ids();
    }
    return copy;
  }();
  return all;
}

std::optional<std::size_t> row_of(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (name == kRows[i].key.name) return i;
  }
  return std::nullopt;
}

Problem unknown_key(std::string_view name) {
  std::array<const char*, kRows.size()> names{};
  for (std::size_t i = 0; i < kRows.size(); ++i)
    names[i] = kRows[i].key.name;
  return {ProblemCode::unknown_key, std::string(utf8_prefix(name, 80)), "", "", nearest(name, names)};
}

const char* expected_of(Kind kind) {
  switch (kind) {
    case Kind::flag:
      return "boolean";
    case Kind::integer:
      return "integer";
    case Kind::real:
      return "number";
    default:
      return "string";
  }
}

}  // namespace

std::span<const RecipeKey> recipe_keys() {
  return keys();
}

Result<Recipe> recipe_from(const Json& root, const Recipe& base) {
  if (!root.is_object()) return Problem{ProblemCode::not_an_object, "", type_name(root.type()), "object", ""};
  if (is_adapter_config(root)) {
    const Result<Json> said = recipe_of_adapter(root);
    if (!said.ok()) return said.problem();
    Result<Recipe> recipe = recipe_from(said.value(), base);
    if (recipe.ok() && base.method == Method::qlora) recipe.value().method = Method::qlora;
    return recipe;
  }
  Recipe recipe = base;
  for (const auto& [name, value] : root.members()) {
    const std::optional<std::size_t> row = row_of(name);
    if (!row) return unknown_key(name);
    if (value.is_null()) continue;
    if (auto problem = kRows[*row].read(keys()[*row], value, recipe)) return *problem;
  }
  return recipe;
}

Result<Recipe> read_recipe(std::string_view text, const Recipe& base) {
  const Result<Json> root = parse_json(text);
  if (!root.ok()) return root.problem();
  return recipe_from(root.value(), base);
}

Result<Recipe> with_recipe_text(const Recipe& base, std::string_view name, std::string_view text) {
  const std::optional<std::size_t> row = row_of(name);
  if (!row) return unknown_key(name);
  const RecipeKey& key = keys()[*row];
  const std::optional<Json> value = recipe_json_from_text(key, text);
  if (!value) return wrong_type(key.name, Json::of_string(std::string(text)), expected_of(key.kind));
  Recipe recipe = base;
  if (auto problem = kRows[*row].read(key, *value, recipe)) return *problem;
  return recipe;
}

void write_recipe(JsonWriter& out, const Recipe& recipe) {
  out.begin_object();
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    out.key(kRows[i].key.name);
    kRows[i].write(out, keys()[i], recipe);
  }
  out.end_object();
}

std::string recipe_value(const Recipe& recipe, std::string_view key) {
  const std::optional<std::size_t> row = row_of(key);
  if (!row) return "";
  if (kRows[*row].key.kind == Kind::names) {
    std::string names;
    for (const std::string& name : recipe.targets)
      names += names.empty() ? name : "," + name;
    return names;
  }
  JsonWriter out;
  kRows[*row].write(out, keys()[*row], recipe);
  const std::string json = out.take();
  // Spellings and ids carry nothing that JSON escapes.
  return json.starts_with('"') ? json.substr(1, json.size() - 2) : json;
}

}  // namespace ledger
