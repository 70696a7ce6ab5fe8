// The law of the report: every byte stands on one line, and every sum agrees with every other, for every model and
// recipe.
#include "core/answer/report.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/answer/json_path.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

std::vector<NamedRun> all_runs() {
  std::vector<NamedRun> runs = small_runs();
  for (const auto& [name, config] : small_configs()) {
    if (config.architecture == Architecture::plain) continue;
    runs.push_back({std::string(name) + "_course", config, recipe_of({{"stack", "course"}})});
    runs.push_back({std::string(name) + "_course_sgd", config, recipe_of({{"stack", "course"}, {"optimizer", "sgd"}})});
  }
  return runs;
}

class EveryReport : public testing::TestWithParam<NamedRun> {
 protected:
  void SetUp() override {
    const Result<Prediction> prediction = predict_run(GetParam().config, GetParam().recipe);
    ASSERT_TRUE(prediction.ok());
    report = parsed(write_report(prediction.value(), 50));
  }
  Json report;
};

INSTANTIATE_TEST_SUITE_P(Small, EveryReport, testing::ValuesIn(all_runs()),
                         [](const auto& row) { return row.param.name; });

TEST_P(EveryReport, LinesSumToCategoriesSumToThePeak) {
  std::map<std::string, Bytes> sums;
  Bytes total = 0, before = kOverflow;
  for (const Json& line : at(report, "at_peak.tensors").items()) {
    sums[text(line, "category")] += number(line, "bytes");
    total += number(line, "bytes");
    EXPECT_LE(number(line, "bytes"), before) << "largest first";
    before = number(line, "bytes");
  }
  const Json& categories = at(report, "at_peak.categories");
  EXPECT_EQ(categories.members().size(), sums.size());
  for (const auto& [name, bytes] : categories.members())
    EXPECT_EQ(bytes.as_unsigned(), sums[name]) << name;
  EXPECT_EQ(total, number(report, "at_peak.tensor_bytes") + number(report, "at_peak.workspace_bytes"));
  EXPECT_EQ(number(report, "at_peak.tensor_bytes"), number(report, "peaks.tensor_bytes"));
}

TEST_P(EveryReport, EveryLineCanBeMultipliedOut) {
  for (const Json& line : at(report, "at_peak.tensors").items()) {
    Bytes product = number(line, "count") * number(line, "element_bytes");
    for (const Json& factor : at(line, "factors").items())
      product *= number(factor, "value");
    EXPECT_EQ(product, number(line, "bytes")) << text(line, "name") << " " << text(line, "op");
    Bytes by_shape = number(line, "count") * number(line, "element_bytes");
    for (const Json& size : at(line, "shape").items())
      by_shape *= size.as_unsigned().value_or(0);
    EXPECT_EQ(by_shape, number(line, "bytes"));
    for (const char* key : {"name", "op", "category", "dtype", "source"})
      EXPECT_NE(text(line, key), "") << key;
  }
}

TEST_P(EveryReport, TensorsWithinAllocatedWithinReserved) {
  EXPECT_EQ(number(report, "at_peak.tensor_bytes") + number(report, "at_peak.workspace_bytes") +
                number(report, "at_peak.allocator_rounding_bytes"),
            number(report, "at_peak.allocated_bytes"));
  EXPECT_EQ(number(report, "at_peak.allocated_bytes") + number(report, "at_peak.cached_bytes"),
            number(report, "at_peak.reserved_bytes"));
  EXPECT_LE(number(report, "peaks.tensor_bytes"), number(report, "peaks.allocated_bytes"));
  EXPECT_LE(number(report, "peaks.allocated_bytes"), number(report, "peaks.reserved_bytes"));
  EXPECT_LE(number(report, "peaks.reserved_bytes"), number(report, "peaks.device_band_bytes.0"));
  EXPECT_LE(number(report, "peaks.device_band_bytes.0"), number(report, "peaks.device_bytes"));
  EXPECT_LE(number(report, "peaks.device_bytes"), number(report, "peaks.device_band_bytes.1"));
}

TEST_P(EveryReport, PhasesFollowOneAnother) {
  Bytes previous_end = 0, most = 0, allocated = 0, reserved = 0;
  for (const Json& phase : at(report, "phases").items()) {
    SCOPED_TRACE(text(phase, "name"));
    EXPECT_EQ(number(phase, "start_bytes"), previous_end);
    previous_end = number(phase, "end_bytes");
    EXPECT_GE(number(phase, "peak_bytes"), number(phase, "start_bytes"));
    EXPECT_GE(number(phase, "peak_bytes"), number(phase, "end_bytes"));
    EXPECT_GE(number(phase, "peak_with_workspace_bytes"), number(phase, "peak_bytes"));
    EXPECT_GE(number(phase, "allocated_peak_bytes"), number(phase, "peak_with_workspace_bytes"));
    EXPECT_GE(number(phase, "reserved_peak_bytes"), number(phase, "allocated_peak_bytes"));
    EXPECT_GE(number(phase, "reserved_peak_bytes"), reserved) << "without a limit nothing is given back";
    most = std::max(most, number(phase, "peak_bytes"));
    allocated = std::max(allocated, number(phase, "allocated_peak_bytes"));
    reserved = std::max(reserved, number(phase, "reserved_peak_bytes"));
  }
  EXPECT_EQ(most, number(report, "peaks.tensor_bytes"));
  EXPECT_EQ(allocated, number(report, "peaks.allocated_bytes"));
  EXPECT_EQ(reserved, number(report, "peaks.reserved_bytes"));
}

TEST_P(EveryReport, TimelineHoldsThePeak) {
  const std::uint64_t peak_event = number(report, "timeline.peak_event");
  bool found = false;
  std::uint64_t before = 0;
  for (const Json& point : at(report, "timeline.points").items()) {
    EXPECT_GE(number(point, "event"), before);
    before = number(point, "event");
    Bytes sum = 0;
    for (const Json& bytes : at(point, "categories").items())
      sum += bytes.as_unsigned().value_or(0);
    EXPECT_GE(sum, number(point, "tensor_bytes"));  // and workspace
    EXPECT_LE(sum, number(point, "allocated_bytes"));
    EXPECT_LE(number(point, "allocated_bytes"), number(point, "reserved_bytes"));
    if (number(point, "event") != peak_event) continue;
    found = true;
    EXPECT_EQ(number(point, "tensor_bytes"), number(report, "peaks.tensor_bytes"));
  }
  EXPECT_TRUE(found);
  EXPECT_LT(before, number(report, "timeline.events"));
  EXPECT_EQ(peak_event, number(report, "at_peak.event"));
  EXPECT_EQ(at(report, "timeline.phases").items().size(), at(report, "phases").items().size());
}

TEST_P(EveryReport, ThePeakIsNamedTheSameEverywhere) {
  EXPECT_EQ(text(report, "peaks.phase"), text(report, "at_peak.phase"));
  EXPECT_EQ(text(report, "peaks.op"), text(report, "at_peak.op"));
  EXPECT_NE(text(report, "peaks.op"), "");
  for (const Json& phase : at(report, "phases").items()) {
    if (text(phase, "name") != text(report, "peaks.phase")) continue;
    EXPECT_EQ(number(phase, "peak_bytes"), number(report, "peaks.tensor_bytes"));
    EXPECT_EQ(text(phase, "op"), text(report, "peaks.op"));
  }
}

// FSDP1 and FSDP2 name their collectives' buffers alike; the code that makes them is not the same.
TEST(ReportSources, EachFsdpIsToldByItsOwnFiles) {
  const auto gathers = [](const char* fsdp) {
    const Recipe recipe = recipe_of({{"fsdp", fsdp}, {"dp", "4"}, {"seq", "64"}});
    const Json report = parsed(write_report(predict_run(small_configs().front().config, recipe).value(), 10));
    std::map<std::string, int> sources;
    for (const Json& line : at(report, "at_peak.tensors").items()) {
      if (text(line, "name").starts_with("fsdp.all_gather")) ++sources[text(line, "source")];
    }
    return sources;
  };
  const auto flat = gathers("1"), sharded = gathers("2");
  ASSERT_FALSE(flat.empty());
  ASSERT_FALSE(sharded.empty());
  for (const auto& [source, count] : flat)
    EXPECT_NE(source.find("_flat_param.py"), std::string::npos) << source;
  for (const auto& [source, count] : sharded)
    EXPECT_NE(source.find("_fsdp_collectives.py"), std::string::npos) << source;
}

TEST_P(EveryReport, EveryRecipeKeyIsResolved) {
  EXPECT_EQ(at(report, "recipe").members().size(), recipe_keys().size());
  EXPECT_EQ(at(report, "verdict.answer").as_string(), "fits");  // these models are small
}

}  // namespace
}  // namespace ledger
