// The stack `megatron`: Korthikanti's tables layer by layer, what each kind of cut leaves on a rank, and peaks that
// Megatron-LM's own tests measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/answer/prediction.h"
#include "core/memory/census.h"
#include "core/parallel/mesh_of.h"
#include "core/training/megatron_step.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

// Megatron's GPT: LayerNorm, biases, GELU, learned positions, dropout everywhere.
ModelConfig gpt(std::uint64_t h, std::uint64_t layers, std::uint64_t heads, std::uint64_t positions) {
  ModelConfig c;
  c.architecture = Architecture::llama;
  c.model_type = "gpt2";
  c.style.norm = NormKind::layer;
  c.style.feed = Feed::plain;
  c.style.position = Position::learned;
  c.style.projections = Projections::conv;
  c.act = Act::gelu;
  c.attention_bias = c.mlp_bias = true;
  c.hidden_size = h;
  c.num_hidden_layers = layers;
  c.num_attention_heads = c.num_key_value_heads = heads;
  c.head_dim = h / heads;
  c.intermediate_size = 4 * h;
  c.vocab_size = 51200;
  c.max_position_embeddings = positions;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
  c.tie_word_embeddings = true;
  return c;
}

Recipe megatron(std::uint64_t batch, std::uint64_t seq) {
  Recipe r;
  r.stack = Stack::megatron;
  r.precision = Precision::megatron_bf16;
  r.batch = batch;
  r.seq = seq;
  return r;
}

Replay played(const ModelConfig& config, const Recipe& recipe, std::uint64_t stage = 0, const MegatronRun& run = {}) {
  const Result<Trace> trace = trace_megatron(config, recipe, stage, run);
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.problem().where + ": " + trace.problem().expected);
  return trace.ok() ? replay(trace.value(), {}) : Replay{};
}

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

// What the forward pass of one more layer leaves behind.
Bytes activations_of_a_layer(const ModelConfig& two_layers, const Recipe& recipe) {
  ModelConfig four = two_layers;
  four.num_hidden_layers = 4;
  const auto kept = [&](const ModelConfig& config) {
    const Replay r = played(config, recipe);
    return r.phases[1].end_bytes - r.phases[0].end_bytes;
  };
  return (kept(four) - kept(two_layers)) / 2;
}

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

// --- the pipeline
// --------------------------------------------------------------------------------------------------------------

// Stage r keeps p - r micro-batches, so every stage but the first and the last differs from the next by one of them.
TEST(Megatron, EarlierStagesHoldMoreMicroBatches) {
  const ModelConfig config = gpt(256, 8, 4, 128);
  Recipe recipe = megatron(2, 128);
  recipe.pp = 8;
  recipe.micro_batches = 16;
  recipe.attention = Attention::eager;
  const Bytes layer = activations_of_a_layer(gpt(256, 2, 4, 128), [&] {
    Recipe one = recipe;
    one.pp = one.micro_batches = 1;
    return one;
  }());
  for (std::uint64_t stage = 1; stage + 2 < recipe.pp; ++stage) {
    EXPECT_EQ(played(config, recipe, stage).peak_tensor_bytes - played(config, recipe, stage + 1).peak_tensor_bytes,
              layer + 2 /* an element in place of the output */)
        << stage;
  }
  EXPECT_EQ(micro_batches_in_flight(0, 8, 16), 8u);
  EXPECT_EQ(micro_batches_in_flight(7, 8, 16), 1u);
  EXPECT_EQ(micro_batches_in_flight(0, 8, 3), 3u);
}

// Korthikanti, section 4.2.3: with v chunks a stage the first one holds L (1 + (p - 1) / (p v)) layers' activations; a
// stage r behind it 2 r chunks fewer. Chunks have a layer here, and only those of middle stages are alike.
TEST(Megatron, InterleavedStagesHoldMoreLayers) {
  const std::uint64_t p = 4, v = 3;
  const ModelConfig config = gpt(256, p * v, 4, 128);
  Recipe recipe = megatron(2, 128);
  recipe.attention = Attention::eager;
  const Bytes layer = activations_of_a_layer(gpt(256, 2, 4, 128), recipe), tensor = 2 * 128 * 256 * 2;
  recipe.pp = p;
  recipe.micro_batches = 16;
  recipe.pipeline_schedule = PipelineSchedule::interleaved;
  for (const std::uint64_t stage : {1u, 2u}) {
    const std::uint64_t in_flight = p * v + p - 1 - 2 * stage;
    const Result<Trace> trace = trace_megatron(config, recipe, stage);
    ASSERT_TRUE(trace.ok()) << trace.problem().expected;
    const std::string last = "step1." + std::to_string(in_flight) + ".forward";
    Bytes held = 0;
    const Replay r = replay(trace.value(), {});
    for (const PhasePeak& phase : r.phases)
      held = trace.value().phases[phase.phase] == last ? phase.end_bytes - r.phases.front().end_bytes : held;
    // An element in place of each output that was sent; the last output, which is sent and not yet let go; the next
    // input, and the first gradient, for which there is memory already.
    EXPECT_EQ(held, in_flight * layer + (in_flight - 1) * 2 + 3 * tensor) << stage;
  }
}

// TransformerBlock.input_tensor: each chunk's last input, and with it its gradient, until its next micro-batch.
TEST(Megatron, LastInputsAndTheirGradientsStayBetweenSteps) {
  const std::uint64_t p = 2, v = 3;
  const ModelConfig config = gpt(256, p * v, 4, 128);
  Recipe recipe = megatron(2, 128);
  recipe.pp = p;
  recipe.micro_batches = 4;
  const auto kept = [&](std::uint64_t stage) {
    const Result<Trace> trace = trace_megatron(config, recipe, stage);
    EXPECT_TRUE(trace.ok());
    Census census(trace.value());
    for (const Event& event : trace.value().events)
      census.apply(event);
    std::uint64_t count = 0;
    for (StorageId id = 0; id < trace.value().storages.size(); ++id) {
      const Shape& shape = trace.value().storages[id].shape;
      const bool activation = shape.same_sizes({{128, Sym::none}, {2, Sym::none}, {256, Sym::none}});
      count += activation && census.alive(id) ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(kept(0), 0u);
  EXPECT_EQ(kept(1), 2u);
  recipe.pipeline_schedule = PipelineSchedule::interleaved;
  EXPECT_EQ(kept(0), 2 * (v - 1));  // its first chunk receives nothing
  EXPECT_EQ(kept(1), 2 * v);
}

// send_forward_recv_backward: memory of the gradient that comes is taken before deallocate_output_tensor.
TEST(Megatron, AnOutputThatIsSentOutlivesTheReceiptOfItsGradient) {
  Recipe recipe = megatron(2, 128);
  recipe.pp = 2;
  recipe.micro_batches = 4;
  const Result<Trace> traced =
      trace_megatron(gpt(256, 2, 4, 128), recipe, 0, {.steps = 1, .operands = true, .every_micro_batch = true});
  ASSERT_TRUE(traced.ok());
  const Trace& trace = traced.value();
  std::uint64_t let_go_at_once = 0, let_go_after = 0;
  StorageId output = kNoStorage;
  bool received = false;
  for (const Event& event : trace.events) {
    if (event.type == EventType::run && trace.runs[event.id].op == OpKind::send) {
      output = trace.views[trace.runs[event.id].first_view].storage;
      received = false;
    }
    received = received || (event.type == EventType::alloc && trace.storages[event.id].op == OpKind::receive);
    if (event.type != EventType::free || event.id != output) continue;
    ++(received ? let_go_after : let_go_at_once);
    output = kNoStorage;
  }
  EXPECT_EQ(let_go_at_once, 1u);  // of the micro-batch that warms up
  EXPECT_EQ(let_go_after, 3u);
}

// 6 layers on 4 stages: embedding and loss count as one each, so stages have 1, 2, 2 and 1.
TEST(Megatron, EmbeddingAndLossStandForALayerWhereStagesWouldBeUneven) {
  ModelConfig c = gpt(256, 6, 4, 128);
  c.tie_word_embeddings = false;
  Recipe r = megatron(1, 128);
  r.pp = 4;
  r.micro_batches = 8;
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved}) {
    r.pipeline_schedule = schedule;
    std::uint64_t all = 0;
    std::vector<std::size_t> products;
    for (std::uint64_t stage = 0; stage < 4; ++stage) {
      const Result<Trace> trace = trace_megatron(c, r, stage);
      ASSERT_TRUE(trace.ok());
      for (const Parameter& parameter : trace.value().parameters)
        all += trace.value().storages[parameter.storage].shape.numel();
      products.push_back(static_cast<std::size_t>(
          std::count_if(trace.value().parameters.begin(), trace.value().parameters.end(),
                        [](const Parameter& p) { return p.name.ends_with("linear_fc1.weight"); })));
    }
    EXPECT_EQ(products, (std::vector<std::size_t>{1, 2, 2, 1}));
    EXPECT_EQ(all, parameter_count(c));
  }
  r.pp = 5;  // divides neither 6 nor 8
  ASSERT_TRUE(unsupported_in_megatron(c, r));
  EXPECT_EQ(unsupported_in_megatron(c, r)->expected, "pp_cuts_layers_evenly");
}

TEST(Megatron, InterleavingTakesMicroBatchesInGroups) {
  Recipe recipe = megatron(1, 64);
  recipe.pp = 2;
  recipe.micro_batches = 3;
  recipe.pipeline_schedule = PipelineSchedule::interleaved;
  const auto refused = unsupported_in_megatron(gpt(128, 4, 4, 64), recipe);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->where, "micro_batches");
  EXPECT_EQ(refused->expected, "interleaving_takes_micro_batches_in_groups");
  recipe.micro_batches = 4;
  EXPECT_FALSE(unsupported_in_megatron(gpt(128, 4, 4, 64), recipe));
}

TEST(Megatron, MoreMicroBatchesThanStagesChangeNothing) {
  const ModelConfig config = gpt(128, 4, 4, 64);
  Recipe recipe = megatron(1, 64);
  recipe.pp = 4;
  recipe.micro_batches = 8;
  const Bytes peak = played(config, recipe, 1).peak_tensor_bytes;
  recipe.micro_batches = 1000000;
  EXPECT_EQ(played(config, recipe, 1).peak_tensor_bytes, peak);
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

// --- measured
// ------------------------------------------------------------------------------------------------------------------

// Mixtral, on Megatron's flags.
void set_experts(ModelConfig& config, const Json& m) {
  const ModelConfig llama;
  config.style = llama.style;
  config.style.position = Position::rotary;
  config.act = Act::silu;
  config.attention_bias = config.mlp_bias = false;
  config.rotary_dim = *m.find("rotary_dim")->as_unsigned();
  config.intermediate_size = *m.find("ffn")->as_unsigned();
  config.moe.experts = *m.find("experts")->as_unsigned();
  config.moe.per_token = *m.find("experts_of_a_token")->as_unsigned();
  config.moe.width = config.intermediate_size;
  config.moe.normalised = true;
  config.moe.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
}

// Golden values of Megatron-LM's tests: the last rank's torch.cuda.memory_stats on DGX H100.
TEST(Megatron, GoldenPeaks) {
  const Result<Json> parsed = parse_json(fixture("megatron_golden.json"), {.bytes = 1u << 20});
  ASSERT_TRUE(parsed.ok());
  for (const Json& row : parsed.value().find("rows")->items()) {
    const std::string id(*row.find("id")->as_string());
    SCOPED_TRACE(id + " on " + std::string(*row.find("gpu")->as_string()));
    const Json& m = *row.find("model");
    const auto number = [&](const char* key) { return *m.find(key)->as_unsigned(); };
    ModelConfig config = gpt(number("hidden"), number("layers"), number("heads"), number("positions"));
    config.num_key_value_heads = number("kv_heads");
    config.vocab_size = number("vocab");
    config.tie_word_embeddings = *m.find("tied")->as_bool();
    if (*m.find("rope")->as_bool()) config.style.position = Position::rotary;
    const bool experts = m.find("experts") != nullptr;
    if (experts) set_experts(config, m);
    const Result<Recipe> recipe = recipe_from(*row.find("recipe"));
    ASSERT_TRUE(recipe.ok()) << recipe.problem().where;
    if (row.find("dropout") != nullptr)
      config.embedding_dropout = config.residual_dropout = config.attention_dropout = 0;
    // CUBLAS_WORKSPACE_CONFIG=:4096:8, as determinism wants it, on every card.
    const bool deterministic = row.find("deterministic") == nullptr;
    const bool hopper = !row.find("gpu")->as_string()->starts_with("A100");
    const Result<Trace> trace =
        trace_megatron(config, recipe.value(), recipe.value().pp - 1,
                       {.steps = 2,
                        .cublas_workspace_bytes = hopper || deterministic ? 32 * kMiB : 8 * kMiB + 128 * kKiB,
                        .te_workspace_bytes = hopper ? 32 * kMiB : 4 * kMiB,
                        .gradient_accumulation_fusion = experts,
                        .rope_fusion = !experts,
                        .keeps_dummy_gradients = row.find("te_before_2_3") == nullptr,
                        .rank = mesh_of(recipe.value()).world() - 1});
    ASSERT_TRUE(trace.ok()) << trace.problem().where << " " << trace.problem().expected;
    const Replay r = replay(trace.value(), {});
    Bytes first = 0;
    for (const PhasePeak& phase : r.phases) {
      if (trace.value().phases[phase.phase].starts_with("step2")) break;
      first = std::max(first, phase.allocated_peak_bytes);
    }
    const double bar = *row.find("bar")->as_real();
    const auto near = [&](Bytes predicted, double measured, const char* what) {
      EXPECT_NEAR(static_cast<double>(predicted) / measured, 1, bar) << what;
    };
    near(r.peak_allocated_bytes, *row.find("peak_bytes")->as_real(), "peak");
    ASSERT_NE(row.find("predicted_bytes"), nullptr);
    EXPECT_EQ(r.peak_allocated_bytes, row.find("predicted_bytes")->as_unsigned()) << "docs/accuracy.md prints this";
    if (experts) {
      // Routers send more tokens to some ranks than to others; what stays after a step does not depend on it.
      EXPECT_LT(static_cast<double>(r.peak_allocated_bytes), *row.find("peak_bytes")->as_real());
      const double after = *row.find("after_step_gib")->as_real() * static_cast<double>(kGiB);
      EXPECT_NEAR(static_cast<double>(r.samples.back().allocated) / after, 1, *row.find("after_bar")->as_real());
      continue;
    }
    near(first, *row.find("first_step_peak_gib")->as_real() * static_cast<double>(kGiB), "peak of the first step");
    // Tensors of a pipeline that wait for Python's garbage collector are not modelled: some ten MB.
    if (recipe.value().pp != 1) continue;
    near(r.samples.back().allocated, *row.find("after_step_gib")->as_real() * static_cast<double>(kGiB),
         "after a step");
  }
}

}  // namespace
}  // namespace ledger
