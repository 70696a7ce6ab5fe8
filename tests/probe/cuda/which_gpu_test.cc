// Which GPU a rank takes, and what is said where there are too few or two ranks took the same.
#include "probe/cuda/which_gpu.h"

#include <gtest/gtest.h>

#include "tests/probe/ranks/forked_ranks.h"

namespace ledger::cuda {
namespace {

struct Chosen {
  const char* name;
  std::uint64_t rank, world, local_rank, local_world;  // 0: not told
  bool one_machine;
  int devices;
  const char* visible;
  int number;
  const char* error;
};

void PrintTo(const Chosen& c, std::ostream* out) {
  *out << c.name;
}

constexpr Chosen kChosen[] = {
    {"alone", 0, 1, 0, 0, true, 8, nullptr, 0, ""},
    {"local_rank", 5, 8, 1, 4, false, 4, nullptr, 1, ""},
    {"one_machine_untold", 3, 4, 0, 0, true, 4, nullptr, 3, ""},
    {"several_machines_untold_world", 5, 8, 1, 0, false, 4, nullptr, 1, ""},
    {"shown_one_each", 3, 4, 3, 4, true, 1, "3", 0, ""},
    {"shown_some", 1, 2, 1, 2, true, 2, "4,6", 1, ""},
    {"too_few", 0, 4, 0, 4, true, 2, nullptr, 0, "4 ranks on this machine and 2 GPUs: each rank takes one"},
    {"one_for_two", 1, 2, 1, 2, true, 1, nullptr, 0, "2 ranks on this machine and one GPU: each rank takes one"},
    {"too_few_shown", 2, 3, 2, 3, true, 2, "0,1", 0,
     "3 ranks on this machine and 2 GPUs: each rank takes one of those that CUDA_VISIBLE_DEVICES=\"0,1\" shows"},
};

class WhichGpu : public testing::TestWithParam<Chosen> {};
INSTANTIATE_TEST_SUITE_P(All, WhichGpu, testing::ValuesIn(kChosen), [](const auto& c) { return c.param.name; });

TEST_P(WhichGpu, IsThatOfTheRankOnItsMachine) {
  const Chosen& c = GetParam();
  RankPlace place;
  place.rank = c.rank;
  place.world = c.world;
  place.local_rank = c.local_rank;
  place.local_world = c.local_world;
  place.one_machine = c.one_machine;
  Facts facts;
  facts.devices = c.devices;
  if (c.visible != nullptr) facts.visible_devices = c.visible;
  const ChosenGpu chosen = gpu_of_rank(place, facts);
  EXPECT_EQ(chosen.number, c.number);
  EXPECT_EQ(chosen.error, c.error);
}

TEST(WhichGpu, IsOneForEachRank) {
  for (const bool shared : {false, true}) {
    const auto all = forked::as_ranks(4, [&](Communicator& ranks) {
      DeviceFacts facts;
      facts.uuid[5] = static_cast<std::uint8_t>(shared && ranks.rank() == 3 ? 1 : ranks.rank());
      return shared_gpu(ranks, facts);
    });
    for (const forked::Ended& one : all)
      EXPECT_EQ(one.said.substr(0, 34), shared ? "ranks 1 and 3 are on the same GPU," : "");
  }
}

}  // namespace
}  // namespace ledger::cuda
