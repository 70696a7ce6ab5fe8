// How large images become: numbers made by transformers 5.12's smart_resize and get_best_fit.
#include "core/config/image_grid.h"

#include <gtest/gtest.h>

namespace ledger {
namespace {

struct Case {
  std::uint64_t height, width, rows, columns;  // pixels; tokens or tiles
};

TEST(ImageGrid, QwensProcessorRoundsAndScales) {
  VisionConfig vision;
  vision.patch_size = 14;
  vision.merge_size = 2;
  vision.temporal_patch = 2;
  for (const Case& c :
       {Case{0, 0, 27, 27}, Case{768, 768, 27, 27}, Case{1372, 2044, 49, 73}, Case{42, 42, 2, 2}, Case{14, 14, 2, 2},
        Case{30, 100, 1, 4}, Case{4000, 6000, 104, 156}, Case{8192, 100, 293, 4}, Case{1080, 1920, 39, 69},
        Case{448, 462, 16, 16}, Case{20, 300, 1, 11}, Case{1080, 0, 39, 27}}) {
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
  for (const Case& c : {Case{0, 0, 1, 1}, Case{336, 336, 1, 1}, Case{337, 336, 2, 1}, Case{100, 50, 1, 1},
                        Case{672, 1008, 2, 3}, Case{4000, 6000, 3, 5}, Case{1000, 3000, 2, 6}, Case{5000, 400, 13, 1},
                        Case{336, 5376, 1, 16}, Case{335, 700, 1, 3}}) {
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
