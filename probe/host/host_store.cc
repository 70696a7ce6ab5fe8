#include "probe/host/host_store.h"

#include <sys/mman.h>

#include <algorithm>

namespace ledger {
namespace {

// Address space only: nothing is accessible until reserve(). Halved where the process may not have as much.
constexpr Bytes kArena = Bytes{1} << 40;

}  // namespace

HostStore::~HostStore() {
  for (const Arena& arena : arenas_)
    munmap(arena.memory, arena.bytes);
}

bool HostStore::add_arena(std::uint64_t first, Bytes at_least) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  for (Bytes bytes = std::max(kArena, at_least); bytes >= at_least; bytes /= 2) {
    void* memory = mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
    if (memory == MAP_FAILED) continue;
    const auto after = std::find_if(arenas_.begin(), arenas_.end(), [&](const Arena& a) { return a.first > first; });
    arenas_.insert(after, {first, bytes, static_cast<std::byte*>(memory)});
    return true;
  }
  return false;
}

std::byte* HostStore::locate(std::uint64_t virtual_address, Bytes bytes) const {
  for (auto arena = arenas_.rbegin(); arena != arenas_.rend(); ++arena) {
    if (arena->first > virtual_address) continue;
    const std::uint64_t offset = virtual_address - arena->first;
    return plus(offset, bytes) <= arena->bytes ? arena->memory + offset : nullptr;
  }
  return nullptr;
}

bool HostStore::reserve(std::uint64_t virtual_address, Bytes bytes) {
  if (plus(reserved_, bytes) > limit_) return false;
  if (locate(virtual_address, bytes) == nullptr && !add_arena(virtual_address, bytes)) return false;
  if (mprotect(locate(virtual_address, bytes), bytes, PROT_READ | PROT_WRITE) != 0) return false;
  reserved_ += bytes;
  return true;
}

void HostStore::release(std::uint64_t virtual_address, Bytes bytes) {
  std::byte* memory = locate(virtual_address, bytes);
  madvise(memory, bytes, MADV_DONTNEED);
  mprotect(memory, bytes, PROT_NONE);  // a stray access stops here instead of reading zeros
  reserved_ -= bytes;
}

}  // namespace ledger
