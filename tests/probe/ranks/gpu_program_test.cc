// The programme as ranks on GPUs, on emulated ones (tests/tools/emulated_gpus.cc) with a library in NCCL's place
// (tests/nccl): what comes out is what ranks on the host have, and every way to go wrong has its code and sentence.
#include <gtest/gtest.h>

#include <algorithm>

#include "forked_ranks.h"
#include "tests/answer/json_path.h"
#include "tests/probe/program.h"

namespace ledger {
namespace {

constexpr const char* kCutModel =
    R"({"model_type":"llama","hidden_size":24,"intermediate_size":36,"num_attention_heads":4,"num_key_value_heads":4,)"
    R"("vocab_size":512,"num_hidden_layers":4})";
// Layers enough for two parts of a model on each of four ranks.
constexpr const char* kDeepModel =
    R"({"model_type":"llama","hidden_size":16,"intermediate_size":20,"num_attention_heads":2,"num_key_value_heads":2,)"
    R"("vocab_size":256,"num_hidden_layers":8})";

constexpr const char* kExpertsModel =
    R"({"model_type":"mixtral","hidden_size":24,"intermediate_size":12,"num_attention_heads":4,"num_key_value_heads":2,)"
    R"("vocab_size":512,"num_hidden_layers":2,"num_local_experts":4,"num_experts_per_tok":2})";

class RanksOnGpus : public InAFolder {
 protected:
  RanksOnGpus() : InAFolder("probe_gpu_ranks_") {
    write("cut.json", kCutModel);
    write("deep.json", kDeepModel);
    write("experts.json", kExpertsModel);
  }

  struct Start {
    std::uint64_t world = 2;
    std::string arguments;
    std::string variables = "EMULATED_GPUS=4";  // of all
    std::string program = EMULATED_PROBE_BINARY;
    std::function<std::string(std::uint64_t)> of_rank = nullptr;  // more variables
  };

  std::vector<Outcome> ranks(const Start& start) const {
    const std::string port = std::to_string(forked::free_port());
    const std::string world = std::to_string(start.world);
    const std::string all = "export PROBE_LIB_PATH='" STAND_IN_NCCL_FOLDER "' WORLD_SIZE=" + world +
                            " LOCAL_WORLD_SIZE=" + world + " MASTER_ADDR=localhost PROBE_MASTER_PORT=" + port + " " +
                            start.variables;
    const auto ended = forked::in_processes(start.world, [&](std::uint64_t rank) {
      const std::string number = std::to_string(rank);
      const std::string more = start.of_rank ? start.of_rank(rank) : "";
      const std::string command = all + " RANK=" + number + " LOCAL_RANK=" + number + " " + more + " && exec '" +
                                  start.program + "' " + start.arguments;
      return std::to_string(shell(command, "rank" + number).code);
    });
    std::vector<Outcome> outcomes;
    for (std::size_t i = 0; i < ended.size(); ++i) {
      const std::string file = (folder / ("rank" + std::to_string(i))).string();
      outcomes.push_back({std::stoi(ended[i].said), contents(file + ".out"), contents(file + ".err")});
    }
    return outcomes;
  }

  Json file(const std::string& name) const {
    Result<Json> read = parse_json(contents(folder / name));
    EXPECT_TRUE(read.ok()) << name << " was not written, or not whole";
    return read.ok() ? std::move(read.value()) : Json();
  }
};

// `communicators` are those of the rank that the file tells of: which groups its trace has.
struct GpuPlan {
  const char* name;
  std::uint64_t world;
  const char* arguments;
  std::size_t communicators;
};

void PrintTo(const GpuPlan& s, std::ostream* out) {
  *out << s.name;
}

#define TITAN "--model cut.json --stack torchtitan --seq 8 "
#define MEGATRON "--model cut.json --stack megatron --precision megatron-bf16 --seq 8 --micro-batches 3 "
#define MEGATRON_DEEP \
  "--model deep.json --stack megatron --precision megatron-bf16 --seq 8 --pipeline-schedule interleaved "
#define TITAN_PP "--model deep.json --stack torchtitan-0.1 --seq 8 --units layers --pipeline-schedule interleaved "
#define EXPERTS "--model experts.json --stack megatron --precision megatron-bf16 --seq 8 "
constexpr GpuPlan kGpuPlans[] = {
    {"ddp", 2, "--model cut.json --seq 8 --dp 2", 1},
    {"fsdp1", 4, "--model cut.json --seq 8 --dp 4 --fsdp 1", 1},
    {"fsdp2", 4, "--model cut.json --seq 8 --dp 4 --fsdp 2", 1},
    {"zero1", 2, "--model cut.json --seq 8 --dp 2 --zero 1", 1},
    {"zero2", 4, "--model cut.json --seq 8 --dp 4 --zero 2", 1},
    {"zero3", 2, "--model cut.json --seq 8 --dp 2 --zero 3", 1},
    {"titan_tp2", 2, TITAN "--tp 2 --sequence-parallel true", 1},
    {"titan_tp2_fsdp2", 4, TITAN "--tp 2 --sequence-parallel true --dp 2 --fsdp 2 --units titan", 2},
    {"megatron_tp4", 4, MEGATRON "--tp 4 --sequence-parallel true", 2},
    {"megatron_zero1", 2, MEGATRON "--dp 2 --zero 1", 3},
    {"megatron_pp2", 2, MEGATRON "--pp 2", 3},
    {"megatron_pp4", 4, MEGATRON "--pp 4", 3},
    {"megatron_tp2_pp2", 4, MEGATRON "--tp 2 --pp 2", 3},
    {"megatron_pp4_interleaved", 4, MEGATRON_DEEP "--pp 4 --micro-batches 4", 3},
    {"megatron_tp2_pp2_zero1_interleaved", 4, MEGATRON_DEEP "--tp 2 --pp 2 --zero 1 --micro-batches 2", 3},
    {"titan_pp2", 2, TITAN "--pp 2 --units titan --micro-batches 3", 1},
    {"titan_pp2_interleaved", 2, TITAN_PP "--pp 2 --micro-batches 4", 1},
    {"megatron_cp4_heads_and_ring", 4, MEGATRON "--cp 4 --cp-comm-type a2a_p2p", 5},
    {"megatron_cp2_all_gather", 2, MEGATRON "--cp 2 --cp-comm-type all_gather --attention flash", 4},
    {"titan_cp2", 2, TITAN "--fsdp 2 --units titan --cp 2", 2},
    {"megatron_ep2", 2, EXPERTS "--dp 2 --ep 2", 5},
    {"fsdp2_offloaded", 2, "--model cut.json --seq 8 --dp 2 --fsdp 2 --offload params", 1},
    {"zero2_offloaded", 2, "--model cut.json --seq 8 --dp 2 --zero 2 --offload optimizer", 1},
    {"zero3_offloaded", 2, "--model cut.json --seq 8 --dp 2 --zero 3 --offload params", 1},
};
#undef TITAN
#undef MEGATRON
#undef MEGATRON_DEEP
#undef TITAN_PP
#undef EXPERTS

class PlansOnGpus : public RanksOnGpus, public testing::WithParamInterface<GpuPlan> {};
INSTANTIATE_TEST_SUITE_P(All, PlansOnGpus, testing::ValuesIn(kGpuPlans), [](const auto& p) { return p.param.name; });

TEST_P(PlansOnGpus, TrainAsRanksOnTheHostDo) {
  const std::string common = std::string(GetParam().arguments) + " --steps 2 --check 0% --quiet --rank-timeout 30 ";
  Start host{GetParam().world, common + "--device host --json host.json", "EMULATED_GPUS=4", PROBE_BINARY};
  for (const Outcome& one : ranks(host))
    ASSERT_EQ(one.code, 0) << one.err;
  for (const Outcome& one : ranks({GetParam().world, common + "--device cuda --paranoid --json gpu.json"}))
    ASSERT_EQ(one.code, 0) << one.err;
  const Json on_host = file("host.json"), on_gpus = file("gpu.json");
  for (const char* step : {"steps.0.loss", "steps.1.loss"}) {
    const double loss = at(on_host, step).as_real().value_or(0);
    EXPECT_GT(loss, 1);
    EXPECT_NEAR(at(on_gpus, step).as_real().value_or(0), loss, 2e-3 * loss) << step;
  }
  const Bytes nccl_bytes =
      number(on_gpus, "device_memory.nccl.init_bytes") + number(on_gpus, "device_memory.nccl.connect_bytes");
  bool of_the_file = false;
  for (std::uint64_t rank = 0; rank < GetParam().world; ++rank) {
    const std::string row = "ranks." + std::to_string(rank);
    EXPECT_TRUE(at(on_gpus, row + ".events_identical").as_bool().value_or(false));
    EXPECT_EQ(number(on_gpus, row + ".peaks.reserved_bytes"), number(on_host, row + ".peaks.reserved_bytes"));
    EXPECT_GE(number(on_gpus, row + ".nccl_bytes"), 30 * kMiB) << "a communicator and its first call";
    of_the_file |= number(on_gpus, row + ".nccl_bytes") == nccl_bytes;
    EXPECT_TRUE(at(on_host, row + ".nccl_bytes").is_null());
  }
  EXPECT_TRUE(of_the_file) << "one of the rows is the rank that the rest of the file is of";
  EXPECT_EQ(text(on_gpus, "environment.device"), "cuda");
  EXPECT_EQ(number(on_gpus, "environment.nccl"), 22809u);
  EXPECT_TRUE(at(on_gpus, "environment.world.emulated").is_null());
  EXPECT_EQ(at(on_gpus, "device_memory.nccl.communicators").items().size(), GetParam().communicators);
  EXPECT_EQ(number(on_gpus, "device_memory.nccl.init_bytes"), GetParam().communicators * 24 * kMiB);
  EXPECT_GE(number(on_gpus, "device_memory.nccl.connect_bytes"), GetParam().communicators * 6 * kMiB);
  EXPECT_TRUE(at(on_gpus, "device_memory.nccl.stats_bytes").is_null());
  EXPECT_EQ(number(on_gpus, "device_memory.unexplained_bytes"), 0u) << "NCCL's is told apart";
  EXPECT_EQ(number(on_gpus, "device_memory.grown_bytes"), 0u);
}

constexpr const char* kTwoGpus = "--model cut.json --seq 8 --dp 2 --device cuda --rank-timeout 2 --steps 2 --quiet";

struct GpuFailure {
  const char* name;
  const char* variables;
  int code;
  const char* says;  // all ranks
};

void PrintTo(const GpuFailure& w, std::ostream* out) {
  *out << w.name;
}

constexpr GpuFailure kGpuFailures[] = {
    {"old_nccl", "EMULATED_GPUS=2 STAND_IN_NCCL=version=21003", 69, "libnccl.so.2 is NCCL 2.10.3; 2.18.0 or newer"},
    {"part_of_nccl", "EMULATED_GPUS=2 PROBE_LIB_PATH='" LACKING_NCCL_FOLDER "'", 69, "no function ncclGroupEnd"},
    {"too_few_gpus", "EMULATED_GPUS=1", 69, "2 ranks on this machine and one GPU: each rank takes one."},
    {"init_is_refused", "EMULATED_GPUS=2 STAND_IN_NCCL='fail=init rank=1'", 7,
     "rank 1: making a communicator of 2 ranks: unhandled system error."},
    {"a_call_is_refused", "EMULATED_GPUS=2 STAND_IN_NCCL='fail=run rank=0 from=2'", 7,
     "rank 0: all-reduce: unhandled system error."},
    {"an_error_comes_later", "EMULATED_GPUS=2 STAND_IN_NCCL='async=run rank=1'", 7, "remote process error."},
    {"a_call_hangs", "EMULATED_GPUS=2 STAND_IN_NCCL='hang=run rank=1 from=2'", 7, "did not end within 2 s."},
    {"init_hangs", "EMULATED_GPUS=2 STAND_IN_NCCL='hang=init rank=1'", 7, "did not end within 2 s."},
};

class GoneWrongOnGpus : public RanksOnGpus, public testing::WithParamInterface<GpuFailure> {};
INSTANTIATE_TEST_SUITE_P(All, GoneWrongOnGpus, testing::ValuesIn(kGpuFailures),
                         [](const auto& w) { return w.param.name; });

TEST_P(GoneWrongOnGpus, EndsAllRanksInTime) {
  const auto began = Clock::now();
  for (const Outcome& one : ranks({2, kTwoGpus, GetParam().variables})) {
    EXPECT_EQ(one.code, GetParam().code) << one.err;
    EXPECT_NE(one.err.find(GetParam().says), std::string::npos) << one.err;
    const bool quotes = one.err.starts_with("probe: NCCL says: ");
    EXPECT_EQ(std::count(one.err.begin(), one.err.end(), '\n'), quotes ? 2 : 1) << one.err;
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(15));
}

TEST_F(RanksOnGpus, OfDifferentLibrariesSayWhichTheyHave) {
  Start start{2, kTwoGpus};
  start.of_rank = [](std::uint64_t rank) { return rank == 1 ? "STAND_IN_NCCL=version=21805" : ""; };
  for (const Outcome& one : ranks(start)) {
    EXPECT_EQ(one.code, 2);
    EXPECT_EQ(one.err, "probe: rank 1 means another run than rank 0: NCCL is 2.18.5, not 2.28.9.\n");
  }
}

TEST_F(RanksOnGpus, AreShownOneEach) {
  Start start{2, std::string(kTwoGpus) + " --json out.json"};
  start.of_rank = [](std::uint64_t rank) { return "CUDA_VISIBLE_DEVICES=" + std::to_string(rank + 2); };
  for (const Outcome& one : ranks(start))
    EXPECT_EQ(one.code, 0) << one.err;
  start.of_rank = [](std::uint64_t) { return "CUDA_VISIBLE_DEVICES=3"; };
  for (const Outcome& one : ranks(start)) {
    EXPECT_EQ(one.code, 2);
    EXPECT_TRUE(one.err.starts_with("probe: ranks 0 and 1 are on the same GPU, and NCCL wants one for each:"))
        << one.err;
  }
}

TEST_F(RanksOnGpus, WithoutMemoryTellTheOthers) {
  Start start{2, "--model cut.json --seq 8 --dp 2 --device cuda --quiet --json out-%r.json"};
  for (const Outcome& one : ranks({2, start.arguments + " --mem-limit 3MiB"}))
    EXPECT_TRUE(one.code == 3 || one.code == 7) << one.code << one.err;
}

// NCCL takes memory beside the allocator's: when a communicator is made, and when it is first used.
TEST_F(RanksOnGpus, WhoseCardIsFullWithinNcclEndAsOutOfMemory) {
  struct Full {
    const char* wrong;
    const char* phase;
    Bytes taken;
    const char* says;
  };
  for (const Full& full : {Full{"full=init rank=1", "step1.backward", 0, "making a communicator of 2 ranks"},
                           Full{"full=run rank=1 from=2", "step2.backward", 30 * kMiB, "all-reduce"}}) {
    SCOPED_TRACE(full.wrong);
    Start start{2, std::string(kTwoGpus) + " --json out-%r.json"};
    start.variables = "EMULATED_GPUS=2 STAND_IN_NCCL='" + std::string(full.wrong) + "'";
    const std::vector<Outcome> all = ranks(start);
    const std::string sentence = std::string(full.says) + ": the GPU has no memory left for NCCL";
    EXPECT_EQ(all[1].code, 3);
    EXPECT_NE(all[1].err.find("probe: out of memory in " + std::string(full.phase)), std::string::npos) << all[1].err;
    EXPECT_NE(all[1].err.find(sentence), std::string::npos) << all[1].err;
    EXPECT_EQ(all[0].code, 7) << "it has lost the other one";
    EXPECT_EQ(all[0].err, "probe: rank 1: " + sentence + ".\n");
    const Json measured = file("out-1.json");
    EXPECT_EQ(text(measured, "status"), "oom");
    EXPECT_EQ(text(measured, "error.kind"), "out_of_memory");
    EXPECT_EQ(text(measured, "error.by"), "nccl");
    EXPECT_EQ(text(measured, "error.phase"), full.phase);
    EXPECT_EQ(text(measured, "error.op"), "allreduce_");
    EXPECT_TRUE(at(measured, "error.requested_bytes").is_null()) << "NCCL does not tell";
    EXPECT_EQ(number(measured, "error.taken_bytes"), full.taken);
    EXPECT_GT(number(measured, "error.allocated_bytes"), 0u);
    EXPECT_GT(number(measured, "error.device_bytes_in_use"), number(measured, "error.reserved_bytes"));
    EXPECT_GT(at(measured, "phases").items().size(), 1u) << "what ran is told";
    EXPECT_EQ(text(file("out-0.json"), "status"), "error");
  }
}

TEST_F(RanksOnGpus, EndWhenOneIsKilled) {
  const auto began = Clock::now();
  Start start{3, "--model cut.json --seq 256 --batch 4 --dp 3 --device cuda --steps 64 --quiet"};
  start.of_rank = [](std::uint64_t rank) { return rank == 1 ? "UNUSED=1 && ulimit -t 1" : ""; };
  const auto all = ranks(start);
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(all[rank].code, 7);
    EXPECT_EQ(all[rank].err, "probe: rank 1 ended before the run did.\n");
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(60));
}

// One GPU: segments that expand where the driver has them, and a sentence where it has not.
TEST_F(RanksOnGpus, OrOneGpuAloneTakeExpandableSegments) {
  const std::string probe = "'" EMULATED_PROBE_BINARY "' --model cut.json --seq 8 --device cuda --quiet --check 0% ";
  const std::string expandable = probe + "--allocator torch_expandable --json ";
  const Outcome with = shell(expandable + "with.json");
  EXPECT_EQ(with.code, 0) << with.err;
  EXPECT_EQ(with.err, "");
  EXPECT_EQ(text(file("with.json"), "allocator.rules"), "torch_expandable");
  const Outcome without = shell("NO_EXPANDABLE_SEGMENTS='the driver is old' " + expandable + "without.json");
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_EQ(without.err, "probe: segments do not expand here, and are taken by cudaMalloc: the driver is old.\n");
  EXPECT_EQ(text(file("without.json"), "allocator.rules"), "torch");
  EXPECT_EQ(text(file("without.json"), "recipe.allocator"), "torch");
  EXPECT_TRUE(at(file("without.json"), "prediction.events_identical").as_bool().value_or(false));
}

TEST_F(RanksOnGpus, AreRefusedABudget) {
  for (const Outcome& one : ranks({2, std::string(kTwoGpus) + " --budget 60s"})) {
    EXPECT_EQ(one.code, 2);
    EXPECT_NE(one.err.find("--budget is for one process"), std::string::npos) << one.err;
  }
}

}  // namespace
}  // namespace ledger
