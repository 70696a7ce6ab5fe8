// What papers print about one model's parts, against the tensors that are traced (tests/fixtures/papers/). Papers about
// stages, ranks and layers' activations: tests/parallel/megatron_test.cc, tests/course/parallel_test.cc.
#include <gtest/gtest.h>

#include "core/answer/prediction.h"
#include "core/base/json.h"
#include "core/training/step.h"
#include "tests/base/show_problem.h"
#include "tests/config/fixtures.h"

namespace ledger {
namespace {

double printed(const char* id) {
  static const Result<Json> all = parse_json(fixture("papers/formulas.json"), {.bytes = 1u << 20});
  for (const Json& row : all.value().find("rows")->items()) {
    if (row.find("id")->as_string() == id) return *row.find("value")->as_real();
  }
  ADD_FAILURE() << "no row " << id;
  return 0;
}

Trace traced(const char* config, const char* recipe) {
  Result<Trace> trace = trace_step(read_model_config(config).value(), read_recipe(recipe).value());
  EXPECT_EQ(outcome(trace), "ok");
  return trace.ok() ? std::move(trace.value()) : Trace();
}

std::uint64_t elements_below(const Trace& trace, std::string_view beginning) {
  std::uint64_t sum = 0;
  for (const Parameter& parameter : trace.parameters) {
    if (parameter.name.starts_with(beginning)) sum += trace.storages[parameter.storage].shape.numel();
  }
  return sum;
}

// arXiv 2502.07846: of a layer the latent attention with its two norms, one of 256 experts, and all of its experts with
// the router. The class's defaults are the published model's.
TEST(Papers, DeepSeekV3CountsLikeItsAnalysis) {
  const Trace trace = traced(R"({"model_type":"deepseek_v3","num_hidden_layers":4})", R"({"seq":16})");
  const std::string layer = "model.layers.3.";
  EXPECT_EQ(static_cast<double>(elements_below(trace, layer + "self_attn.")), printed("T0286"));
  const std::uint64_t experts = elements_below(trace, layer + "mlp.experts.");
  EXPECT_EQ(static_cast<double>(experts) / 256, printed("T0287"));
  EXPECT_EQ(static_cast<double>(elements_below(trace, layer + "mlp.")), printed("T0288"));
}

// arXiv 2305.14314, section 3: 32 bits for each block of 64 become 8 and a second level's 32 for each 256 blocks.
TEST(Papers, DoubleQuantisationSavesWhatQLoRASays) {
  constexpr const char* kConfig = R"({"model_type":"llama","hidden_size":1024,"intermediate_size":4096,
      "num_attention_heads":8,"num_hidden_layers":2,"vocab_size":1000})";
  const auto weights = [&](const char* recipe) {
    const Trace trace = traced(kConfig, recipe);
    Bytes bytes = 0;
    for (const StorageInfo& storage : trace.storages) {
      if (storage.category == Category::weights) bytes += storage.bytes;
    }
    return bytes;
  };
  const Bytes once = weights(R"({"method":"qlora","seq":16,"double_quant":false})");
  const Bytes twice = weights(R"({"method":"qlora","seq":16,"double_quant":true})");
  constexpr std::uint64_t kModules = 7 * 2, kQuantised = 2 * (4 * 1024 * 1024 + 3 * 1024 * 4096);
  // Each module has one map of 256 fp32 and an offset more.
  const double saved = 8.0 * static_cast<double>(once - twice + kModules * (256 + 1) * 4) / kQuantised;
  EXPECT_NEAR(saved, 0.373046875, 1e-12);
  EXPECT_NEAR(saved, printed("T0194"), 0.005);
}

}  // namespace
}  // namespace ledger
