// megatron_stages.h - which layers of a model are a pipeline stage's, and how many chunks a stage has.
//
// Source: Megatron-LM megatron/core/transformer/transformer_block.py (get_num_layers_to_build), transformer_layer.py
// (get_transformer_layer_offset), megatron/training/arguments.py.
#pragma once

#include <cstdint>
#include <optional>

#include "core/config/model_config.h"
#include "core/config/recipe.h"

namespace ledger {

struct StageCut {
  std::uint64_t pp = 1;
  std::uint64_t first = 0, last = 0;  // layers of the first and of the last stage; 0: as many as between them
  std::uint64_t chunk = 0;            // layers of each chunk of the interleaved schedule; 0: a stage is one chunk
};
StageCut stage_cut(const Recipe& recipe);

// Where pp does not divide the layers, embedding and loss count as one each, in place of a layer of the first and of
// the last stage: --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split.
bool counts_embedding_and_loss(const ModelConfig& config, const StageCut& cut);

// Layers of `stage`, embedding and loss among them where they count; 0: the model cannot be cut so.
std::uint64_t layers_of_stage(const ModelConfig& config, const StageCut& cut, std::uint64_t stage);
std::uint64_t most_layers_of_a_stage(const ModelConfig& config, const StageCut& cut);

// 0: a stage's layers cannot be cut so.
std::uint64_t chunks_of_stage(const ModelConfig& config, const StageCut& cut, std::uint64_t stage);

// The layer at `position` of a stage, chunk by chunk, as a number of the whole model's; none where embedding or loss
// counts as one.
std::optional<std::uint64_t> layer_at(const ModelConfig& config, const StageCut& cut, std::uint64_t stage,
                                      std::uint64_t position);

}  // namespace ledger
