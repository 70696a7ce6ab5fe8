// Ranks that share data train as one process with all of it does: in fp64 losses and weights agree to 1e-12, and each
// rank's memory is what was predicted for it, event by event.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <sstream>

#include "core/parallel/mesh_of.h"
#include "forked_ranks.h"
#include "probe/host/run_host.h"
#include "probe/measured.h"
#include "tests/probe/ranks/adapter_cases.h"
#include "tests/probe/ranks/data_parallel_cases.h"
#include "tests/probe/ranks/megatron_cases.h"
#include "tests/probe/ranks/torchtitan_cases.h"
#include "tests/probe/tiny_configs.h"
#include "tests/probe/widen.h"

namespace ledger {
namespace {

constexpr std::uint32_t kSteps = 4;
constexpr double kTolerance = 1e-12;

struct Case {
  Shared shared;
  std::uint64_t world;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.shared.name << " on " << c.world;
}

std::vector<Shared> all_shared() {
  std::vector<Shared> all;
  for (const std::span<const Shared> rows :
       {std::span<const Shared>(kDataParallelCases), std::span<const Shared>(kAdapterCases),
        std::span<const Shared>(kTorchtitanCases), std::span<const Shared>(kMegatronCases)})
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Shared& shared : all_shared()) {
    Recipe recipe;
    shared.set(recipe);
    for (const std::uint64_t world : {2u, 4u}) {
      const std::uint64_t model = recipe.tp * recipe.pp * recipe.cp;
      const std::uint64_t of_experts = recipe.ep * expert_tensor_ranks(recipe) * recipe.pp;
      const bool shards_nothing = recipe.fsdp != 0 && world == recipe.tp * recipe.pp;
      const bool whole_copies = is_torchtitan(recipe.stack) && recipe.pp != 1 && recipe.fsdp == 0 && world != model;
      if (world % model != 0 || world % of_experts != 0 || shards_nothing || whole_copies) continue;
      all.push_back({shared, world});
    }
  }
  return all;
}

Trace traced(const char* json, const Recipe& recipe, std::uint64_t rank, bool operands = true) {
  const Result<ModelConfig> config = read_model_config(json);
  EXPECT_TRUE(config.ok());
  TraceOptions options;
  options.steps = kSteps;
  options.operands = operands;
  options.every_pass = true;
  options.weights = DType::f64;
  options.adamw.lr = 1e-2;
  options.rank = rank;
  Result<Trace> trace = trace_step(config.value(), recipe, options);
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.problem().where + ": " + trace.problem().expected);
  if (!trace.ok()) return {};
  widen(trace.value());
  return std::move(trace.value());
}

HostRun run(const Trace& trace, Communicator* ranks) {
  HostRunOptions options;
  options.executor.ranks = ranks;
  options.executor.poison = true;
  options.keep_weights = true;
  return run_on_host(trace, {.allocator = {}, .record_addresses = true}, options);
}

// --- what a rank says: its losses, then a line of each parameter's part
// ------------------------------------------------

void say(std::ostream& out, const std::vector<double>& values) {
  out << values.size();
  out << std::hexfloat;
  for (const double value : values)
    out << ' ' << value;
  out << '\n';
}

// Codes of a sharded 4-bit weight stand in numbers that are none, and no one trains them.
bool is_told(const Recipe& recipe, const std::string& name) {
  return recipe.method != Method::qlora || name.find("lora_") != std::string::npos;
}

std::string account(const HostRun& run, const Replay& predicted, const Recipe& recipe) {
  if (run.failure) return "failed: " + run.failure->what;
  if (!identical(predicted, run.replay)) return "failed: another trace than was predicted";
  std::ostringstream out;
  say(out, run.losses);
  for (const NamedTensor& weight : run.weights) {
    if (!is_told(recipe, weight.name)) continue;
    const TensorCut& cut = weight.cut;
    out << weight.name << ' ' << weight.first << ' ' << cut.piece << ' ' << cut.stride << ' ' << cut.offset << ' ';
    say(out, weight.values);
  }
  return out.str();
}

std::vector<double> heard(std::istream& in) {
  std::size_t count = 0;
  in >> count;
  std::vector<double> values(count);
  for (double& value : values) {
    std::string text;
    in >> text;  // istream does not read hexfloat (LWG 2381)
    value = std::strtod(text.c_str(), nullptr);
  }
  return values;
}

struct Trained {
  std::vector<double> losses;  // of the ranks that have any: the sum, then the mean
  double with_losses = 0;
  std::map<std::string, std::vector<double>> weights;  // whole
};

// Ranks that have the same part have the same numbers in it.
void put_part(std::istream& in, const TensorCut& cut, std::size_t first, std::vector<double>& whole) {
  const std::vector<double> part = heard(in);
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto place = static_cast<std::size_t>(cut.place(first + i));
    whole.resize(std::max(whole.size(), place + 1), std::nan(""));
    if (std::isnan(whole[place])) whole[place] = part[i];
    EXPECT_NEAR(part[i], whole[place], kTolerance);
  }
}

void hear(const std::string& text, Trained& trained) {
  std::istringstream in(text);
  const std::vector<double> losses = heard(in);
  if (!losses.empty()) {
    ++trained.with_losses;
    trained.losses.resize(losses.size());
  }
  for (std::size_t i = 0; i < losses.size(); ++i)
    trained.losses[i] += losses[i];
  std::string name;
  std::size_t first = 0;
  TensorCut cut;
  while (in >> name >> first >> cut.piece >> cut.stride >> cut.offset)
    put_part(in, cut, first, trained.weights[name]);
}

// Of each `each` values in turn.
std::vector<double> means_of(const std::vector<double>& values, std::uint64_t each) {
  std::vector<double> means(values.size() / each, 0);
  for (std::size_t i = 0; i < values.size(); ++i)
    means[i / each] += values[i] / static_cast<double>(each);
  return means;
}

// What is added to all scores of a query is lost in its softmax: a bias of keys has no gradient but rounding. That is
// some 1e-17, of which AdamW makes a step of 1e-9 of the learning rate (eps is 1e-8), and it differs from build to
// build.
double tolerance_of(const std::string& what) {
  return what.ends_with("k_proj.bias") || what.ends_with("linear_qkv.bias") ? 1e-9 : kTolerance;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double scale = std::max(1.0, std::fabs(expected[i]));
    ASSERT_TRUE(std::fabs(got[i] - expected[i]) <= tolerance_of(what) * scale)
        << what << "[" << i << "]: " << got[i] << " instead of " << expected[i];
  }
}

// --- tests
// ----------------------------------------------------------------------------------------------------------------

class RanksTrain : public testing::TestWithParam<Case> {
 protected:
  static Recipe recipe() {
    Recipe r;
    r.precision = Precision::fp32;
    r.attention = Attention::math;
    r.batch = 1;
    r.seq = 6;
    GetParam().shared.set(r);
    if (r.zero != 0 && r.stack != Stack::megatron) r.precision = Precision::bf16;
    return r;
  }
};
INSTANTIATE_TEST_SUITE_P(All, RanksTrain, testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(test.param.shared.name) + "_on_" + std::to_string(test.param.world);
});

TEST_P(RanksTrain, AsOneProcessWithAllTheirData) {
  const auto& [shared, world] = GetParam();
  Recipe one = recipe();
  one.batch *= world / (one.tp * one.pp * one.cp);
  const std::uint64_t passes = one.stack == Stack::megatron ? 1 : one.micro_batches;  // Megatron's has them alone, too
  one.batch *= passes;
  if (passes != 1) one.micro_batches = 1;
  one.tp = one.pp = one.ep = one.cp = 1;
  one.etp = 0;
  one.sequence_parallel = false;
  one.pipeline_schedule = PipelineSchedule::one_f_one_b;
  one.decoder_first_pipeline_num_layers = one.decoder_last_pipeline_num_layers = 0;
  one.num_layers_per_virtual_pipeline_stage = 1;
  one.fsdp = one.zero = 0;
  one.offload = Offload::none;
  if (one.stack != Stack::megatron && one.method != Method::qlora) one.precision = Precision::fp32;
  const Recipe plain;
  one.reduce_bucket_size = plain.reduce_bucket_size;
  one.param_persistence_threshold = plain.param_persistence_threshold;
  one.sub_group_size = plain.sub_group_size;
  one.overlap_comm = plain.overlap_comm;
  one.deepspeed = plain.deepspeed;
  one.reduce_scatter = plain.reduce_scatter;
  one.units = plain.units;
  one.reshard_after_forward = plain.reshard_after_forward;
  one.fsdp_activation_checkpointing = false;
  one.ddp_bucket_view = false;
  const HostRun expected = run(traced(shared.config, one, 0), nullptr);
  ASSERT_FALSE(expected.failure) << expected.failure->what;
  ASSERT_LT(expected.losses.back(), expected.losses.front());

  Recipe many = recipe();
  many.dp = world / (many.tp * many.pp * many.cp);
  const auto all = forked::as_ranks(world, [&](Communicator& ranks) {
    const Replay predicted =
        replay(traced(shared.config, many, ranks.rank(), false), {.allocator = {}, .record_addresses = true});
    return account(run(traced(shared.config, many, ranks.rank()), &ranks), predicted, many);
  });
  Trained trained;
  for (const forked::Ended& rank : all) {
    ASSERT_EQ(rank.status, 0);
    ASSERT_FALSE(rank.said.starts_with("failed") || rank.said.starts_with("no meeting")) << rank.said;
    hear(rank.said, trained);
  }
  for (double& loss : trained.losses)
    loss /= trained.with_losses;
  trained.losses = means_of(trained.losses, passes);
  expect_near(trained.losses, expected.losses, "loss");
  std::size_t told = 0;
  for (const NamedTensor& weight : expected.weights) {
    if (!is_told(many, weight.name)) continue;
    ++told;
    expect_near(trained.weights[weight.name], weight.values, weight.name);
  }
  EXPECT_EQ(trained.weights.size(), told);
}

}  // namespace
}  // namespace ledger
