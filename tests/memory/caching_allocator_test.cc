// What one request costs, what a freed block gives, what happens when the card is full. Expected values are worked out
// from PyTorch's rules by hand; naive_allocator.h checks random sequences.
#include "core/memory/caching_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "naive_allocator.h"

namespace ledger {
namespace {

constexpr std::uint64_t kBase = std::uint64_t{1} << 40;

// One request to an empty allocator.
struct Request {
  const char* name;
  Bytes bytes;
  Bytes allocated;
  Bytes reserved;
  Bytes reserved_expandable;
};

void PrintTo(const Request& request, std::ostream* out) {
  *out << request.name;
}

class FirstRequest : public testing::TestWithParam<Request> {};

TEST_P(FirstRequest, CountsBlockAndSegment) {
  CachingAllocator allocator;
  const BlockId block = allocator.allocate(GetParam().bytes);
  EXPECT_EQ(allocator.address(block), kBase);
  EXPECT_EQ(allocator.block_bytes(block), GetParam().allocated);
  EXPECT_EQ(allocator.stats().allocated, GetParam().allocated);
  EXPECT_EQ(allocator.stats().reserved, GetParam().reserved);
  EXPECT_EQ(allocator.stats().requested, GetParam().bytes);
  EXPECT_EQ(allocator.stats().segments, 1u);
}

TEST_P(FirstRequest, ExpandableMapsPages) {
  CachingAllocator allocator({true, kOverflow});
  const BlockId block = allocator.allocate(GetParam().bytes);
  EXPECT_EQ(allocator.block_bytes(block), round_up(GetParam().bytes, 512));
  EXPECT_EQ(allocator.stats().reserved, GetParam().reserved_expandable);
}

// Large blocks keep a tail of up to 1 MiB, and count it; expandable ones and small ones split any 512 bytes off.
INSTANTIATE_TEST_SUITE_P(
    Sizes, FirstRequest,
    testing::Values(Request{"one_byte", 1, 512, 2 * kMiB, 2 * kMiB}, Request{"just_512", 512, 512, 2 * kMiB, 2 * kMiB},
                    Request{"over_512", 513, 1024, 2 * kMiB, 2 * kMiB},
                    Request{"largest_small", kMiB, kMiB, 2 * kMiB, 2 * kMiB},
                    Request{"smallest_large", kMiB + 1, kMiB + 512, 20 * kMiB, 20 * kMiB},
                    Request{"below_10_mib", 10 * kMiB - 1024, 10 * kMiB - 1024, 20 * kMiB, 20 * kMiB},
                    Request{"ten_mib_made_to_measure", 10 * kMiB, 10 * kMiB, 10 * kMiB, 20 * kMiB},
                    Request{"tail_below_1_mib_is_not_split", 11 * kMiB + 512 * kKiB, 12 * kMiB, 12 * kMiB, 20 * kMiB},
                    Request{"tail_of_1_mib_is_not_split", 11 * kMiB, 12 * kMiB, 12 * kMiB, 20 * kMiB},
                    Request{"tail_over_1_mib_is_split", 11 * kMiB - 512, 11 * kMiB - 512, 12 * kMiB, 20 * kMiB},
                    Request{"two_gib", 2 * kGiB, 2 * kGiB, 2 * kGiB, 2060 * kMiB}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(CachingAllocator, FreedBlockOf12MiBServes11AndAHalfWhole) {
  CachingAllocator allocator;
  allocator.release(allocator.allocate(12 * kMiB));
  const BlockId block = allocator.allocate(11 * kMiB + 512 * kKiB);
  EXPECT_EQ(allocator.block_bytes(block), 12 * kMiB);
  EXPECT_EQ(allocator.stats().reserved, 12 * kMiB);
  EXPECT_EQ(allocator.stats().requested, 11 * kMiB + 512 * kKiB);
}

TEST(CachingAllocator, BestFitTakesTheSmallestThenTheLowest) {
  CachingAllocator allocator;
  std::vector<BlockId> blocks;
  for (const Bytes mib : {40u, 30u, 30u, 50u})
    blocks.push_back(allocator.allocate(mib * kMiB));
  const std::uint64_t low = allocator.address(blocks[1]);
  const std::uint64_t high = allocator.address(blocks[2]);
  for (const BlockId block : {blocks[2], blocks[0], blocks[3], blocks[1]})
    allocator.release(block);
  EXPECT_EQ(allocator.address(allocator.allocate(30 * kMiB)), low);
  EXPECT_EQ(allocator.address(allocator.allocate(30 * kMiB)), high);
  EXPECT_EQ(allocator.address(allocator.allocate(30 * kMiB)), kBase);  // of the 40 MiB block, the 50 stays whole
  EXPECT_EQ(allocator.stats().reserved, 150 * kMiB);
}

TEST(CachingAllocator, NeighboursMergeWithinASegmentOnly) {
  CachingAllocator allocator;
  std::vector<BlockId> parts;
  for (int i = 0; i < 8; ++i)
    parts.push_back(allocator.allocate(5 * kMiB));  // four to a 20 MiB segment
  EXPECT_EQ(allocator.stats().segments, 2u);
  for (const int i : {1, 3, 2, 0, 4, 5, 6, 7})
    allocator.release(parts[static_cast<std::size_t>(i)]);
  EXPECT_EQ(allocator.address(allocator.allocate(20 * kMiB)), kBase);
  EXPECT_EQ(allocator.address(allocator.allocate(20 * kMiB)), kBase + 20 * kMiB);
  EXPECT_EQ(allocator.stats().reserved, 40 * kMiB);
  allocator.allocate(40 * kMiB);  // the two segments are adjacent but not one
  EXPECT_EQ(allocator.stats().reserved, 80 * kMiB);
}

TEST(CachingAllocator, SmallAndLargeDoNotShare) {
  CachingAllocator allocator;
  allocator.release(allocator.allocate(20 * kMiB));
  allocator.allocate(kMiB);
  EXPECT_EQ(allocator.stats().reserved, 22 * kMiB);
}

TEST(CachingAllocator, PressureGivesBackWholeSegmentsOnly) {
  CachingAllocator allocator({false, 64 * kMiB});
  const BlockId whole = allocator.allocate(20 * kMiB);
  allocator.allocate(4 * kMiB);                // leaves 16 MiB of its 20 MiB segment, split
  allocator.release(allocator.allocate(512));  // a small segment, whole again
  allocator.release(whole);
  EXPECT_EQ(allocator.stats().reserved, 42 * kMiB);
  const BlockId big = allocator.allocate(44 * kMiB);
  ASSERT_NE(big, kNoBlock);
  EXPECT_EQ(allocator.stats().reserved, 64 * kMiB);
  EXPECT_EQ(allocator.stats().retries, 1u);
  EXPECT_EQ(allocator.stats().segments, 2u);
  EXPECT_EQ(allocator.address(big), kBase + 42 * kMiB);  // addresses given back are not used again
}

TEST(CachingAllocator, RefusalNamesTheSegmentNotTheTensor) {
  CachingAllocator allocator({false, 30 * kMiB});
  const BlockId first = allocator.allocate(2 * kMiB);
  EXPECT_EQ(allocator.allocate(19 * kMiB), kNoBlock);  // 18 MiB left in the segment, 10 on the card
  EXPECT_EQ(allocator.refused_segment_bytes(), 20 * kMiB);
  EXPECT_EQ(allocator.stats().retries, 1u);
  EXPECT_EQ(allocator.stats().allocated, 2 * kMiB);
  EXPECT_EQ(allocator.stats().requested, 2 * kMiB);
  allocator.release(first);
  EXPECT_NE(allocator.allocate(19 * kMiB), kNoBlock);
}

TEST(CachingAllocator, SizesBeyond64BitsAreRefusedQuietly) {
  for (const bool expandable : {false, true}) {
    CachingAllocator allocator({expandable, kOverflow});
    EXPECT_EQ(allocator.allocate(kOverflow), kNoBlock);
    EXPECT_EQ(allocator.allocate(Bytes{1} << 63), kNoBlock);
    EXPECT_NE(allocator.allocate(Bytes{1} << 50), kNoBlock);
    EXPECT_EQ(allocator.stats().reserved, expandable ? round_up(Bytes{1} << 50, 20 * kMiB) : Bytes{1} << 50);
  }
}

TEST(Expandable, GrowsAtTheEndByPages) {
  CachingAllocator allocator({true, kOverflow});
  allocator.allocate(15 * kMiB);
  const BlockId second = allocator.allocate(15 * kMiB);  // 5 MiB of the first page, 10 of the next
  EXPECT_EQ(allocator.stats().reserved, 40 * kMiB);
  const BlockId third = allocator.allocate(11 * kMiB + 512 * kKiB);
  EXPECT_EQ(allocator.address(third), allocator.address(second) + 15 * kMiB);
  EXPECT_EQ(allocator.block_bytes(third), 11 * kMiB + 512 * kKiB);  // any rest of 512 bytes is split off
  EXPECT_EQ(allocator.stats().reserved, 60 * kMiB);
  allocator.allocate(1);
  EXPECT_EQ(allocator.stats().reserved, 62 * kMiB);
  EXPECT_EQ(allocator.stats().segments, 2u);
}

TEST(Expandable, PrefersAClosedHoleToTheOpenEnd) {
  CachingAllocator allocator({true, kOverflow});
  const BlockId hole = allocator.allocate(14 * kMiB);
  allocator.allocate(14 * kMiB);  // 12 MiB of its second page stay free at the open end
  allocator.release(hole);
  EXPECT_EQ(allocator.address(allocator.allocate(12 * kMiB)), kBase / (20 * kMiB) * 20 * kMiB + 20 * kMiB);
}

TEST(Expandable, PressureUnmapsWholeFreePagesAndFillsTheGapAgain) {
  CachingAllocator allocator({true, 100 * kMiB});  // its range: 112.5 MiB, in pages 120
  const BlockId first = allocator.allocate(50 * kMiB);
  const BlockId second = allocator.allocate(10 * kMiB);
  const std::uint64_t begin = allocator.address(first);
  allocator.release(first);  // 50 MiB free: pages 0 and 1 wholly, 10 MiB of page 2 beside `second`
  EXPECT_EQ(allocator.stats().reserved, 60 * kMiB);
  const BlockId third = allocator.allocate(55 * kMiB);  // 60 MiB of pages behind, when only page 2 stays mapped
  ASSERT_NE(third, kNoBlock);
  EXPECT_EQ(allocator.address(third), allocator.address(second) + 10 * kMiB);
  EXPECT_EQ(allocator.stats().reserved, 80 * kMiB);
  EXPECT_EQ(allocator.stats().retries, 1u);
  EXPECT_EQ(allocator.allocate(45 * kMiB), kNoBlock);  // would fit the gap, but 40 MiB of pages do not fit the card
  EXPECT_EQ(allocator.refused_segment_bytes(), 46 * kMiB);
  EXPECT_EQ(allocator.stats().retries, 2u);
  const BlockId fourth = allocator.allocate(15 * kMiB);
  EXPECT_EQ(allocator.address(fourth), begin);
  EXPECT_EQ(allocator.stats().reserved, 100 * kMiB);
}

TEST(Expandable, RequestBeyondTheRangeOpensAnother) {
  CachingAllocator allocator({true, 100 * kMiB});
  const BlockId first = allocator.allocate(50 * kMiB);
  allocator.allocate(10 * kMiB);
  const std::uint64_t begin = allocator.address(first);
  allocator.release(first);
  // 60 of the range's 120 MiB lie behind the last block: too few for 70. The new range gets 80 MiB of pages.
  EXPECT_EQ(allocator.address(allocator.allocate(70 * kMiB)), begin + 120 * kMiB);
  EXPECT_EQ(allocator.stats().reserved, 100 * kMiB);
  EXPECT_EQ(allocator.stats().segments, 2u);
}

// The device may refuse although the limit allows; what it was given and what it got back must agree with `reserved`.
class CountingStore : public SegmentStore {
 public:
  explicit CountingStore(Bytes capacity) : capacity_(capacity) {}
  bool reserve(std::uint64_t address, Bytes bytes) override {
    if (held + bytes > capacity_) return false;
    held += bytes;
    EXPECT_TRUE(segments_.insert({address, bytes}).second);
    return true;
  }
  void release(std::uint64_t, Bytes bytes) override { held -= bytes; }
  Bytes held = 0;

 private:
  Bytes capacity_;
  std::map<std::uint64_t, Bytes> segments_;  // never erased: an address that comes back is an error
};

TEST(CachingAllocator, StoreRefusesAsALimitDoes) {
  CountingStore store(64 * kMiB);
  CachingAllocator allocator({}, &store);
  allocator.release(allocator.allocate(40 * kMiB));
  EXPECT_NE(allocator.allocate(50 * kMiB), kNoBlock);
  EXPECT_EQ(allocator.stats().retries, 1u);
  EXPECT_EQ(allocator.stats().reserved, store.held);
  EXPECT_EQ(allocator.allocate(20 * kMiB), kNoBlock);
}

// Random sequences against the naive allocator: same addresses, same sizes, same totals at every step.
struct Sequence {
  const char* name;
  bool expandable;
  Bytes limit;
  unsigned seed;
};

void PrintTo(const Sequence& sequence, std::ostream* out) {
  *out << sequence.name;
}

class RandomSequence : public testing::TestWithParam<Sequence> {
 protected:
  Bytes random_size() {
    switch (random_() % 4) {
      case 0:
        return 1 + random_() % (4 * kKiB);
      case 1:
        return 1 + random_() % (2 * kMiB);
      case 2:
        return 1 + random_() % (40 * kMiB);
      default:  // training repeats a few sizes exactly
        return Bytes{1 + random_() % 6} * 3 * kMiB;
    }
  }
  std::mt19937 random_{GetParam().seed};
};

TEST_P(RandomSequence, MatchesTheNaiveAllocator) {
  CachingAllocator fast({GetParam().expandable, GetParam().limit});
  NaiveAllocator naive(GetParam().expandable, GetParam().limit);
  std::map<std::uint64_t, BlockId> live;  // by address
  for (int step = 0; step < 6000; ++step) {
    const bool growing = step % 2000 < 1200;
    if (live.empty() || random_() % 100 < (growing ? 55u : 40u)) {
      const Bytes bytes = random_size();
      const BlockId block = fast.allocate(bytes);
      const auto expected = naive.allocate(bytes);
      ASSERT_EQ(block != kNoBlock, expected.has_value()) << "step " << step;
      if (block != kNoBlock) {
        ASSERT_EQ(fast.address(block), *expected) << "step " << step;
        ASSERT_EQ(fast.block_bytes(block), naive.block_bytes(*expected)) << "step " << step;
        ASSERT_TRUE(live.insert({*expected, block}).second);
      }
    } else {
      const auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random_() % live.size()));
      fast.release(victim->second);
      naive.release(victim->first);
      live.erase(victim);
    }
    ASSERT_EQ(fast.stats().allocated, naive.allocated) << "step " << step;
    ASSERT_EQ(fast.stats().reserved, naive.reserved) << "step " << step;
    ASSERT_EQ(fast.stats().retries, naive.retries) << "step " << step;
    ASSERT_LE(fast.stats().requested, fast.stats().allocated);
    ASSERT_LE(fast.stats().allocated, fast.stats().reserved);
    ASSERT_LE(fast.stats().reserved, GetParam().limit);
  }
  std::uint64_t end = 0;
  Bytes sum = 0;
  for (const auto& [address, block] : live) {
    ASSERT_GE(address, end);
    end = address + fast.block_bytes(block);
    sum += fast.block_bytes(block);
  }
  EXPECT_EQ(sum, fast.stats().allocated);
}

TEST_P(RandomSequence, AllFreedLeavesOneBlockPerSegment) {
  CachingAllocator allocator({GetParam().expandable, kOverflow});
  std::vector<BlockId> blocks;
  for (int i = 0; i < 500; ++i)
    blocks.push_back(allocator.allocate(random_size()));
  std::shuffle(blocks.begin(), blocks.end(), random_);
  for (const BlockId block : blocks)
    allocator.release(block);
  EXPECT_EQ(allocator.stats().allocated, 0u);
  EXPECT_EQ(allocator.stats().requested, 0u);
  EXPECT_GT(allocator.stats().reserved, 0u);
  // Under pressure every segment that is one free block goes back; a refusal that leaves nothing reserved proves it.
  EXPECT_EQ(allocator.allocate(kOverflow), kNoBlock);
  EXPECT_EQ(allocator.stats().reserved, 0u);
  EXPECT_EQ(allocator.stats().segments, 0u);
}

INSTANTIATE_TEST_SUITE_P(Cases, RandomSequence,
                         testing::Values(Sequence{"unlimited", false, kOverflow, 1},
                                         Sequence{"limit_1_gib", false, kGiB, 2},
                                         Sequence{"limit_300_mib", false, 300 * kMiB, 3},
                                         Sequence{"expandable", true, kOverflow, 4},
                                         Sequence{"expandable_limit_1_gib", true, kGiB, 5},
                                         Sequence{"expandable_limit_300_mib", true, 300 * kMiB, 6}),
                         [](const auto& row) { return std::string(row.param.name); });

// A block goes back to the pool of the stream that it was made for, and to no other.
TEST(Streams, HaveBlocksOfTheirOwn) {
  for (const bool expandable : {false, true}) {
    CachingAllocator allocator({.expandable_segments = expandable});
    const BlockId gathered = allocator.allocate(20 * kMiB, Stream::all_gather);
    const std::uint64_t place = allocator.address(gathered);
    allocator.release(gathered);
    const BlockId computed = allocator.allocate(20 * kMiB);
    EXPECT_NE(allocator.address(computed), place);
    EXPECT_EQ(allocator.stats().reserved, 40 * kMiB);
    EXPECT_EQ(allocator.address(allocator.allocate(20 * kMiB, Stream::all_gather)), place);
    EXPECT_EQ(allocator.stats().reserved, 40 * kMiB);
    allocator.allocate(512, Stream::reduce_scatter);
    EXPECT_EQ(allocator.stats().reserved, 42 * kMiB);
  }
}

TEST(Streams, GiveTheirCachedBlocksBackBeforeAnotherIsRefused) {
  CachingAllocator allocator({.limit = 40 * kMiB});
  allocator.release(allocator.allocate(30 * kMiB, Stream::all_gather));
  EXPECT_NE(allocator.allocate(30 * kMiB), kNoBlock);
  EXPECT_EQ(allocator.stats().reserved, 30 * kMiB);
  EXPECT_EQ(allocator.stats().retries, 1u);
}

}  // namespace
}  // namespace ledger
