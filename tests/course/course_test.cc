// The course's figures, as its chapter prints them: GB is 1e9 bytes, GiB 2^30. The stack
// `course` computes the chapter's rules of thumb; where a figure also holds of real code, the stack `hf` stands beside
// it.
#include "core/training/course.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/answer/flops.h"
#include "core/base/number_format.h"
#include "probe/host/run_host.h"
#include "probe/measured.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

// To `digits` decimals, as the chapter prints them.
double printed(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}
double gb(Bytes bytes, int digits) {
  return printed(static_cast<double>(bytes) / 1e9, digits);
}
double gib(Bytes bytes, int digits) {
  return printed(static_cast<double>(bytes) / static_cast<double>(kGiB), digits);
}

ModelConfig llama(const char* file) {
  return read_model_config(fixture(std::string("configs/") + file)).value();
}
ModelConfig eight_billion() {
  return llama("llama-3.1-8b.json");
}

Recipe course(Precision precision, Optimizer optimizer = Optimizer::adamw_fused) {
  Recipe recipe;
  recipe.stack = Stack::course;
  recipe.precision = precision;
  recipe.optimizer = optimizer;
  recipe.seq = 4096;
  return recipe;
}

// Categories alive when `phase` ends.
std::array<Bytes, kCategories> alive_after(const Prediction& p, const std::string& phase) {
  std::uint32_t last = 0;
  bool inside = false;
  for (std::uint32_t i = 0; i < p.trace.events.size(); ++i) {
    if (p.trace.events[i].type == EventType::mark) inside = p.trace.phases[p.trace.events[i].id] == phase;
    last = inside ? i : last;
  }
  return ledger_at(p.trace, last).categories;
}

Bytes of(const std::array<Bytes, kCategories>& bytes, Category category) {
  return bytes[static_cast<std::size_t>(category)];
}

TEST(Course, C1_BytesAreElementsTimesElementSize) {
  const Shape shape{{1000, Sym::none}, {1000, Sym::none}};
  EXPECT_EQ(times(shape.numel(), element_bytes(DType::f32)), 4000000u);
  EXPECT_EQ(times(shape.numel(), element_bytes(DType::bf16)), 2000000u);
  EXPECT_EQ(times(shape.numel(), element_bytes(DType::i8)), 1000000u);
}

TEST(Course, C2_SixteenBytesInFiveCopies) {
  const CourseBytes bytes = course_bytes(course(Precision::megatron_bf16_bf16grad));
  EXPECT_EQ(bytes.weights, 2u);
  EXPECT_EQ(bytes.gradients, 2u);
  EXPECT_EQ(bytes.master_weights, 4u);
  EXPECT_EQ(bytes.optimizer_states, 4u + 4u);
  EXPECT_EQ(bytes.resident(), 16u);
  EXPECT_EQ(bytes.transient_copy, 0u);
}

TEST(Course, C3_SixteenBytesUnderAutocastAndTwoTransient) {
  const CourseBytes bytes = course_bytes(course(Precision::amp_bf16));
  EXPECT_EQ(bytes.weights, 4u);
  EXPECT_EQ(bytes.gradients, 4u);
  EXPECT_EQ(bytes.master_weights, 0u);
  EXPECT_EQ(bytes.optimizer_states, 4u + 4u);
  EXPECT_EQ(bytes.resident(), 16u);
  EXPECT_EQ(bytes.transient_copy, 2u);
}

// The same in transformers' code: 4 + 4 + 8 bytes a parameter (and a 4-byte counter a tensor); the bf16 copies are of
// the linear weights, dropped one by one in backward.
TEST(Course, C3_InRealCode) {
  Recipe recipe = recipe_of({{"precision", "amp-bf16"}, {"checkpointing", "full"}});
  const Prediction p = predict_run(odd_llama(), recipe).value();
  const auto bytes = alive_after(p, "step2.backward");
  EXPECT_EQ(of(bytes, Category::weights), 4 * p.params);
  EXPECT_EQ(of(bytes, Category::gradients), 4 * p.params);
  EXPECT_EQ(of(bytes, Category::optimizer_states), 8 * p.params + 4 * p.trace.parameters.size());
  EXPECT_EQ(of(bytes, Category::activations), 0u);
}

TEST(Course, C4_OptimizersWithoutMomentsOrWithSmallOnes) {
  EXPECT_EQ(course_bytes(course(Precision::megatron_bf16_bf16grad, Optimizer::sgd)).resident(), 8u);
  EXPECT_EQ(course_bytes(course(Precision::megatron_bf16_bf16grad, Optimizer::adamw_8bit)).resident(), 10u);
}

TEST(Course, C5_EightBillionParametersInFull) {
  const ModelConfig config = eight_billion();
  EXPECT_EQ(printed(static_cast<double>(parameter_count(config)) / 1e9, 2), 8.03);
  const Prediction p = predict_run(config, course(Precision::bf16)).value();
  const auto bytes = alive_after(p, "step2.optimizer");
  Bytes states = 0;
  for (const Category category :
       {Category::weights, Category::gradients, Category::master_weights, Category::optimizer_states}) {
    states += of(bytes, category);
  }
  EXPECT_EQ(gb(states, 1), 128.5);
  EXPECT_EQ(p.verdict.answer, Answer::does_not_fit);  // on one 80 GB card
}

// Real bf16 weights with PyTorch's AdamW have no master copy: 2 + 2 + 2 + 2 bytes.
TEST(Course, C5_InRealCodeWithoutAMasterCopy) {
  Recipe recipe;
  recipe.seq = 4096;
  const Prediction p = predict_run(eight_billion(), recipe).value();
  const auto bytes = alive_after(p, "step2.backward");
  EXPECT_EQ(of(bytes, Category::weights) + of(bytes, Category::gradients), 4 * p.params);
  EXPECT_EQ(of(bytes, Category::optimizer_states), 4 * p.params + 4 * p.trace.parameters.size());
  EXPECT_EQ(gb(8 * p.params, 1), 64.2);
}

// A frozen bf16 base, and 16 bytes for each of the adapters' parameters.
TEST(Course, C6_LoraFreezesTheBase) {
  Recipe recipe = course(Precision::bf16);
  recipe.method = Method::lora;
  const Prediction p = predict_run(eight_billion(), recipe).value();
  EXPECT_EQ(p.trainable, 41943040u);
  const Bytes base = 2 * p.params, adapters = 16 * p.trainable;
  EXPECT_EQ(gb(base, 1), 16.1);
  EXPECT_EQ(gb(adapters, 2), 0.67);
  EXPECT_EQ(gb(base + adapters, 1), 16.7);
  const auto bytes = alive_after(p, "step2.optimizer");
  Bytes resident = 0;
  for (const Category category :
       {Category::weights, Category::gradients, Category::master_weights, Category::optimizer_states}) {
    resident += of(bytes, category);
  }
  EXPECT_EQ(resident, base + adapters);
}

// In peft's code: adapters on the seven linears of every layer, r x (in + out), and in fp32: 4 + 4 + 4 + 4 bytes.
TEST(Course, C6_InRealCode) {
  Recipe recipe;
  recipe.method = Method::lora;
  const Prediction p = predict_run(eight_billion(), recipe).value();
  EXPECT_EQ(p.trainable, 41943040u);
  const auto bytes = alive_after(p, "step2.backward");
  EXPECT_EQ(of(bytes, Category::weights), 2 * p.params + 4 * p.trainable);
  EXPECT_EQ(of(bytes, Category::gradients), 4 * p.trainable);
  const Bytes counters = 4 * 2 * 7 * 32;  // one a tensor
  EXPECT_EQ(of(bytes, Category::optimizer_states), 8 * p.trainable + counters);
}

TEST(Course, C7_QloraTakesTheBaseToFourBits) {
  Recipe recipe = course(Precision::bf16);
  recipe.method = Method::qlora;
  const Prediction p = predict_run(eight_billion(), recipe).value();
  EXPECT_EQ(p.trainable, 41943040u);
  const auto bytes = alive_after(p, "load");
  const Bytes base = of(bytes, Category::weights) - 2 * p.trainable;
  EXPECT_EQ(base, p.params * 55 / 100);
  EXPECT_EQ(gb(base, 1), 4.4);
  EXPECT_EQ(gb(base + 16 * p.trainable, 0), 5);
}

// What bitsandbytes really stores: of the 8.03 billion, the 6.98 billion of the layers' linears in 4 bits with two
// levels of scales, embedding, head and norms in bf16. Half as much again as 0.55 bytes a parameter say.
TEST(Course, C7_WhatBitsandbytesReallyStores) {
  Recipe recipe;
  recipe.method = Method::qlora;
  recipe.prepare_kbit = false;
  const Prediction p = predict_run(eight_billion(), recipe).value();
  const std::uint64_t linears = 32 * (2 * 4096ull * 4096 + 2 * 4096ull * 1024 + 3 * 4096ull * 14336);
  const std::uint64_t rest = p.params - linears;
  EXPECT_EQ(printed(static_cast<double>(linears) / 1e9, 2), 6.98);
  EXPECT_EQ(printed(static_cast<double>(rest) / 1e9, 2), 1.05);
  // A byte for each 64 weights' scale, 4 for each 256 scales; offset and tables of 4, 64 and 1024 bytes a linear.
  const Bytes packed = linears / 2 + linears / 64 + linears / 64 / 256 * 4 + 7 * 32 * (4 + 64 + 1024);
  const Bytes stored = of(alive_after(p, "load"), Category::weights) - 4 * p.trainable;
  EXPECT_EQ(stored, packed + 2 * rest);
  EXPECT_EQ(gb(stored, 1), 5.7);
  recipe.prepare_kbit = true;  // and PEFT's preparation holds the rest in fp32
  const Prediction prepared = predict_run(eight_billion(), recipe).value();
  EXPECT_EQ(of(alive_after(prepared, "load"), Category::weights) - 4 * p.trainable, packed + 4 * rest);
  EXPECT_EQ(gb(packed + 4 * rest, 1), 7.8);
}

TEST(Course, C8_InferenceKeepsOneCopy) {
  Recipe recipe = course(Precision::bf16);
  recipe.task = Task::generate;
  const std::pair<Weights, Bytes> halves[] = {{Weights::unquantised, 4}, {Weights::int8, 2}, {Weights::nf4, 1}};
  for (const auto& [weights, half_bytes] : halves) {
    recipe.weights = weights;
    const Prediction p = predict_run(eight_billion(), recipe).value();
    EXPECT_EQ(of(alive_after(p, "load"), Category::weights), p.params * half_bytes / 2);
    EXPECT_EQ(p.trainable, 0u);
  }
  const Bytes once = course_inference_bytes(Recipe{}, 8030261248);
  EXPECT_EQ(gb(once, 0), 16);
  EXPECT_EQ(8030261248 * course_bytes(course(Precision::bf16)).resident(), 8 * once);
}

TEST(Course, C8_InRealCode) {
  Recipe recipe;
  recipe.task = Task::generate;
  recipe.seq = 4096;
  const Prediction p = predict_run(eight_billion(), recipe).value();
  EXPECT_EQ(of(alive_after(p, "decode127"), Category::weights), 2 * p.params);
  recipe.weights = Weights::int8;  // a byte, a scale of 4 bytes a row, and bf16 for embedding, head and norms
  const std::uint64_t linears = 32 * (2 * 4096ull * 4096 + 2 * 4096ull * 1024 + 3 * 4096ull * 14336);
  const std::uint64_t rows = 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096);
  const Prediction bytes = predict_run(eight_billion(), recipe).value();
  EXPECT_EQ(of(alive_after(bytes, "load"), Category::weights), linears + 4 * rows + 2 * (p.params - linears));
  recipe.weights = Weights::nf4;  // half a byte but for what stays in bf16, as in C7
  const Prediction four_bits = predict_run(eight_billion(), recipe).value();
  EXPECT_EQ(gb(of(alive_after(four_bits, "load"), Category::weights), 1), 5.7);
}

TEST(Course, C9_LayerInputsOnly) {
  Recipe recipe = course(Precision::bf16);
  recipe.checkpointing = Checkpointing::full;
  EXPECT_EQ(course_activations(eight_billion(), recipe), kGiB);  // 32 x 4096 x 4096 x 2
}

// In transformers' code, one [1, 4096, 4096] bf16 input per checkpointed layer.
TEST(Course, C9_InRealCode) {
  Recipe recipe;
  recipe.seq = 4096;
  recipe.checkpointing = Checkpointing::full;
  ModelConfig config = eight_billion();
  const auto kept = [&](std::uint64_t layers) {
    config.num_hidden_layers = layers;
    return of(alive_after(predict_run(config, recipe).value(), "step1.forward"), Category::activations);
  };
  EXPECT_EQ(kept(33) - kept(1), kGiB);
}

TEST(Course, C10_RoughFullActivations) {
  Recipe recipe = course(Precision::bf16);
  EXPECT_EQ(gib(course_activations(eight_billion(), recipe), 1), 16.5);
  recipe.batch = 8;
  EXPECT_EQ(gib(course_activations(eight_billion(), recipe), 1), 132.0);
}

TEST(Course, C11_ActivationsAreLinearAndIgnoreTheParameterCount) {
  const Recipe recipe = course(Precision::bf16);
  const Bytes once = course_activations(eight_billion(), recipe);
  Recipe twice = recipe;
  twice.batch *= 2;
  EXPECT_EQ(course_activations(eight_billion(), twice), 2 * once);
  twice = recipe;
  twice.seq *= 2;
  EXPECT_EQ(course_activations(eight_billion(), twice), 2 * once);
  ModelConfig config = eight_billion();
  config.num_hidden_layers *= 2;
  EXPECT_EQ(course_activations(config, recipe), 2 * once);
  config = eight_billion();
  config.hidden_size *= 2;
  config.intermediate_size *= 2;
  EXPECT_EQ(course_activations(config, recipe), 2 * once);
  config = eight_billion();
  config.vocab_size *= 2;
  EXPECT_GT(parameter_count(config), parameter_count(eight_billion()));
  EXPECT_EQ(course_activations(config, recipe), once);
}

// In transformers' code what a layer keeps is linear in batch and length to the byte, but for 24 bytes of random state.
TEST(Course, C11_InRealCode) {
  const auto layer = [](std::uint64_t batch, std::uint64_t seq) {
    Recipe recipe;
    recipe.batch = batch;
    recipe.seq = seq;
    const auto kept = [&](std::uint64_t layers) {
      return of(alive_after(predict_run(odd_llama(layers), recipe).value(), "step1.forward"), Category::activations);
    };
    return kept(2) - kept(1) - 24;
  };
  EXPECT_EQ(layer(2, 19), 2 * layer(1, 19));
  EXPECT_EQ(layer(1, 38), 2 * layer(1, 19));
}

// Bytes of what one more layer keeps after the forward pass: tensors with two dimensions of length T, and the others.
struct Kept {
  Bytes scores = 0, others = 0;
};

Kept kept_by_a_layer(Attention attention, std::uint64_t length) {
  Recipe recipe;
  recipe.batch = 1;
  recipe.seq = length;
  recipe.attention = attention;
  const auto kept = [&](std::uint64_t layers) {
    const Trace trace = trace_step(odd_llama(layers), recipe, {}).value();
    std::uint32_t end = 0;
    while (trace.events[end].type != EventType::mark || trace.phases[trace.events[end].id] != "step1.backward")
      ++end;
    Kept sum;
    for (const LedgerLine& line : ledger_at(trace, end).lines) {
      if (line.category != Category::activations) continue;
      const auto& sizes = line.shape.sizes;
      const bool square = std::count(sizes.begin(), sizes.begin() + line.shape.rank, length) >= 2;
      (square ? sum.scores : sum.others) += line.bytes;
    }
    return sum;
  };
  const Kept two = kept(2), one = kept(1);
  return {two.scores - one.scores, two.others - one.others};
}

// Eager attention keeps the scores' softmax in fp32 and in bf16; eight times the length is 64 times as much of it.
TEST(Course, C12_ScoresAreQuadraticTheRestIsLinear) {
  const Kept at_4k = kept_by_a_layer(Attention::eager, 4096), at_32k = kept_by_a_layer(Attention::eager, 32768);
  EXPECT_EQ(at_4k.scores, 6 * std::uint64_t{6} * 4096 * 4096);  // (4 + 2) bytes x nh x T x T
  EXPECT_EQ(at_32k.scores, 64 * at_4k.scores);
  EXPECT_EQ(at_32k.others, 8 * at_4k.others);
}

TEST(Course, C12_FlashAttentionNeverMakesThem) {
  const Kept at_4k = kept_by_a_layer(Attention::sdpa, 4096), at_32k = kept_by_a_layer(Attention::sdpa, 32768);
  EXPECT_EQ(at_4k.scores + at_32k.scores, 0u);
  EXPECT_EQ(at_32k.others - 24, 8 * (at_4k.others - 24));  // 24 bytes of random state
  Recipe recipe;
  recipe.seq = 32768;
  const Trace trace = trace_step(odd_llama(), recipe, {}).value();
  for (const StorageInfo& storage : trace.storages) {
    const auto& sizes = storage.shape.sizes;
    EXPECT_LT(std::count(sizes.begin(), sizes.begin() + storage.shape.rank, 32768), 2);
  }
}

// C13: forward 1 + backward 2, and full recomputation about one more forward. PyTorch's own stops before the layer's
// last product, down_proj, which the chapter's "about" leaves out.
TEST(Course, C13_FullRecomputationCostsAboutOneMoreForward) {
  ModelConfig config = eight_billion();
  config.num_hidden_layers = 2;
  const auto flops = [&](Checkpointing checkpointing) {
    Recipe recipe;
    recipe.seq = 4096;
    recipe.checkpointing = checkpointing;
    return step_flops(trace_step(config, recipe, {.steps = 1, .operands = true, .weights = {}, .adamw = {}}).value())
        ->layers;
  };
  const Flops plain = flops(Checkpointing::none), checkpointed = flops(Checkpointing::full);
  EXPECT_EQ(plain.backward, 2 * plain.forward);
  EXPECT_EQ(plain.recompute, 0u);
  const std::uint64_t down_proj = 2 * 2 * std::uint64_t{4096} * 14336 * 4096;  // two layers
  EXPECT_EQ(3 * (checkpointed.total() + down_proj), 4 * plain.total());
  const Flops reentrant = flops(Checkpointing::full_reentrant);  // runs the whole layer again
  EXPECT_EQ(reentrant.recompute, plain.forward);
  EXPECT_EQ(3 * reentrant.total(), 4 * plain.total());
  EXPECT_NEAR(static_cast<double>(checkpointed.total()) / static_cast<double>(plain.total()), 4.0 / 3, 0.09);
}

// The chapter's probe: predicted, then really run, with the same allocator and every tensor where the prediction put
// it.
TEST(Course, C19_EightLinearLayersPredictedAndMeasured) {
  const ModelConfig config =
      read_model_config(R"({"layers":[{"linear":[2048,2048]},{"linear":[2048,2048]},)"
                        R"({"linear":[2048,2048]},{"linear":[2048,2048]},{"linear":[2048,2048]},)"
                        R"({"linear":[2048,2048]},{"linear":[2048,2048]},{"linear":[2048,2048]}]})")
          .value();
  Recipe recipe;
  recipe.precision = Precision::fp32;
  recipe.batch = 4;
  const PredictOptions options{.steps = 2, .operands = true, .record_addresses = true};
  const Prediction p = predict_run(config, recipe, options).value();
  EXPECT_EQ(printed(static_cast<double>(p.params) / 1e6, 1), 33.6);
  const auto bytes = alive_after(p, "step2.backward");
  EXPECT_EQ(
      gb(of(bytes, Category::weights) + of(bytes, Category::gradients) + of(bytes, Category::optimizer_states), 2),
      0.54);
  EXPECT_GT(p.replay.peak_allocated_bytes, 500000000u);
  EXPECT_LT(p.replay.peak_allocated_bytes, 700000000u);

  const HostRun run = run_on_host(p.trace, {.allocator = allocator_options(recipe), .record_addresses = true});
  ASSERT_FALSE(run.failure) << run.failure->what;
  EXPECT_EQ(run.replay.peak_allocated_bytes, p.replay.peak_allocated_bytes);
  EXPECT_TRUE(identical(p.replay, run.replay)) << "an event, an address or a sample differs";
  ASSERT_EQ(run.losses.size(), 2u);
  for (const double loss : run.losses)
    EXPECT_TRUE(std::isfinite(loss));
}

// 70 x 10^9 parameters as the chapter rounds them, and a real 70B model: not in 8 x 80 GB, in 16 x 80 GB.
TEST(Course, C20_SeventyBillionInFull) {
  const Bytes each = course_bytes(course(Precision::bf16)).resident();
  EXPECT_EQ(gb(70000000000 * each, 0), 1120);
  const Bytes states = parameter_count(llama("llama-2-70b.json")) * each;
  constexpr Bytes kCard = 80000000000;
  EXPECT_GT(states, 8 * kCard);
  EXPECT_LT(states, 16 * kCard);
}

// "Assume 1.3 % trainable": 0.013 x 70e9 x 16 bytes beside 2 x 70e9.
TEST(Course, C21_SeventyBillionWithAdapters) {
  const Bytes base = 2 * Bytes{70000000000}, adapters = 16 * Bytes{70000000000} * 13 / 1000;
  EXPECT_EQ(gb(base, 0), 140);
  EXPECT_EQ(gb(adapters, 1), 14.6);
  EXPECT_EQ(gb(base + adapters, 0), 155);
  constexpr Bytes kCard = 80000000000;
  EXPECT_GT(base + adapters, kCard);
  EXPECT_LT(base + adapters, 2 * kCard);
}

// Rank 64 on every linear of a real 70B model is 1.2 % of it; the answer stays two cards.
TEST(Course, C21_OfARealSeventyBillionModel) {
  Recipe recipe = course(Precision::bf16);
  recipe.method = Method::lora;
  recipe.rank = 64;
  const Prediction p = predict_run(llama("llama-2-70b.json"), recipe).value();
  EXPECT_EQ(p.trainable, 64ull * 80 * (2 * (8192 + 8192) + 2 * (8192 + 1024) + 3 * (8192 + 28672)));
  EXPECT_EQ(printed(100 * static_cast<double>(p.trainable) / static_cast<double>(p.params), 1), 1.2);
  const Bytes resident = 2 * p.params + 16 * p.trainable;
  EXPECT_EQ(gb(resident, 0), 151);
  EXPECT_GT(resident, 80000000000u);
  EXPECT_LT(resident, 2 * 80000000000u);
}

float through_bf16(float value) {
  return float_from_bf16(bf16_from_float(value));
}
float through_fp16(float value) {
  return float_from_fp16(fp16_from_float(value));
}

// Seven bits of mantissa: the neighbours of 1 are 2^-7 above it and 2^-8 below.
TEST(Course, C22_Bf16SwallowsSmallUpdates) {
  const float moved = 1.0f + 1e-5f;
  EXPECT_GT(moved, 1.0f);
  EXPECT_EQ(through_bf16(moved), 1.0f);
  EXPECT_EQ(bf16_from_float(1.0f), 0x3F80);  // sign 0, exponent 127, mantissa 0
  EXPECT_EQ(float_from_bf16(0x3F81) - 1.0f, 1.0f / 128);
  EXPECT_EQ(1.0f - float_from_bf16(0x3F7F), 1.0f / 256);
  EXPECT_EQ(through_bf16(1.0f + 1.0f / 256), 1.0f) << "halfway, to even";
  EXPECT_EQ(through_bf16(1.0f + 1.5f / 256), 1.0f + 1.0f / 128);
  EXPECT_EQ(through_fp16(1.0f + 1e-5f), 1.0f) << "ten bits are too few, too";
  EXPECT_EQ(through_fp16(1.0f + 1.0f / 1024), 1.0f + 1.0f / 1024);
}

// A training step that keeps its weights in bf16 loses such updates; with fp32 weights they arrive.
TEST(Course, C22_AWeightInBf16DoesNotMove) {
  float bf16 = 1.0f, fp32 = 1.0f;
  for (int step = 0; step < 1000; ++step) {
    bf16 = through_bf16(bf16 + 1e-5f);
    fp32 += 1e-5f;
  }
  EXPECT_EQ(bf16, 1.0f);
  EXPECT_NEAR(fp32, 1.01f, 1e-4f);
}

// fp16's smallest number is 2^-24 = 6e-8; bf16 has fp32's exponents.
TEST(Course, C23_SmallGradientsVanishInFp16Unscaled) {
  const float gradient = 1e-8f, scale = 65536;
  EXPECT_EQ(through_fp16(gradient), 0.0f);
  EXPECT_NEAR(through_bf16(gradient), gradient, gradient / 256);
  EXPECT_NEAR(through_fp16(gradient * scale) / scale, gradient, gradient / 1024);
  EXPECT_TRUE(std::isinf(through_fp16(scale))) << "what overflows is seen: the step is skipped, the scale halved";
  EXPECT_EQ(through_fp16(scale / 2), 32768.0f);
}

const NamedTensor& gradient_of(const HostRun& run, const std::string& name) {
  return *std::find_if(run.gradients.begin(), run.gradients.end(), [&](const auto& g) { return g.name == name; });
}

HostRun really_run(const char* precision) {
  Recipe recipe = recipe_of({{"precision", precision}});
  TraceOptions options;
  options.operands = true;
  options.max_grad_norm = 0;
  const Trace trace = trace_step(odd_llama(), recipe, options).value();
  HostRunOptions host;
  host.keep_gradients = true;
  HostRun run = run_on_host(trace, {.allocator = {}}, host);
  EXPECT_FALSE(run.failure) << run.failure->what;
  return run;
}

// Really run: backward under amp-fp16 leaves gradients 2^16 times those of fp32, and the step divides them again before
// AdamW sees them, so that the second step's loss is the same.
TEST(Course, C23_TheLossIsScaledAndTheGradientsAreUnscaled) {
  const HostRun fp16 = really_run("amp-fp16"), fp32 = really_run("fp32");
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const std::vector<double>&scaled = gradient_of(fp16, name).values, &plain = gradient_of(fp32, name).values;
  ASSERT_EQ(scaled.size(), plain.size());
  const auto largest = [](const std::vector<double>& values) {
    double most = 0;
    for (const double value : values)
      most = std::max(most, std::fabs(value));
    return most;
  };
  double off = 0;
  for (std::size_t i = 0; i < plain.size(); ++i)
    off = std::max(off, std::fabs(scaled[i] / 65536 - plain[i]));
  EXPECT_GT(largest(plain), 0.0);
  EXPECT_LT(off, 0.02 * largest(plain));
  ASSERT_EQ(fp16.losses.size(), 2u);
  EXPECT_NEAR(fp16.losses[0], fp32.losses[0], 1e-3);
  EXPECT_NEAR(fp16.losses[1], fp32.losses[1], 1e-2);
  EXPECT_LT(fp16.losses[1], fp16.losses[0]);
}

// Linear in bf16, softmax in fp32, weight and its gradient in fp32: all read off the step under autocast.
TEST(Course, C24_AutocastComputesInBf16AndStoresInFp32) {
  Recipe recipe = recipe_of({{"precision", "amp-bf16"}, {"attention", "eager"}});
  const Trace trace = trace_step(odd_llama(), recipe, {}).value();
  std::size_t products = 0, softmaxes = 0, log_softmaxes = 0;
  for (const StorageInfo& storage : trace.storages) {
    const std::string& scope = trace.names[storage.scope];
    const bool forward = storage.category == Category::activations || storage.category == Category::logits;
    if (storage.op == OpKind::mm && forward && scope.find("_proj") != std::string::npos) {
      EXPECT_EQ(storage.dtype, DType::bf16) << scope;
      ++products;
    }
    if (storage.op == OpKind::softmax) {
      EXPECT_EQ(storage.dtype, DType::f32);
      ++softmaxes;
    }
    if (storage.op == OpKind::log_softmax) {
      EXPECT_EQ(storage.dtype, DType::f32);
      ++log_softmaxes;
    }
  }
  EXPECT_GE(products, 2u * 7 * 2) << "seven linears, two layers, two steps";
  EXPECT_EQ(softmaxes, 2u * 2);
  EXPECT_EQ(log_softmaxes, 2u);
  for (const Parameter& parameter : trace.parameters) {
    EXPECT_EQ(trace.storages[parameter.storage].dtype, DType::f32) << parameter.name;
    ASSERT_NE(parameter.gradient, kNoStorage) << parameter.name;
    EXPECT_EQ(trace.storages[parameter.gradient].dtype, DType::f32) << parameter.name;
  }
}

// The storing is whatever the model was loaded in: over bf16 weights autocast leaves them, and their gradients, in
// bf16.
TEST(Course, C24_AutocastNeverChangesHowParametersAreStored) {
  const Trace trace = trace_step(odd_llama(), recipe_of({{"autocast", "true"}}), {}).value();
  for (const Parameter& parameter : trace.parameters) {
    EXPECT_EQ(trace.storages[parameter.storage].dtype, DType::bf16) << parameter.name;
    EXPECT_EQ(trace.storages[parameter.gradient].dtype, DType::bf16) << parameter.name;
  }
}

}  // namespace
}  // namespace ledger
