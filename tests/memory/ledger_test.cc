#include "core/memory/ledger.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/memory/replay.h"
#include "trace_builder.h"

namespace ledger {
namespace {

StorageInfo tensor(Shape shape, DType dtype, Category category, OpKind op, NameId scope) {
  StorageInfo info;
  info.shape = shape;
  info.dtype = dtype;
  info.bytes = times(shape.numel(), element_bytes(dtype));
  info.category = category;
  info.op = op;
  info.scope = scope;
  return info;
}

const Shape kHidden = {{2048, Sym::tokens}, {4096, Sym::h}};
const Shape kWide = {{2048, Sym::tokens}, {14336, Sym::ffn}};

TEST(Ledger, GroupsLayersAndSortsBySize) {
  TraceBuilder builder;
  for (int layer = 0; layer < 32; ++layer) {
    builder.alloc(tensor(kHidden, DType::bf16, Category::activations, OpKind::mul, 1));
    builder.alloc(tensor(kWide, DType::bf16, Category::activations, OpKind::mm, 1));
  }
  builder.alloc(8 * kMiB, Category::workspace);
  const auto last = static_cast<std::uint32_t>(builder.trace.events.size() - 1);
  const Ledger at_end = ledger_at(builder.trace, last);
  ASSERT_EQ(at_end.lines.size(), 3u);
  EXPECT_EQ(at_end.lines[0].op, OpKind::mm);
  EXPECT_EQ(at_end.lines[0].count, 32u);
  EXPECT_EQ(at_end.lines[0].bytes, 1792 * kMiB);  // 32 x 2048 x 14336 x 2
  EXPECT_EQ(at_end.lines[1].op, OpKind::mul);
  EXPECT_EQ(at_end.lines[1].bytes, 512 * kMiB);  // 32 x 2048 x 4096 x 2
  EXPECT_EQ(at_end.lines[2].category, Category::workspace);
  EXPECT_EQ(at_end.tensor_bytes, 2304 * kMiB);
  EXPECT_EQ(at_end.workspace_bytes, 8 * kMiB);
  EXPECT_EQ(ledger_at(builder.trace, last - 1).workspace_bytes, 0u);
  EXPECT_EQ(ledger_at(builder.trace, last + 1000).tensor_bytes, at_end.tensor_bytes);
}

// A pair of tensors, and whether they stand on one line.
struct Pair {
  const char* name;
  StorageInfo first;
  StorageInfo second;
  std::size_t lines;
};

void PrintTo(const Pair& pair, std::ostream* out) {
  *out << pair.name;
}

class Grouping : public testing::TestWithParam<Pair> {};

TEST_P(Grouping, Lines) {
  TraceBuilder builder;
  builder.alloc(GetParam().first);
  builder.alloc(GetParam().second);
  EXPECT_EQ(ledger_at(builder.trace, 1).lines.size(), GetParam().lines);
}

StorageInfo base() {
  return tensor(kHidden, DType::bf16, Category::activations, OpKind::mul, 1);
}

StorageInfo other_layer() {
  StorageInfo info = base();
  info.layer = 7;
  return info;
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, Grouping,
    testing::Values(
        Pair{"same", base(), base(), 1}, Pair{"layer_does_not_count", base(), other_layer(), 1},
        Pair{"scope", base(), tensor(kHidden, DType::bf16, Category::activations, OpKind::mul, 2), 2},
        Pair{"op", base(), tensor(kHidden, DType::bf16, Category::activations, OpKind::add, 1), 2},
        Pair{"dtype", base(), tensor(kHidden, DType::f16, Category::activations, OpKind::mul, 1), 2},
        Pair{"category", base(), tensor(kHidden, DType::bf16, Category::logits, OpKind::mul, 1), 2},
        Pair{"size", base(), tensor(kWide, DType::bf16, Category::activations, OpKind::mul, 1), 2},
        Pair{"letter", base(),
             tensor({{2048, Sym::tokens}, {4096, Sym::q_dim}}, DType::bf16, Category::activations, OpKind::mul, 1), 2}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Ledger, LabelMovesATensorToAnotherLine) {
  TraceBuilder builder;
  const StorageId gradient = builder.alloc(3 * kMiB, Category::activation_gradients);
  builder.alloc(3 * kMiB, Category::activation_gradients);
  builder.label(gradient, Category::gradients);
  EXPECT_EQ(ledger_at(builder.trace, 1).lines.size(), 1u);
  const Ledger after = ledger_at(builder.trace, 2);
  ASSERT_EQ(after.lines.size(), 2u);
  EXPECT_EQ(after.lines[0].category, Category::gradients);  // equal sizes: first birth first
  EXPECT_EQ(after.categories[static_cast<std::size_t>(Category::gradients)], 3 * kMiB);
  EXPECT_EQ(after.categories[static_cast<std::size_t>(Category::activation_gradients)], 3 * kMiB);
  EXPECT_EQ(after.tensor_bytes, 6 * kMiB);
}

TEST(Ledger, EmptyTrace) {
  EXPECT_TRUE(ledger_at(Trace{}, 0).lines.empty());
}

class RandomLedger : public testing::TestWithParam<unsigned> {};

TEST_P(RandomLedger, LinesSumToCategoriesAndToTheReplay) {
  const Trace trace = random_trace(GetParam());
  const Replay played = replay(trace, {});
  for (std::size_t i = 0; i < played.samples.size(); i += 97) {
    const Ledger ledger = ledger_at(trace, played.samples[i].event);
    EXPECT_EQ(ledger.tensor_bytes, played.samples[i].tensor_bytes);
    std::array<Bytes, kCategories> sums{};
    Bytes before = kOverflow;
    for (const LedgerLine& line : ledger.lines) {
      EXPECT_EQ(line.bytes, line.count * times(line.shape.numel(), element_bytes(line.dtype)));
      EXPECT_LE(line.bytes, before);
      before = line.bytes;
      sums[static_cast<std::size_t>(line.category)] += line.bytes;
    }
    EXPECT_EQ(sums, ledger.categories);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomLedger, testing::Range(1u, 6u));

}  // namespace
}  // namespace ledger
