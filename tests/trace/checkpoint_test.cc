// torch.utils.checkpoint, use_reentrant=False: what a region keeps, what is computed again, and when that dies.
#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

const Shape kWeights = {{4, Sym::none}, {4, Sym::none}};
constexpr Bytes kTensor = 64;  // 4 x 4 x 4

Tensor mlp(const Tensor& x, const Tensor& up, const Tensor& down) {
  return linear(silu(linear(x, up, Tensor())), down, Tensor());
}

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : up(leaf(tape, kWeights)), down(leaf(tape, kWeights)), start(leaf(tape, kWeights)) {}

  Tensor block(const Tensor& x) {
    return tape.checkpoint([this, x] { return mlp(x, up, down); });
  }
  std::size_t now() { return tape.trace().events.size(); }

  Tape tape;
  Tensor up, down, start;
};

TEST_F(Checkpoint, KeepsItsArgumentsAndNothingElse) {
  Tensor x = start * 1.0;
  const StorageId argument = id_of(x);
  const Tensor out = block(x);
  x.reset();
  EXPECT_TRUE(alive(tape, argument));
  EXPECT_EQ(live_bytes(tape), 3 * kTensor + 2 * kTensor);  // parameters; argument and result
}

TEST_F(Checkpoint, WithoutItTheInnerTensorsAreKept) {
  const Tensor out = mlp(start * 1.0, up, down);
  EXPECT_EQ(live_bytes(tape), 3 * kTensor + 4 * kTensor);  // argument, both of silu, result
}

TEST_F(Checkpoint, StopsWhenTheLastSavedTensorIsThere) {
  const Tensor loss = mean_all(block(start * 1.0));
  const std::size_t before = now();
  tape.backward(loss);
  // Recomputed: the first product and silu. The second product has saved all it needs before it allocates. Then two
  // products of backward for each linear.
  EXPECT_EQ(births(tape.trace(), OpKind::silu, before), 1u);
  EXPECT_EQ(births(tape.trace(), OpKind::mm, before), 1u + 4u);
}

TEST_F(Checkpoint, GradientsAreThoseOfTheSameParameters) {
  tape.backward(mean_all(block(start * 1.0)));
  EXPECT_TRUE(up.grad() && down.grad() && start.grad());
  EXPECT_EQ(live_bytes(tape), 6 * kTensor);
}

TEST_F(Checkpoint, RecomputesOncePerRegion) {
  const Tensor loss = mean_all(block(block(start * 1.0)));
  const std::size_t before = now();
  tape.backward(loss);
  EXPECT_EQ(births(tape.trace(), OpKind::silu, before), 2u);
}

TEST_F(Checkpoint, DroppingTheResultDropsTheArguments) {
  Tensor out = block(start * 1.0);
  out.reset();
  EXPECT_EQ(live_bytes(tape), 3 * kTensor);
}

TEST_F(Checkpoint, IsAnOrdinaryCallWithoutGrad) {
  const Tape::NoGrad no_grad(tape);
  Tensor x = start * 1.0;
  const StorageId argument = id_of(x);
  const Tensor out = block(x);
  x.reset();
  EXPECT_FALSE(alive(tape, argument));
  EXPECT_FALSE(out.requires_grad());
}

TEST_F(Checkpoint, FrozenRegionsSaveAndRecomputeNothing) {
  const Tensor frozen = leaf(tape, kWeights, false);
  const Tensor x = leaf(tape, kWeights, false) * 1.0;
  const Tensor out = tape.checkpoint([x, frozen] { return silu(linear(x, frozen, Tensor())); });
  EXPECT_FALSE(out.requires_grad());
}

// Backward of n regions: the deeper regions' recomputed tensors are gone before the next region is recomputed, so the
// peak grows by the kept argument alone.
TEST(CheckpointedLayers, AreRecomputedAndReleasedOneByOne) {
  const auto peak = [](int layers) {
    Tape tape;
    const Tensor w = leaf(tape, kWeights, false), start = leaf(tape, kWeights);
    Tensor x = start;
    for (int i = 0; i < layers; ++i) {
      x = tape.checkpoint([x, w] { return silu(linear(silu(silu(x)), w, Tensor())); });
    }
    const Tensor loss = mean_all(x);
    x.reset();
    const std::size_t before = tape.trace().events.size();
    tape.backward(loss);
    return peak_bytes(tape.trace(), before);
  };
  EXPECT_EQ(peak(3) - peak(2), kTensor);
  EXPECT_EQ(peak(9) - peak(3), 6 * kTensor);
}

TEST(CheckpointedLayers, AnArgumentDiesWithItsRegionsBackward) {
  Tape tape;
  const Tensor start = leaf(tape, kWeights);
  Tensor first = start * 1.0;
  const StorageId argument = id_of(first);
  Tensor second = tape.checkpoint([first] { return silu(first); });
  const StorageId result = id_of(second);
  first.reset();
  const Tensor loss = mean_all(tape.checkpoint([second] { return silu(second); }));
  second.reset();
  EXPECT_TRUE(alive(tape, argument) && alive(tape, result));
  tape.backward(loss);
  EXPECT_FALSE(alive(tape, argument) || alive(tape, result));
  // The second region's argument dies before the first region's.
  const auto death = [&](StorageId id) {
    const auto& events = tape.trace().events;
    return std::find_if(events.begin(), events.end(),
                        [id](const Event& e) { return e.type == EventType::free && e.id == id; }) -
           events.begin();
  };
  EXPECT_LT(death(result), death(argument));
}

TEST(CheckpointedLayers, RecomputationEntersAutocastAnew) {
  Tape tape;
  const Tensor w = leaf(tape, kWeights), start = leaf(tape, kWeights);
  Tensor loss;
  {
    const Tape::Autocast autocast(tape, true);
    const Tensor x = start * 1.0;
    loss = mean_all(tape.checkpoint([x, w] { return silu(linear(x, w, Tensor())); }));
  }
  // Forward: casts of input and weight. The weight's was cached until the region ended.
  EXPECT_EQ(births(tape.trace(), OpKind::to_copy), 2u);
  const std::size_t before = tape.trace().events.size();
  tape.backward(loss);
  // Again both, and the gradients of both casts back to fp32.
  EXPECT_EQ(births(tape.trace(), OpKind::to_copy, before), 4u);
  EXPECT_EQ(w.grad().dtype(), DType::f32);
}

TEST(CheckpointedLayers, RecomputedTensorsCarryTheRegionsScopeAndLayer) {
  Tape tape;
  const Tensor w = leaf(tape, kWeights), start = leaf(tape, kWeights);
  Tensor loss;
  {
    const Tape::Scope scope(tape, "layers.*");
    const Tape::Layer layer(tape, 5);
    const Tensor x = start * 1.0;
    loss = mean_all(tape.checkpoint([x, w] { return silu(silu(linear(x, w, Tensor()))); }));
  }
  tape.backward(loss);
  std::size_t recomputed = 0;
  for (const StorageInfo& storage : tape.trace().storages) {
    if (storage.op != OpKind::silu) continue;
    ++recomputed;
    EXPECT_EQ(storage.layer, 5);
    EXPECT_EQ(tape.trace().names[storage.scope], "layers.*");
    EXPECT_EQ(storage.category, Category::activations);
  }
  EXPECT_EQ(recomputed, 3u);  // two in forward, the inner one again
}

}  // namespace
}  // namespace ledger
