#include "core/trace/trace.h"

namespace ledger {
namespace {

constexpr std::array<const char*, kCategories> kCategoryNames = {
    "weights",     "master_weights", "buffers",   "gradients", "optimizer_states",
    "inputs",      "activations",    "logits",    "kv_cache",  "activation_gradients",
    "temporaries", "communication",  "workspace",
};

}  // namespace

const char* category_name(Category category) {
  return kCategoryNames[static_cast<std::size_t>(category)];
}

std::uint32_t phase_at(const Trace& trace, std::uint32_t event) {
  std::uint32_t phase = 0;
  for (std::uint32_t i = 0; i <= event && i < trace.events.size(); ++i) {
    if (trace.events[i].type == EventType::mark) phase = trace.events[i].id;
  }
  return phase;
}

}  // namespace ledger
