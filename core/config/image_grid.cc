#include "core/config/image_grid.h"

#include <algorithm>
#include <cmath>

namespace ledger {
namespace {

struct Sides {
  std::uint64_t height, width;
};

Sides sides_of(std::uint64_t height, std::uint64_t width, std::uint64_t otherwise) {
  return {height == 0 ? otherwise : height, width == 0 ? otherwise : width};
}

// Python's round(): halves to the even number.
std::uint64_t rounded(std::uint64_t side, std::uint64_t factor) {
  const std::uint64_t below = side / factor, twice = 2 * (side % factor);
  const bool up = twice > factor || (twice == factor && below % 2 != 0);
  return below + (up ? 1 : 0);
}

std::uint64_t whole(double number) {
  return static_cast<std::uint64_t>(number);
}

// smart_resize: sides as multiples of `factor`, of which this returns how many.
Sides smart_resize(const Sides& sides, std::uint64_t factor) {
  constexpr std::uint64_t kFewest = 56 * 56, kMost = std::uint64_t{16384} * 28 * 28;
  Sides bar{rounded(sides.height, factor), rounded(sides.width, factor)};
  const std::uint64_t pixels = bar.height * bar.width * factor * factor;
  const auto height = static_cast<double>(sides.height), width = static_cast<double>(sides.width);
  const auto unit = static_cast<double>(factor);
  if (pixels > kMost) {
    const double beta = std::sqrt(height * width / static_cast<double>(kMost));
    bar.height = std::max<std::uint64_t>(1, whole(std::floor(height / beta / unit)));
    bar.width = std::max<std::uint64_t>(1, whole(std::floor(width / beta / unit)));
  } else if (pixels < kFewest) {
    const double beta = std::sqrt(static_cast<double>(kFewest) / (height * width));
    bar.height = whole(std::ceil(height * beta / unit));
    bar.width = whole(std::ceil(width * beta / unit));
  }
  return bar;
}

constexpr std::uint64_t kMostTiles = 16;  // Llama4ImageProcessor.max_patches

// get_best_fit: of all canvases of at most so many tiles the one that an image grows least to fill, or shrinks least
// to fit; of those that do as well the smallest.
Sides best_canvas(const Sides& image, std::uint64_t tile) {
  Sides best{1, 1};
  double best_scale = 0;
  for (std::uint64_t tiles = kMostTiles; tiles >= 1; --tiles) {
    for (std::uint64_t rows = 1; rows <= tiles; ++rows) {
      if (tiles % rows != 0) continue;
      const Sides canvas{rows, tiles / rows};
      const float by_height = static_cast<float>(canvas.height * tile) / static_cast<float>(image.height);
      const float by_width = static_cast<float>(canvas.width * tile) / static_cast<float>(image.width);
      const auto scale = static_cast<double>(std::min(by_height, by_width));
      const bool grows = scale >= 1, best_grows = best_scale >= 1;
      const bool closer = grows == best_grows ? (grows ? scale < best_scale : scale > best_scale) : grows;
      const bool smaller = scale == best_scale && canvas.height * canvas.width < best.height * best.width;
      if (best_scale != 0 && !closer && !smaller) continue;
      best = canvas;
      best_scale = scale;
    }
  }
  return best;
}

ImageGrid tiled(const VisionConfig& config, std::uint64_t height, std::uint64_t width) {
  const Sides canvas = best_canvas(sides_of(height, width, config.image_size), config.image_size);
  const std::uint64_t side = config.image_size / config.patch_size, tiles = canvas.height * canvas.width;
  ImageGrid grid{.tiles = tiles > 1 ? tiles + 1 : 1, .rows = side, .columns = side, .tokens = 0};
  grid.tokens = times(grid.tiles, config.tokens);
  return grid;
}

}  // namespace

ImageGrid image_grid(const VisionConfig& config, std::uint64_t height, std::uint64_t width) {
  if (config.tiled) return tiled(config, height, width);
  if (!config.any_size()) {
    const std::uint64_t side = config.patch_size == 0 ? 0 : config.image_size / config.patch_size;
    return {.tiles = 1, .rows = side, .columns = side, .tokens = config.tokens};
  }
  const Sides merged = smart_resize(sides_of(height, width, kDefaultImageSide), config.patch_size * config.merge_size);
  return {.tiles = 1,
          .rows = merged.height * config.merge_size,
          .columns = merged.width * config.merge_size,
          .tokens = merged.height * merged.width};
}

bool has_possible_sides(const VisionConfig& config, const Recipe& recipe) {
  if (!config.any_size()) return true;
  const Sides sides = sides_of(recipe.image_height, recipe.image_width, kDefaultImageSide);
  return std::max(sides.height, sides.width) <= 200 * std::min(sides.height, sides.width);
}

}  // namespace ledger
