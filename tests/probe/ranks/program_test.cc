// The program as one of several ranks: what each prints and writes, and how all of them end when one is wrong or lost.
#include "tests/probe/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "forked_ranks.h"
#include "tests/answer/json_path.h"

namespace ledger {
namespace {

constexpr const char* kTiny =
    R"({"model_type":"llama","hidden_size":18,"intermediate_size":35,"num_attention_heads":3,"num_key_value_heads":1,)"
    R"("vocab_size":61,"num_hidden_layers":2})";

// Four ranks can share its heads, width, vocabulary and layers.
constexpr const char* kFourfold =
    R"({"model_type":"llama","hidden_size":24,"intermediate_size":36,"num_attention_heads":4,"num_key_value_heads":4,)"
    R"("vocab_size":512,"num_hidden_layers":4})";

// What ranks of a plan with more axes than dp are started with; dp is 1 where it is not said.
constexpr const char* kTitan = "--stack torchtitan --seq 8 --sequence-parallel ";
constexpr const char* kMegatron = "--stack megatron --precision megatron-bf16 --seq 8 --micro-batches 3 ";

class RanksOfTheProgram : public InAFolder {
 protected:
  RanksOfTheProgram() : InAFolder("probe_ranks_") { write("tiny.json", kTiny); }

  // Plans with more axes than dp want a model that can be cut.
  void with_cuttable_model() const { write("tiny.json", kFourfold); }

  // A process with these variables; `before` may limit it.
  Outcome run(const std::string& name, const std::string& variables, const std::string& arguments,
              const std::string& before = "") const {
    std::string command;
    if (!variables.empty()) command += "export " + variables + " && ";
    if (!before.empty()) command += before + " && ";
    return shell(command + "exec '" PROBE_BINARY "' --model tiny.json --device host " + arguments, name);
  }

  // One process a rank, as torchrun starts them; `arguments` and `before` of each.
  template <class Arguments, class Before>
  std::vector<Outcome> ranks(std::uint64_t world, const Arguments& arguments, const Before& before) const {
    const std::string port = std::to_string(forked::free_port());
    const std::string all = "WORLD_SIZE=" + std::to_string(world) + " MASTER_ADDR=localhost PROBE_MASTER_PORT=" + port;
    const auto ended = forked::in_processes(world, [&](std::uint64_t rank) {
      const std::string name = "rank" + std::to_string(rank);
      return std::to_string(run(name, "RANK=" + std::to_string(rank) + " " + all, arguments(rank), before(rank)).code);
    });
    std::vector<Outcome> outcomes;
    for (std::size_t i = 0; i < ended.size(); ++i) {
      const std::string file = (folder / ("rank" + std::to_string(i))).string();
      outcomes.push_back({std::stoi(ended[i].said), contents(file + ".out"), contents(file + ".err")});
    }
    return outcomes;
  }
  std::vector<Outcome> ranks(std::uint64_t world, const std::string& arguments) const {
    return ranks(
        world, [&](std::uint64_t) { return arguments; }, [](std::uint64_t) { return ""; });
  }

  Json file(const std::string& name) const {
    Result<Json> read = parse_json(contents(folder / name));
    EXPECT_TRUE(read.ok()) << name << " was not written, or not whole";
    return read.ok() ? std::move(read.value()) : Json();
  }
};

std::size_t lines_that_begin_with(const std::string& text, const std::string& word) {
  std::istringstream in(text);
  std::size_t count = 0;
  for (std::string line; std::getline(in, line);)
    count += line.starts_with(word) ? 1 : 0;
  return count;
}

TEST_F(RanksOfTheProgram, WriteOneFileAndOneTableOfAll) {
  for (const char* recipe :
       {"--dp 3", "--dp 3 --fsdp 2", "--dp 3 --fsdp 1", "--dp 3 --zero 1", "--dp 3 --zero 2", "--dp 3 --zero 3"}) {
    SCOPED_TRACE(recipe);
    const auto all = ranks(3, std::string(recipe) + " --seq 6 --json out.json --check 0%");
    for (const Outcome& outcome : all)
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(all[1].out + all[2].out, "");
    EXPECT_EQ(lines_that_begin_with(all[0].out, "rank "), 1u) << all[0].out;
    for (const char* rank : {"0 ", "1 ", "2 "})
      EXPECT_EQ(lines_that_begin_with(all[0].out, rank), 1u) << all[0].out;
    const Json json = file("out.json");
    EXPECT_EQ(number(json, "environment.world.size"), 3u);
    EXPECT_EQ(text(json, "environment.world.launcher"), "torchrun");
    std::uint64_t most = 0;
    for (const char* rank : {"0", "1", "2"}) {
      const std::string row = std::string("ranks.") + rank;
      EXPECT_TRUE(at(json, row + ".events_identical").as_bool().value_or(false));
      EXPECT_EQ(number(json, row + ".peaks.allocated_bytes"), number(json, row + ".predicted_allocated_bytes"));
      most = std::max(most, number(json, row + ".peaks.allocated_bytes"));
    }
    EXPECT_EQ(number(json, "peaks.allocated_bytes"), most) << "the file is the worst rank's";
    std::filesystem::remove(folder / "out.json");
  }
}

TEST_F(RanksOfTheProgram, ShareMatricesAndLayers) {
  with_cuttable_model();
  for (const std::string& plan :
       {std::string(kTitan) + "--tp 4", std::string(kTitan) + "--tp 2 --dp 2 --fsdp 2 --units titan",
        std::string(kMegatron) + "--tp 4 --sequence-parallel", std::string(kMegatron) + "--pp 4",
        std::string(kMegatron) + "--tp 2 --pp 2", std::string(kMegatron) + "--dp 2 --pp 2"}) {
    SCOPED_TRACE(plan);
    const auto all = ranks(4, plan + " --steps 2 --json out.json --check 0%");
    for (const Outcome& outcome : all)
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Json json = file("out.json");
    for (const char* rank : {"0", "1", "2", "3"})
      EXPECT_TRUE(at(json, std::string("ranks.") + rank + ".events_identical").as_bool().value_or(false));
    for (const char* step : {"steps.0.loss", "steps.1.loss"})  // the file's rank need not be one that knows them
      EXPECT_NEAR(at(json, step).as_real().value_or(0), 6.2, 0.4);
    std::filesystem::remove(folder / "out.json");
  }
}

TEST_F(RanksOfTheProgram, EndWhenOneOfAnotherGroupIsKilled) {
  with_cuttable_model();
  for (const char* plan : {"--tp 2 --pp 2", "--pp 4"}) {
    SCOPED_TRACE(plan);
    const auto all = ranks(
        4,
        [&](std::uint64_t) {
          return "--stack megatron --precision megatron-bf16 --seq 512 --batch 4 --micro-batches 8 --steps 64 " +
                 std::string(plan);
        },
        [](std::uint64_t rank) { return rank == 1 ? "ulimit -t 1" : ""; });
    for (const std::size_t rank : {0u, 2u, 3u}) {
      EXPECT_EQ(all[rank].code, 7) << all[rank].err;
      EXPECT_EQ(all[rank].err, "probe: rank 1 ended before the run did.\n");
    }
  }
}

TEST_F(RanksOfTheProgram, ThatShareMoreThanRunsAreRefusedByName) {
  write("tiny.json", R"({"model_type": "mixtral", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 512, "num_local_experts": 4,
    "num_experts_per_tok": 2})");
  const auto refusal = [&](const std::string& arguments) { return run("alone", "", arguments); };
  struct Refused {
    const char* arguments;
    const char* says;
  };
  constexpr Refused kRefused[] = {
      {"--stack megatron --precision megatron-bf16 --seq 7", "unequal numbers of tokens"},
  };
  for (const Refused& refused : kRefused) {
    const Outcome outcome = refusal(refused.arguments);
    EXPECT_EQ(outcome.code, 2) << refused.arguments;
    EXPECT_NE(outcome.err.find(refused.says), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("--dry-run"), std::string::npos) << outcome.err;
  }
}

TEST_F(RanksOfTheProgram, OfEveryPlanAreStoodInFor) {
  with_cuttable_model();
  for (const std::string& plan : {std::string(kTitan) + "--tp 2 --dp 2 --fsdp 2 --units titan",
                                  std::string(kMegatron) + "--tp 2 --pp 2 --sequence-parallel"}) {
    for (const char* rank : {"0/4", "3/4", "worst"}) {
      SCOPED_TRACE(plan + " as " + rank);
      const Outcome outcome = run("alone", "", plan + " --json out.json --check 0% --as-rank " + rank);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      const Json json = file("out.json");
      EXPECT_TRUE(at(json, "prediction.events_identical").as_bool().value_or(false));
      ASSERT_NE(at(json, "steps.0").find("loss"), nullptr);
      EXPECT_TRUE(at(json, "steps.0.loss").is_null());
    }
  }
}

TEST_F(RanksOfTheProgram, WriteAFileEachWhereItsNameHasTheRank) {
  const auto all = ranks(2, "--seq 6 --dp 2 --zero 2 --quiet --json out-%r.json");
  EXPECT_EQ(all[0].code + all[1].code, 0) << all[0].err << all[1].err;
  for (const std::uint64_t rank : {0u, 1u})
    EXPECT_EQ(number(file("out-" + std::to_string(rank) + ".json"), "environment.world.rank"), rank);
}

TEST_F(RanksOfTheProgram, HaveNoBudgetOfTheirOwn) {
  for (const Outcome& outcome : ranks(2, "--seq 6 --dp 2 --budget 60s")) {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("--budget is for one process"), std::string::npos) << outcome.err;
  }
}

TEST_F(RanksOfTheProgram, ThatMeanAnotherRunSayWhatDiffers) {
  const auto all = ranks(
      2, [](std::uint64_t rank) { return rank == 1 ? "--seq 6 --dp 2 --batch 2" : "--seq 6 --dp 2"; },
      [](std::uint64_t) { return ""; });
  for (const Outcome& outcome : all) {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err, "probe: rank 1 means another run than rank 0: batch is 2, not 1.\n");
  }
}

// By the system, after a second of computing: it has come by then, and is not through.
TEST_F(RanksOfTheProgram, EndWhenOneIsKilled) {
  const auto began = Clock::now();
  const auto all = ranks(
      3, [](std::uint64_t) { return "--dp 3 --seq 512 --batch 8 --steps 64"; },
      [](std::uint64_t rank) { return rank == 1 ? "ulimit -t 1" : ""; });
  EXPECT_EQ(all[0].code, 7) << all[0].err;
  EXPECT_EQ(all[2].code, 7) << all[2].err;
  EXPECT_EQ(all[0].err, "probe: rank 1 ended before the run did.\n");
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(60));
}

TEST_F(RanksOfTheProgram, EndWhenOneDoesNotCome) {
  const Outcome outcome =
      run("alone", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost PROBE_MASTER_PORT=" + std::to_string(forked::free_port()),
          "--seq 6 --dp 2 --rank-timeout 1");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.err, "probe: 1 of 2 ranks came within 1 s: missing 1.\n");
}

TEST_F(RanksOfTheProgram, AreStoodInFor) {
  for (const char* rank : {"0/4", "3/4", "worst"}) {
    const Outcome outcome =
        run("alone", "", std::string("--seq 6 --dp 4 --zero 1 --json out.json --check 0% --as-rank ") + rank);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("of 4, by one process in its place"), std::string::npos) << outcome.out;
    const Json json = file("out.json");
    EXPECT_EQ(number(json, "environment.world.size"), 4u);
    EXPECT_EQ(text(json, "environment.world.emulated.collectives"), "local-copy");
    EXPECT_TRUE(at(json, "prediction.events_identical").as_bool().value_or(false));
    ASSERT_NE(at(json, "steps.0").find("loss"), nullptr);
    EXPECT_TRUE(at(json, "steps.0.loss").is_null());
  }
}

TEST_F(RanksOfTheProgram, AreNotStoodInForByAPrediction) {
  const Outcome outcome = run("alone", "", "--seq 6 --dp 4 --dry-run --as-rank 1/4");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--dry-run predicts the first"), std::string::npos) << outcome.err;
}

TEST_F(RanksOfTheProgram, WithoutALauncherAreNamed) {
  const Outcome outcome = run("alone", "", "--seq 6 --dp 4");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--as-rank 0/4"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace ledger
