// Generation, against figures worked out by hand: what is alive after loading, after the prompt and after each token.
#include "core/inference/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/answer/report.h"
#include "core/memory/census.h"
#include "probe/texts.h"
#include "tests/answer/json_path.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

constexpr Bytes kTwo = 2;  // bytes of a bf16 element

Recipe generating(const Settings& settings) {
  Recipe recipe;
  recipe.task = Task::generate;
  recipe.batch = 3;
  recipe.seq = 19;
  recipe.new_tokens = 5;
  for (const auto& [key, text] : settings) {
    const Result<Recipe> next = with_recipe_text(recipe, key, text);
    EXPECT_TRUE(next.ok()) << key << "=" << text;
    if (next.ok()) recipe = next.value();
  }
  return recipe;
}

Trace traced(const ModelConfig& config, const Recipe& recipe, bool every_pass = false) {
  TraceOptions options;
  options.every_pass = every_pass;
  Result<Trace> trace = trace_generation(config, recipe, options);
  EXPECT_TRUE(trace.ok()) << trace.problem().expected;
  return trace.ok() ? std::move(trace.value()) : Trace{};
}

// Bytes of one category while a phase runs: at its end, and at most.
struct Within {
  Bytes end = 0, most = 0;
};

Within within(const Trace& trace, const std::string& phase, Category category) {
  Census census(trace);
  Within result;
  std::string current;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark) current = trace.phases[event.id];
    census.apply(event);
    if (current != phase) continue;
    result.end = census.bytes()[static_cast<std::size_t>(category)];
    result.most = std::max(result.most, result.end);
  }
  return result;
}

const std::vector<std::string> kFiveTokens = {"load", "prefill", "decode1", "decode2", "decode3", "decode4"};

TEST(Generate, ThePromptMakesTheFirstTokenAndEveryOtherPassOneMore) {
  EXPECT_EQ(traced(odd_llama(), generating({})).phases, kFiveTokens);
  EXPECT_EQ(traced(odd_llama(), generating({{"new_tokens", "1"}})).phases,
            (std::vector<std::string>{"load", "prefill"}));
}

TEST(Generate, PlaysTheFirstAndTheLastPassOfMany) {
  EXPECT_EQ(traced_steps(generating({{"new_tokens", "9"}})).size(), 8u);
  EXPECT_EQ(traced_steps(generating({{"new_tokens", "10"}})), (std::vector<std::uint64_t>{1, 9}));
  EXPECT_EQ(traced_steps(generating({{"new_tokens", "1000"}})), (std::vector<std::uint64_t>{1, 999}));
  EXPECT_EQ(traced_steps(generating({{"new_tokens", "1000"}, {"kv_cache", "quantized"}})),
            (std::vector<std::uint64_t>{1, 896, 999}));  // 7 x 128
  EXPECT_EQ(traced_steps(generating({{"new_tokens", "897"}, {"kv_cache", "quantized"}})),
            (std::vector<std::uint64_t>{1, 896}));
  EXPECT_EQ(traced_steps(generating({{"new_tokens", "100"}, {"no_grad", "false"}})).size(), 99u);
}

TEST(Generate, InferenceKeepsOneCopyOfTheWeights) {
  const ModelConfig config = odd_llama();
  const Trace trace = traced(config, generating({}));
  EXPECT_EQ(within(trace, "decode4", Category::weights).end, kTwo * parameter_count(config));
  for (const Category none : {Category::gradients, Category::optimizer_states, Category::activation_gradients})
    EXPECT_EQ(within(trace, "decode4", none).most, 0u);
}

// Keys and values, a layer: 2 x b x nkv x d x 2 bytes a token = 2 x 3 x 2 x 16 x 2 = 384.
constexpr Bytes kTokenInLayer = 384, kLayers = 2;

TEST(Generate, ADynamicCacheGrowsByOneTokenAPass) {
  const Trace trace = traced(odd_llama(kLayers), generating({}));
  EXPECT_EQ(within(trace, "prefill", Category::kv_cache).end, kLayers * 19 * kTokenInLayer);
  EXPECT_EQ(within(trace, "decode1", Category::kv_cache).end, kLayers * 20 * kTokenInLayer);
  EXPECT_EQ(within(trace, "decode4", Category::kv_cache).end, kLayers * 23 * kTokenInLayer);
}

// torch.cat makes a layer's longer values before the old ones die: most when the last layer's have grown.
TEST(Generate, GrowingTakesOneLayersKeysOrValuesTwice) {
  const Trace trace = traced(odd_llama(kLayers), generating({}));
  EXPECT_EQ(within(trace, "decode1", Category::kv_cache).most, (kLayers * 20 + 19 / 2.0) * kTokenInLayer);
}

TEST(Generate, GroupedHeadsCacheTheirKeysOnce) {
  ModelConfig ungrouped = odd_llama(kLayers);
  ungrouped.num_key_value_heads = 6;
  const Bytes grouped = within(traced(odd_llama(kLayers), generating({})), "decode4", Category::kv_cache).end;
  EXPECT_EQ(within(traced(ungrouped, generating({})), "decode4", Category::kv_cache).end, 3 * grouped);
}

// Published sizes of a cached token: 131072 bytes for Llama-3-8B, 2 x 32 x 8 x 128 x 2.
TEST(Generate, ATokenOfAnEightBillionModelTakes128KiB) {
  const ModelConfig config = read_model_config(fixture("configs/llama-3.1-8b.json")).value();
  const Trace trace = traced(config, generating({{"batch", "1"}, {"seq", "4096"}, {"new_tokens", "256"}}));
  EXPECT_EQ(within(trace, "prefill", Category::kv_cache).end, 4096u * 131072);
  EXPECT_EQ(within(trace, "decode255", Category::kv_cache).end, (4096u + 255) * 131072);
}

TEST(Generate, AStaticCacheIsWholeFromThePromptOn) {
  const Trace trace = traced(odd_llama(kLayers), generating({{"kv_cache", "static"}, {"attention", "eager"}}));
  const Bytes whole = kLayers * (19 + 5 - 1) * kTokenInLayer;
  EXPECT_EQ(within(trace, "prefill", Category::kv_cache).end, whole);
  EXPECT_EQ(within(trace, "decode1", Category::kv_cache).most, whole);
  EXPECT_EQ(within(trace, "decode4", Category::kv_cache).end, whole);
}

// window 8: 7 tokens are kept, as a view of the 19 of the prompt; the next pass joins 7 and 1.
TEST(Generate, ASlidingWindowKeepsThePromptUntilTheNextToken) {
  ModelConfig config = odd_llama(kLayers);
  config.sliding_window = 8;
  const Trace trace = traced(config, generating({{"attention", "flash"}}));
  EXPECT_EQ(within(trace, "prefill", Category::kv_cache).end, kLayers * 19 * kTokenInLayer);
  EXPECT_EQ(within(trace, "decode1", Category::kv_cache).end, kLayers * 8 * kTokenInLayer);
  EXPECT_EQ(within(trace, "decode4", Category::kv_cache).end, kLayers * 8 * kTokenInLayer);
}

TEST(Generate, AWindowLongerThanTheTextIsNone) {
  ModelConfig config = odd_llama(kLayers);
  config.sliding_window = 1000;
  EXPECT_EQ(within(traced(config, generating({})), "decode4", Category::kv_cache).end, kLayers * 23 * kTokenInLayer);
}

ModelConfig with_whole_groups() {
  ModelConfig config = odd_llama(kLayers);
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;  // 4 x 16 = 64: a group a token
  return config;
}

// Keys of one layer are b x 64 elements a token: as many groups of 64, two of them in 64 bytes, each with two scales of
// 2 bytes. The same for values.
Bytes quantized(std::uint64_t tokens) {
  const std::uint64_t groups = 3 * tokens;
  return kLayers * 2 * ((groups + 1) / 2 * 64 + groups * 4);
}
Bytes in_bf16(std::uint64_t tokens) {
  return kLayers * 2 * 3 * tokens * 64 * kTwo;
}

TEST(Generate, AQuantizedCacheTakes36BytesForSixtyFourElements) {
  const Trace trace = traced(with_whole_groups(), generating({{"kv_cache", "quantized"}}));
  EXPECT_EQ(within(trace, "prefill", Category::kv_cache).end, quantized(19));
  // Later tokens stay in bf16 until there are 128 of them.
  EXPECT_EQ(within(trace, "decode1", Category::kv_cache).end, quantized(19) + in_bf16(1));
  EXPECT_EQ(within(trace, "decode4", Category::kv_cache).end, quantized(19) + in_bf16(4));
}

TEST(Generate, AQuantizedCacheTakesItsRestInEvery128Tokens) {
  const Trace trace = traced(with_whole_groups(), generating({{"kv_cache", "quantized"}, {"new_tokens", "131"}}));
  EXPECT_EQ(within(trace, "skipped2", Category::kv_cache).end, quantized(19) + in_bf16(127));
  EXPECT_EQ(within(trace, "decode128", Category::kv_cache).end, quantized(19 + 128));
  EXPECT_EQ(within(trace, "skipped129", Category::kv_cache).end, quantized(19 + 128) + in_bf16(1));
  EXPECT_EQ(within(trace, "decode130", Category::kv_cache).end, quantized(19 + 128) + in_bf16(2));
}

// Played pass by pass and with the middle left out, the played passes see the same bytes.
TEST(Generate, SkippingChangesNothingInThePassesThatArePlayed) {
  ModelConfig windowed = odd_llama(kLayers);
  windowed.sliding_window = 24;
  const std::pair<ModelConfig, Settings> cases[] = {
      {odd_llama(kLayers), {{"new_tokens", "40"}}},
      {windowed, {{"new_tokens", "40"}, {"attention", "flash"}}},
      {odd_llama(kLayers), {{"new_tokens", "40"}, {"kv_cache", "static"}, {"attention", "eager"}}},
      {with_whole_groups(), {{"new_tokens", "140"}, {"kv_cache", "quantized"}}},
  };
  for (const auto& [config, settings] : cases) {
    const Recipe recipe = generating(settings);
    const Trace few = traced(config, recipe), all = traced(config, recipe, true);
    const Replay short_way = replay(few, {.allocator = {}}), long_way = replay(all, {.allocator = {}});
    ASSERT_EQ(all.phases.size(), 2 + recipe.new_tokens - 1);
    Bytes skipped = 0;
    for (const PhasePeak& phase : short_way.phases) {
      const std::string& name = few.phases[phase.phase];
      if (name.starts_with(kSkippedPhase)) {
        skipped = phase.peak_bytes;
        continue;
      }
      const auto same = std::find_if(long_way.phases.begin(), long_way.phases.end(),
                                     [&](const PhasePeak& p) { return all.phases[p.phase] == name; });
      ASSERT_NE(same, long_way.phases.end()) << name;
      EXPECT_EQ(phase.start_bytes, same->start_bytes) << name;
      EXPECT_EQ(phase.peak_bytes, same->peak_bytes) << name;
      EXPECT_EQ(phase.end_bytes, same->end_bytes) << name;
      EXPECT_LE(skipped, phase.peak_bytes) << name;
    }
    EXPECT_EQ(short_way.peak_tensor_bytes, long_way.peak_tensor_bytes);
  }
}

// [b, 1, V] in bf16, its last position in fp32, and the fp32 one of the pass before.
TEST(Generate, LogitsOfTheLastPositionOrOfAll) {
  const Bytes row = 3 * 259;
  const Trace last = traced(odd_llama(), generating({}));
  EXPECT_EQ(within(last, "prefill", Category::logits).most, row * 2 + row * 4);
  EXPECT_EQ(within(last, "prefill", Category::logits).end, row * 4);
  EXPECT_EQ(within(last, "decode1", Category::logits).most, row * 4 + row * 2 + row * 4);
  const Trace all = traced(odd_llama(), generating({{"prefill_logits", "all"}}));
  EXPECT_EQ(within(all, "prefill", Category::logits).most, 19 * row * 2 + row * 4);
  EXPECT_EQ(within(all, "decode1", Category::logits).most, row * 4 + row * 2 + row * 4);
}

TEST(Generate, OneLayersActivationsAtATime) {
  const Bytes two = within(traced(odd_llama(2), generating({})), "prefill", Category::activations).most;
  EXPECT_EQ(within(traced(odd_llama(5), generating({})), "prefill", Category::activations).most, two);
  EXPECT_EQ(within(traced(odd_llama(5), generating({})), "prefill", Category::activations).end, 0u);
}

// The most of a layer is in its MLP: the embedding, the layer's input, the residual stream and its norm, [T, h]; gate's
// silu, up and their product, [T, ffn]; all in bf16. T = 57, h = 48, ffn = 300.
TEST(Generate, ThePromptsActivationsAreAFewTensorsWide) {
  ModelConfig config = odd_llama();
  config.intermediate_size = 300;  // wide enough that the MLP is where the most is
  const Bytes most = within(traced(config, generating({})), "prefill", Category::activations).most;
  const Bytes rotary = 2 * 3 * 19 * 16 * kTwo;
  EXPECT_EQ(most, 57 * (4 * 48 + 3 * 300) * kTwo + rotary);
}

// What training keeps for backward stays here, too, but that keys and values are the cache's: they are not two tensors
// but one. b = 1, for generate's positions are one row a sequence.
TEST(Generate, WithoutNoGradTheGraphStays) {
  for (const char* attention : {"sdpa", "eager", "math"}) {
    const Recipe recipe =
        generating({{"batch", "1"}, {"new_tokens", "1"}, {"no_grad", "false"}, {"attention", attention}});
    Recipe training = recipe_of({{"batch", "1"}, {"attention", attention}});
    const Trace kept = traced(odd_llama(kLayers), recipe);
    const Trace step = trace_step(odd_llama(kLayers), training, {}).value();
    const Bytes cached = within(kept, "prefill", Category::kv_cache).end;
    EXPECT_EQ(cached, kLayers * 19 * kTokenInLayer / 3);
    const Bytes shared = std::string(attention) == "sdpa" ? cached : Bytes{0};
    EXPECT_EQ(within(kept, "prefill", Category::activations).end,
              within(step, "step1.forward", Category::activations).end - shared)
        << attention;
  }
}

// Each pass saves its own, longer keys and values for a backward that never comes: 19, 20, 21, 22, 23 tokens. Of the
// last layer only the last pass's are left: what its attention gave went into logits alone, and these are gone.
TEST(Generate, WithoutNoGradEveryTokenKeepsAWholeCache) {
  const Trace trace = traced(odd_llama(kLayers), generating({{"no_grad", "false"}}));
  EXPECT_EQ(trace.phases, kFiveTokens);
  EXPECT_EQ(within(trace, "decode4", Category::kv_cache).end, ((19 + 20 + 21 + 22 + 23) + 23) * kTokenInLayer);
}

// ceil(n/2) codes, ceil(n/64) scales of a byte, their second level, and three tables a matrix.
Bytes nf4_bytes(std::uint64_t out, std::uint64_t in) {
  const std::uint64_t n = out * in, blocks = (n + 63) / 64;
  return (n + 1) / 2 + blocks + 4 + 4 * ((blocks + 255) / 256) + 16 * 4 + 256 * 4;
}

TEST(Generate, FourBitWeightsAreStoredAsBitsandbytesStoresThem) {
  const ModelConfig c = odd_llama(1);
  const Trace trace = traced(c, generating({{"weights", "nf4"}}));
  const Bytes linears = 2 * nf4_bytes(96, 48) + 2 * nf4_bytes(32, 48) + 2 * nf4_bytes(77, 48) - nf4_bytes(96, 48) +
                        nf4_bytes(48, 96) + nf4_bytes(48, 77);
  const Bytes in_bf16 = kTwo * (2 * 259 * 48 + 3 * 48);
  EXPECT_EQ(within(trace, "decode4", Category::weights).end, linears + in_bf16);
}

TEST(Generate, FewRowsTakeTheFusedFourBitKernel) {
  ModelConfig config = odd_llama();
  config.hidden_size = 64;  // the kernel wants whole blocks of 64
  config.intermediate_size = 128;
  config.num_attention_heads = 4;
  const auto runs = [&](const char* batch, OpKind op) {
    const Trace trace = traced(config, generating({{"weights", "nf4"}, {"batch", batch}, {"new_tokens", "2"}}));
    const auto decode = std::find(trace.phases.begin(), trace.phases.end(), "decode1") - trace.phases.begin();
    std::uint32_t at = 0;
    while (trace.events[at].type != EventType::mark || trace.events[at].id != decode)
      ++at;
    return std::count_if(trace.events.begin() + at, trace.events.end(), [&](const Event& event) {
      return event.type == EventType::alloc && trace.storages[event.id].op == op;
    });
  };
  EXPECT_EQ(runs("4", OpKind::gemm_4bit), 7 * 2);
  EXPECT_EQ(runs("4", OpKind::dequantise), 0);
  EXPECT_EQ(runs("5", OpKind::gemm_4bit), 0);
  EXPECT_EQ(runs("5", OpKind::dequantise), 7 * 2);
}

// A byte an element and four a row of the layers' seven linears; 2 bytes for the rest.
TEST(Generate, EightBitWeightsAreStoredAsBitsandbytesStoresThem) {
  const ModelConfig c = odd_llama(1);
  const Trace trace = traced(c, generating({{"weights", "int8"}}));
  const Bytes linears = 96 * 48 + 2 * 32 * 48 + 48 * 96 + 2 * 77 * 48 + 48 * 77;
  const Bytes rows = 96 + 2 * 32 + 48 + 2 * 77 + 48;
  EXPECT_EQ(within(trace, "decode4", Category::weights).end, linears + 4 * rows + kTwo * (2 * 259 * 48 + 3 * 48));
}

// down_proj's product, [57, 77] x [77, 48]: what is made from the input before the codes are ready is 8 bytes an
// element and 4 a row; the int32 product, its fp16 form and the bf16 result are 8 bytes an output beside codes and
// scales.
TEST(Generate, AnEightBitProductHoldsItsSteps) {
  const Trace trace = traced(odd_llama(1), generating({{"weights", "int8"}}));
  const Bytes rows = 57, in = 77, out = 48;
  Bytes alive = 0, most = 0;
  std::uint32_t prefill_end = 0;
  while (trace.events[prefill_end].type != EventType::mark || trace.phases[trace.events[prefill_end].id] != "decode1")
    ++prefill_end;
  for (std::uint32_t i = 0; i < prefill_end; ++i) {
    const Event& event = trace.events[i];
    if (event.type != EventType::alloc && event.type != EventType::free) continue;
    const StorageInfo& storage = trace.storages[event.id];
    const bool here = trace.names[storage.scope].ends_with("down_proj") && storage.category == Category::activations;
    if (!here) continue;
    if (event.type == EventType::alloc) alive += storage.bytes;
    if (event.type == EventType::free) alive -= storage.bytes;
    most = std::max(most, alive);
  }
  const Bytes quantising = rows * in * (2 + 1 + 2 + 1) + 4 * rows;  // fp16 copy, codes, |x|, comparison
  const Bytes multiplying = rows * in + 4 * rows + rows * out * (4 + 2 + 2);
  EXPECT_EQ(most, std::max(quantising, multiplying));
}

// Under a boolean mask sdpa repeats keys and values at all query heads and gives the memory-efficient kernel a bias:
// for the time of one layer's attention 2 x b x nh x c x d elements, and 2 bytes a place of the mask, twice where rows
// of the mask are not aligned: 23 keys are no multiple of 8.
TEST(Generate, AStaticCacheWithSdpaRepeatsKeysUnderAMask) {
  const Trace trace = traced(odd_llama(), generating({{"kv_cache", "static"}}));
  Bytes masks = 0, biases = 0, repeated = 0;
  for (const StorageInfo& storage : trace.storages) {
    if (storage.op == OpKind::causal_mask) masks = std::max(masks, storage.bytes);
    if (storage.op == OpKind::additive_mask || storage.op == OpKind::pad_right)
      biases = std::max(biases, storage.bytes);
    if (storage.op == OpKind::clone && storage.shape.rank == 5) repeated = std::max(repeated, storage.bytes);
  }
  EXPECT_EQ(masks, 3u * 19 * 23);
  EXPECT_EQ(biases, 3u * 19 * 24 * kTwo);
  EXPECT_EQ(repeated, 3u * 6 * 23 * 16 * kTwo);
  EXPECT_EQ(within(trace, "decode4", Category::kv_cache).end, kLayers * 23 * kTokenInLayer);
}

// A window that is full takes a mask, too; one that is not does not (masking_utils.py, _ignore_causal_mask_sdpa).
TEST(Generate, AFullWindowTakesAMask) {
  const auto masks = [](std::uint64_t window) {
    ModelConfig config = odd_llama();
    config.sliding_window = window;
    const Trace trace = traced(config, generating({}));
    return std::count_if(trace.storages.begin(), trace.storages.end(),
                         [](const StorageInfo& storage) { return storage.op == OpKind::causal_mask; });
  };
  EXPECT_EQ(masks(24), 0);
  EXPECT_EQ(masks(23), 1);  // the last of 23 tokens
  EXPECT_EQ(masks(20), 4);
  EXPECT_EQ(masks(19), 4);  // the prompt of 19 is wholly seen
  EXPECT_EQ(masks(18), 5);
}

struct Refused {
  const char* reason;
  const char* key;
  Settings settings;
  ModelConfig config = odd_llama();
};

std::vector<Refused> refusals() {
  ModelConfig windowed = odd_llama();
  windowed.sliding_window = 8;
  ModelConfig qwen = windowed;
  qwen.model_type = "qwen2";
  ModelConfig windowed_groups = with_whole_groups();
  windowed_groups.sliding_window = 8;
  return {
      {"plain_stack_generates_nothing", "task", {}, plain_stack({{4, 4, false}})},
      {"only_in_training", "checkpointing", {{"checkpointing", "full"}}},
      {"only_in_training", "grad_accum", {{"grad_accum", "2"}}},
      {"only_in_training", "loss", {{"loss", "chunked"}}},
      {"only_in_training", "keep_outputs", {{"keep_outputs", "true"}}},
      {"quantised_weights_compute_in_16_bits", "weights", {{"weights", "nf4"}, {"precision", "fp32"}}},
      {"quantized_cache_needs_groups_of_64", "kv_cache", {{"kv_cache", "quantized"}}},
      {"quantized_cache_has_no_window", "kv_cache", {{"kv_cache", "quantized"}}, windowed_groups},
      {"window_of_some_layers_not_modelled", "task", {}, qwen},
      {"stack_not_modelled", "stack", {{"stack", "hf-4"}}},
      {"adapters_not_modelled_in_generation", "method", {{"method", "lora"}}},
      {"autocast_not_modelled_in_generation", "autocast", {{"autocast", "true"}}},
      {"precision_not_modelled", "precision", {{"precision", "amp-bf16"}}},
      {"masked_attention_not_modelled", "attention", {{"kv_cache", "static"}, {"attention", "math"}}},
      {"masked_attention_not_modelled", "attention", {{"kv_cache", "static"}, {"attention", "flash"}}},
      {"masked_attention_not_modelled", "attention", {{"attention", "math"}}, windowed},
      {"graph_not_modelled_with_this_cache", "no_grad", {{"no_grad", "false"}}, windowed},
      {"static_window_cache_not_modelled", "kv_cache", {{"kv_cache", "static"}}, windowed},
      {"graph_not_modelled_with_this_cache",
       "no_grad",
       {{"kv_cache", "static"}, {"attention", "eager"}, {"no_grad", "false"}}},
      {"parallelism_not_modelled", "tp", {{"tp", "2"}}},
      {"flash_needs_16_bits", "attention", {{"attention", "flash"}, {"precision", "fp32"}}},
  };
}

TEST(Generate, RefusesByNameAndDocumentsWhy) {
  const std::string documented = fixture("../../docs/problems.md");
  for (const Refused& refused : refusals()) {
    const Result<Trace> trace = trace_generation(refused.config, generating(refused.settings));
    ASSERT_FALSE(trace.ok()) << refused.reason;
    EXPECT_EQ(trace.problem().expected, refused.reason);
    EXPECT_EQ(trace.problem().where, refused.key) << refused.reason;
    EXPECT_NE(documented.find("`" + std::string(refused.reason) + "`"), std::string::npos) << refused.reason;
    EXPECT_EQ(say(trace.problem(), "x").find(refused.reason), std::string::npos) << "no sentence: " << refused.reason;
  }
}

TEST(Generate, TrainingRefusesWhatOnlyGenerationReads) {
  for (const auto& [key, text] : Settings{{"weights", "nf4"},
                                          {"new_tokens", "7"},
                                          {"kv_cache", "static"},
                                          {"prefill_logits", "all"},
                                          {"no_grad", "false"}}) {
    const auto problem = unsupported(odd_llama(), recipe_of({{key, text}}));
    ASSERT_TRUE(problem) << key;
    EXPECT_EQ(problem->expected, "only_while_generating");
    EXPECT_EQ(problem->where, key);
  }
}

TEST(Generate, AGraphOfTooManyTokensIsRefusedBeforeItIsBuilt) {
  const Result<Trace> trace =
      trace_generation(odd_llama(), generating({{"no_grad", "false"}, {"new_tokens", "16777216"}}));
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.problem().code, ProblemCode::too_large_to_trace);
}

TEST(Generate, AMillionTokensTakeAFewThousandEvents) {
  const Trace trace = traced(odd_llama(), generating({{"new_tokens", "1000000"}}));
  EXPECT_LT(trace.events.size(), 2000u);
  EXPECT_EQ(within(trace, "decode999999", Category::kv_cache).end, kLayers * (19 + 999999) * kTokenInLayer);
}

// Reports of generation keep their contract: lines sum up, what is left out is documented.
TEST(Generate, ReportsAddUpAndNameWhatTheyLeaveOut) {
  const std::string documented = fixture("../../docs/not-modelled.md");
  for (const Settings& settings : {Settings{}, Settings{{"new_tokens", "50"}}, Settings{{"weights", "nf4"}},
                                   Settings{{"kv_cache", "static"}, {"attention", "eager"}},
                                   Settings{{"no_grad", "false"}}, Settings{{"precision", "fp32"}}}) {
    const Prediction p = predict_run(odd_llama(), generating(settings)).value();
    const Json report = parsed(write_report(p, 50));
    Bytes sum = 0;
    for (const Json& line : at(report, "at_peak.tensors").items()) {
      Bytes product = 1;
      for (const Json& factor : at(line, "factors").items())
        product *= at(factor, "value").as_unsigned().value();
      product *= at(line, "count").as_unsigned().value() * at(line, "element_bytes").as_unsigned().value();
      EXPECT_EQ(product, at(line, "bytes").as_unsigned().value());
      sum += product;
    }
    EXPECT_EQ(sum, p.replay.peak_tensor_bytes + at(report, "at_peak.workspace_bytes").as_unsigned().value());
    EXPECT_EQ(at(report, "phases").items().size(), p.trace.phases.size());
    for (const Json& id : at(report, "not_modelled").items())
      EXPECT_NE(documented.find("## `" + std::string(id.as_string().value()) + "`"), std::string::npos);
  }
}

}  // namespace
}  // namespace ledger
