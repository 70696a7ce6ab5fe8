// Ranks that share sequences: who they are, and what Transformer Engine's and PyTorch's attention hold among them, told
// from their sources by hand. That they compute what one rank would is tests/probe/ranks/training_test.cc's to show.
#include "core/models/ring_attention.h"

#include <gtest/gtest.h>

#include "core/memory/replay.h"
#include "core/trace/mesh.h"
#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

constexpr Bytes kHeads = 2 * 4 * 8 * 16 * 2;  // [b, n, s, d] in 16 bits
constexpr Bytes kRows = 2 * 4 * 8 * 4;        // a logsumexp of each row, fp32

// --- whom messages and collectives are among
// ---------------------------------------------------------------------------------

TEST(RanksThatShareSequences, ExchangeWithNeighboursAndGoAroundBetweenThem) {
  Mesh mesh{{2, 4, 2, 1}};
  mesh.exchanging = 2;
  using Ranks = std::vector<std::uint64_t>;
  EXPECT_EQ(mesh.members(0, RankGroup::exchange), (Ranks{0, 2}));
  EXPECT_EQ(mesh.members(0, RankGroup::ring), (Ranks{0, 4}));
  EXPECT_EQ(mesh.members(13, RankGroup::exchange), (Ranks{13, 15}));
  EXPECT_EQ(mesh.members(13, RankGroup::ring), (Ranks{9, 13}));
  EXPECT_EQ(mesh.members(13, RankGroup::batches), (Ranks{5, 13}));
  mesh.exchanging = 1;
  EXPECT_EQ(mesh.members(13, RankGroup::ring), (Ranks{9, 11, 13, 15}));
  EXPECT_EQ(mesh.members(13, RankGroup::exchange), (Ranks{13}));
}

// --- what they hold
// -----------------------------------------------------------------------------------------------------------

using RingAttention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Ring&);

struct Held {
  Bytes forward, kept, backward;  // at most, and after the forward pass, beyond q, k, v and the result's gradient
  Trace trace;
};

// Queries, keys and values lie as [b, s, n, d].
Held held(RingAttention attend, const Ring& ring) {
  Tape tape({.accumulate_in_place = true});
  tape.begin_phase("load");
  const auto heads = [&] {
    return leaf(tape, {{2, Sym::b}, {8, Sym::s}, {4, Sym::nh}, {16, Sym::d}}, true, DType::bf16);
  };
  const Tensor q = heads();
  const Tensor k = heads();
  const Tensor v = heads();
  const Tensor gradient = transpose(heads(), 1, 2);
  tape.begin_phase("forward");
  Tensor out = attend(transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1, 2), ring);
  tape.begin_phase("backward");
  tape.backward(out, gradient);
  tape.begin_phase("end");
  Held result;
  result.trace = tape.finish();
  const Replay run = replay(result.trace, {});
  const Bytes before = run.phases[0].end_bytes;
  result.forward = run.phases[1].peak_bytes - before;
  result.kept = run.phases[1].end_bytes - before;
  result.backward = run.phases[2].peak_bytes - before - result.kept;
  return result;
}

class AroundTheRing : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AroundTheRing, testing::Values(0, 1, 3));

// AttnFuncWithCPAndKVP2P, of four ranks: a buffer of keys and values, a result and its statistics of every step, halves
// where queries' first half sees nothing; the merged ones. Backward: a gradient of queries, two buffers of keys, values
// and their gradients, and what the kernel makes of all keys in the last step.
TEST_P(AroundTheRing, EveryStepsBuffersStayUntilAllAreMerged) {
  const std::uint64_t rank = GetParam(), ranks = 4;
  const Held h = held(te_ring_attention, {rank, ranks, 1, false, false, 0});
  const Bytes states = 2 * 8 * ranks, all_twice = 2 * (rank + 1) + (ranks - 1 - rank);  // results, in halves
  const Bytes parts = (kHeads + kRows) * all_twice / 2;
  EXPECT_EQ(h.forward, 2 * ranks * kHeads + parts + kRows + kHeads + states);
  EXPECT_EQ(h.kept, 2 * kHeads + kHeads + kRows + states);
  const Bytes second_half = rank + 1 == ranks ? 0 : kRows / 2;
  EXPECT_EQ(h.backward, second_half + kHeads + 2 * 4 * kHeads + 3 * kHeads);
}

// AttnFuncWithCPAndQKVOA2A: nothing of other ranks' but tokens of one's own heads, as many numbers as went.
TEST(ExchangedHeads, TakeTheMemoryOfWhatIsSentAndWhatComes) {
  const Held h = held(te_ring_attention, {1, 2, 2, false, false, 0});
  const Bytes states = 2 * 8;
  // q, k and v as they came and were put in order, the kernel's result, and of that what goes, comes and is put in
  // order.
  EXPECT_EQ(h.forward, 3 * kHeads + kHeads + kRows + states + 3 * kHeads);
  EXPECT_EQ(h.kept, 4 * kHeads + kRows + states + kHeads);  // the last: the result in this rank's tokens
}

TEST(ExchangedHeads, LeaveHalfTheRingToGoAround) {
  const Held h = held(te_ring_attention, {3, 4, 2, false, false, 0});
  std::uint64_t sent = 0;
  for (const StorageInfo& storage : h.trace.storages)
    sent += storage.op == OpKind::receive ? 1 : 0;
  EXPECT_EQ(sent, 1u + 2u);  // keys and values forward; backward two buffers
  EXPECT_EQ(h.kept, 3 * kHeads + kHeads + kRows + 2 * 8 * 2 + kHeads);
}

// AttnFuncWithCPAndKVAllGather, of the first of four ranks, whose second piece of queries sees all keys. Forward: own
// keys and values with tokens first, those of all in order, the result and one that nobody reads, half the queries, the
// keys that they see, and results of both halves.
TEST(GatheredKeys, AreMadeAgainInBackward) {
  const std::uint64_t ranks = 4;
  const Held h = held(te_ring_attention, {0, ranks, 1, false, true, 0});
  const Bytes own = 2 * kHeads, all = 2 * ranks * kHeads, states = 2 * 8 * 2;
  EXPECT_EQ(h.kept, own + kHeads + kRows + states);
  EXPECT_EQ(h.forward, own + all + 2 * kHeads + kHeads / 2 + all + kHeads + kRows + states);
  std::uint64_t gathered = 0, scattered = 0;
  for (const StorageInfo& storage : h.trace.storages) {
    gathered += storage.op == OpKind::all_gather ? 1 : 0;
    scattered += storage.op == OpKind::reduce_scatter ? 1 : 0;
  }
  EXPECT_EQ(gathered, 4u);
  EXPECT_EQ(scattered, 2u);
}

// _templated_ring_attention saves q, k and v as they were, the result in its dtype and one logsumexp.
TEST_P(AroundTheRing, PyTorchKeepsTheResultAlone) {
  const std::uint64_t rank = GetParam(), ranks = 4;
  for (const bool gathers : {true, false}) {
    const Held h = held(torch_ring_attention, {rank, ranks, 1, false, gathers, 0});
    EXPECT_EQ(h.kept, kHeads + kRows);
    std::uint64_t gathered = 0, received = 0;
    for (const StorageInfo& storage : h.trace.storages) {
      if (storage.op == OpKind::all_gather) {
        ++gathered;
        EXPECT_EQ(storage.bytes, 2 * ranks * kHeads);
      }
      received += storage.op == OpKind::receive ? 1 : 0;
    }
    EXPECT_EQ(gathered, gathers ? 2u : 0u);
    // Gradients of keys and values, in fp32, go from rank to rank in every step.
    EXPECT_EQ(received, gathers ? ranks : ranks + 2 * (ranks - 1));
  }
}

// Two ranks, the second: keys and values dense and joined, all of them gathered, then a step's result and its fp32 copy
// beside the first one's, and while these merge their difference, its weighed copy and the result.
TEST(PyTorchsRing, MergesInFp32) {
  const Held h = held(torch_ring_attention, {1, 2, 1, false, true, 0});
  const Bytes gathered = 4 * kHeads, wide = 2 * kHeads, states = 2 * 8 * 2;
  const Bytes merging = gathered + wide + kHeads + wide + 2 * wide;
  EXPECT_NEAR(static_cast<double>(h.forward), static_cast<double>(merging + states), 8.0 * kRows);
  EXPECT_GE(h.forward, merging);
}

}  // namespace
}  // namespace ledger
