#include "probe/host/host_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/memory/allocator_rules.h"

namespace ledger {
namespace {

using rules::kFirstAddress;

TEST(HostStore, ASegmentIsReadableAndWritableAndStartsAsZeros) {
  HostStore store;
  ASSERT_TRUE(store.reserve(kFirstAddress, 2 * kMiB));
  std::byte* memory = store.locate(kFirstAddress + kMiB, kMiB);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory[17], std::byte{0});
  std::memset(memory, 1, kMiB);
  EXPECT_EQ(store.reserved(), 2 * kMiB);
}

TEST(HostStore, AdjacentSegmentsAreOnePieceOfMemory) {
  HostStore store;
  ASSERT_TRUE(store.reserve(kFirstAddress, 2 * kMiB));
  ASSERT_TRUE(store.reserve(kFirstAddress + 2 * kMiB, 2 * kMiB));
  std::byte* memory = store.locate(kFirstAddress + kMiB, 2 * kMiB);
  ASSERT_NE(memory, nullptr);
  std::memset(memory, 1, 2 * kMiB);
  EXPECT_EQ(memory + kMiB, store.locate(kFirstAddress + 2 * kMiB, 1));
}

TEST(HostStore, AnAddressMayComeBackAfterItsRelease) {
  HostStore store;
  ASSERT_TRUE(store.reserve(kFirstAddress, 4 * kMiB));
  std::memset(store.locate(kFirstAddress, 4 * kMiB), 1, 4 * kMiB);
  store.release(kFirstAddress + 2 * kMiB, 2 * kMiB);
  EXPECT_EQ(store.reserved(), 2 * kMiB);
  ASSERT_TRUE(store.reserve(kFirstAddress + 2 * kMiB, 2 * kMiB));
  EXPECT_EQ(*store.locate(kFirstAddress, 1), std::byte{1});
  EXPECT_EQ(*store.locate(kFirstAddress + 2 * kMiB, 1), std::byte{0});
}

TEST(HostStoreDeathTest, MemoryThatWasReleasedCannotBeTouched) {
  HostStore store;
  ASSERT_TRUE(store.reserve(kFirstAddress, 2 * kMiB));
  volatile std::byte* memory = store.locate(kFirstAddress, 2 * kMiB);
  memory[5] = std::byte{1};
  store.release(kFirstAddress, 2 * kMiB);
  EXPECT_DEATH(memory[5] = std::byte{2}, "");
}

TEST(HostStore, AddressesFarApartShareNothing) {
  HostStore store;
  const std::uint64_t far = kFirstAddress + (std::uint64_t{1} << 44);  // the second range of expandable segments
  ASSERT_TRUE(store.reserve(far, 2 * kMiB));
  ASSERT_TRUE(store.reserve(kFirstAddress, 2 * kMiB));
  std::memset(store.locate(kFirstAddress, 2 * kMiB), 1, 2 * kMiB);
  EXPECT_EQ(*store.locate(far, 2 * kMiB), std::byte{0});
}

TEST(HostStore, BeyondTheLimitReservationsAreRefused) {
  HostStore store(4 * kMiB);
  EXPECT_TRUE(store.reserve(kFirstAddress, 2 * kMiB));
  EXPECT_FALSE(store.reserve(kFirstAddress + 2 * kMiB, 4 * kMiB));
  EXPECT_TRUE(store.reserve(kFirstAddress + 2 * kMiB, 2 * kMiB));
  store.release(kFirstAddress, 2 * kMiB);
  EXPECT_TRUE(store.reserve(kFirstAddress, 2 * kMiB));
}

TEST(HostStore, UnknownAddressesHaveNoMemory) {
  HostStore store;
  EXPECT_EQ(store.locate(kFirstAddress, 1), nullptr);
  ASSERT_TRUE(store.reserve(kFirstAddress, 2 * kMiB));
  EXPECT_EQ(store.locate(kFirstAddress - 1, 1), nullptr);
  EXPECT_EQ(store.locate(kFirstAddress, kOverflow), nullptr);
}

}  // namespace
}  // namespace ledger
