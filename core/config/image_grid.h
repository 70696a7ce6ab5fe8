// image_grid.h - how large an image is once its processor has had it: patches of the encoder, tokens of the text.
//
// Sources: transformers 5.12 models/qwen2_vl/image_processing_qwen2_vl.py, smart_resize; models/llama4/
// {image_processing_llama4, processing_llama4}.py. Limits that a checkpoint's preprocessor_config.json sets: the ones
// that Qwen2-VL's and Qwen2.5-VL's say, 56^2 to 16384 * 28^2 pixels.
#pragma once

#include <cstdint>

#include "core/config/model_config.h"
#include "core/config/recipe.h"

namespace ledger {

// LLaMA-Factory's image_max_pixels (hparams/model_args.py): what a recipe that says nothing is taken to mean where
// images keep their size.
inline constexpr std::uint64_t kDefaultImageSide = 768;
inline constexpr std::uint64_t kMostImageSide = 32768;

struct ImageGrid {
  std::uint64_t tiles = 1;              // images that the encoder sees of one
  std::uint64_t rows = 0, columns = 0;  // of a tile, in patches
  std::uint64_t tokens = 0;             // of all tiles together, in the text

  std::uint64_t patches() const { return times(rows, columns); }
};

// `height` and `width` in pixels, as the recipe says them; 0: the default. Encoders of one size take no others.
ImageGrid image_grid(const VisionConfig& config, std::uint64_t height, std::uint64_t width);
inline ImageGrid image_grid(const VisionConfig& config, const Recipe& recipe) {
  return image_grid(config, recipe.image_height, recipe.image_width);
}

// Whether a processor takes an image so much longer than wide: smart_resize stops at 200.
bool has_possible_sides(const VisionConfig& config, const Recipe& recipe);

}  // namespace ledger
