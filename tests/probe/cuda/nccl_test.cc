// NCCL between processes, with a library in its place that really moves bytes (tests/nccl): every collective gives what
// the host's gives, memory is told apart, and whatever goes wrong ends all ranks in time with a sentence.
#include "probe/cuda/nccl.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "probe/cuda/gpu_ranks.h"
#include "tests/probe/cuda/collective_cases.h"
#include "tests/probe/device/emulated_device.h"
#include "tests/probe/ranks/forked_ranks.h"

namespace ledger::cuda {
namespace {

// In a process of its own: libraries stay loaded.
std::string in_a_process(const std::function<std::string()>& body) {
  return forked::in_processes(1, [&](std::uint64_t) { return body(); })[0].said;
}

std::string problem_with(const char* folder, const char* stand_in) {
  return in_a_process([&] {
    setenv("PROBE_LIB_PATH", folder, 1);
    setenv("STAND_IN_NCCL", stand_in, 1);
    const Nccl library;
    return library.problem() + "|" + library.version_text();
  });
}

TEST(NcclLibrary, IsFoundAndTellsItsVersion) {
  EXPECT_EQ(problem_with(STAND_IN_NCCL_FOLDER, ""), "|2.28.9");
}

TEST(NcclLibrary, ThatIsTooOldSaysHowOldItMayBe) {
  EXPECT_EQ(problem_with(STAND_IN_NCCL_FOLDER, "version=21003"),
            "libnccl.so.2 is NCCL 2.10.3; 2.18.0 or newer is needed|2.10.3");
  EXPECT_EQ(problem_with(STAND_IN_NCCL_FOLDER, "version=2804"),
            "libnccl.so.2 is NCCL 2.8.4; 2.18.0 or newer is needed|2.8.4");
}

TEST(NcclLibrary, ThatLacksAFunctionNamesIt) {
  EXPECT_NE(problem_with(LACKING_NCCL_FOLDER, "").find("libnccl.so.2 has no function ncclGroupEnd"), std::string::npos);
}

// The library itself, where the toolkit has it: it needs no GPU to be asked for its functions.
TEST(NcclLibrary, OfTheToolkitHasEveryFunction) {
  const std::string said = in_a_process([] {
    unsetenv("PROBE_LIB_PATH");
    const Nccl library;
    return library.version() == 0 ? "skip" : library.problem();
  });
  if (said == "skip") GTEST_SKIP() << "there is no libnccl.so.2";
  EXPECT_EQ(said, "");
}

struct OnGpu {
  Communicator& host;
  NcclCommunicator& gpus;
  emulated::EmulatedDevice& device;
};

std::vector<forked::Ended> as_gpus(std::uint64_t world, const std::function<std::string(OnGpu)>& body,
                                   const std::string& stand_in = "", double timeout_s = 20) {
  const std::uint16_t port = forked::free_port();
  return forked::in_processes(world, [&](std::uint64_t rank) {
    setenv("PROBE_LIB_PATH", STAND_IN_NCCL_FOLDER, 1);
    setenv("STAND_IN_NCCL", stand_in.c_str(), 1);
    emulated::EmulatedDevice device(true, static_cast<int>(rank));
    RankChoice choice;
    choice.place = forked::place(rank, world, port);
    const GpuRanks ranks = join_gpu_ranks(choice, {}, timeout_s, device, nullptr);
    if (ranks.gpus == nullptr) return "not joined: " + ranks.processes.error;
    std::string said = body({*ranks.processes.ranks, *ranks.gpus, device});
    std::uint8_t last = 0;  // nobody leaves before all are through
    if (ranks.gpus->failure().empty())
      ranks.processes.ranks->all_reduce({reinterpret_cast<std::byte*>(&last), 1, DType::u8}, ReduceOp::largest);
    return said;
  });
}

void all_say(const std::vector<forked::Ended>& all, const std::string& expected) {
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].said, expected) << "rank " << i;
}

class NcclCollectives : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Worlds, NcclCollectives, testing::Values(2, 4));

TEST_P(NcclCollectives, GiveWhatTheHostsGive) {
  const auto all = as_gpus(GetParam(), [](OnGpu ranks) {
    return collective_cases::differences({ranks.host, ranks.gpus, ranks.device}, 1);
  });
  all_say(all, "");
}

TEST(NcclGroups, AreCommunicatorsOfTheirOwn) {
  const auto all = as_gpus(4, [](OnGpu ranks) {
    const std::uint64_t rank = ranks.gpus.rank();
    const auto row = ranks.gpus.among({rank / 2 * 2, rank / 2 * 2 + 1});
    const auto column = ranks.gpus.among({rank % 2, rank % 2 + 2});
    double sum = static_cast<double>(rank), largest = sum;
    const bool well = row->all_reduce({reinterpret_cast<std::byte*>(&sum), 1, DType::f64}, ReduceOp::sum) &&
                      column->all_reduce({reinterpret_cast<std::byte*>(&largest), 1, DType::f64}, ReduceOp::largest) &&
                      column->all_reduce({reinterpret_cast<std::byte*>(&largest), 1, DType::f64}, ReduceOp::largest);
    if (!well) return row->failure();
    return std::to_string(sum) + " " + std::to_string(largest) + " " +
           std::to_string(ranks.gpus.memory().communicators.size());
  });
  const auto expected = [](double sum, double largest) {
    return std::to_string(sum) + " " + std::to_string(largest) + " 2";
  };
  EXPECT_EQ(all[0].said, expected(1, 2));
  EXPECT_EQ(all[1].said, expected(1, 3));
  EXPECT_EQ(all[2].said, expected(5, 2));
  EXPECT_EQ(all[3].said, expected(5, 3));
}

// 24 MiB when a communicator is made, 6 MiB with each kind of collective the first time (stand_in_nccl.cc).
TEST(NcclMemoryOfTheDevice, IsWhatMakingAndFirstCallsTook) {
  const auto all = as_gpus(2, [](OnGpu ranks) {
    double value = 1;
    const RankBuffer buffer{reinterpret_cast<std::byte*>(&value), 1, DType::f64};
    std::string text = std::to_string(ranks.gpus.memory().total() / kMiB);
    for (int i = 0; i < 3; ++i)
      ranks.gpus.all_reduce(buffer, ReduceOp::sum);
    text += " " + std::to_string(ranks.gpus.memory().total() / kMiB);
    ranks.gpus.broadcast(buffer, 0);
    const NcclMemory memory = ranks.gpus.memory();
    text += " " + std::to_string(memory.total() / kMiB) + " " + std::to_string(memory.communicators.size());
    return text + " " + std::to_string(memory.communicators[0].init_bytes / kMiB) + (memory.stats_bytes ? "!" : "");
  });
  all_say(all, "0 30 36 1 24");
}

struct Wrong {
  const char* name;
  const char* stand_in;
  const char* said;  // by every rank
};

// A rank counts its own time, so that of two who wait either may be the first to say so.
constexpr Wrong kWrongs[] = {
    {"refused_init", "fail=init rank=1", "rank 1: making a communicator of 3 ranks: unhandled system error"},
    {"refused_call", "fail=run rank=1", "rank 1: all-reduce: unhandled system error"},
    {"error_afterwards", "async=run rank=1", "rank 1: all-reduce: remote process error"},
    {"hanging_init", "hang=init", "making a communicator of 3 ranks did not end within 1 s"},
    {"hanging_call", "hang=run from=2", "all-reduce did not end within 1 s"},
    {"one_that_hangs", "hang=run rank=2 from=2", "all-reduce did not end within 1 s"},
};

class NcclGoesWrong : public testing::TestWithParam<Wrong> {};
INSTANTIATE_TEST_SUITE_P(All, NcclGoesWrong, testing::ValuesIn(kWrongs), [](const auto& w) { return w.param.name; });

TEST_P(NcclGoesWrong, EndsAllRanksWithASentence) {
  const auto began = Clock::now();
  const auto all = as_gpus(
      3,
      [](OnGpu ranks) -> std::string {
        double value = 1;
        for (int i = 0; i < 3; ++i) {
          if (!ranks.gpus.all_reduce({reinterpret_cast<std::byte*>(&value), 1, DType::f64}, ReduceOp::sum))
            return ranks.gpus.failure() + (ranks.device.idle() ? "" : " (the device is still busy)");
        }
        return "nothing went wrong";
      },
      GetParam().stand_in, 1);
  for (const forked::Ended& one : all) {
    EXPECT_TRUE(one.said.ends_with(GetParam().said)) << one.said;
    EXPECT_EQ(one.status, 0);
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(10));
}

TEST(NcclGoesWrong, WhereALibraryDoesNotGiveUp) {
  const auto began = Clock::now();
  const auto all = as_gpus(
      2,
      [](OnGpu ranks) -> std::string {
        double value = 1;
        ranks.gpus.all_reduce({reinterpret_cast<std::byte*>(&value), 1, DType::f64}, ReduceOp::sum);
        return "came back";
      },
      "hang=run stubborn=1", 1);
  for (const forked::Ended& one : all) {
    EXPECT_EQ(one.said, "");
    EXPECT_EQ(WEXITSTATUS(one.status), 7);
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(30));
}

TEST(NcclRanks, ThatEndAreNamedAtOnce) {
  const auto began = Clock::now();
  const auto all = as_gpus(3, [](OnGpu ranks) -> std::string {
    double value = 1;
    const RankBuffer buffer{reinterpret_cast<std::byte*>(&value), 1, DType::f64};
    ranks.gpus.all_reduce(buffer, ReduceOp::sum);
    if (ranks.gpus.rank() == 1) _exit(0);
    return ranks.gpus.all_reduce(buffer, ReduceOp::sum) ? "went on" : ranks.gpus.failure();
  });
  EXPECT_EQ(all[0].said, "rank 1 ended before the run did");
  EXPECT_EQ(all[2].said, "rank 1 ended before the run did");
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(10));
}

TEST(NcclRanks, ThatGiveUpSayWhy) {
  const auto all = as_gpus(2, [](OnGpu ranks) -> std::string {
    double value = 1;
    const RankBuffer buffer{reinterpret_cast<std::byte*>(&value), 1, DType::f64};
    if (ranks.gpus.rank() == 1) {
      ranks.host.abort("rank 1 ran out of memory");
      return ranks.gpus.failure();
    }
    return ranks.gpus.all_reduce(buffer, ReduceOp::sum) ? "went on" : ranks.gpus.failure();
  });
  all_say(all, "rank 1 ran out of memory");
}

}  // namespace
}  // namespace ledger::cuda
