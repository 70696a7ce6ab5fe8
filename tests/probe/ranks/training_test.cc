// Ranks that share data train as one process with all of it does: in fp64 losses and weights agree to 1e-12, and each
// rank's memory is what was predicted for it, event by event.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "forked_ranks.h"
#include "probe/host/run_host.h"
#include "probe/measured.h"
#include "tests/probe/tiny_configs.h"

namespace ledger {
namespace {

constexpr std::uint32_t kSteps = 4;
constexpr double kTolerance = 1e-12;

// Nothing of it can be divided by four, and little by two: shards of every parameter end in padding.
constexpr const char* kOdd = R"({"model_type": "llama", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 35, "vocab_size": 61})";
constexpr const char* kExperts = R"({"model_type": "mixtral", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 11, "vocab_size": 61,
  "num_local_experts": 3, "num_experts_per_tok": 2})";
constexpr const char* kPlain =
    R"({"layers": [{"linear": [6, 10]}, {"linear": [10, 7]}, {"linear": [7, 7]}, {"linear": [7, 5]}]})";

struct Shared {
  const char* name;
  const char* config;
  void (*set)(Recipe&);
};

constexpr void zero(Recipe& r, std::uint64_t stage) {
  r.zero = stage;
}

constexpr void lora(Recipe& r) {
  r.method = Method::lora;
  r.rank = 3;
}

constexpr Shared kShared[] = {
    {"ddp_lora", kOdd, lora},
    {"fsdp2_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 2;
     }},
    {"zero2_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       zero(r, 2);
     }},
    {"zero3_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       zero(r, 3);
     }},
    {"ddp", kOdd, [](Recipe&) {}},
    {"ddp_bucket_view", kOdd, [](Recipe& r) { r.ddp_bucket_view = true; }},
    {"ddp_plain_sgd", kPlain, [](Recipe& r) { r.optimizer = Optimizer::sgd_momentum; }},
    {"ddp_accumulated", tiny::kTied, [](Recipe& r) { r.grad_accum = 2; }},
    {"ddp_recomputed", tiny::kQwen2, [](Recipe& r) { r.checkpointing = Checkpointing::full; }},
    {"fsdp2", kOdd, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_tied", tiny::kTied, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_kept", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.reshard_after_forward = false;
     }},
    {"fsdp2_recomputed", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp2_accumulated", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.grad_accum = 2;
     }},
    {"fsdp2_experts", kExperts, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_torchtitan", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       r.fsdp = 2;
       r.units = Units::titan;
     }},
    {"fsdp1", kOdd, [](Recipe& r) { r.fsdp = 1; }},
    {"fsdp1_kept", tiny::kQwen2,
     [](Recipe& r) {
       r.fsdp = 1;
       r.reshard_after_forward = false;
     }},
    {"fsdp1_accumulated", kOdd,
     [](Recipe& r) {
       r.fsdp = 1;
       r.grad_accum = 2;
     }},
    {"zero1", kOdd, [](Recipe& r) { zero(r, 1); }},
    {"zero1_overlapping", kOdd,
     [](Recipe& r) {
       zero(r, 1);
       r.overlap_comm = OverlapComm::on;
     }},
    {"zero1_accumulated", kOdd,
     [](Recipe& r) {
       zero(r, 1);
       r.grad_accum = 2;
     }},
    {"zero2", kOdd, [](Recipe& r) { zero(r, 2); }},
    {"zero2_small_buckets", kOdd,
     [](Recipe& r) {
       zero(r, 2);
       r.reduce_bucket_size = 700;
     }},
    {"zero2_all_reduce", kOdd,
     [](Recipe& r) {
       zero(r, 2);
       r.reduce_scatter = false;
     }},
    {"zero2_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       zero(r, 2);
       r.grad_accum = 3;
     }},
    {"zero3", kOdd, [](Recipe& r) { zero(r, 3); }},
    {"zero3_nothing_persists", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
     }},
    {"zero3_all_reduce", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.reduce_scatter = false;
     }},
    {"zero3_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       zero(r, 3);
       r.grad_accum = 2;
     }},
    {"zero3_sub_groups", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.sub_group_size = 1000;
     }},
};

struct Case {
  Shared shared;
  std::uint64_t world;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.shared.name << " on " << c.world;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Shared& shared : kShared) {
    for (const std::uint64_t world : {2u, 4u})
      all.push_back({shared, world});
  }
  return all;
}

// Modules compute norms, rotary embeddings and losses in fp32 whatever dtype the weights have; here everything is in
// fp64, so that nothing but the order of sums differs.
void widen(Trace& trace) {
  for (StorageInfo& storage : trace.storages) {
    if (storage.dtype != DType::f32) continue;
    storage.dtype = DType::f64;
    storage.bytes *= 2;
  }
  for (View& view : trace.views) {
    if (view.dtype == DType::f32) view.dtype = DType::f64;
  }
}

Trace traced(const char* json, const Recipe& recipe, std::uint64_t rank, bool operands = true) {
  const Result<ModelConfig> config = read_model_config(json);
  EXPECT_TRUE(config.ok());
  TraceOptions options;
  options.steps = kSteps;
  options.operands = operands;
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

std::string account(const HostRun& run, const Replay& predicted) {
  if (run.failure) return "failed: " + run.failure->what;
  if (!identical(predicted, run.replay)) return "failed: another trace than was predicted";
  std::ostringstream out;
  say(out, run.losses);
  for (const NamedTensor& weight : run.weights) {
    out << weight.name << ' ' << weight.first << ' ';
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
  std::vector<double> losses;                          // mean over ranks
  std::map<std::string, std::vector<double>> weights;  // whole
};

void hear(const std::string& text, double share, Trained& trained) {
  std::istringstream in(text);
  const std::vector<double> losses = heard(in);
  trained.losses.resize(losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    trained.losses[i] += losses[i] * share;
  std::string name;
  std::size_t first = 0;
  while (in >> name >> first) {
    const std::vector<double> part = heard(in);
    std::vector<double>& whole = trained.weights[name];
    whole.resize(std::max(whole.size(), first + part.size()), std::nan(""));
    std::copy(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double scale = std::max(1.0, std::fabs(expected[i]));
    ASSERT_TRUE(std::fabs(got[i] - expected[i]) <= kTolerance * scale)
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
    if (r.zero != 0) r.precision = Precision::bf16;
    return r;
  }
};
INSTANTIATE_TEST_SUITE_P(All, RanksTrain, testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(test.param.shared.name) + "_on_" + std::to_string(test.param.world);
});

TEST_P(RanksTrain, AsOneProcessWithAllTheirData) {
  const auto& [shared, world] = GetParam();
  Recipe one = recipe();
  one.batch = world;
  one.fsdp = one.zero = 0;
  one.precision = Precision::fp32;
  const Recipe plain;
  one.reduce_bucket_size = plain.reduce_bucket_size;
  one.param_persistence_threshold = plain.param_persistence_threshold;
  one.sub_group_size = plain.sub_group_size;
  one.overlap_comm = plain.overlap_comm;
  one.reduce_scatter = plain.reduce_scatter;
  one.units = plain.units;
  one.reshard_after_forward = plain.reshard_after_forward;
  one.ddp_bucket_view = false;
  const HostRun expected = run(traced(shared.config, one, 0), nullptr);
  ASSERT_FALSE(expected.failure) << expected.failure->what;
  ASSERT_LT(expected.losses.back(), expected.losses.front());

  Recipe many = recipe();
  many.dp = world;
  const auto all = forked::as_ranks(world, [&](Communicator& ranks) {
    const Replay predicted =
        replay(traced(shared.config, many, ranks.rank(), false), {.allocator = {}, .record_addresses = true});
    return account(run(traced(shared.config, many, ranks.rank()), &ranks), predicted);
  });
  Trained trained;
  for (const forked::Ended& rank : all) {
    ASSERT_EQ(rank.status, 0);
    ASSERT_FALSE(rank.said.starts_with("failed") || rank.said.starts_with("no meeting")) << rank.said;
    hear(rank.said, 1.0 / static_cast<double>(world), trained);
  }
  expect_near(trained.losses, expected.losses, "loss");
  ASSERT_EQ(trained.weights.size(), expected.weights.size());
  for (const NamedTensor& weight : expected.weights)
    expect_near(trained.weights[weight.name], weight.values, weight.name);
}

}  // namespace
}  // namespace ledger
