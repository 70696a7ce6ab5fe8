// What the core refuses: always with a reason that probe can say in words, and never by computing something else.
#include "core/training/support.h"

#include <gtest/gtest.h>

#include "probe/texts.h"
#include "tests/base/show_problem.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

using Kind = RecipeKey::Kind;

// Every recipe that differs from the default in one key.
std::vector<Recipe> one_key_off(const RecipeKey& key) {
  std::vector<std::string> texts(key.choices.begin(), key.choices.end());
  if (key.kind == Kind::flag) texts = {"true", "false"};
  if (key.kind == Kind::integer)
    texts = {std::to_string(key.low), std::to_string(std::min<std::uint64_t>(key.high, key.low + 1))};
  if (key.kind == Kind::real) texts = {"0", "0.1"};
  std::vector<Recipe> recipes;
  for (const std::string& text : texts) {
    const Result<Recipe> recipe = with_recipe_text({}, key.name, text);
    if (recipe.ok()) recipes.push_back(recipe.value());
  }
  return recipes;
}

TEST(Support, EveryValueOfEveryKeyIsTracedOrRefusedByName) {
  for (const auto& [name, config] : small_configs()) {
    for (const RecipeKey& key : recipe_keys()) {
      for (const Recipe& recipe : one_key_off(key)) {
        if (recipe.stack == Stack::course) continue;  // arithmetic, not a trace of operators
        SCOPED_TRACE(std::string(name) + " " + key.name + "=" + recipe_value(recipe, key.name));
        const std::optional<Problem> refusal = unsupported(config, recipe);
        const Result<Trace> trace = trace_step(config, recipe);
        EXPECT_EQ(trace.ok(), !refusal);
        if (!refusal) continue;
        EXPECT_EQ(outcome(trace), shown(*refusal));
        EXPECT_EQ(refusal->code, ProblemCode::unsupported_recipe);
        EXPECT_FALSE(recipe_value(recipe, refusal->where).empty()) << refusal->where << " is no recipe key";
        EXPECT_EQ(refusal->read, recipe_value(recipe, refusal->where));
        EXPECT_EQ(say(*refusal, "recipe").find(refusal->expected), std::string::npos)
            << "no sentence for " << refusal->expected;
      }
    }
  }
}

// Preparing widens a base to be trained on; int8 weights that only generate stay in a 16-bit stream.
TEST(Support, OnlyTrainingPreparesAnInt8Base) {
  EXPECT_TRUE(fp32_stream(recipe_of({{"method", "lora"}, {"weights", "int8"}})));
  EXPECT_FALSE(fp32_stream(recipe_of({{"method", "lora"}, {"weights", "int8"}, {"prepare_kbit", "false"}})));
  EXPECT_FALSE(fp32_stream(recipe_of({{"task", "generate"}, {"weights", "int8"}})));
  EXPECT_TRUE(fp32_stream(recipe_of({{"method", "qlora"}})));
}

TEST(Support, TheDefaultRecipeIsTraced) {
  for (const auto& [name, config] : small_configs())
    EXPECT_FALSE(unsupported(config, Recipe{})) << name;
}

struct Refused {
  const char* name;
  Settings settings;
  const char* where;
  const char* read;
  const char* reason;
};

TEST(Support, LigerTurnsWholeHeads) {
  const auto llama = [](const char* rotary) {
    return read_model_config(std::string(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 64)") +
                             rotary + "}")
        .value();
  };
  EXPECT_FALSE(unsupported(llama(""), recipe_of({{"liger", "true"}})));
  const auto refusal = unsupported(llama(R"(, "partial_rotary_factor": 0.5)"), recipe_of({{"liger", "true"}}));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->expected, "liger_not_modelled");
}

TEST(Support, RefusalsNameKeyValueAndReason) {
  const Refused cases[] = {
      {"several GPUs in one key", {{"tp", "4"}}, "tp", "4", "parallelism_not_modelled"},
      {"sharding", {{"zero", "3"}}, "zero", "3", "zero_needs_ranks"},
      {"Liger elsewhere", {{"liger", "true"}, {"stack", "native"}}, "liger", "true", "liger_not_modelled"},
      {"Liger over kept results",
       {{"liger", "true"}, {"checkpointing", "selective"}},
       "checkpointing",
       "selective",
       "liger_writes_over_what_is_kept"},
      {"compiled", {{"compile", "true"}}, "compile", "true", "compile_not_modelled"},
      {"float8", {{"float8", "true"}}, "float8", "true", "float8_not_modelled"},
      {"offloaded", {{"offload", "params"}}, "offload", "params", "offload_not_modelled"},
      {"heads of another width", {{"stack", "torchtune"}}, "stack", "torchtune", "torchtune_builds_llama_and_mistral"},
      {"another stack", {{"stack", "litgpt"}}, "stack", "litgpt", "stack_not_modelled"},
  };
  const Refused torchtune[] = {
      {"NF4", {{"method", "qlora"}}, "method", "qlora", "torchtune_nf4_not_modelled"},
      {"DoRA", {{"method", "lora"}, {"dora", "true"}}, "dora", "true", "torchtune_dora_not_modelled"},
      {"fp32 adapters", {{"method", "lora"}}, "adapter_dtype", "fp32", "torchtune_adapters_follow_the_model"},
      {"AMP", {{"precision", "amp-bf16"}}, "precision", "amp-bf16", "torchtune_has_no_autocast"},
      {"flash-attn", {{"attention", "flash"}}, "attention", "flash", "torchtune_calls_sdpa"},
      {"reentrant",
       {{"checkpointing", "full-reentrant"}},
       "checkpointing",
       "full-reentrant",
       "torchtune_checkpointing_not_modelled"},
      {"Liger", {{"loss", "fused_linear"}}, "loss", "fused_linear", "torchtune_loss_not_modelled"},
      {"short chunks", {{"loss", "chunked"}, {"seq", "7"}}, "seq", "7", "chunks_need_a_token_each"},
      {"outputs", {{"keep_outputs", "true"}}, "keep_outputs", "true", "stack_drops_outputs"},
      {"several GPUs", {{"dp", "2"}}, "dp", "2", "torchtune_shards_not_modelled"},
  };
  const Refused torchtitan[] = {
      {"adapters", {{"method", "lora"}}, "method", "lora", "torchtitan_trains_in_full"},
      {"fp16", {{"precision", "amp-fp16"}}, "precision", "amp-fp16", "torchtitan_precisions"},
      {"Lion", {{"optimizer", "lion"}}, "optimizer", "lion", "torchtitan_steps_with_adamw"},
      {"written-out attention", {{"attention", "eager"}}, "attention", "eager", "torchtitan_calls_sdpa"},
      {"reentrant",
       {{"checkpointing", "full-reentrant"}},
       "checkpointing",
       "full-reentrant",
       "torchtitan_checkpointing_not_modelled"},
      {"Liger", {{"loss", "fused_linear"}}, "loss", "fused_linear", "torchtitan_loss_not_modelled"},
      {"float8 cut",
       {{"float8", "true"}, {"tp", "2"}, {"sequence_parallel", "true"}},
       "float8",
       "true",
       "float8_not_modelled"},
      {"float8 under autocast",
       {{"float8", "true"}, {"precision", "amp-bf16"}},
       "float8",
       "true",
       "float8_not_modelled"},
      {"chunks under DDP", {{"loss", "chunked"}, {"dp", "2"}}, "loss", "chunked", "torchtitan_loss_not_modelled"},
      {"uneven chunks", {{"loss", "chunked"}, {"seq", "12"}}, "seq", "12", "torchtitan_chunks_are_equal"},
      {"outputs", {{"keep_outputs", "true"}}, "keep_outputs", "true", "stack_drops_outputs"},
      {"another's units", {{"fsdp", "2"}, {"dp", "2"}}, "units", "layers", "torchtitan_has_units_of_its_own"},
      {"uneven heads", {{"tp", "4"}, {"sequence_parallel", "true"}}, "tp", "4", "tp_cuts_heads_and_width"},
      {"uneven width", {{"tp", "2"}, {"sequence_parallel", "true"}}, "tp", "2", "tp_cuts_heads_and_width"},
      {"cut sequences alone",
       {{"sequence_parallel", "true"}},
       "sequence_parallel",
       "true",
       "torchtitan_cuts_the_sequence"},
      {"more stages than layers", {{"pp", "8"}}, "pp", "8", "torchtitan_stages_have_layers"},
      {"copies of a pipeline", {{"pp", "2"}, {"dp", "2"}}, "pp", "2", "torchtitan_pipelines_of_shards"},
      {"a pipeline under autocast",
       {{"pp", "2"}, {"precision", "amp-bf16"}},
       "precision",
       "amp-bf16",
       "torchtitan_pipelines_of_shards"},
      {"accumulated pipelines",
       {{"pp", "2"}, {"grad_accum", "2"}},
       "grad_accum",
       "2",
       "torchtitan_counts_micro_batches"},
      {"chunks in a pipeline", {{"pp", "2"}, {"loss", "chunked"}}, "loss", "chunked", "torchtitan_loss_not_modelled"},
      {"interleaved since 0.2",
       {{"pp", "2"}, {"pipeline_schedule", "interleaved"}, {"micro_batches", "4"}},
       "pipeline_schedule",
       "interleaved",
       "torchtitan_interleaving"},
      {"float8 gathered alone",
       {{"float8_all_gather", "true"}},
       "float8_all_gather",
       "true",
       "float8_all_gather_wants_compiled_float8"},
  };
  const Refused of_experts[] = {
      {"cut in width", {{"tp", "2"}, {"sequence_parallel", "true"}}, "tp", "2", "torchtitan_experts_by_data_alone"},
      {"cut sequences",
       {{"cp", "2"}, {"fsdp", "2"}, {"units", "titan"}},
       "cp",
       "2",
       "torchtitan_experts_by_data_alone"},
      {"float8", {{"float8", "true"}, {"compile", "true"}}, "float8", "true", "float8_not_modelled"},
      {"uneven experts", {{"ep", "3"}, {"dp", "3"}, {"fsdp", "2"}}, "ep", "3", "ep_divides_the_experts"},
      {"uneven ranks", {{"ep", "4"}, {"dp", "6"}, {"fsdp", "2"}}, "ep", "4", "ep_divides_the_ranks"},
      {"experts of replicas", {{"ep", "2"}, {"dp", "2"}}, "ep", "2", "torchtitan_ep_shards"},
      {"more ranks than experts",
       {{"ep", "2"}, {"dp", "8"}, {"fsdp", "2"}},
       "ep",
       "2",
       "torchtitan_cuts_experts_apart"},
      {"experts' width cut", {{"etp", "2"}}, "etp", "2", "parallelism_not_modelled"},
  };
  const Refused native[] = {
      {"an int8 base", {{"method", "lora"}, {"weights", "int8"}}, "weights", "int8", "native_has_no_int8"},
      {"AMP", {{"precision", "amp-bf16"}}, "precision", "amp-bf16", "native_has_no_autocast"},
      {"autocast", {{"autocast", "true"}}, "autocast", "true", "native_has_no_autocast"},
      {"Lion", {{"optimizer", "lion"}}, "optimizer", "lion", "native_steps_in_one_kernel"},
      {"written-out attention", {{"attention", "eager"}}, "attention", "eager", "native_attention"},
      {"selective", {{"checkpointing", "selective"}}, "checkpointing", "selective", "native_checkpointing"},
      {"chunks", {{"loss", "chunked"}}, "loss", "chunked", "native_loss_is_in_place"},
      {"outputs", {{"keep_outputs", "true"}}, "keep_outputs", "true", "stack_drops_outputs"},
      {"DoRA", {{"method", "lora"}, {"dora", "true"}}, "dora", "true", "native_adapters_are_plain"},
      {"partitions", {{"dp", "2"}, {"zero", "1"}}, "zero", "1", "native_shards_nothing"},
      {"shards", {{"dp", "2"}, {"fsdp", "2"}}, "fsdp", "2", "native_shards_nothing"},
      {"buckets", {{"dp", "2"}, {"ddp_bucket_view", "true"}}, "ddp_bucket_view", "true", "native_has_no_buckets"},
  };
  const auto expect_refused = [](const ModelConfig& config, const Refused& c, const char* stack) {
    Settings settings = c.settings;
    if (stack != nullptr) settings.insert(settings.begin(), {"stack", stack});
    const auto refusal = unsupported(config, recipe_of(settings));
    ASSERT_TRUE(refusal) << c.name;
    EXPECT_EQ(refusal->where, c.where) << c.name;
    EXPECT_EQ(refusal->read, c.read) << c.name;
    EXPECT_EQ(refusal->expected, c.reason) << c.name;
  };
  for (const Refused& c : torchtitan)
    expect_refused(torchtitan_configs().front().config, c, "torchtitan");
  expect_refused(torchtitan_configs().front().config,
                 {"cut chunks",
                  {{"loss", "chunked"}, {"tp", "2"}, {"sequence_parallel", "true"}},
                  "loss",
                  "chunked",
                  "torchtitan_loss_not_modelled"},
                 "torchtitan-0.0.2");
  for (const char* stack : {"torchtitan-0.2.0", "torchtitan-0.1"}) {
    expect_refused(torchtitan_configs().front().config,
                   {"chunks", {{"loss", "chunked"}}, "loss", "chunked", "torchtitan_loss_not_modelled"}, stack);
  }
  const ModelConfig mixture = torchtitan_configs().back().config;
  for (const Refused& c : of_experts)
    expect_refused(mixture, c, "torchtitan");
  for (const char* stack : {"torchtitan-0.1", "torchtitan-0.0.2"})
    expect_refused(mixture, {"experts", {}, "stack", stack, "torchtitan_builds_llama_and_qwen3"}, stack);
  expect_refused(torchtitan_configs().front().config,
                 {"no experts", {{"ep", "2"}, {"dp", "2"}, {"fsdp", "2"}}, "ep", "2", "ep_needs_experts"},
                 "torchtitan");
  for (const Refused& c : torchtune)
    expect_refused(torchtune_configs().front().config, c, "torchtune");
  for (const Refused& c : native)
    expect_refused(odd_llama(), c, "native");
  for (const Refused& c : cases)
    expect_refused(odd_llama(), c, nullptr);
  ModelConfig windowed = odd_llama();
  windowed.sliding_window = 64;
  expect_refused(windowed, {"a window", {{"seq", "65"}}, "seq", "65", "native_has_no_window"}, "native");
  ModelConfig other = odd_llama();
  other.model_type = "gemma";
  expect_refused(other, {"another family", {}, "stack", "native", "native_computes_llama_and_its_like"}, "native");
}

// torchtune's models raise ValueError beyond their builder's length, whatever the config says.
TEST(Support, TorchtuneModelsAreAsLongAsTheirBuildersMakeThem) {
  ModelConfig llama = torchtune_configs().front().config;
  llama.vocab_size = 128256;
  llama.hidden_size = 4096;
  llama.num_attention_heads = 32;
  llama.head_dim = 128;
  llama.num_key_value_heads = 8;
  llama.num_hidden_layers = 32;
  const auto longest = [&](std::uint64_t positions) {
    llama.max_position_embeddings = positions;
    std::uint64_t fits = 0;
    for (const char* seq : {"4096", "8192", "131072", "131073"})
      fits += unsupported(llama, recipe_of({{"stack", "torchtune"}, {"seq", seq}})) ? 0 : 1;
    return fits;
  };
  EXPECT_EQ(longest(8192), 2u) << "Llama 3";
  EXPECT_EQ(longest(131072), 3u) << "Llama 3.1";
  EXPECT_EQ(longest(2048), 3u) << "a config without its length: the newest builder of this shape";
  llama.num_hidden_layers = 3;
  EXPECT_EQ(longest(4096), 1u) << "no builder";
}

TEST(Support, APlainStackHasNoLayersToCheckpoint) {
  const auto refusal = unsupported(plain_stack({{4, 4, true}}), recipe_of({{"checkpointing", "full"}}));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(
      shown(*refusal),
      "unsupported_recipe where=checkpointing read=full expected=plain_stack_has_no_layers_to_checkpoint nearest=");
}

}  // namespace
}  // namespace ledger
