// The stack `megatron`: Korthikanti's tables layer by layer, and what each kind of cut leaves on a rank.
#include <gtest/gtest.h>

#include <cmath>

#include "core/answer/prediction.h"
#include "tests/config/fixtures.h"
#include "tests/parallel/megatron_runs.h"

namespace ledger {
namespace {

// --- Korthikanti et al. 2022, Table 2
// -------------------------------------------------------------------------------------------

struct Technique {
  const char* name;
  std::uint64_t tp;
  bool sequence;
  Checkpointing checkpointing;
};

constexpr Technique kTechniques[] = {
    {"none", 1, false, Checkpointing::none},
    {"tp", 8, false, Checkpointing::none},
    {"tp+sp", 8, true, Checkpointing::none},
    {"tp+selective", 8, false, Checkpointing::selective},
    {"tp+sp+selective", 8, true, Checkpointing::selective},
    {"full_recompute", 1, false, Checkpointing::full},
};

Recipe with(const Technique& technique, Recipe recipe) {
  recipe.tp = technique.tp;
  recipe.sequence_parallel = technique.sequence;
  recipe.checkpointing = technique.checkpointing;
  recipe.attention = Attention::eager;
  return recipe;
}

// mean and 1 / sqrt(variance) of two norms, fp32, which the paper leaves out.
Bytes statistics(const Recipe& r) {
  if (r.checkpointing == Checkpointing::full) return 0;
  return 2 * 8 * r.batch * r.seq / (r.sequence_parallel ? r.tp : 1);
}

// The table's row in bytes; everything divides here.
Bytes table_2(const std::string& technique, Bytes s, Bytes b, Bytes h, Bytes a, Bytes t) {
  const Bytes sbh = s * b * h, scores = 5 * a * s * s * b;
  if (technique == "none") return 34 * sbh + scores;
  if (technique == "tp") return 10 * sbh + 24 * sbh / t + scores / t;
  if (technique == "tp+sp") return 34 * sbh / t + scores / t;
  if (technique == "tp+selective") return 10 * sbh + 24 * sbh / t;
  if (technique == "tp+sp+selective") return 34 * sbh / t;
  return 2 * sbh;
}

TEST(Korthikanti, Table2LayerByLayer) {
  struct Size {
    std::uint64_t h, a, b;
  };
  for (const Size& size : {Size{6144, 64, 4}, Size{12288, 96, 1}, Size{20480, 128, 1}, Size{25600, 160, 1}}) {
    for (const Technique& technique : kTechniques) {
      const Recipe recipe = with(technique, megatron(size.b, 2048));
      const Bytes traced = activations_of_a_layer(gpt(size.h, 2, size.a, 2048), recipe);
      EXPECT_EQ(traced - statistics(recipe), table_2(technique.name, 2048, size.b, size.h, size.a, technique.tp))
          << technique.name << " h " << size.h;
    }
  }
}

// Figures 1 and 7: L layers' worth of it, times 1 + (p - 1) / (p m) with m chunks a stage.
TEST(Korthikanti, Figures1And7) {
  const Result<Json> parsed = parse_json(fixture("papers/formulas.json"), {.bytes = 1u << 20});
  ASSERT_TRUE(parsed.ok());
  std::size_t rows = 0;
  for (const Json& row : parsed.value().find("rows")->items()) {
    const std::string table(*row.find("table")->as_string()), quantity(*row.find("quantity")->as_string());
    if (!row.find("paper")->as_string()->starts_with("Korthikanti")) continue;
    if (!quantity.starts_with("activation") || (table != "Fig 1" && table != "Fig 7")) continue;
    ++rows;
    SCOPED_TRACE(*row.find("id")->as_string());
    const Json& in = *row.find("inputs");
    const auto number = [&](const char* key) { return *in.find(key)->as_unsigned(); };
    const auto layer = [&](const Technique& technique) {
      const Recipe recipe = with(technique, megatron(number("micro_batch"), number("s")));
      return static_cast<double>(activations_of_a_layer(gpt(number("h"), 2, number("a"), number("s")), recipe) -
                                 statistics(recipe));
    };
    const double value = *row.find("value")->as_real();
    const double baseline = layer(kTechniques[1]);
    if (table == "Fig 7") {
      const std::string technique(*in.find("technique")->as_string());
      Technique against = technique == "sequence"    ? kTechniques[2]
                          : technique == "selective" ? kTechniques[3]
                          : technique == "full"      ? kTechniques[5]
                                                     : kTechniques[4];
      against.tp = 8;
      EXPECT_NEAR(100 * layer(against) / baseline, *row.find("formula_value")->as_real(), 1e-5);
      EXPECT_NEAR(100 * layer(against) / baseline, value, 0.15);  // the figure's label
      continue;
    }
    const double p = static_cast<double>(number("p")), m = static_cast<double>(number("interleave"));
    const double layers = static_cast<double>(number("L")) * (m > 1 ? 1 + (p - 1) / (p * m) : 1);
    const double bytes = quantity.ends_with("selective") ? layer(kTechniques[4]) : baseline;
    EXPECT_NEAR(bytes * layers / static_cast<double>(kGiB), value, 1e-6);
  }
  EXPECT_EQ(rows, 24u);
}

// --- weights, gradients, states
// -------------------------------------------------------------------------------------------------

// 12 L h^2 (1 + 13 / (12 h) + (v + s) / (12 L h)), Narayanan et al. 2021, Table 1: all but the last norm.
TEST(Narayanan, Table1CountsTheParameters) {
  const Result<Json> parsed = parse_json(fixture("papers/formulas.json"), {.bytes = 1u << 20});
  ASSERT_TRUE(parsed.ok());
  std::size_t rows = 0;
  for (const Json& row : parsed.value().find("rows")->items()) {
    if (!row.find("paper")->as_string()->starts_with("Megatron-LM SC21")) continue;
    ++rows;
    const Json& in = *row.find("inputs");
    const auto number = [&](const char* key) { return *in.find(key)->as_unsigned(); };
    ModelConfig config = gpt(number("h"), number("L"), number("a"), number("s"));
    config.vocab_size = number("v");
    const std::uint64_t h = number("h"), layers = number("L");
    const std::uint64_t formula = layers * (12 * h * h + 13 * h) + (number("v") + number("s")) * h;
    EXPECT_EQ(parameter_count(config) - 2 * h, formula);
    const double billions = static_cast<double>(formula) / 1e9;
    EXPECT_NEAR(billions, *row.find("value")->as_real(), 0.05) << *row.find("id")->as_string();
  }
  EXPECT_EQ(rows, 10u);
}

// 2 + 4 + 4 + 8 bytes a parameter, of which the distributed optimizer cuts twelve; with 16-bit gradients two fewer. And
// one 16-bit tensor of every shape that a product's weight has (get_dummy_wgrad).
TEST(Megatron, BytesAParameter) {
  const ModelConfig config = gpt(128, 2, 4, 64);
  Recipe recipe = megatron(1, 64);
  const std::uint64_t h = 128, dummies = 2 * (3 * h * h + h * h + 2 * 4 * h * h + config.vocab_size * h);
  const auto resident = [&] { return played(config, recipe).phases.back().end_bytes - dummies; };
  const std::uint64_t n = parameter_count(config);
  EXPECT_EQ(resident(), 18 * n);
  recipe.zero = 1;
  recipe.dp = 8;
  EXPECT_EQ(resident(), 6 * n + 12 * divide_up(n, 8));
  recipe.precision = Precision::megatron_bf16_bf16grad;
  EXPECT_EQ(resident(), 4 * n + 12 * divide_up(n, 8));
}

TEST(Megatron, TensorParallelRanksHoldTheirPartAndTheNorms) {
  const ModelConfig config = gpt(128, 2, 4, 64);
  Recipe recipe = megatron(1, 64);
  const Bytes whole = played(config, recipe).phases.front().end_bytes;
  recipe.tp = 4;
  const Bytes part = played(config, recipe).phases.front().end_bytes;
  const std::uint64_t h = 128, norms_and_biases = 2 * (4 * h + 2 * h) + 2 * h, positions = 64 * h;
  const std::uint64_t repeated = norms_and_biases + positions;
  EXPECT_EQ(part, (whole - 10 * repeated) / 4 + 10 * repeated);
}

// DotProductAttention's buffer is as large as its scores and stays; Transformer Engine's workspace is not there.
TEST(Megatron, LocalModulesKeepABufferOfScores) {
  const ModelConfig c = gpt(64, 2, 4, 64);
  Recipe r = megatron(2, 64);
  r.attention = Attention::eager;
  const MegatronRun run{.steps = 1, .te_workspace_bytes = 1024, .gradient_accumulation_fusion = false};
  const Replay fused = played(c, r, 0, run);
  r.transformer_impl = TransformerImpl::local;
  const Replay local = played(c, r, 0, run);
  const Bytes scores = 2 * 4 * 64 * 64 * 2;
  EXPECT_EQ(local.phases.back().end_bytes, fused.phases.back().end_bytes + scores);
  EXPECT_EQ(local.samples.back().allocated, fused.samples.back().allocated + scores - 1024);
  for (void (*change)(Recipe&) : std::initializer_list<void (*)(Recipe&)>{
           [](Recipe& one) { one.attention = Attention::sdpa; }, [](Recipe& one) { one.seq = 16; },
           [](Recipe& one) { one.seq = 62; }, [](Recipe& one) { one.batch = 1; }}) {
    Recipe changed = r;
    change(changed);
    ASSERT_TRUE(unsupported_in_megatron(c, changed));
    EXPECT_EQ(unsupported_in_megatron(c, changed)->expected, "local_modules_are_megatrons");
  }
}

TEST(Megatron, TheStageThatNeedsMostIsTold) {
  const ModelConfig config = gpt(256, 8, 4, 128);
  Recipe recipe = megatron(2, 128);
  recipe.pp = 4;
  recipe.micro_batches = 8;
  const Result<Prediction> p = predict_run(config, recipe);
  ASSERT_TRUE(p.ok()) << p.problem().expected;
  ASSERT_EQ(p.value().stages.size(), 4u);
  for (const StagePeak& stage : p.value().stages)
    EXPECT_LE(stage.allocated_bytes, p.value().stages[p.value().stage].allocated_bytes);
  EXPECT_EQ(p.value().replay.peak_allocated_bytes, p.value().stages[p.value().stage].allocated_bytes);
  EXPECT_EQ(p.value().trainable, parameter_count(config));
}

// Ranks of a sequence share its tokens, and with the distributed optimizer the states.
TEST(Megatron, ContextParallelRanksHoldTheirPartOfTheSequence) {
  ModelConfig config = gpt(128, 2, 4, 64);
  Recipe whole = megatron(1, 64), half = whole;
  half.cp = 2;
  const Bytes random_state = 2 * 8;  // of each step's kernel, whatever the length
  EXPECT_EQ(2 * activations_of_a_layer(config, half) - 3 * random_state, activations_of_a_layer(config, whole));
  half.zero = 1;
  EXPECT_EQ(played(config, half, 0, {.gradient_accumulation_fusion = false}).phases.back().end_bytes,
            6 * parameter_count(config) + 12 * divide_up(parameter_count(config), 2));
  half.seq = 62;
  const auto refused = unsupported_in_megatron(config, half);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->expected, "cp_cuts_the_sequence_in_pairs");
}

// 8 layers: of a unit only the first one's input stays, of what is no checkpoint everything.
TEST(Megatron, UnitsOfLayersOrTheFirstOfThemAreRecomputed) {
  const ModelConfig config = gpt(128, 8, 4, 64);
  Recipe r = megatron(1, 64);
  const auto kept = [&] {
    const Replay played_once = played(config, r);
    return played_once.phases[1].end_bytes - played_once.phases[0].end_bytes;
  };
  const Bytes all = kept();
  r.checkpointing = Checkpointing::full;
  const Bytes inputs = kept(), input = 2 * 64 * 128;
  r.recompute_num_layers = 3;  // 3, 3 and 2
  EXPECT_EQ(inputs - kept(), 5 * input);
  r.recompute_num_layers = 8;
  EXPECT_EQ(inputs - kept(), 7 * input);
  r.recompute_method = RecomputeMethod::block;
  EXPECT_EQ(kept(), inputs);
  r.recompute_num_layers = 2;
  EXPECT_EQ(all - kept(), (all - inputs) / 8 * 2);
  r.checkpointing = Checkpointing::none;
  ASSERT_TRUE(unsupported_in_megatron(config, r));
  EXPECT_EQ(unsupported_in_megatron(config, r)->expected, "recomputed_layers_want_full");
}

TEST(Megatron, ActivationsAreNamedByWhatTheyAre) {
  for (const bool gated : {false, true}) {
    ModelConfig config = gpt(64, 2, 4, 64);
    if (gated) {  // Llama's modules
      config.style = ModelConfig().style;
      config.act = Act::silu;
      config.attention_bias = config.mlp_bias = false;
    }
    const Result<Trace> trace = trace_megatron(config, megatron(1, 32), 0, {});
    ASSERT_TRUE(trace.ok()) << trace.problem().where << " " << trace.problem().read << " " << trace.problem().expected;
    const auto count = [&](OpKind op) {
      const std::vector<StorageInfo>& all = trace.value().storages;
      return std::count_if(all.begin(), all.end(), [op](const StorageInfo& storage) { return storage.op == op; });
    };
    EXPECT_EQ(count(OpKind::silu_backward) > 0, gated);
    EXPECT_EQ(count(OpKind::gelu_backward) > 0, !gated);
  }
}

TEST(Megatron, PipelinesTooLongToFollowAreRefused) {
  Recipe recipe = megatron(1, 64);
  recipe.pp = 4096;
  const Result<Prediction> p = predict_run(gpt(128, 4096, 4, 64), recipe);
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.problem().code, ProblemCode::too_large_to_trace);
  EXPECT_EQ(p.problem().where, "pp");
}

TEST(Megatron, RingsTooLongToFollowAreRefused) {
  Recipe recipe = megatron(1, std::uint64_t{1} << 17);
  recipe.cp = std::uint64_t{1} << 16;
  const Result<Prediction> p = predict_run(gpt(128, 64, 4, std::uint64_t{1} << 17), recipe);
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.problem().code, ProblemCode::too_large_to_trace);
  EXPECT_EQ(p.problem().where, "cp");
}

// A prediction is of the rank that needs most of those that share a sequence.
TEST(Megatron, NoRankOfASharedSequenceNeedsMoreThanIsPredicted) {
  const ModelConfig config = gpt(128, 2, 4, 1024);
  for (const CpComm kind : {CpComm::p2p, CpComm::all_gather, CpComm::a2a}) {
    for (const Attention attention : {Attention::flash, Attention::sdpa}) {
      Recipe recipe = megatron(1, 1024);
      recipe.cp = 4;
      recipe.cp_comm_type = kind;
      recipe.attention = attention;
      SCOPED_TRACE(recipe_value(recipe, "cp_comm_type") + " " + recipe_value(recipe, "attention"));
      const Result<Prediction> asked = predict_run(config, recipe);
      ASSERT_TRUE(asked.ok());
      Bytes most = 0;
      for (std::uint64_t rank = 0; rank < recipe.cp; ++rank) {
        PredictOptions options{.one_rank = true};
        options.trace.rank = rank;
        const Result<Prediction> one = predict_run(config, recipe, options);
        ASSERT_TRUE(one.ok());
        most = std::max(most, one.value().replay.peak_tensor_bytes);
      }
      EXPECT_EQ(asked.value().replay.peak_tensor_bytes, most);
    }
  }
}

TEST(Megatron, HeadsAreExchangedByRanksThatDivideThem) {
  Recipe recipe = megatron(1, 64);
  recipe.cp = 8;
  recipe.cp_comm_type = CpComm::a2a;
  const std::optional<Problem> refused = unsupported(gpt(128, 2, 4, 64), recipe);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->where, "cp_comm_type");
  EXPECT_EQ(refused->expected, "cp_a2a_ranks_divide");
  recipe.cp_comm_type = CpComm::a2a_p2p;
  recipe.cp_a2a_ranks = 3;
  const std::optional<Problem> uneven = unsupported(gpt(128, 2, 4, 64), recipe);
  ASSERT_TRUE(uneven);
  EXPECT_EQ(uneven->where, "cp_a2a_ranks");
}

TEST(Megatron, MoreMicroBatchesThanAStageCanPlayAreRefused) {
  Recipe recipe = megatron(1, 64);
  recipe.micro_batches = std::uint64_t{1} << 40;
  const ModelConfig config = gpt(128, 4, 4, 64);
  EXPECT_TRUE(trace_megatron(config, recipe, 0).ok());
  const Result<Trace> played = trace_megatron(config, recipe, 0, {.every_micro_batch = true});
  ASSERT_FALSE(played.ok());
  EXPECT_EQ(played.problem().code, ProblemCode::too_large_to_trace);
  EXPECT_EQ(played.problem().where, "micro_batches");
}

}  // namespace
}  // namespace ledger
