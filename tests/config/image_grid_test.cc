// How large images become: numbers made by transformers 5.12's smart_resize and get_best_fit.
#include "core/config/image_grid.h"

#include <gtest/gtest.h>

namespace ledger {
namespace {

struct Picture {
  std::uint64_t height, width, rows, columns;  // pixels; tokens or tiles
};

TEST(ImageGrid, QwensProcessorRoundsAndScales) {
  VisionConfig vision;
  vision.patch_size = 14;
  vision.merge_size = 2;
  vision.temporal_patch = 2;
  for (const Picture& c :
       {Picture{0, 0, 27, 27}, Picture{768, 768, 27, 27}, Picture{1372, 2044, 49, 73}, Picture{42, 42, 2, 2},
        Picture{14, 14, 2, 2}, Picture{30, 100, 1, 4}, Picture{4000, 6000, 104, 156}, Picture{8192, 100, 293, 4},
        Picture{1080, 1920, 39, 69}, Picture{448, 462, 16, 16}, Picture{20, 300, 1, 11}, Picture{1080, 0, 39, 27}}) {
    const ImageGrid grid = image_grid(vision, c.height, c.width);
    EXPECT_EQ(grid.rows, 2 * c.rows) << c.height << " x " << c.width;
    EXPECT_EQ(grid.columns, 2 * c.columns) << c.height << " x " << c.width;
    EXPECT_EQ(grid.tokens, c.rows * c.columns) << c.height << " x " << c.width;
    EXPECT_EQ(grid.tiles, 1u);
  }
  Recipe recipe;
  recipe.image_height = 2001;
  recipe.image_width = 10;
  EXPECT_FALSE(has_possible_sides(vision, recipe));
  recipe.image_height = 2000;
  EXPECT_TRUE(has_possible_sides(vision, recipe));
}

TEST(ImageGrid, Llama4sProcessorCutsTiles) {
  VisionConfig vision;
  vision.image_size = 336;
  vision.patch_size = 14;
  vision.tokens = 144;
  vision.tiled = true;
  for (const Picture& c :
       {Picture{0, 0, 1, 1}, Picture{336, 336, 1, 1}, Picture{337, 336, 2, 1}, Picture{100, 50, 1, 1},
        Picture{672, 1008, 2, 3}, Picture{4000, 6000, 3, 5}, Picture{1000, 3000, 2, 6}, Picture{5000, 400, 13, 1},
        Picture{336, 5376, 1, 16}, Picture{335, 700, 1, 3}}) {
    const ImageGrid grid = image_grid(vision, c.height, c.width);
    const std::uint64_t tiles = c.rows * c.columns;
    EXPECT_EQ(grid.tiles, tiles == 1 ? 1 : tiles + 1) << c.height << " x " << c.width;
    EXPECT_EQ(grid.tokens, 144 * grid.tiles) << c.height << " x " << c.width;
    EXPECT_EQ(grid.patches(), 24u * 24u);
  }
}

TEST(ImageGrid, OtherEncodersHaveOneSize) {
  VisionConfig vision;
  vision.image_size = 336;
  vision.patch_size = 14;
  vision.tokens = 576;
  const ImageGrid grid = image_grid(vision, 0, 0);
  EXPECT_EQ(grid.patches(), 576u);
  EXPECT_EQ(grid.tokens, 576u);
}

}  // namespace
}  // namespace ledger
