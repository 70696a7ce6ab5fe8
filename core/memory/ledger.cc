#include "core/memory/ledger.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "core/base/order.h"
#include "core/memory/census.h"

namespace ledger {
namespace {

// Symbols count as well as sizes: a line prints its dimensions as letters, and h x q_dim is not h x h even where equal.
bool same_shape(const Shape& a, const Shape& b) {
  if (!a.same_sizes(b)) return false;
  for (std::size_t i = 0; i < a.rank; ++i) {
    if (a[i].sym != b[i].sym) return false;
  }
  return true;
}

bool belongs(const LedgerLine& line, const StorageInfo& info, Category category) {
  return line.scope == info.scope && line.op == info.op && line.category == category && line.dtype == info.dtype &&
         same_shape(line.shape, info.shape);
}

std::uint64_t hash(const StorageInfo& info, Category category) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: multiplicative hashing (Knuth, TAOCP 6.4)
  std::uint64_t h = info.scope;
  h = h << 24 | static_cast<std::uint64_t>(info.op) << 16 | static_cast<std::uint64_t>(category) << 8 |
      static_cast<std::uint64_t>(info.dtype);
  h *= kOdd;
  for (std::size_t i = 0; i < info.shape.rank; ++i)
    h = (h ^ (h >> 29) ^ info.shape.sizes[i]) * kOdd;
  return h ^ (h >> 32);
}

bool larger(const LedgerLine& a, const LedgerLine& b) {
  return a.bytes > b.bytes;
}

// Lines by open addressing; sized once for `most` tensors, at most half full.
class Lines {
 public:
  explicit Lines(std::size_t most) {
    std::size_t size = 16;
    while (size < 2 * most)
      size *= 2;
    table_.assign(size, kEmpty);
  }

  void add(const StorageInfo& info, Category category) {
    LedgerLine& line = line_of(info, category);
    ++line.count;
    line.bytes = plus(line.bytes, info.bytes);
  }

  std::vector<LedgerLine> take_sorted() {
    sort_stably<LedgerLine, larger>(lines_);
    return std::move(lines_);
  }

 private:
  static constexpr std::uint32_t kEmpty = ~std::uint32_t{0};

  LedgerLine& line_of(const StorageInfo& info, Category category) {
    const std::size_t mask = table_.size() - 1;
    std::size_t at = static_cast<std::size_t>(hash(info, category)) & mask;
    while (table_[at] != kEmpty && !belongs(lines_[table_[at]], info, category))
      at = (at + 1) & mask;
    if (table_[at] == kEmpty) {
      table_[at] = static_cast<std::uint32_t>(lines_.size());
      LedgerLine line;
      line.scope = info.scope;
      line.op = info.op;
      line.category = category;
      line.dtype = info.dtype;
      line.shape = info.shape;
      lines_.push_back(line);
    }
    return lines_[table_[at]];
  }

  std::vector<std::uint32_t> table_;
  std::vector<LedgerLine> lines_;
};

}  // namespace

Ledger ledger_at(const Trace& trace, std::uint32_t event) {
  Census census(trace);
  std::vector<StorageId> births;
  births.reserve(trace.storages.size());
  const std::size_t end = std::min<std::size_t>(trace.events.size(), std::size_t{event} + 1);
  for (std::size_t i = 0; i < end; ++i) {
    census.apply(trace.events[i]);
    if (trace.events[i].type == EventType::alloc) births.push_back(trace.events[i].id);
  }
  births.erase(std::remove_if(births.begin(), births.end(), [&](StorageId id) { return !census.alive(id); }),
               births.end());

  Ledger ledger;
  Lines lines(births.size());
  for (const StorageId id : births)
    lines.add(trace.storages[id], census.category(id));
  ledger.lines = lines.take_sorted();
  ledger.categories = census.bytes();
  for (std::size_t c = 0; c < kCategories; ++c) {
    Bytes& sum = static_cast<Category>(c) == Category::workspace ? ledger.workspace_bytes : ledger.tensor_bytes;
    sum = plus(sum, ledger.categories[c]);
  }
  return ledger;
}

std::vector<HostLine> host_ledger(const Trace& trace) {
  std::vector<HostLine> lines;
  std::vector<HostBuffer> buffers = trace.host;
  for (const StorageInfo& storage : trace.storages) {  // states stay once they are made
    if (storage.on_host && storage.category == Category::optimizer_states)
      buffers.push_back({trace.names[storage.scope].c_str(), storage.category, storage.dtype, storage.shape.numel()});
  }
  for (const HostBuffer& buffer : buffers) {
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const HostLine& line) {
      return std::string_view(line.name) == buffer.name && line.dtype == buffer.dtype;
    });
    HostLine& line =
        same != lines.end() ? *same : lines.emplace_back(HostLine{buffer.name, buffer.category, buffer.dtype});
    ++line.count;
    line.bytes = plus(line.bytes, times(buffer.elements, element_bytes(buffer.dtype)));
  }
  return lines;
}

}  // namespace ledger
