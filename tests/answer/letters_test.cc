// Shapes as products of letters whose values multiply to the number of elements.
#include "core/answer/letters.h"

#include <gtest/gtest.h>

#include "tests/training/runs.h"

namespace ledger {
namespace {

// odd_llama has nh 6, nkv 2, d 16; recipe_of has b 3, s 19.
std::string factors(const Shape& shape) {
  std::string text;
  for (const Factor& factor : Letters(odd_llama(), recipe_of({})).factors(shape)) {
    if (!text.empty()) text += " x ";
    text += info(factor.sym).name;
    text += "=";
    text += std::to_string(factor.value);
  }
  return text;
}

struct Case {
  const char* name;
  Shape shape;
  const char* factors;
};

TEST(Letters, Factors) {
  const Case cases[] = {
      {"a scalar", {}, ""},
      {"letters stay", {{3, Sym::b}, {19, Sym::s}, {48, Sym::h}}, "b=3 x s=19 x h=48"},
      {"tokens come apart", {{57, Sym::tokens}, {77, Sym::ffn}}, "b=3 x s=19 x ffn=77"},
      {"widths of heads come apart", {{96, Sym::q_dim}, {32, Sym::kv_dim}}, "nh=6 x d=16 x nkv=2 x d=16"},
      {"half a head is a letter of its own", {{8, Sym::half_d}}, "d/2=8"},
      {"padded labels", {{3, Sym::b}, {20, Sym::s_plus_1}}, "b=3 x s+1=20"},
      {"a plain number", {{16, Sym::none}}, "=16"},
      {"a plain 1 is left out", {{1, Sym::none}, {19, Sym::s}}, "s=19"},
      {"a letter that is 1 stays", {{1, Sym::b}, {19, Sym::s}}, "b=1 x s=19"},
      {"a product of other sizes stays whole", {{58, Sym::tokens}}, "b*s=58"},
  };
  for (const Case& c : cases)
    EXPECT_EQ(factors(c.shape), c.factors) << c.name;
}

TEST(Letters, EverySymbolHasAName) {
  for (std::size_t i = 1; i < static_cast<std::size_t>(Sym::count_); ++i) {
    EXPECT_STRNE(info(static_cast<Sym>(i)).name, "") << i;
  }
}

}  // namespace
}  // namespace ledger
