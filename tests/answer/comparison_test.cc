// A measured file beside its prediction: equal runs differ nowhere, and a difference stands on the line it belongs to.
#include "core/answer/comparison.h"

#include <gtest/gtest.h>

#include "core/api.h"
#include "probe/host/run_host.h"
#include "probe/measured.h"
#include "tests/answer/json_path.h"
#include "tests/base/show_problem.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

std::string measured_file(std::uint32_t steps = 2, Bytes limit = 0) {
  Recipe recipe = recipe_of({});
  recipe.memory_limit_bytes = limit;
  PredictOptions options{.steps = steps, .operands = true, .record_addresses = true};
  const Prediction p = predict_run(odd_llama(), recipe, options).value();
  ReplayOptions replay_options{.allocator = allocator_options(recipe), .record_addresses = true};
  if (limit != 0) replay_options.allocator.limit = limit;
  const HostRun run = run_on_host(p.trace, replay_options);
  return write_measured({&p, &run, steps, 1});
}

// `text` with the first `from` behind `after` replaced.
std::string tampered(std::string text, std::string_view after, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from, text.find(after));
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

Json compared(const std::string& measured) {
  const Result<std::string> result = compare_measured(parsed(measured));
  EXPECT_EQ(outcome(result), "ok");
  return result.ok() ? parsed(result.value()) : Json();
}

std::int64_t difference(const Json& comparison, const char* table, std::string_view name) {
  for (const Json& row : at(comparison, table).items()) {
    if (text(row, "name") == name) return signed_number(row, "difference_bytes");
  }
  ADD_FAILURE() << "no row " << name;
  return 0;
}

void expect_columns_sum(const Json& comparison, Bytes predicted, std::int64_t measured) {
  Bytes predicted_sum = 0;
  std::int64_t measured_sum = 0;
  for (const Json& row : at(comparison, "categories").items()) {
    predicted_sum += number(row, "predicted_bytes");
    measured_sum += signed_number(row, "measured_bytes");
  }
  EXPECT_EQ(predicted_sum, predicted);
  EXPECT_EQ(measured_sum, measured);
}

TEST(Comparison, AnEqualRunDiffersNowhere) {
  const std::string measured = measured_file();
  const Json comparison = compared(measured);
  for (const char* table : {"peaks", "phases", "categories"}) {
    EXPECT_FALSE(at(comparison, table).items().empty()) << table;
    for (const Json& row : at(comparison, table).items()) {
      EXPECT_EQ(signed_number(row, "difference_bytes"), 0) << table << " " << text(row, "name");
    }
  }
  EXPECT_EQ(difference(comparison, "categories", "[unexplained]"), 0);
  const Bytes allocated = number(parsed(measured), "at_peak.allocated_bytes");
  expect_columns_sum(comparison, allocated, static_cast<std::int64_t>(allocated));
}

// The course, C18: predict before, read max_memory_allocated and max_memory_reserved after; within 30 % counts as
// reconciled. A real run through the same allocator leaves nothing to reconcile.
TEST(OomCourse, C18PredictThenMeasureReconciles) {
  const Json comparison = compared(measured_file());
  for (const char* peak : {"allocated_bytes", "reserved_bytes"}) {
    const auto off = static_cast<double>(difference(comparison, "peaks", peak));
    EXPECT_EQ(off, 0) << peak;
  }
  for (const Json& row : at(comparison, "phases").items()) {
    const auto predicted = static_cast<double>(number(row, "predicted_bytes"));
    EXPECT_LE(std::abs(static_cast<double>(signed_number(row, "difference_bytes"))), 0.3 * predicted)
        << text(row, "name");
  }
}

TEST(Comparison, TheRunsOwnNumberOfStepsIsPredicted) {
  const Json comparison = compared(measured_file(3));
  EXPECT_EQ(difference(comparison, "phases", "step3.backward"), 0);
  EXPECT_EQ(at(comparison, "phases").items().size(), 1u + 3 * 4);
}

class Tampered : public testing::Test {
 protected:
  std::string measured = measured_file();
  Json document = parsed(measured);

  std::string changed(std::string_view after, const char* key, std::uint64_t value, std::int64_t by) const {
    const std::string name = std::string("\"") + key + "\":";
    return tampered(measured, after, name + std::to_string(value),
                    name + std::to_string(static_cast<std::int64_t>(value) + by));
  }
};

TEST_F(Tampered, MoreAllocatedThanItsLinesIsUnexplained) {
  const Bytes allocated = number(document, "at_peak.allocated_bytes");
  const Json comparison = compared(changed("\"at_peak\"", "allocated_bytes", allocated, 4096));
  EXPECT_EQ(difference(comparison, "categories", "[unexplained]"), 4096);
  EXPECT_EQ(difference(comparison, "categories", "weights"), 0);
  expect_columns_sum(comparison, allocated, static_cast<std::int64_t>(allocated) + 4096);
}

TEST_F(Tampered, ACategoryThatGrewIsNamedAndTheRestIsNegative) {
  const Json comparison =
      compared(changed("\"categories\"", "weights", number(document, "at_peak.categories.weights"), 1000));
  EXPECT_EQ(difference(comparison, "categories", "weights"), 1000);
  EXPECT_EQ(difference(comparison, "categories", "[unexplained]"), -1000);
}

TEST_F(Tampered, APhaseThatGrewIsNamed) {
  const Bytes peak = number(document, "phases.2.allocated_peak_bytes");
  const Json comparison = compared(changed("step1.backward", "allocated_peak_bytes", peak, -512));
  EXPECT_EQ(difference(comparison, "phases", "step1.backward"), -512);
  EXPECT_EQ(difference(comparison, "phases", "step1.forward"), 0);
}

TEST(Comparison, EveryRankLiesBesideItsOwnPrediction) {
  const std::string ranks = R"("ranks": [
      {"rank": 0, "peaks": {"allocated_bytes": 4096}, "predicted_allocated_bytes": 4096},
      {"rank": 1, "peaks": {"allocated_bytes": 5632}, "predicted_allocated_bytes": 4608},
      {"rank": 2, "peaks": {}, "predicted_allocated_bytes": 4608}], "not_measured")";
  const Json comparison = compared(tampered(measured_file(), "\"not_measured\"", "\"not_measured\"", ranks));
  EXPECT_EQ(at(comparison, "ranks").items().size(), 2u) << "the third was not measured";
  EXPECT_EQ(difference(comparison, "ranks", "0"), 0);
  EXPECT_EQ(difference(comparison, "ranks", "1"), 1024);
  EXPECT_EQ(compared(measured_file()).find("ranks"), nullptr) << "one process";
}

// `measured` with another timeline.
std::string with_timeline(const std::string& measured, const std::string& timeline) {
  return tampered(measured, "{", "\"timeline\":", "\"timeline\":" + timeline + ",\"own_timeline\":");
}

TEST(ComparedTimeline, ARunOfTheSameTraceLiesAtItsOwnEvents) {
  const Json document = parsed(measured_file());
  const Json comparison = compared(measured_file());
  const std::vector<Json>& points = at(document, "timeline.points").items();
  ASSERT_GT(points.size(), 10u);
  ASSERT_EQ(at(comparison, "measured_points").items().size(), points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Json& laid = at(comparison, "measured_points").items()[i];
    for (const char* key : {"event", "allocated_bytes", "reserved_bytes"})
      EXPECT_EQ(number(laid, key), number(points[i], key)) << key << " of point " << i;
  }
  EXPECT_EQ(at(comparison, "timeline.points").items().size(), points.size()) << "the prediction's own";
}

// Twice as many events in each phase, as of a framework that counts otherwise: half into a phase stays half into it.
TEST(ComparedTimeline, OtherEventsAreLaidPhaseByPhase) {
  const Json document = parsed(measured_file());
  std::string phases;
  for (const Json& phase : at(document, "timeline.phases").items()) {
    phases += (phases.empty() ? "" : ",") + std::string(R"({"name":")") + text(phase, "name") + R"(","event":)" +
              std::to_string(2 * number(phase, "event") + 100) + "}";
  }
  const std::uint64_t from = number(document, "timeline.phases.1.event"),
                      to = number(document, "timeline.phases.2.event");
  const auto point = [](std::uint64_t event) {
    return R"({"event":)" + std::to_string(event) + R"(,"allocated_bytes":7,"reserved_bytes":9})";
  };
  const std::string timeline = R"({"events":)" + std::to_string(2 * number(document, "timeline.events") + 100) +
                               R"(,"phases":[)" + phases + R"(],"points":[)" + point(99) + "," + point(2 * from + 100) +
                               "," + point(from + to + 100) + "]}";
  const Json comparison = compared(with_timeline(measured_file(), timeline));
  ASSERT_EQ(at(comparison, "measured_points").items().size(), 2u) << "what came before the first phase is nowhere";
  EXPECT_EQ(number(comparison, "measured_points.0.event"), from);
  EXPECT_EQ(number(comparison, "measured_points.1.event"), from + (to - from) / 2);
  EXPECT_EQ(number(comparison, "measured_points.1.allocated_bytes"), 7u);
}

// A run that ended in the first forward pass: as many events as planned, fewer phases.
TEST(ComparedTimeline, ARunThatEndedEarlyIsLaidUpToItsEnd) {
  const Json document = parsed(measured_file());
  const std::uint64_t start = number(document, "timeline.phases.1.event");
  const std::string begin = R"({"events":)" + std::to_string(number(document, "timeline.events")) +
                            R"(,"phases":[{"name":")" + text(document, "timeline.phases.0.name") + R"(","event":)" +
                            std::to_string(number(document, "timeline.phases.0.event")) +
                            R"(},{"name":"step1.forward","event":)" + std::to_string(start) + R"(}],"points":[)";
  const std::string points =
      R"({"event":)" + std::to_string(start + 5) + R"(,"allocated_bytes":512,"reserved_bytes":2097152}]})";
  const Json comparison = compared(with_timeline(measured_file(), begin + points));
  EXPECT_EQ(number(comparison, "measured_points.0.event"), start + 5);
}

TEST(ComparedTimeline, WithoutPhasesNothingIsLaidAnywhere) {
  const Json comparison =
      compared(with_timeline(measured_file(), R"({"events":3,"points":[{"event":1,"allocated_bytes":1}]})"));
  EXPECT_EQ(comparison.find("timeline"), nullptr);
  EXPECT_EQ(comparison.find("measured_points"), nullptr);
}

TEST(ComparedTimeline, WhatIsNoNumberIsRefusedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"events":-1,"phases":[],"points":[]})",
       "wrong_type where=timeline.events read=-1 expected=integer nearest="},
      {R"({"events":4294967296,"phases":[],"points":[]})",
       "wrong_type where=timeline.events read=4294967296 expected=integer nearest="},
      {R"({"events":1,"phases":[],"points":4})", "wrong_type where=timeline.points read=4 expected=array nearest="},
      {R"({"events":1,"phases":[],"points":[{"event":0}]})",
       "wrong_type where=timeline.points read={\"event\":0} expected=integer nearest="},
  };
  for (const auto& [timeline, problem] : cases)
    EXPECT_EQ(outcome(compare_measured(parsed(with_timeline(measured_file(), timeline)))), problem);
}

// Sums of a phase's lines are its row, whatever the file states.
void expect_lines_sum(const Json& comparison) {
  for (const Json& row : at(comparison, "phases").items()) {
    std::int64_t predicted = 0, measured = 0, off = 0;
    for (const Json& line : at(row, "lines").items()) {
      predicted += signed_number(line, "predicted_bytes");
      measured += signed_number(line, "measured_bytes");
      off += signed_number(line, "difference_bytes");
    }
    EXPECT_EQ(predicted, signed_number(row, "predicted_bytes")) << text(row, "name");
    EXPECT_EQ(measured, signed_number(row, "measured_bytes")) << text(row, "name");
    EXPECT_EQ(off, signed_number(row, "difference_bytes")) << text(row, "name");
  }
}

const Json& phase_row(const Json& comparison, std::string_view name) {
  for (const Json& row : at(comparison, "phases").items()) {
    if (text(row, "name") == name) return row;
  }
  ADD_FAILURE() << "no phase " << name;
  return at(comparison, "none");
}

TEST_F(Tampered, EveryByteOfAPhaseStandsOnALine) {
  expect_lines_sum(compared(measured));
  const Json comparison =
      compared(changed("step1.backward", "peak_bytes", number(document, "phases.2.peak_bytes"), 2048));
  expect_lines_sum(comparison);
  const Json& row = phase_row(comparison, "step1.backward");
  EXPECT_EQ(difference(row, "lines", "[tensors]"), 2048);
  EXPECT_EQ(difference(row, "lines", "[library workspace]"), -2048);
  EXPECT_EQ(difference(row, "lines", "[unexplained]"), 0);
}

TEST_F(Tampered, WhatAFileDoesNotStateIsUnexplained) {
  const Json comparison =
      compared(tampered(measured, "step1.backward", "\"peak_with_workspace_bytes\"", "\"something_else\""));
  expect_lines_sum(comparison);
  const Json& row = phase_row(comparison, "step1.backward");
  EXPECT_EQ(difference(row, "lines", "[tensors]"), 0);
  EXPECT_EQ(difference(row, "lines", "[unexplained]"),
            signed_number(document, "phases.2.allocated_peak_bytes") - signed_number(document, "phases.2.peak_bytes"));
}

TEST_F(Tampered, RoundingHasALineOfItsOwn) {
  const Bytes rounding = number(document, "at_peak.allocator_rounding_bytes");
  const Json comparison = compared(changed("\"at_peak\"", "allocator_rounding_bytes", rounding, 512));
  EXPECT_EQ(difference(comparison, "categories", "[allocator rounding]"), 512);
  EXPECT_EQ(difference(comparison, "categories", "[unexplained]"), -512);
}

struct Refused {
  const char* name;
  const char* after;
  const char* from;
  const char* to;
  const char* problem;
};

TEST_F(Tampered, RefusesWhatItDoesNotUnderstand) {
  const Refused cases[] = {
      {"another major version", "{", R"("schema_version":"1.0")", R"("schema_version":"2.0")",
       "schema_version where=schema_version read=\"2.0\" expected=1.x nearest="},
      {"a version that only begins alike", "{", R"("schema_version":"1.0")", R"("schema_version":"10.0")",
       "schema_version where=schema_version read=\"10.0\" expected=1.x nearest="},
      {"no version", "{", R"("schema_version":"1.0",)", "",
       "schema_version where=schema_version read= expected=1.x nearest="},
      {"a prediction", "{", R"("kind":"measured")", R"("kind":"predicted")",
       "not_one_of where=kind read=\"predicted\" expected=measured|hook nearest="},
      {"no peak", "{", R"("at_peak":)", R"("elsewhere":)", "missing_key where=at_peak read= expected=object nearest="},
      {"no peaks", "{", R"("peaks":)", R"("tops":)", "missing_key where=peaks read= expected=object nearest="},
      {"no model", "\"model\"", R"("config":)", R"("configuration":)",
       "missing_key where=model.config read= expected=object nearest="},
      {"no recipe", "{", R"("recipe":)", R"("receipt":)", "missing_key where=recipe read= expected=object nearest="},
      {"too many steps", "\"options\"", R"("steps":2)", R"("steps":65)",
       "out_of_range where=options.steps read=65 expected=1..64 nearest="},
      {"a negative layer count", "\"config\"", R"("num_hidden_layers":2)", R"("num_hidden_layers":-2)",
       "out_of_range where=num_hidden_layers read=-2 expected=1..4096 nearest="},
  };
  for (const Refused& c : cases) {
    const Json changed_document = parsed(tampered(measured, c.after, c.from, c.to));
    EXPECT_EQ(outcome(compare_measured(changed_document)), c.problem) << c.name;
  }
}

TEST_F(Tampered, ANewerMinorVersionWithNewKeysIsRead) {
  const Json comparison =
      compared(tampered(measured, "{", R"("schema_version":"1.0")", R"("schema_version":"1.7","new_key":[1])"));
  EXPECT_EQ(difference(comparison, "categories", "[unexplained]"), 0);
}

// A run that stopped is compared up to where it came.
TEST(Comparison, ARunOutOfMemoryIsComparedAsFarAsItWent) {
  const std::string measured = measured_file(2, 40 * kMiB);
  EXPECT_EQ(text(parsed(measured), "status"), "oom");
  const Json comparison = compared(measured);
  EXPECT_EQ(text(comparison, "status"), "oom");
  EXPECT_EQ(difference(comparison, "phases", "load"), 0);
}

TEST(Comparison, ThroughTheDoorItIsTheSame) {
  const std::string measured = measured_file();
  const std::string direct = compare_measured(parsed(measured)).value();
  EXPECT_EQ(compare("{\"measured\":" + measured + "}"), "{\"comparison\":" + direct + "}");
}

}  // namespace
}  // namespace ledger
