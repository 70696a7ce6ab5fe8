#include "core/base/nearest.h"

#include <gtest/gtest.h>

namespace ledger {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);  // neighbours swapped
  EXPECT_EQ(edit_distance("Amp-BF16", "amp_bf16"), 0u);
  EXPECT_EQ(edit_distance("abc", "cba"), edit_distance("cba", "abc"));
}

TEST(EditDistance, ComparesLongTextsUpTo64Bytes) {
  EXPECT_EQ(edit_distance(std::string(100000, 'a'), std::string(100000, 'a') + "b"), 0u);
}

constexpr const char* kKeys[] = {"batch", "seq", "grad_accum", "attention", "checkpointing", "zero", "rank"};

struct Typed {
  const char* typed;
  const char* want;
};

TEST(Nearest, FindsTheKeyMeant) {
  const Typed cases[] = {
      {"bacth", "batch"},
      {"batchs", "batch"},
      {"BATCH", "batch"},
      {"grad-accum", "grad_accum"},
      {"gradaccum", "grad_accum"},
      {"checkpoint", "checkpointing"},
      {"atention", "attention"},
      {"seqs", "seq"},
      {"check", "checkpointing"},  // a beginning
      {"quantum_entanglement", ""},
      {"x", ""},
      {"", ""},
  };
  for (const Typed& c : cases)
    EXPECT_EQ(nearest(c.typed, kKeys), c.want) << c.typed;
}

TEST(Nearest, OfNothingIsNothing) {
  EXPECT_EQ(nearest("batch", {}), "");
}

}  // namespace
}  // namespace ledger
