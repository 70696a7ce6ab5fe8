#include "probe/cuda/expandable_store.h"

#include <algorithm>
#include <iterator>

#include "core/memory/allocator_rules.h"

namespace ledger::cuda {

std::string ExpandableStore::why_not() const {
  if (!table_.missing.empty()) return "the driver has no function " + table_.missing;
  int supported = 0;
  const driver::Status asked = table_.cuDeviceGetAttribute(&supported, driver::kHasVirtualMemory, device_.number);
  if (asked != driver::kSuccess || supported == 0)
    return "the driver does not map memory at chosen addresses on this GPU";
  std::size_t granularity = 0;
  const driver::AllocationProperties kind = properties();
  if (table_.cuMemGetAllocationGranularity(&granularity, &kind, driver::kMinimumGranularity) != driver::kSuccess ||
      granularity == 0)
    return "the driver does not tell the granularity of its memory";
  if (rules::kSmallBuffer % granularity != 0)
    return "the driver maps memory in steps of " + std::to_string(granularity) + " bytes, and pages are of 2 MiB";
  driver::Address tried = 0;  // WSL has the functions, and refuses
  if (table_.cuMemAddressReserve(&tried, rules::kSmallBuffer, 0, 0, 0) != driver::kSuccess)
    return "the driver reserves no addresses here";
  table_.cuMemAddressFree(tried, rules::kSmallBuffer);
  return "";
}

// Being out of memory is a result; anything else is an error, of which the first is kept.
bool ExpandableStore::well(const char* call, driver::Status status) {
  if (status == driver::kSuccess) return true;
  if (status != driver::kOutOfMemory && error_.empty())
    error_ = std::string(call) + ": the driver reports error " + std::to_string(status);
  return false;
}

// PyTorch takes as many addresses as 1 1/8 of the card: more memory than that cannot come.
bool ExpandableStore::open_range(std::uint64_t virtual_address, Bytes bytes, Bytes page) {
  const Bytes most = round_up(plus(device_.total_bytes, device_.total_bytes / 8), page);
  Range range;
  range.bytes = std::min(bytes, most);
  range.page = page;
  if (!well("cuMemAddressReserve", table_.cuMemAddressReserve(&range.base, range.bytes, 0, 0, 0))) return false;
  ranges_[virtual_address] = std::move(range);
  return true;
}

void ExpandableStore::close_range(std::uint64_t virtual_address) {
  const auto found = ranges_.find(virtual_address);
  if (found == ranges_.end()) return;
  give_back(found->second);
  ranges_.erase(found);
}

std::optional<ExpandableStore::Place> ExpandableStore::find(std::uint64_t virtual_address, Bytes bytes) const {
  const auto after = ranges_.upper_bound(virtual_address);
  if (after == ranges_.begin()) return std::nullopt;
  const auto& [first, range] = *std::prev(after);
  const Bytes offset = virtual_address - first;
  if (plus(offset, bytes) > range.bytes) return std::nullopt;
  const std::uint64_t begin = offset / range.page, end = divide_up(plus(offset, bytes), range.page);
  return Place{first, offset, static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)};
}

// All pages or none.
bool ExpandableStore::create(const Place& place) {
  Range& range = ranges_.at(place.range);
  range.pages.resize(std::max(range.pages.size(), place.first + place.count));
  const driver::AllocationProperties kind = properties();
  for (std::size_t i = 0; i < place.count; ++i) {
    driver::Handle handle = 0;
    if (well("cuMemCreate", table_.cuMemCreate(&handle, range.page, &kind, 0))) {
      range.pages[place.first + i] = handle;
      continue;
    }
    for (std::size_t made = 0; made < i; ++made)
      drop(range.pages[place.first + made]);
    return false;
  }
  return true;
}

bool ExpandableStore::map(const Place& place) {
  Range& range = ranges_.at(place.range);
  for (std::size_t i = 0; i < place.count; ++i) {
    const std::size_t page = place.first + i;
    if (!well("cuMemMap", table_.cuMemMap(range.at(page), range.page, 0, *range.pages[page], 0))) {
      for (std::size_t rest = i; rest < place.count; ++rest)
        drop(range.pages[place.first + rest]);
      unmap(range, place.first, i);
      return false;
    }
  }
  const driver::Access access{.location = {.id = device_.number}};
  const Bytes bytes = times(range.page, place.count);
  if (well("cuMemSetAccess", table_.cuMemSetAccess(range.at(place.first), bytes, &access, 1))) return true;
  unmap(range, place.first, place.count);
  return false;
}

bool ExpandableStore::reserve(std::uint64_t virtual_address, Bytes bytes) {
  const std::optional<Place> place = find(virtual_address, bytes);
  if (!place || !create(*place) || !map(*place)) return false;
  if (device_.grown) device_.grown();
  return true;
}

void ExpandableStore::unmap(Range& range, std::size_t first, std::size_t count) {
  for (std::size_t page = first; page < first + count; ++page) {
    if (page >= range.pages.size() || !range.pages[page]) continue;
    well("cuMemUnmap", table_.cuMemUnmap(range.at(page), range.page));
    drop(range.pages[page]);
  }
}

void ExpandableStore::drop(std::optional<driver::Handle>& page) {
  well("cuMemRelease", table_.cuMemRelease(*page));
  page.reset();
}

void ExpandableStore::release(std::uint64_t virtual_address, Bytes bytes) {
  const std::optional<Place> place = find(virtual_address, bytes);
  if (!place) return;
  if (device_.settle) device_.settle();
  unmap(ranges_.at(place->range), place->first, place->count);
}

void ExpandableStore::give_back(Range& range) {
  unmap(range, 0, range.pages.size());
  well("cuMemAddressFree", table_.cuMemAddressFree(range.base, range.bytes));
}

void ExpandableStore::release_all() {
  if (device_.settle && !ranges_.empty()) device_.settle();
  for (auto& [address, range] : ranges_)
    give_back(range);
  ranges_.clear();
}

std::byte* ExpandableStore::locate(std::uint64_t virtual_address, Bytes bytes) const {
  const std::optional<Place> place = find(virtual_address, bytes);
  if (!place) return nullptr;
  const Range& range = ranges_.at(place->range);
  const std::size_t end = place->first + place->count;
  if (end > range.pages.size()) return nullptr;
  for (std::size_t page = place->first; page < end; ++page) {
    if (!range.pages[page]) return nullptr;
  }
  return reinterpret_cast<std::byte*>(range.base + place->offset);
}

}  // namespace ledger::cuda
