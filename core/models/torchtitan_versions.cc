// torchtitan_versions.cc - where releases differ, and how each cuts a model into a pipeline's stages.
#include "core/models/torchtitan.h"

namespace ledger {
namespace {

// The stack, its norm, cuDNN first, cuDNN kept, ends in the root, compiles the loss, models Qwen 3, chunks of the loss,
// keeps float8 weights, lists abs; of pipelines: outputs kept, counts ends, keeps reduced, interleaves; models experts,
// and in what form.
// clang-format off
constexpr TitanVersion kVersions[] = {
    {Stack::torchtitan, TitanNorm::fused, true, true, false, true, true, TitanChunks::tokens, false, false,
     TitanOutputs::none, true, false, false, true, {true, true}},
    {Stack::torchtitan_0_2_0, TitanNorm::fused, true, false, false, true, true, TitanChunks::none, false, false,
     TitanOutputs::last_stage, true, false, false, true, {}},
    {Stack::torchtitan_0_1, TitanNorm::written_out, false, false, true, true, false, TitanChunks::none, true, false,
     TitanOutputs::last_stage, true, false, true, false, {}},
    {Stack::torchtitan_0_0_2, TitanNorm::own, false, false, true, false, false, TitanChunks::logits, true, true,
     TitanOutputs::every_stage, false, true, true, false, {}},
};
// clang-format on

}  // namespace

const TitanVersion* titan_version(Stack stack) {
  for (const TitanVersion& version : kVersions) {
    if (version.stack == stack) return &version;
  }
  return nullptr;
}

std::uint64_t titan_stages(const Recipe& recipe) {
  return times(recipe.pp, recipe.pipeline_schedule == PipelineSchedule::interleaved ? 2 : 1);
}

std::vector<TitanPart> titan_parts(const ModelConfig& config, const TitanVersion& version, std::uint64_t stages) {
  const std::uint64_t layers = config.num_hidden_layers, ends = version.counts_ends ? 2 : 0;
  if (stages == 1) return {{0, layers, true, true}};
  const std::uint64_t each = plus(layers, ends) / stages;
  std::uint64_t over = plus(layers, ends) % stages, next = 0;
  if (each == 0) return {};
  std::vector<TitanPart> parts;
  for (std::uint64_t stage = 0; stage < stages; ++stage) {
    const bool first = stage == 0, last = stage + 1 == stages;
    const bool one_more = over != 0 && (version.counts_ends || !first);  // before 0.1 the first stage had none of these
    if (one_more) --over;
    const std::uint64_t own = each + (one_more ? 1 : 0) - (version.counts_ends && (first || last) ? 1 : 0);
    parts.push_back({next, last ? layers - next : own, first, last});
    next += own;
  }
  return parts;
}

}  // namespace ledger
