// Whole training steps: what must hold for every model and recipe, whatever it is made of.
#include "core/training/step.h"

#include <gtest/gtest.h>

#include "core/config/model_config.h"
#include "core/memory/census.h"
#include "probe/checkpoints.h"
#include "tests/base/show_problem.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

class EveryRun : public testing::TestWithParam<NamedRun> {
 protected:
  Trace trace(bool operands = false, std::uint32_t steps = 2) const {
    Result<Trace> result = trace_step(
        GetParam().config, GetParam().recipe,
        {.steps = steps, .operands = operands, .weights = std::nullopt, .cublas_workspace_bytes = 1024, .adamw = {}});
    EXPECT_EQ(outcome(result), "ok");
    return result.ok() ? std::move(result.value()) : Trace{};
  }
};

INSTANTIATE_TEST_SUITE_P(Small, EveryRun, testing::ValuesIn(small_runs()),
                         [](const auto& row) { return row.param.name; });

TEST_P(EveryRun, AStorageIsBornOnceAndDiesAtMostOnce) {
  const Trace t = trace();
  std::vector<int> births(t.storages.size()), deaths(t.storages.size());
  for (const Event& event : t.events) {
    if (event.type == EventType::alloc) {
      ASSERT_EQ(births[event.id]++, 0) << event.id;
      EXPECT_EQ(event.category, t.storages[event.id].category);
    }
    if (event.type == EventType::free) {
      ASSERT_EQ(births[event.id], 1) << "freed unborn: " << event.id;
      ASSERT_EQ(deaths[event.id]++, 0) << "freed twice: " << event.id;
    }
    if (event.type == EventType::label) {
      ASSERT_TRUE(births[event.id] == 1 && deaths[event.id] == 0) << "labelled while not alive: " << event.id;
      EXPECT_NE(event.category, Category::workspace);
    }
  }
  EXPECT_EQ(births, std::vector<int>(t.storages.size(), 1));
}

TEST_P(EveryRun, SizesAreElementsTimesBytes) {
  const Trace t = trace();
  EXPECT_FALSE(t.overflow);
  for (const StorageInfo& storage : t.storages) {
    EXPECT_EQ(storage.bytes, storage.shape.numel() * element_bytes(storage.dtype));
    EXPECT_GT(storage.bytes, 0u);
  }
}

TEST_P(EveryRun, OperandsAreAliveAndInside) {
  const Trace t = trace(true);
  std::vector<bool> alive(t.storages.size());
  std::uint32_t next_run = 0;
  for (const Event& event : t.events) {
    if (event.type == EventType::alloc || event.type == EventType::free)
      alive[event.id] = event.type == EventType::alloc;
    if (event.type != EventType::run) continue;
    ASSERT_EQ(event.id, next_run++);
    const ledger::Run& run = t.runs[event.id];
    for (std::uint32_t i = 0; i < run.input_count() + run.outputs; ++i) {
      const View& view = t.views[run.first_view + i];
      ASSERT_NE(view.storage, kNoStorage) << op_name(run.op);
      ASSERT_TRUE(alive[view.storage]) << op_name(run.op) << " in " << t.names[run.scope];
      std::uint64_t last = view.offset;
      for (std::size_t d = 0; d < view.rank; ++d)
        last += (view.sizes[d] - 1) * static_cast<std::uint64_t>(view.strides[d]);
      EXPECT_LE((last + 1) * element_bytes(view.dtype), t.storages[view.storage].bytes) << op_name(run.op);
    }
  }
  EXPECT_EQ(t.runs.size(), next_run);
  EXPECT_EQ(t.losses.size() % 2, 0u);
  EXPECT_FALSE(t.losses.empty());
}

bool same_events(const Trace& a, const Trace& b) {
  return std::equal(
      a.events.begin(), a.events.end(), b.events.begin(), b.events.end(),
      [](const Event& x, const Event& y) { return x.type == y.type && x.category == y.category && x.id == y.id; });
}

bool same_storages(const Trace& a, const Trace& b) {
  return std::equal(a.storages.begin(), a.storages.end(), b.storages.begin(), b.storages.end(),
                    [](const StorageInfo& x, const StorageInfo& y) {
                      return x.bytes == y.bytes && x.shape.same_sizes(y.shape) && x.shape.syms == y.shape.syms &&
                             x.dtype == y.dtype && x.category == y.category && x.op == y.op && x.scope == y.scope &&
                             x.layer == y.layer && x.on_host == y.on_host;
                    });
}

void expect_same(const Trace& a, const Trace& b) {
  EXPECT_TRUE(same_events(a, b));
  EXPECT_TRUE(same_storages(a, b));
  EXPECT_EQ(a.phases, b.phases);
  EXPECT_EQ(a.names, b.names);
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    EXPECT_EQ(a.parameters[i].gradient, b.parameters[i].gradient) << a.parameters[i].name;
}

// With operands every pass over the model is traced; without, some are copies of an earlier one (trace/repeat.h).
TEST_P(EveryRun, IsTheSameTraceEachTimeWithOperandsOrWithout) {
  const Trace first = trace();
  EXPECT_TRUE(same_events(first, trace()));
  expect_same(first, trace(true));
}

// Of every model that is known by name, a few of its layers.
TEST(CopiedPasses, AreThoseThatTracingMakes) {
  std::size_t compared = 0;
  for (const CheckpointFile& file : checkpoint_files()) {
    ModelConfig config = model_config_from(*parse_json(file.json).value().find("config")).value();
    config.num_hidden_layers = std::min<std::uint64_t>(config.num_hidden_layers, 6);
    for (const Settings& settings :
         {Settings{{"grad_accum", "3"}}, Settings{{"checkpointing", "full"}, {"precision", "amp-bf16"}},
          Settings{{"method", "lora"}, {"grad_accum", "2"}, {"checkpointing", "full-reentrant"}},
          Settings{{"method", "qlora"}, {"autocast", "true"}}}) {
      const Recipe recipe = recipe_of(settings);
      const Result<Trace> copied = trace_step(config, recipe);
      const Result<Trace> traced = trace_step(config, recipe, {.operands = true, .weights = {}, .adamw = {}});
      ASSERT_EQ(outcome(copied), outcome(traced)) << file.id;
      if (!copied.ok()) continue;
      SCOPED_TRACE(file.id);
      expect_same(copied.value(), traced.value());
      ++compared;
    }
  }
  EXPECT_GT(compared, 200u);
}

// What lives between steps: no gradients, no activations, and nothing that piles up.
TEST_P(EveryRun, EveryStepEndsWhereTheFirstDid) {
  const Trace t = trace(false, 4);
  Census census(t);
  std::vector<std::array<Bytes, kCategories>> ends;
  for (const Event& event : t.events) {
    const bool next = event.type == EventType::mark && event.id > 1 && t.phases[event.id].ends_with(".forward");
    if (next && t.phases[event.id - 1].ends_with("zero_grad")) ends.push_back(census.bytes());
    census.apply(event);
  }
  ends.push_back(census.bytes());
  for (const auto& bytes : ends) {
    EXPECT_EQ(bytes, ends.front());
    for (const Category category : {Category::gradients, Category::activations, Category::logits,
                                    Category::activation_gradients, Category::temporaries}) {
      EXPECT_EQ(bytes[static_cast<std::size_t>(category)], 0u) << category_name(category);
    }
  }
}

TEST_P(EveryRun, PhasesComeInOrder) {
  const Trace t = trace();
  std::uint32_t next = 0;
  for (const Event& event : t.events) {
    if (event.type == EventType::mark) {
      EXPECT_EQ(event.id, next++);
    }
  }
  EXPECT_EQ(t.phases.size(), next);
  EXPECT_EQ(t.phases.front(), "load");
  EXPECT_EQ(t.phases.back(), "step2.zero_grad");
}

TEST_P(EveryRun, EveryTrainedParameterGetsAGradient) {
  const Trace t = trace();
  for (const Parameter& parameter : t.parameters) {
    EXPECT_EQ(parameter.gradient != kNoStorage, parameter.trainable) << parameter.name;
  }
}

// --- the loop ------------------------------------------------------------------------------------------------------

TEST(Step, PhasesOfTwoSteps) {
  const std::vector<std::string> names = {
      "load",          "step1.forward",  "step1.backward",  "step1.optimizer", "step1.zero_grad",
      "step2.forward", "step2.backward", "step2.optimizer", "step2.zero_grad",
  };
  EXPECT_EQ(trace_step(odd_llama(), recipe_of({})).value().phases, names);
}

TEST(Step, MoreStepsAreMorePhases) {
  EXPECT_EQ(trace_step(odd_llama(), recipe_of({}), {.steps = 5, .weights = {}, .adamw = {}}).value().phases.size(),
            1u + 5 * 4);
}

// Events from the second step on are the same each time: nothing is left to be made lazily.
TEST(Step, LaterStepsRepeatTheSecond) {
  const Trace t = trace_step(odd_llama(), recipe_of({}), {.steps = 4, .weights = {}, .adamw = {}}).value();
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < t.events.size(); ++i) {
    if (t.events[i].type == EventType::mark && t.phases[t.events[i].id].ends_with("forward")) starts.push_back(i);
  }
  ASSERT_EQ(starts.size(), 4u);
  EXPECT_EQ(starts[3] - starts[2], starts[2] - starts[1]);
  EXPECT_EQ(t.events.size() - starts[3], starts[3] - starts[2]);
}

TEST(Step, WeightsCanBeHeldInAnotherDtype) {
  const Trace t = trace_step(odd_llama(), recipe_of({}), {.weights = DType::f64, .adamw = {}}).value();
  for (const Parameter& parameter : t.parameters)
    EXPECT_EQ(t.storages[parameter.storage].dtype, DType::f64);
}

TEST(Step, MoreEventsThanMemoryShouldHoldAreRefused) {
  ModelConfig deep = odd_llama(4096);
  const Result<Trace> result = trace_step(deep, recipe_of({}), {.steps = 64, .weights = {}, .adamw = {}});
  ASSERT_EQ(code_of(result), "too_large_to_trace");
  EXPECT_EQ(result.problem().where, "num_hidden_layers");
}

TEST(Step, SizesBeyond64BitsAreAProblem) {
  ModelConfig wide = odd_llama(1);
  wide.intermediate_size = kMaxIntermediateSize;
  wide.vocab_size = kMaxVocabSize;
  Recipe recipe = recipe_of({});
  recipe.batch = 65536;
  recipe.seq = std::uint64_t{1} << 30;  // beyond the recipe's own bound: b*s*V*4 = 2^72
  const Result<Trace> result = trace_step(wide, recipe);
  EXPECT_EQ(code_of(result), "overflow");
}

// bitsandbytes nn/modules.py Int8Params: a byte an element and an fp32 scale a row; prepare_model_for_kbit_training
// leaves them and widens everything else.
TEST(Int8Base, IsAByteAnElementAndAScaleARow) {
  const ModelConfig config = odd_llama(2);
  const std::uint64_t rows = 2 * (96 + 32 + 32 + 48 + 77 + 77 + 48);
  const std::uint64_t elements = 2 * ((96 + 32 + 32) * 48 + 48 * 96 + 3 * 77 * 48);
  const std::uint64_t others = 2 * 259 * 48 + 5 * 48;
  const std::uint64_t adapters = 2 * 16 * ((48 + 96) + 2 * (48 + 32) + (96 + 48) + 3 * (48 + 77));
  for (const auto& [prepare, width] : {std::pair<const char*, std::uint64_t>{"true", 4}, {"false", 2}}) {
    const Recipe recipe = recipe_of({{"method", "lora"}, {"weights", "int8"}, {"prepare_kbit", prepare}});
    const Result<Trace> trace = trace_step(config, recipe);
    ASSERT_EQ(outcome(trace), "ok");
    Bytes weights = 0;
    for (const Event& event : trace.value().events) {
      if (event.type == EventType::mark && event.id != 0) break;
      if (event.type == EventType::alloc && event.category == Category::weights)
        weights += trace.value().storages[event.id].bytes;
    }
    EXPECT_EQ(weights, elements + 4 * rows + width * others + 4 * adapters) << prepare;
  }
}

}  // namespace
}  // namespace ledger
