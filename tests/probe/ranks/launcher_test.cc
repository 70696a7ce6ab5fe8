// Which rank this is, from what launchers set; what they leave out or contradict is said by name.
#include "probe/ranks/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "probe/ranks/which_rank.h"

namespace ledger {
namespace {

using Environment = std::map<std::string, std::string>;

std::function<const char*(const char*)> reader(const Environment& environment) {
  return [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
}

struct Launched {
  const char* name;
  Environment environment;
  const char* launcher;
  std::uint64_t rank, world;
  const char* address;
  int port;  // -1: any of those for jobs
};

void PrintTo(const Launched& c, std::ostream* out) {
  *out << c.name;
}

class Launchers : public testing::TestWithParam<Launched> {};
const auto kName = [](const auto& test) { return std::string(test.param.name); };

// As the launchers set them: torchrun 2.x on two machines and on one, mpirun of Open MPI 4.1 and of MPICH 4.0, srun.
INSTANTIATE_TEST_SUITE_P(
    Known, Launchers,
    testing::Values(Launched{"none", {}, "single", 0, 1, "", 0},
                    Launched{"torchrun",
                             {{"RANK", "5"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "node3"},
                              {"MASTER_PORT", "29500"}},
                             "torchrun",
                             5,
                             8,
                             "node3",
                             29501},
                    Launched{"torchrun_on_one_machine",
                             {{"RANK", "1"},
                              {"WORLD_SIZE", "2"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "laptop"},
                              {"MASTER_PORT", "41234"}},
                             "torchrun",
                             1,
                             2,
                             "127.0.0.1",
                             41235},
                    Launched{"torchrun_of_one",
                             {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "x"}, {"MASTER_PORT", "1"}},
                             "single",
                             0,
                             1,
                             "",
                             0},
                    Launched{"openmpi",
                             {{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                              {"PMIX_NAMESPACE", "2893873153"}},
                             "openmpi",
                             3,
                             4,
                             "127.0.0.1",
                             -1},
                    Launched{"mpich",
                             {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
                             "mpich",
                             1,
                             2,
                             "127.0.0.1",
                             29400},
                    Launched{"slurm",
                             {{"SLURM_PROCID", "9"},
                              {"SLURM_STEP_NUM_TASKS", "16"},
                              {"SLURM_LOCALID", "1"},
                              {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                              {"SLURM_JOB_ID", "123456"}},
                             "slurm",
                             9,
                             16,
                             "gpu07",
                             -1},
                    Launched{
                        "slurm_batch_script", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}, "single", 0, 1, "", 0},
                    Launched{"torchrun_under_srun",
                             {{"RANK", "0"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "0"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"MASTER_PORT", "29500"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_STEP_NUM_TASKS", "2"}},
                             "torchrun",
                             0,
                             4,
                             "127.0.0.1",
                             29501},
                    Launched{"own_port",
                             {{"RANK", "0"},
                              {"WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "localhost"},
                              {"MASTER_PORT", "29500"},
                              {"PROBE_MASTER_PORT", "4000"}},
                             "torchrun",
                             0,
                             2,
                             "127.0.0.1",
                             4000}),
    kName);

TEST_P(Launchers, SayWhichRankThisIsAndWhereTheFirstOneListens) {
  const Launched& c = GetParam();
  const FoundPlace found = find_place(reader(c.environment));
  ASSERT_EQ(found.error, "");
  EXPECT_EQ(found.place.launcher, c.launcher);
  EXPECT_EQ(found.place.rank, c.rank);
  EXPECT_EQ(found.place.world, c.world);
  EXPECT_EQ(found.place.address, c.address);
  const int port = found.place.port;
  EXPECT_TRUE(c.port >= 0 ? port == c.port : port >= 20000 && port < 40000) << port;
}

struct Wrong {
  const char* name;
  Environment environment;
  const char* says;
};

void PrintTo(const Wrong& c, std::ostream* out) {
  *out << c.name;
}

class WrongLaunches : public testing::TestWithParam<Wrong> {};

INSTANTIATE_TEST_SUITE_P(
    All, WrongLaunches,
    testing::Values(
        Wrong{"no_world", {{"RANK", "0"}}, "WORLD_SIZE is not set"},
        Wrong{"no_rank", {{"WORLD_SIZE", "2"}}, "RANK is not"},
        Wrong{"rank_beyond_world", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "RANK=4 contradicts WORLD_SIZE=4"},
        Wrong{"no_number", {{"RANK", "first"}, {"WORLD_SIZE", "4"}}, "RANK is 'first'"},
        Wrong{"negative", {{"PMI_RANK", "-1"}, {"PMI_SIZE", "4"}}, "PMI_RANK is '-1'"},
        Wrong{"no_ranks", {{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE=0"},
        Wrong{"local_rank_beyond_local_world",
              {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
              "LOCAL_RANK=2 contradicts LOCAL_WORLD_SIZE=2"},
        Wrong{"more_here_than_in_all",
              {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
              "OMPI_COMM_WORLD_LOCAL_SIZE=4 contradicts OMPI_COMM_WORLD_SIZE=2"},
        Wrong{"no_address", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "MASTER_ADDR is not set"},
        Wrong{"bad_port",
              {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}},
              "no port 70001"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(WrongLaunches, AreSaidByTheVariablesName) {
  const std::string error = find_place(reader(GetParam().environment)).error;
  EXPECT_NE(error.find(GetParam().says), std::string::npos) << error;
}

TEST(NodeLists, BeginWithTheirFirstHost) {
  EXPECT_EQ(first_host("gpu7"), "gpu7");
  EXPECT_EQ(first_host("gpu7,gpu9"), "gpu7");
  EXPECT_EQ(first_host("node[03-07,9],other2"), "node03");
  EXPECT_EQ(first_host("node[12,15]"), "node12");
  EXPECT_EQ(first_host("a1,node[03-07]"), "a1");
  EXPECT_EQ(first_host("r[1-4]-gpu"), "r1-gpu");
}

// --- against the recipe
// -----------------------------------------------------------------------------------------------------------------

Recipe of(std::uint64_t dp) {
  Recipe recipe;
  recipe.dp = dp;
  return recipe;
}

TEST(RanksOfARecipe, ComeFromALauncherOrAreStoodInFor) {
  const Environment four = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "localhost"}}, none;
  EXPECT_EQ(launched_rank(of(4), reader(four)).place.rank, 3u);
  EXPECT_EQ(launched_rank(of(4), reader(four)).error, "");
  EXPECT_EQ(launched_rank(of(1), reader(none)).error, "");
  EXPECT_NE(launched_rank(of(2), reader(four)).error.find("started 4 ranks and this recipe has 2 ranks"),
            std::string::npos);
  EXPECT_NE(launched_rank(of(1), reader(four)).error.find("this recipe has one rank"), std::string::npos);
  EXPECT_NE(launched_rank(of(2), reader(none)).error.find("--as-rank 0/2"), std::string::npos);
  Recipe tensor_parallel = of(2), context_parallel = of(1), expert_parallel = of(4);
  tensor_parallel.tp = 2;
  EXPECT_EQ(launched_rank(tensor_parallel, reader(four)).error, "");
  context_parallel.cp = 4;
  EXPECT_EQ(launched_rank(context_parallel, reader(four)).error, "");
  expert_parallel.ep = 4;
  EXPECT_EQ(launched_rank(expert_parallel, reader(four)).error, "") << "of the same ranks";
}

TEST(StandInsForARank, AreNamedOrTheWorst) {
  const auto peak = [](std::uint64_t rank) { return rank == 5 ? Bytes{9} : Bytes{7}; };
  const RankChoice third = stand_in_for("3/8", of(8), peak), worst = stand_in_for("worst", of(8), peak);
  EXPECT_EQ(third.error, "");
  EXPECT_EQ(third.place.rank, 3u);
  EXPECT_EQ(third.place.world, 8u);
  EXPECT_TRUE(third.stand_in);
  EXPECT_EQ(worst.place.rank, 5u);
  for (const char* wrong : {"", "3", "8/8", "3/4", "x/8", "3/8x", "-1/8", "best"})
    EXPECT_NE(stand_in_for(wrong, of(8), peak).error, "") << wrong;
}

}  // namespace
}  // namespace ledger
