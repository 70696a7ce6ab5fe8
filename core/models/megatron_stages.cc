#include "core/models/megatron_stages.h"

#include <algorithm>

#include "core/base/bytes.h"

namespace ledger {
namespace {

bool uneven(const StageCut& cut) {
  return cut.first != 0 || cut.last != 0;
}

// Of each stage between those that have a number of their own; 0: it cannot be cut so.
std::uint64_t layers_between(const ModelConfig& config, const StageCut& cut) {
  const std::uint64_t ends = (cut.first != 0 ? 1 : 0) + (cut.last != 0 ? 1 : 0), taken = plus(cut.first, cut.last);
  if (ends >= cut.pp || taken >= config.num_hidden_layers) return 0;
  const std::uint64_t rest = config.num_hidden_layers - taken, stages = cut.pp - ends;
  return rest % stages == 0 ? rest / stages : 0;
}

std::uint64_t layers_of_uneven_stage(const ModelConfig& config, const StageCut& cut, std::uint64_t stage) {
  const bool two = cut.pp == 2 && cut.first != 0 && cut.last != 0;
  const std::uint64_t between = layers_between(config, cut);
  if (two ? plus(cut.first, cut.last) != config.num_hidden_layers : between == 0) return 0;
  if (stage == 0 && cut.first != 0) return cut.first;
  return stage + 1 == cut.pp && cut.last != 0 ? cut.last : between;
}

}  // namespace

StageCut stage_cut(const Recipe& r) {
  const bool interleaved = r.pipeline_schedule == PipelineSchedule::interleaved;
  return {r.pp, r.decoder_first_pipeline_num_layers, r.decoder_last_pipeline_num_layers,
          interleaved ? r.num_layers_per_virtual_pipeline_stage : 0};
}

bool counts_embedding_and_loss(const ModelConfig& config, const StageCut& cut) {
  const std::uint64_t layers = config.num_hidden_layers;
  return !uneven(cut) && layers % cut.pp != 0 && (layers + 2) % cut.pp == 0;
}

std::uint64_t layers_of_stage(const ModelConfig& config, const StageCut& cut, std::uint64_t stage) {
  if (uneven(cut)) return layers_of_uneven_stage(config, cut, stage);
  if (counts_embedding_and_loss(config, cut)) return (config.num_hidden_layers + 2) / cut.pp;
  return config.num_hidden_layers % cut.pp == 0 ? config.num_hidden_layers / cut.pp : 0;
}

std::uint64_t most_layers_of_a_stage(const ModelConfig& config, const StageCut& cut) {
  std::uint64_t most = 0;
  for (const std::uint64_t stage : {std::uint64_t{0}, cut.pp / 2, cut.pp - 1})
    most = std::max(most, layers_of_stage(config, cut, stage));
  return most;
}

std::uint64_t chunks_of_stage(const ModelConfig& config, const StageCut& cut, std::uint64_t stage) {
  if (cut.chunk == 0) return 1;
  const std::uint64_t layers = layers_of_stage(config, cut, stage);
  return layers % cut.chunk == 0 ? layers / cut.chunk : 0;
}

std::optional<std::uint64_t> layer_at(const ModelConfig& config, const StageCut& cut, std::uint64_t stage,
                                      std::uint64_t position) {
  const std::uint64_t own = layers_of_stage(config, cut, stage);
  if (uneven(cut)) {
    const std::uint64_t first = layers_of_stage(config, cut, 0), middle = layers_of_stage(config, cut, 1);
    return plus(position, stage == 0 ? 0 : plus(first, times(stage - 1, middle)));
  }
  const std::uint64_t depth = cut.chunk == 0 ? own : cut.chunk;
  const std::uint64_t index = plus(times(plus(times(position / depth, cut.pp), stage), depth), position % depth);
  if (!counts_embedding_and_loss(config, cut)) return index;
  if (index == 0 || index > config.num_hidden_layers) return std::nullopt;
  return index - 1;
}

}  // namespace ledger
