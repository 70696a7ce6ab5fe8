// trace_builder.h - hand-made traces for the memory tests, one call an event.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/trace/trace.h"

namespace ledger {

class TraceBuilder {
 public:
  TraceBuilder() { trace.names = {"", "layers.*.mlp", "lm_head"}; }

  void mark(std::string name) {
    trace.phases.push_back(std::move(name));
    add(EventType::mark, Category::count_, static_cast<std::uint32_t>(trace.phases.size() - 1));
  }
  StorageId alloc(Bytes bytes, Category category = Category::activations) {
    StorageInfo info;
    info.shape = {{bytes, Sym::none}};
    info.dtype = DType::u8;
    info.bytes = bytes;
    info.category = category;
    return alloc(info);
  }
  StorageId alloc(const StorageInfo& info) {
    trace.storages.push_back(info);
    const auto id = static_cast<StorageId>(trace.storages.size() - 1);
    add(EventType::alloc, info.category, id);
    return id;
  }
  void free(StorageId storage) { add(EventType::free, Category::count_, storage); }
  void label(StorageId storage, Category category) { add(EventType::label, category, storage); }
  void run() { add(EventType::run, Category::count_, runs_++); }

  Trace trace;

 private:
  void add(EventType type, Category category, std::uint32_t id) { trace.events.push_back({type, category, id}); }
  std::uint32_t runs_ = 0;
};

// Several phases of random births, deaths and labels; something stays alive at the end.
inline Trace random_trace(unsigned seed, int events = 3000) {
  std::mt19937 random(seed);
  TraceBuilder builder;
  std::vector<StorageId> live;
  for (int i = 0; i < events; ++i) {
    const auto roll = random() % 100;
    if (i % 500 == 0) builder.mark("phase" + std::to_string(i / 500));
    if (live.empty() || roll < 48) {
      StorageInfo info;
      info.shape = {{1 + random() % 7, Sym::b}, {1024 * (1 + random() % 900), Sym::h}};
      info.dtype = random() % 2 == 0 ? DType::bf16 : DType::f32;
      info.bytes = times(info.shape.numel(), element_bytes(info.dtype));
      info.category = static_cast<Category>(random() % kCategories);
      info.op = static_cast<OpKind>(random() % kOpKinds);
      info.scope = static_cast<NameId>(random() % 3);
      live.push_back(builder.alloc(info));
    } else if (roll < 90) {
      const std::size_t victim = random() % live.size();
      builder.free(live[victim]);
      live[victim] = live.back();
      live.pop_back();
    } else if (roll < 95) {
      const StorageId storage = live[random() % live.size()];
      if (builder.trace.storages[storage].category != Category::workspace) {
        builder.label(storage, static_cast<Category>(random() % static_cast<unsigned>(Category::workspace)));
      }
    } else {
      builder.run();
    }
  }
  return builder.trace;
}

}  // namespace ledger
