#include "core/models/model.h"

namespace ledger {
namespace {

using Builder = std::unique_ptr<Model> (*)(Tape&, const ModelConfig&, const ModelOptions&);

struct Row {
  Architecture architecture;
  Builder build;
};

constexpr Row kBuilders[] = {
    {Architecture::llama, build_llama},
    {Architecture::plain, build_plain},
};

}  // namespace

Tensor Model::next_logits(const Tensor&, const Tensor&, KvCache&, bool) {
  return Tensor();
}

std::unique_ptr<Model> build_model(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  for (const Row& row : kBuilders) {
    if (row.architecture == config.architecture) return row.build(tape, config, options);
  }
  return nullptr;
}

}  // namespace ledger
