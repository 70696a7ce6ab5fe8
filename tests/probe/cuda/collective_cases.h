// collective_cases.h - every collective in every dtype, by NCCL on a device's memory and by the host's communicator on
// its own, and which of them differ. Needs no test framework: GPU machines may have none.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/memory/allocator_rules.h"
#include "probe/host/strips.h"
#include "probe/measured_device.h"
#include "probe/ranks/communicator.h"

namespace ledger::collective_cases {

inline constexpr DType kTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8};

// Both sides of a comparison, of the same rank.
struct Sides {
  Communicator& host;
  Communicator& gpus;
  MeasuredDevice& device;
};

class Comparison {
 public:
  Comparison(const Sides& sides, DType dtype, unsigned seed)
      : sides_(sides), dtype_(dtype), engine_(seed + 7 * static_cast<unsigned>(sides.gpus.rank())) {
    if (sides_.device.store().reserve(kAddress, kMemory)) memory_ = sides_.device.locate(kAddress, kMemory);
    if (memory_ == nullptr) wrong_ = "the device has no memory; ";
  }
  ~Comparison() { sides_.device.store().release(kAddress, kMemory); }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  // `what` of the same numbers on both sides.
  template <class What>
  void compare(const std::string& name, std::uint64_t count, const What& what) {
    if (!wrong_.empty()) return;
    std::vector<std::byte> host = numbers(count);
    std::vector<std::byte> gpu = host;
    sides_.device.copy_in(memory_, gpu.data(), gpu.size());
    const RankBuffer on_host{host.data(), count, dtype_}, on_gpu{memory_, count, dtype_};
    const bool well = what(sides_.host, on_host) && what(sides_.gpus, on_gpu);
    sides_.device.copy_back(gpu.data(), memory_, gpu.size());
    const std::string problem = sides_.device.settle();
    if (!well || !problem.empty()) {
      wrong_ = name + ": " + (well ? problem : sides_.gpus.failure()) + "; ";
    } else if (host != gpu) {
      wrong_ = name + " of " + info(dtype_).name + " differs; ";
    }
  }
  const std::string& wrong() const { return wrong_; }

 private:
  static constexpr std::uint64_t kAddress = rules::kFirstAddress;
  static constexpr Bytes kMemory = 2 * kMiB;

  // Eighths, whose sums every type holds: the order of a sum does not matter.
  std::vector<std::byte> numbers(std::uint64_t count) {
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& value : values)
      value = static_cast<double>(engine_() % 16) / (info(dtype_).floating ? 8 : 1);
    std::vector<std::byte> memory(static_cast<std::size_t>(count * element_bytes(dtype_)));
    host::store_strip(memory.data(), static_cast<std::ptrdiff_t>(element_bytes(dtype_)), values.data(), values.size(),
                      dtype_);
    return memory;
  }

  Sides sides_;
  DType dtype_;
  std::mt19937 engine_;
  std::byte* memory_ = nullptr;
  std::string wrong_;
};

inline RankBuffer part_of(const RankBuffer& whole, std::uint64_t place, std::uint64_t parts) {
  const std::uint64_t count = whole.count / parts;
  return {whole.data + place * count * element_bytes(whole.dtype), count, whole.dtype};
}

inline std::string reductions(const Sides& sides, DType dtype, unsigned seed) {
  Comparison both(sides, dtype, seed);
  const std::uint64_t world = sides.gpus.world(), rank = sides.gpus.rank(), count = 37 * world;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::largest}) {
    if (op == ReduceOp::mean && !info(dtype).floating) continue;
    both.compare("all-reduce", count, [&](Communicator& c, const RankBuffer& b) { return c.all_reduce(b, op); });
    // What is left of the buffer is nobody's: only the part is compared.
    both.compare("reduce-scatter", count + 37, [&](Communicator& c, const RankBuffer& b) {
      const RankBuffer whole{b.data, count, b.dtype};
      return c.reduce_scatter(whole, part_of(b, world, world + 1), op);
    });
    both.compare("reduce-scatter in place", count, [&](Communicator& c, const RankBuffer& b) {
      return c.reduce_scatter(b, part_of(b, rank, world), op);
    });
  }
  return both.wrong();
}

inline std::string moves(const Sides& sides, DType dtype, unsigned seed) {
  Comparison both(sides, dtype, seed);
  const std::uint64_t world = sides.gpus.world(), rank = sides.gpus.rank(), count = 37 * world;
  both.compare("all-gather", count, [&](Communicator& c, const RankBuffer& b) { return c.all_gather(b); });
  both.compare("broadcast", count, [&](Communicator& c, const RankBuffer& b) { return c.broadcast(b, world - 1); });
  both.compare("all-to-all", 2 * count,
               [&](Communicator& c, const RankBuffer& b) { return c.all_to_all(part_of(b, 0, 2), part_of(b, 1, 2)); });
  if (world == 1) return both.wrong();
  // Around the ring, everybody sending first: one batch, or it would never end.
  both.compare("messages", 2 * count, [&](Communicator& c, const RankBuffer& b) {
    const std::vector<Message> batch = {{part_of(b, 0, 2), (rank + 1) % world, true},
                                        {part_of(b, 1, 2), (rank + world - 1) % world, false}};
    return c.messages(batch);
  });
  return both.wrong();
}

// What differs, or went wrong; empty when nothing did.
inline std::string differences(const Sides& sides, unsigned seed) {
  std::string wrong;
  for (const DType dtype : kTypes) {
    wrong += reductions(sides, dtype, seed);
    wrong += moves(sides, dtype, seed);
  }
  return wrong;
}

}  // namespace ledger::collective_cases
