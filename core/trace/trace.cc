#include "core/trace/trace.h"

namespace ledger {
namespace {

constexpr std::array<const char*, kCategories> kCategoryNames = {
    "weights", "master_weights",       "buffers",     "gradients", "optimizer_states", "inputs", "activations",
    "logits",  "activation_gradients", "temporaries", "workspace",
};

}  // namespace

const char* category_name(Category category) {
  return kCategoryNames[static_cast<std::size_t>(category)];
}

}  // namespace ledger
