// Collectives between processes: each gives every rank what its name says, in the same bits, and a rank that is lost
// ends the others with a sentence.
#include "probe/ranks/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "forked_ranks.h"
#include "probe/ranks/stand_in.h"

namespace ledger {
namespace {

RankBuffer buffer(std::vector<double>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size(), DType::f64};
}

std::string text(const std::vector<double>& values) {
  std::string out;
  for (const double value : values)
    out += (out.empty() ? "" : " ") + std::to_string(value);
  return out;
}

// Everybody said `expected`, a function of the rank.
template <class F>
void expect_said(const std::vector<forked::Ended>& all, const F& expected) {
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].said, expected(static_cast<double>(i))) << "rank " << i;
}

class Collectives : public testing::TestWithParam<std::uint64_t> {
 protected:
  static double world() { return static_cast<double>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::Values(2, 3, 4));

TEST_P(Collectives, AllGatherPutsEachRanksPartInItsPlace) {
  const auto all = forked::as_ranks(GetParam(), [](Communicator& ranks) {
    std::vector<double> whole(static_cast<std::size_t>(2 * ranks.world()), -1);
    const auto own = static_cast<std::size_t>(2 * ranks.rank());
    whole[own] = static_cast<double>(ranks.rank());
    whole[own + 1] = static_cast<double>(ranks.rank()) + 0.5;
    return ranks.all_gather(buffer(whole)) ? text(whole) : ranks.failure();
  });
  std::vector<double> expected;
  for (double r = 0; r < world(); ++r)
    expected.insert(expected.end(), {r, r + 0.5});
  expect_said(all, [&](double) { return text(expected); });
}

struct Reduced {
  ReduceOp op;
  double (*of)(double world);  // ranks hold 1, 2, ...
};
constexpr Reduced kReduced[] = {
    {ReduceOp::sum, [](double n) { return n * (n + 1) / 2; }},
    {ReduceOp::mean, [](double n) { return (n + 1) / 2; }},
    {ReduceOp::largest, [](double n) { return n; }},
    {ReduceOp::norm, [](double n) { return std::sqrt(n * (n + 1) * (2 * n + 1) / 6); }},
};

TEST_P(Collectives, ReductionsAreWhatTheyAreCalled) {
  for (const Reduced& reduced : kReduced) {
    const auto all = forked::as_ranks(GetParam(), [&](Communicator& ranks) {
      std::vector<double> values(5, static_cast<double>(ranks.rank() + 1));
      return ranks.all_reduce(buffer(values), reduced.op) ? text(values) : ranks.failure();
    });
    expect_said(all, [&](double) { return text(std::vector<double>(5, reduced.of(world()))); });
  }
}

TEST_P(Collectives, ReduceScatterLeavesEachRankItsPart) {
  const auto all = forked::as_ranks(GetParam(), [](Communicator& ranks) {
    std::vector<double> whole(static_cast<std::size_t>(ranks.world()));
    std::iota(whole.begin(), whole.end(), 10.0);
    std::vector<double> part(1);
    return ranks.reduce_scatter(buffer(whole), buffer(part), ReduceOp::sum) ? text(part) : ranks.failure();
  });
  expect_said(all, [&](double rank) { return text({(10 + rank) * world()}); });
}

TEST_P(Collectives, BroadcastAllToAllSendAndReceive) {
  const auto all = forked::as_ranks(GetParam(), [](Communicator& ranks) {
    const auto rank = static_cast<double>(ranks.rank());
    const std::uint64_t last = ranks.world() - 1;
    std::vector<double> one = {rank}, out, in(static_cast<std::size_t>(ranks.world())), ring = {-1};
    for (std::uint64_t to = 0; to < ranks.world(); ++to)
      out.push_back(100 * rank + static_cast<double>(to));
    bool well = ranks.broadcast(buffer(one), last) && ranks.all_to_all(buffer(out), buffer(in));
    std::vector<double> own = {rank};
    if (ranks.rank() > 0) well = well && ranks.receive(buffer(ring), ranks.rank() - 1);
    if (ranks.rank() < last) well = well && ranks.send(buffer(own), ranks.rank() + 1);
    return well ? text(one) + "|" + text(in) + "|" + text(ring) : ranks.failure();
  });
  expect_said(all, [&](double rank) {
    std::vector<double> in;
    for (double from = 0; from < world(); ++from)
      in.push_back(100 * from + rank);
    return text({world() - 1}) + "|" + text(in) + "|" + text({rank - 1});
  });
}

// Sums of numbers of very different size: order decides about the last bits, and it is that of ranks.
TEST_P(Collectives, EveryRankHasTheSameBits) {
  const auto all = forked::as_ranks(GetParam(), [](Communicator& ranks) {
    std::vector<double> values(1001);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<double>(i * (ranks.rank() + 1))) *
                  std::pow(10.0, 3.0 * static_cast<double>(ranks.rank()));
    if (!ranks.all_reduce(buffer(values), ReduceOp::sum)) return ranks.failure();
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  });
  double first = 0;  // element 7, by hand
  for (double rank = 0; rank < world(); ++rank)
    first += std::sin(7.0 * (rank + 1)) * std::pow(10.0, 3.0 * rank);
  double got = 0;
  ASSERT_EQ(all[0].said.size(), 1001 * sizeof(double));
  std::memcpy(&got, all[0].said.data() + 7 * sizeof(double), sizeof got);
  EXPECT_EQ(got, first);
  for (const forked::Ended& one : all)
    EXPECT_EQ(one.said, all[0].said);
}

// Rows and columns of a square of ranks, one after the other and with messages between them.
TEST(GroupsOfRanks, AreRanksByThemselves) {
  const auto all = forked::as_ranks(4, [](Communicator& ranks) {
    const std::uint64_t row = ranks.rank() / 2, column = ranks.rank() % 2;
    const auto in_row = ranks.among({2 * row, 2 * row + 1}), in_column = ranks.among({column, column + 2});
    std::vector<double> sum = {static_cast<double>(ranks.rank())}, product = sum, got = {-1};
    const bool well = in_row->all_reduce(buffer(sum), ReduceOp::sum) &&
                      in_column->all_reduce(buffer(product), ReduceOp::largest) &&
                      in_column->send(buffer(sum), 1 - row) && in_column->receive(buffer(got), 1 - row);
    return well ? text(sum) + "|" + text(product) + "|" + text(got) + "|" + std::to_string(in_column->rank())
                : in_row->failure();
  });
  expect_said(all, [](double rank) {
    const double row = rank < 2 ? 0 : 1, column = rank - 2 * row;
    return text({4 * row + 1}) + "|" + text({column + 2}) + "|" + text({4 * (1 - row) + 1}) + "|" +
           std::to_string(rank < 2 ? 0 : 1);
  });
}

// A message does not wait for whom it is for: each sends all of its own before it takes any.
TEST(GroupsOfRanks, SendMoreThanSocketsBufferBeforeTheyReceive) {
  constexpr std::size_t kCount = 1u << 20;
  constexpr int kMessages = 3;
  const auto all = forked::as_ranks(2, [](Communicator& ranks) {
    std::vector<double> values(kCount);
    const std::uint64_t other = 1 - ranks.rank();
    bool well = true;
    for (int i = 0; i < kMessages; ++i) {
      std::fill(values.begin(), values.end(), static_cast<double>(i) + static_cast<double>(ranks.rank()) / 2);
      well = well && ranks.send(buffer(values), other);
    }
    std::string heard;
    for (int i = 0; i < kMessages; ++i) {
      well = well && ranks.receive(buffer(values), other);
      heard += text({values.front(), values.back()}) + ";";
    }
    return well ? heard : ranks.failure();
  });
  expect_said(all, [](double rank) {
    std::string expected;
    for (int i = 0; i < kMessages; ++i)
      expected += text({i + (1 - rank) / 2, i + (1 - rank) / 2}) + ";";
    return expected;
  });
}

// What comes with another tag waits until it is asked for, however large it is beside what is; a collective may follow.
TEST(GroupsOfRanks, TakeMessagesByTheirTags) {
  constexpr std::size_t kCount = 1u << 18;
  const auto all = forked::as_ranks(2, [](Communicator& ranks) {
    const std::uint64_t other = 1 - ranks.rank();
    const auto mine = static_cast<double>(ranks.rank());
    std::vector<double> first(kCount, 10 + mine), second = {20 + mine}, third(kCount, 30 + mine);
    bool well = ranks.send(buffer(first), other, 1) && ranks.send(buffer(second), other, 0) &&
                ranks.send(buffer(third), other, 1);
    well = well && ranks.receive(buffer(second), other, 0) && ranks.receive(buffer(first), other, 1) &&
           ranks.receive(buffer(third), other, 1);
    std::vector<double> sum = {mine};
    well = well && ranks.all_reduce(buffer(sum), ReduceOp::sum);
    return well ? text(second) + "|" + text({first.front(), first.back()}) + "|" + text({third.front(), third.back()}) +
                      "|" + text(sum)
                : ranks.failure();
  });
  expect_said(all, [](double rank) {
    const double other = 1 - rank;
    return text({20 + other}) + "|" + text({10 + other, 10 + other}) + "|" + text({30 + other, 30 + other}) + "|" +
           text({1});
  });
}

// A message of the tag that is asked for, but of another size, is no message for this rank.
TEST(GroupsOfRanks, SayThatAKeptMessageDoesNotFit) {
  const auto all = forked::as_ranks(2, [](Communicator& ranks) {
    std::vector<double> one = {1}, two = {2, 2};
    const std::uint64_t other = 1 - ranks.rank();
    const bool well = ranks.send(buffer(two), other, 1) && ranks.send(buffer(one), other, 0) &&
                      ranks.receive(buffer(one), other, 0) && ranks.receive(buffer(one), other, 1);
    return well ? "well" : ranks.failure();
  });
  for (const forked::Ended& one : all)
    EXPECT_NE(one.said.find("their traces differ"), std::string::npos) << one.said;
}

TEST(GroupsOfRanks, EndWithTheWhole) {
  const auto all = forked::as_ranks(4, [](Communicator& ranks) {
    const std::uint64_t row = ranks.rank() / 2;
    const auto in_row = ranks.among({2 * row, 2 * row + 1});
    std::vector<double> values(1000, 1);
    for (int i = 0; i < 10000; ++i) {
      if (i == 20 && ranks.rank() == 3) raise(SIGKILL);
      if (!in_row->all_reduce(buffer(values), ReduceOp::mean)) return ranks.failure() + "/" + in_row->failure();
      if (i % 10 == 0 && !ranks.all_reduce(buffer(values), ReduceOp::mean)) return ranks.failure();
    }
    return std::string("not lost");
  });
  EXPECT_EQ(all[2].said, "rank 3 ended before the run did/rank 3 ended before the run did");
  for (const std::size_t rank : {0u, 1u})
    EXPECT_TRUE(all[rank].said.starts_with("rank 3 ended before the run did")) << all[rank].said;
}

// More than sockets buffer, both ways at once.
TEST(CollectivesOfManyBytes, DoNotWaitForEachOther) {
  constexpr std::size_t kCount = 3u << 20;
  const auto all = forked::as_ranks(3, [](Communicator& ranks) {
    std::vector<double> values(kCount, static_cast<double>(ranks.rank()));
    if (!ranks.all_reduce(buffer(values), ReduceOp::sum)) return ranks.failure();
    return std::to_string(std::count(values.begin(), values.end(), 3.0));
  });
  expect_said(all, [](double) { return std::to_string(kCount); });
}

// --- ranks that are lost
// ----------------------------------------------------------------------------------------------------------------------

TEST(LostRanks, AKilledRankEndsTheOthersWithItsName) {
  const auto began = Clock::now();
  const auto all = forked::as_ranks(4, [](Communicator& ranks) {
    std::vector<double> values(1000, 1);
    for (int i = 0; i < 10000; ++i) {
      if (i == 20 && ranks.rank() == 2) raise(SIGKILL);
      if (!ranks.all_reduce(buffer(values), ReduceOp::mean)) return ranks.failure();
    }
    return std::string("nothing");
  });
  EXPECT_TRUE(WIFSIGNALED(all[2].status));
  for (const std::size_t rank : {0u, 1u, 3u})
    EXPECT_EQ(all[rank].said, "rank 2 ended before the run did") << rank;
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(10));
}

TEST(LostRanks, ARankThatGivesUpSaysWhy) {
  const auto all = forked::as_ranks(3, [](Communicator& ranks) {
    std::vector<double> values(4, 1);
    if (!ranks.all_reduce(buffer(values), ReduceOp::mean)) return ranks.failure();
    if (ranks.rank() == 1) ranks.abort("rank 1 ran out of memory");
    return ranks.all_reduce(buffer(values), ReduceOp::mean) ? "nothing" : ranks.failure();
  });
  expect_said(all, [](double) { return "rank 1 ran out of memory"; });
}

TEST(LostRanks, ASilentRankIsGivenUpAfterTheDeadline) {
  const auto all = forked::as_ranks(
      3,
      [](Communicator& ranks) {
        std::vector<double> values(4, 1);
        if (ranks.rank() == 1) sleep(2);
        return ranks.all_reduce(buffer(values), ReduceOp::mean) ? "nothing" : ranks.failure();
      },
      1);
  EXPECT_EQ(all[0].said, "rank 1 did not answer for 1 s");
  EXPECT_EQ(all[2].said, "rank 1 did not answer for 1 s");
  EXPECT_NE(all[1].said, "nothing");
}

TEST(LostRanks, RanksAtDifferentOperatorsAreTold) {
  const auto all = forked::as_ranks(2, [](Communicator& ranks) {
    std::vector<double> values(ranks.rank() == 0 ? 4 : 6, 1);
    return ranks.all_reduce(buffer(values), ReduceOp::mean) ? "nothing" : ranks.failure();
  });
  EXPECT_NE(all[0].said.find("another operator"), std::string::npos) << all[0].said;
  EXPECT_NE(all[1].said.find("another operator"), std::string::npos) << all[1].said;
}

// --- coming together
// ------------------------------------------------------------------------------------------------------------------

TEST(Meetings, RanksThatMeanAnotherRunEndWithOneSentence) {
  const std::uint16_t port = forked::free_port();
  const auto all = forked::in_processes(3, [&](std::uint64_t rank) {
    const Plan plan = {{"version", "1"}, {"batch", rank == 2 ? "4" : "1"}, {"seq", "128"}};
    const Meeting meeting = meet(forked::place(rank, 3, port), plan, 20);
    return (meeting.disagreement ? "" : "no disagreement: ") + meeting.error;
  });
  expect_said(all, [](double) { return "rank 2 means another run than rank 0: batch is 4, not 1"; });
}

TEST(Meetings, ANumberOfRanksThatDiffersIsNamed) {
  const std::uint16_t port = forked::free_port();
  const auto all = forked::in_processes(
      2, [&](std::uint64_t rank) { return meet(forked::place(rank, rank == 1 ? 4 : 2, port), {}, 20).error; });
  expect_said(all, [](double) { return "rank 1 was started as one of 4 ranks, rank 0 as one of 2"; });
}

TEST(Meetings, ARankThatDoesNotComeIsNamed) {
  const std::uint16_t port = forked::free_port();
  const auto all = forked::in_processes(
      3, [&](std::uint64_t rank) { return rank == 1 ? "away" : meet(forked::place(rank, 3, port), {}, 1).error; });
  EXPECT_EQ(all[0].said, "2 of 3 ranks came within 1 s: missing 1");
  EXPECT_EQ(all[2].said, all[0].said);
}

TEST(Meetings, WithoutRankZeroTheOthersEnd) {
  const Meeting meeting = meet(forked::place(1, 2, forked::free_port()), {}, 0.3);
  EXPECT_NE(meeting.error.find("rank 0 was not at 127.0.0.1:"), std::string::npos) << meeting.error;
}

// --- one for all
// ----------------------------------------------------------------------------------------------------------------------

TEST(StandIns, TakeCopiesOfTheirOwnForWhatOthersWouldSend) {
  StandIn ranks(1, 3);
  std::vector<double> whole = {-1, -1, 5, 6, -1, -1}, part(2);
  EXPECT_TRUE(ranks.all_gather(buffer(whole)));
  EXPECT_EQ(whole, (std::vector<double>{5, 6, 5, 6, 5, 6}));
  whole = {1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(ranks.reduce_scatter(buffer(whole), buffer(part), ReduceOp::mean));
  EXPECT_EQ(part, (std::vector<double>{3, 4}));
}

}  // namespace
}  // namespace ledger
