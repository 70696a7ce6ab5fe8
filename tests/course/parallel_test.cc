// C15 to C17 and the chapter's fifth question: what several GPUs hold and send; and Table 1 of the ZeRO paper, whose
// arithmetic the stack `course` shares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/answer/prediction.h"
#include "core/training/course.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

ModelConfig eight_billion() {
  return read_model_config(fixture("configs/llama-3.1-8b.json")).value();
}

Prediction predicted(const ModelConfig& config, const Settings& settings) {
  Result<Prediction> result = predict_run(config, recipe_of(settings));
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.problem().where + ": " + result.problem().expected);
  return result.ok() ? std::move(result.value()) : Prediction{};
}

// All but activations, at the moment when every copy is there.
Bytes states(const Prediction& p) {
  const Bytes activations = course_activations(p.config, p.recipe);
  Bytes most = 0;
  for (const PhasePeak& phase : p.replay.phases) {
    if (p.trace.phases[phase.phase] == "step2.optimizer") most = phase.end_bytes;
  }
  EXPECT_GT(activations, 0u);
  return most;
}

double gb(Bytes bytes) {
  return std::round(static_cast<double>(bytes) / 1e8) / 10;
}

// Storages made by `op` in `phase`.
std::size_t made(const Prediction& p, OpKind op, const std::string& phase) {
  std::size_t count = 0;
  bool inside = false;
  for (const Event& event : p.trace.events) {
    if (event.type == EventType::mark) inside = p.trace.phases[event.id] == phase;
    if (event.type == EventType::alloc && inside && p.trace.storages[event.id].op == op) ++count;
  }
  return count;
}

TEST(Course, C15_DdpKeepsAFullCopyOnEveryGpu) {
  const Settings lora = {{"stack", "course"}, {"method", "lora"}, {"batch", "1"}, {"seq", "4096"}};
  Settings on_eight = lora;
  on_eight.push_back({"dp", "8"});
  const Prediction one = predicted(eight_billion(), lora), eight = predicted(eight_billion(), on_eight);
  EXPECT_EQ(gb(states(one)), 16.7);
  EXPECT_EQ(states(eight), states(one));
  EXPECT_EQ(eight.replay.peak_tensor_bytes, one.replay.peak_tensor_bytes);
}

// DDP's buckets reduce every gradient, and nothing else travels.
TEST(Course, C15_InRealCode) {
  const Prediction p = predicted(eight_billion(), {{"method", "lora"}, {"dp", "8"}, {"batch", "1"}, {"seq", "4096"}});
  Bytes buckets = 0;
  for (const StorageInfo& storage : p.trace.storages)
    buckets += storage.category == Category::communication ? storage.bytes : 0;
  EXPECT_EQ(buckets, 4 * p.trainable);
}

TEST(Course, C16_FsdpCutsParametersGradientsAndStates) {
  const Prediction p =
      predicted(eight_billion(), {{"stack", "course"}, {"dp", "8"}, {"fsdp", "2"}, {"batch", "1"}, {"seq", "4096"}});
  EXPECT_EQ(states(p), 16 * divide_up(p.params, 8));
  EXPECT_EQ(std::round(static_cast<double>(states(p)) / 1e9), 16);
}

// An all-gather a layer in forward; in backward another, unless layers stay gathered, and a reduce-scatter. The unit of
// everything that is no layer counts as one more.
TEST(Course, C16_InRealCode) {
  const ModelConfig config = eight_billion();
  const std::size_t units = config.num_hidden_layers + 1;
  for (const char* reshard : {"true", "false"}) {
    const Prediction p = predicted(config, {{"dp", "8"},
                                            {"fsdp", "2"},
                                            {"precision", "fp32"},
                                            {"reshard_after_forward", reshard},
                                            {"batch", "1"},
                                            {"seq", "4096"}});
    EXPECT_EQ(made(p, OpKind::all_gather, "step2.forward"), units);
    EXPECT_EQ(made(p, OpKind::all_gather, "step2.backward"), *reshard == 't' ? units : 0);
    EXPECT_EQ(made(p, OpKind::reduce_scatter, "step2.backward"), units);
  }
}

// The chapter's fifth question: both need about as much, but one of them trains everything.
TEST(Course, C16_AsMuchAsAnAdapterOnEveryGpu) {
  const Prediction ddp = predicted(
      eight_billion(), {{"stack", "course"}, {"method", "lora"}, {"dp", "8"}, {"batch", "1"}, {"seq", "4096"}});
  const Prediction fsdp =
      predicted(eight_billion(), {{"stack", "course"}, {"dp", "8"}, {"fsdp", "2"}, {"batch", "1"}, {"seq", "4096"}});
  EXPECT_NEAR(static_cast<double>(states(ddp)), static_cast<double>(states(fsdp)), 0.05 * 16.7e9);
  EXPECT_EQ(fsdp.trainable, fsdp.params);
}

// The chapter names what the other kinds cut; its rules of thumb have no line for them.
TEST(Course, C17_OtherCutsAreRefusedByName) {
  for (const char* key : {"tp", "pp", "cp", "ep"}) {
    const Result<Prediction> result = predict_run(eight_billion(), recipe_of({{"stack", "course"}, {key, "2"}}));
    ASSERT_FALSE(result.ok()) << key;
    EXPECT_EQ(result.problem().where, key);
    EXPECT_EQ(result.problem().expected, "course_cuts_by_data_only");
  }
}

// A plain stack of `billions` x 1e9 parameters.
ModelConfig of_billions(double billions) {
  const auto rows = static_cast<std::uint64_t>(billions * 1e3);
  return plain_stack({{rows, 1000000, false}});
}

TEST(Papers, ZeroTable1) {
  const Result<Json> parsed = parse_json(fixture("papers/formulas.json"), {.bytes = 1u << 20});
  ASSERT_TRUE(parsed.ok());
  std::size_t rows = 0;
  for (const Json& row : parsed.value().find("rows")->items()) {
    if (!row.find("paper")->as_string()->starts_with("ZeRO") || row.find("table")->as_string() != "Table 1") continue;
    ++rows;
    SCOPED_TRACE(*row.find("id")->as_string());
    const Json& inputs = *row.find("inputs");
    const std::string dp = std::to_string(*inputs.find("dp")->as_unsigned());
    const std::string stage = std::to_string(*inputs.find("stage")->as_unsigned());
    const Prediction p = predicted(of_billions(*inputs.find("params_B")->as_real()),
                                   {{"stack", "course"}, {"dp", dp.c_str()}, {"zero", stage.c_str()}});
    Bytes bytes = 0;
    for (const PhasePeak& phase : p.replay.phases)
      bytes = std::max(bytes, phase.end_bytes);
    // The paper cuts decimals off or rounds them: three digits, or whole GB from 100 on.
    const double value = *row.find("value")->as_real(), computed = static_cast<double>(bytes) / 1e9;
    const double unit = value >= 100 ? 1 : value >= 2 ? 0.1 : 0.01;
    EXPECT_NEAR(computed, value, unit) << "printed " << value;
  }
  EXPECT_EQ(rows, 54u);
}

}  // namespace
}  // namespace ledger
