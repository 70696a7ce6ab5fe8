// Every row of tests/fixtures/traces/*.json: two training steps of the frameworks' own code, followed storage by
// storage, against the same run predicted. Equal to the byte, phase by phase.
//
// A file is {"source": where its facts come from, "rows": [...]}; a row has id, model (a config.json), recipe,
// versions, params, trainable, load (bytes once loaded), phases {name: {peak, peak_with_kernels, op}} and after {phase:
// live bytes at its end}. Drop a file into the folder and its rows are tests, named by their id.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "core/answer/prediction.h"
#include "tests/config/fixtures.h"

namespace ledger {
namespace {

struct Row {
  std::string file;
  std::string id;
  std::shared_ptr<const Json> document;  // the row lives in it
  const Json* row = nullptr;
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.file << ": " << row.id;
}

void add_rows(const std::string& file, std::vector<Row>& rows) {
  Result<Json> parsed = parse_json(fixture("traces/" + file), {.bytes = 64u << 20});
  const auto document = std::make_shared<const Json>(parsed.ok() ? parsed.value() : Json());
  const Json* list = document->find("rows");
  if (list == nullptr || list->items().empty()) rows.push_back({file, file + " has no rows", document, nullptr});
  if (list == nullptr) return;
  for (const Json& row : list->items()) {
    const Json* id = row.find("id");
    const auto text = id == nullptr ? std::nullopt : id->as_string();
    rows.push_back({file, std::string(text.value_or("row without id")), document, &row});
  }
}

std::vector<Row> all_rows() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(FIXTURES) + "/traces")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<Row> rows;
  for (const std::string& file : files)
    add_rows(file, rows);
  return rows;
}

// GoogleTest takes letters, digits and underscores only.
std::string test_name(const testing::TestParamInfo<Row>& info) {
  std::string name = info.param.id;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

class ReferenceTrace : public testing::TestWithParam<Row> {
 protected:
  const Json& at(const Json& object, const char* key) const {
    static const Json none;
    const Json* found = object.find(key);
    EXPECT_NE(found, nullptr) << "the row has no " << key;
    return found == nullptr ? none : *found;
  }
  const Json& at(const char* key) const { return at(*GetParam().row, key); }
  std::uint64_t number(const Json& object, const char* key) const { return at(object, key).as_unsigned().value_or(0); }

  // PyTorch keeps the step counters of unfused AdamW on the host (torch/optim/adam.py, _init_group); the references
  // count every storage, wherever it is: four bytes a parameter once the first optimizer step has begun.
  static Bytes host_counters(const Prediction& p, const std::string& phase) {
    const bool on_host =
        p.recipe.optimizer == Optimizer::adamw_foreach || p.recipe.optimizer == Optimizer::adamw_forloop;
    const bool before = phase == "load" || phase.ends_with("step1.forward") || phase.ends_with("step1.backward");
    const auto trainable = std::count_if(p.trace.parameters.begin(), p.trace.parameters.end(),
                                         [](const Parameter& parameter) { return parameter.trainable; });
    return on_host && !before ? 4 * static_cast<Bytes>(trainable) : 0;
  }

  // The sharded references' loop does not clip gradients.
  static PredictOptions options_of(const Recipe& recipe) {
    PredictOptions options;
    options.trace.cpu_statistics = true;  // layer norms of the references ran on a CPU
    if (recipe.fsdp != 0) options.trace.max_grad_norm = 0;
    return options;
  }

  // A tensor divided by a Python number is div.Tensor to PyTorch's dispatcher and div.Scalar in our table.
  static std::string overloads(std::string_view op) { return std::string(op.substr(0, op.find('.'))); }

  void expect_phase(const Prediction& p, const PhasePeak& phase) const {
    const std::string& name = p.trace.phases[phase.phase];
    SCOPED_TRACE(name);
    const Bytes on_host = host_counters(p, name);
    if (const Json* row = at("phases").find(name)) {
      EXPECT_EQ(phase.peak_bytes + on_host, number(*row, "peak"));
      const auto op = at(*row, "op").as_string().value_or("");
      // The reference starts to look when the model is loaded.
      // FSDP2's buffers are empty.memory_format or resize there, and named by their purpose here.
      if (op != "loaded" && op != "empty.memory_format" && op != "resize" && op != "(enter)") {
        EXPECT_EQ(overloads(op_name(p.trace.storages[p.trace.events[phase.peak_event].id].op)), overloads(op));
      }
    }
    if (const Json* bytes = at("after").find(name)) {
      EXPECT_EQ(phase.end_bytes + on_host, bytes->as_unsigned());
    }
  }

  // What attention's backward takes inside one call; the references know no cuBLAS workspaces.
  void expect_kernel_scratch(const Prediction& p, const ModelConfig& config, const Recipe& recipe) const {
    const Result<Trace> trace = trace_step(config, recipe, options_of(recipe).trace);
    ASSERT_TRUE(trace.ok());
    for (const PhasePeak& phase : replay(trace.value(), {}).phases) {
      const Json* row = at("phases").find(trace.value().phases[phase.phase]);
      if (row == nullptr) continue;
      const Bytes on_host = host_counters(p, trace.value().phases[phase.phase]);
      EXPECT_EQ(phase.peak_with_workspace_bytes + on_host, number(*row, "peak_with_kernels"));
    }
  }
};

TEST_P(ReferenceTrace, EqualsToTheByte) {
  ASSERT_NE(GetParam().row, nullptr) << GetParam().id;
  const Result<ModelConfig> config = model_config_from(at("model"));
  ASSERT_TRUE(config.ok()) << config.problem().where;
  const Result<Recipe> recipe = recipe_from(at("recipe"));
  ASSERT_TRUE(recipe.ok()) << recipe.problem().where;
  const PredictOptions options = options_of(recipe.value());
  const Result<Prediction> prediction = predict_run(config.value(), recipe.value(), options);
  ASSERT_TRUE(prediction.ok()) << prediction.problem().where << " " << prediction.problem().expected;
  const Prediction& p = prediction.value();
  EXPECT_EQ(p.params, number(*GetParam().row, "params"));
  EXPECT_EQ(p.trainable, number(*GetParam().row, "trainable"));
  EXPECT_EQ(p.replay.phases.front().end_bytes, number(*GetParam().row, "load"));
  expect_kernel_scratch(p, config.value(), recipe.value());
  std::size_t seen = 0;
  Bytes peak = 0;
  for (const PhasePeak& phase : p.replay.phases) {
    expect_phase(p, phase);
    seen += at("phases").find(p.trace.phases[phase.phase]) != nullptr ? 1 : 0;
    peak = std::max(peak, phase.peak_bytes);
  }
  EXPECT_EQ(seen, at("phases").members().size()) << "the prediction lacks phases of the reference";
  EXPECT_EQ(peak, p.replay.peak_tensor_bytes);
}

INSTANTIATE_TEST_SUITE_P(Rows, ReferenceTrace, testing::ValuesIn(all_rows()), test_name);

TEST(ReferenceTraces, IdsAreDifferent) {
  std::vector<std::string> ids;
  for (const Row& row : all_rows())
    ids.push_back(row.id);
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  EXPECT_TRUE(twice == ids.end()) << *twice;
  EXPECT_GE(ids.size(), 146u);
}

}  // namespace
}  // namespace ledger
