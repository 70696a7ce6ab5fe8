// Expandable segments through a driver of the tests' own, whose account must balance: every address reserved once,
// every page mapped where nothing is, at whole pages, with access, and all of it given back. What is mapped is, after
// each event, what the core predicts as reserved.
#include "probe/cuda/expandable_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <random>
#include <set>

#include "core/memory/allocator_rules.h"
#include "probe/device_executor.h"
#include "probe/host/run_host.h"
#include "tests/probe/device/emulated_device.h"
#include "tests/probe/tiny_models.h"

namespace ledger::cuda {
namespace {

using namespace driver;

constexpr int kGpu = 3;
constexpr Status kInvalid = 1;

// The driver. Memory is real, so that kernels of the emulated device can run on it.
struct Driver {
  struct Mapped {
    Bytes bytes = 0;
    Handle handle = 0;
    bool accessible = false;
  };

  int supported = 1;
  std::size_t granularity = 2 * kMiB;
  Bytes memory = kOverflow;  // of the card
  Status reserve_fails = kSuccess, map_fails = kSuccess, access_fails = kSuccess;
  bool busy = false;                    // kernels still use what is mapped
  std::map<Address, Bytes> reserved;    // by address
  std::map<Handle, Bytes> allocations;  // by handle
  std::map<Address, Mapped> mapped;     // by address
  std::set<Bytes> sizes;                // that pages had
  Handle next = 1;
  std::string wrong;

  Bytes allocated() const {
    Bytes sum = 0;
    for (const auto& [handle, bytes] : allocations)
      sum += bytes;
    return sum;
  }
  Bytes accessible() const {
    Bytes sum = 0;
    for (const auto& [address, one] : mapped)
      sum += one.accessible ? one.bytes : 0;
    return sum;
  }
  Status refuse(const std::string& why) {
    wrong += why + "; ";
    return kInvalid;
  }
  bool within_a_reservation(Address address, Bytes bytes) const {
    const auto after = reserved.upper_bound(address);
    if (after == reserved.begin()) return false;
    const auto& [first, size] = *std::prev(after);
    return address + bytes <= first + size;
  }
  bool overlaps(Address address, Bytes bytes) const {
    const auto after = mapped.lower_bound(address + bytes);
    return after != mapped.begin() && std::prev(after)->first + std::prev(after)->second.bytes > address;
  }
};

Driver* the_driver = nullptr;

bool is_plain(const AllocationProperties& p) {
  return p.type == 1 && p.handle_types == 0 && p.location.type == 1 && p.location.id == kGpu;
}

MemoryTable table() {
  MemoryTable t;
  t.cuDeviceGetAttribute = [](int* value, int attribute, int device) -> Status {
    *value = attribute == kHasVirtualMemory && device == kGpu ? the_driver->supported : 0;
    return kSuccess;
  };
  t.cuMemGetAllocationGranularity = [](std::size_t* size, const AllocationProperties* p, int) -> Status {
    *size = the_driver->granularity;
    return is_plain(*p) ? kSuccess : kInvalid;
  };
  t.cuMemAddressReserve = [](Address* address, std::size_t bytes, std::size_t, Address, unsigned long long) -> Status {
    if (the_driver->reserve_fails != kSuccess) return the_driver->reserve_fails;
    if (bytes % the_driver->granularity != 0) return the_driver->refuse("addresses reserved in part of a step");
    void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = reinterpret_cast<Address>(memory);
    the_driver->reserved[*address] = bytes;
    return kSuccess;
  };
  t.cuMemAddressFree = [](Address address, std::size_t bytes) -> Status {
    const auto found = the_driver->reserved.find(address);
    if (found == the_driver->reserved.end() || found->second != bytes)
      return the_driver->refuse("free of no reservation");
    if (the_driver->overlaps(address, bytes)) return the_driver->refuse("addresses freed with memory at them");
    the_driver->reserved.erase(found);
    munmap(reinterpret_cast<void*>(address), bytes);
    return kSuccess;
  };
  t.cuMemCreate = [](Handle* handle, std::size_t bytes, const AllocationProperties* p, unsigned long long) -> Status {
    if (!is_plain(*p) || bytes % the_driver->granularity != 0) return the_driver->refuse("memory of another kind");
    if (plus(the_driver->allocated(), bytes) > the_driver->memory) return kOutOfMemory;
    *handle = the_driver->next++;
    the_driver->allocations[*handle] = bytes;
    the_driver->sizes.insert(bytes);
    return kSuccess;
  };
  t.cuMemRelease = [](Handle handle) -> Status {
    for (const auto& [address, one] : the_driver->mapped) {
      if (one.handle == handle) return the_driver->refuse("memory released while it is mapped");
    }
    return the_driver->allocations.erase(handle) == 1 ? kSuccess : the_driver->refuse("release of no memory");
  };
  t.cuMemMap = [](Address address, std::size_t bytes, std::size_t offset, Handle handle, unsigned long long) -> Status {
    if (the_driver->map_fails != kSuccess) return the_driver->map_fails;
    const auto memory = the_driver->allocations.find(handle);
    if (memory == the_driver->allocations.end() || memory->second != bytes || offset != 0)
      return the_driver->refuse("mapping of no memory");
    if (!the_driver->within_a_reservation(address, bytes)) return the_driver->refuse("mapped beyond the addresses");
    if (the_driver->overlaps(address, bytes)) return the_driver->refuse("mapped twice");
    the_driver->mapped[address] = {bytes, handle, false};
    return kSuccess;
  };
  t.cuMemUnmap = [](Address address, std::size_t bytes) -> Status {
    const auto found = the_driver->mapped.find(address);
    if (found == the_driver->mapped.end() || found->second.bytes != bytes)
      return the_driver->refuse("unmap of no page");
    if (the_driver->busy) return the_driver->refuse("unmapped while kernels use it");
    mprotect(reinterpret_cast<void*>(address), bytes, PROT_NONE);
    madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTNEED);
    the_driver->mapped.erase(found);
    return kSuccess;
  };
  t.cuMemSetAccess = [](Address address, std::size_t bytes, const Access* access, std::size_t count) -> Status {
    if (the_driver->access_fails != kSuccess) return the_driver->access_fails;
    if (count != 1 || access->location.id != kGpu || access->location.type != 1 || access->flags != 3)
      return the_driver->refuse("access of another kind");
    for (Address at = address; at < address + bytes;) {
      const auto found = the_driver->mapped.find(at);
      if (found == the_driver->mapped.end()) return the_driver->refuse("access to no page");
      found->second.accessible = true;
      at += found->second.bytes;
    }
    mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE);
    return kSuccess;
  };
  return t;
}

class ExpandableSegments : public testing::Test {
 protected:
  ExpandableSegments() { the_driver = &driver; }
  ~ExpandableSegments() override {
    store.release_all();
    EXPECT_EQ(driver.wrong, "");
    EXPECT_TRUE(driver.reserved.empty() && driver.allocations.empty() && driver.mapped.empty()) << "nothing leaks";
  }

  ExpandableStore::Device gpu() {
    return {
        .number = kGpu, .total_bytes = card, .settle = [this] { driver.busy = false; }, .grown = [this] { ++growths; }};
  }

  Driver driver;
  Bytes card = 8 * kGiB;
  std::uint64_t growths = 0;
  const MemoryTable functions = table();
  ExpandableStore store{functions, gpu()};
};

// 6000 births and deaths in phases of growing and shrinking, and the cache emptied now and then.
TEST_F(ExpandableSegments, HoldAfterEachEventWhatIsPredicted) {
  CachingAllocator predicted({.expandable_segments = true}), real({.expandable_segments = true}, &store);
  std::mt19937 random(7);
  std::vector<std::pair<BlockId, BlockId>> live;
  for (int step = 0; step < 6000; ++step) {
    driver.busy = true;
    if (live.empty() || random() % 100 < (step % 2000 < 1200 ? 55u : 40u)) {
      const Bytes bytes = random() % 2 == 0 ? 1 + random() % (2 * kMiB) : 1 + random() % (40 * kMiB);
      const BlockId one = predicted.allocate(bytes), other = real.allocate(bytes);
      ASSERT_EQ(predicted.address(one), real.address(other));
      ASSERT_NE(store.locate(real.address(other), real.block_bytes(other)), nullptr);
      live.emplace_back(one, other);
    } else {
      const std::size_t victim = random() % live.size();
      predicted.release(live[victim].first);
      real.release(live[victim].second);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    if (step % 500 == 499) {
      predicted.empty_cache();
      real.empty_cache();
    }
    ASSERT_EQ(driver.allocated(), predicted.stats().reserved) << "step " << step;
    ASSERT_EQ(driver.accessible(), predicted.stats().reserved) << "step " << step;
    ASSERT_EQ(driver.reserved.size(), predicted.stats().segments) << "a range of addresses each";
    ASSERT_EQ(driver.wrong, "");
  }
  EXPECT_EQ(driver.sizes, (std::set<Bytes>{2 * kMiB, 20 * kMiB}));
  EXPECT_GT(growths, 10u);
  EXPECT_EQ(store.error(), "");
}

// A card that is full gives nothing of a growth that does not fit, and what the allocator then gives back is unmapped.
TEST_F(ExpandableSegments, OnAFullCardTakeAllPagesOrNone) {
  driver.memory = 100 * kMiB;
  CachingAllocator real({.expandable_segments = true}, &store), predicted({true, 100 * kMiB});
  std::vector<BlockId> real_blocks, predicted_blocks;
  for (const Bytes bytes : {30 * kMiB, 19 * kMiB, 50 * kMiB, kMiB / 2, 40 * kMiB}) {
    real_blocks.push_back(real.allocate(bytes));
    predicted_blocks.push_back(predicted.allocate(bytes));
    EXPECT_EQ(real_blocks.back() == kNoBlock, predicted_blocks.back() == kNoBlock) << bytes;
    EXPECT_EQ(driver.allocated(), predicted.stats().reserved) << bytes;
  }
  EXPECT_EQ(real_blocks.back(), kNoBlock);
  real.release(real_blocks[0]);
  predicted.release(predicted_blocks[0]);
  EXPECT_EQ(real.allocate(60 * kMiB) == kNoBlock, predicted.allocate(60 * kMiB) == kNoBlock);
  EXPECT_EQ(driver.allocated(), predicted.stats().reserved);
  EXPECT_EQ(store.error(), "") << "being out of memory is a result";
}

TEST_F(ExpandableSegments, TakeAddressesForTheCardAndAnEighth) {
  ASSERT_TRUE(store.open_range(rules::kFirstAddress, Bytes{1} << 44, 20 * kMiB));
  EXPECT_EQ(driver.reserved.begin()->second, round_up(9 * kGiB, 20 * kMiB));
  EXPECT_FALSE(store.reserve(rules::kFirstAddress + round_up(9 * kGiB, 20 * kMiB), 20 * kMiB));
  EXPECT_FALSE(store.reserve(rules::kFirstAddress - 20 * kMiB, 20 * kMiB));
  EXPECT_TRUE(store.reserve(rules::kFirstAddress + 40 * kMiB, 20 * kMiB));
  EXPECT_EQ(store.locate(rules::kFirstAddress, 20 * kMiB), nullptr) << "nothing is mapped there";
  EXPECT_EQ(store.locate(rules::kFirstAddress + 50 * kMiB, 20 * kMiB), nullptr) << "and half of nothing";
  EXPECT_NE(store.locate(rules::kFirstAddress + 50 * kMiB, 10 * kMiB), nullptr);
}

TEST_F(ExpandableSegments, GiveBackWhatADriverDoesNotMap) {
  ASSERT_TRUE(store.open_range(rules::kFirstAddress, kGiB, 2 * kMiB));
  for (Status Driver::*fails : {&Driver::map_fails, &Driver::access_fails}) {
    driver.*fails = kInvalid;
    EXPECT_FALSE(store.reserve(rules::kFirstAddress, 6 * kMiB));
    EXPECT_EQ(driver.allocated(), 0u);
    EXPECT_TRUE(driver.mapped.empty());
    driver.*fails = kSuccess;
  }
  EXPECT_EQ(store.error(), "cuMemMap: the driver reports error 1");
  EXPECT_TRUE(store.reserve(rules::kFirstAddress, 6 * kMiB));
}

TEST_F(ExpandableSegments, SayWhereTheyCannotBe) {
  EXPECT_EQ(store.why_not(), "");
  driver.reserve_fails = 801;
  EXPECT_EQ(store.why_not(), "the driver reserves no addresses here");
  driver.granularity = 4 * kMiB;
  EXPECT_EQ(store.why_not(), "the driver maps memory in steps of 4194304 bytes, and pages are of 2 MiB");
  driver.supported = 0;
  EXPECT_EQ(store.why_not(), "the driver does not map memory at chosen addresses on this GPU");
  MemoryTable old = table();
  old.missing = "cuMemCreate";
  EXPECT_EQ(ExpandableStore(old, gpu()).why_not(), "the driver has no function cuMemCreate");
}

// The emulated device with its segments in this driver's memory.
class OnPages : public emulated::EmulatedDevice {
 public:
  explicit OnPages(ExpandableStore& store) : store_(store) {}
  std::byte* locate(std::uint64_t address, Bytes bytes) override { return store_.locate(address, bytes); }

 private:
  ExpandableStore& store_;
};

TEST_F(ExpandableSegments, TrainAsOnTheHost) {
  Recipe recipe;
  recipe.batch = 2;
  recipe.seq = 12;
  recipe.allocator = AllocatorKind::torch_expandable;
  const Trace trace = tiny::trace(tiny::kLlama, recipe, {.steps = 3});
  const ReplayOptions options{.allocator = {.expandable_segments = true}, .record_addresses = true};
  const HostRun host = run_on_host(trace, options);
  OnPages gpu(store);
  device::DeviceExecutor executor(trace, gpu, {.poison = true});
  const Replay measured = replay(trace, options, &executor, &store);
  executor.finish();
  ASSERT_FALSE(executor.failure()) << executor.failure()->what;
  ASSERT_EQ(executor.losses().size(), host.losses.size());
  for (std::size_t i = 0; i < host.losses.size(); ++i)
    EXPECT_NEAR(executor.losses()[i], host.losses[i], 2e-3 * host.losses[i]);
  const Replay predicted = replay(trace, options);
  EXPECT_EQ(measured.addresses, predicted.addresses);
  EXPECT_EQ(measured.allocator.reserved, predicted.allocator.reserved);
  EXPECT_EQ(driver.allocated(), predicted.allocator.reserved);
}

}  // namespace
}  // namespace ledger::cuda
