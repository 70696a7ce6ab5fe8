// letters.h - the numbers behind the shape letters of one prediction, to write shapes as products that can be
// recomputed.
#pragma once

#include <array>
#include <vector>

#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "core/trace/shape.h"

namespace ledger {

struct Factor {
  Sym sym = Sym::none;  // none: a plain number
  std::uint64_t value = 1;
};

class Letters {
 public:
  Letters(const ModelConfig& config, const Recipe& recipe);

  // The shape as factors whose product is its number of elements; products such as b*s come apart into letters, sizes
  // of 1 that no letter stands for are left out.
  std::vector<Factor> factors(const Shape& shape) const;

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(Sym::count_)> values_{};
};

}  // namespace ledger
