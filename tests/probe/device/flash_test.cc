// Attention on tensor cores, run by the emulated device, against the host's in fp64: ragged lengths, grouped heads,
// both kinds of mask, with and without fp32 memory for the queries' gradient.
#include "probe/device/flash.h"

#include <gtest/gtest.h>

#include "emulated_device.h"
#include "op_cases.h"
#include "tests/probe/one_op.h"

namespace ledger::op_cases {
namespace {

// Of one 16-bit result: probe's design study, section 7. P and dS are rounded once on the way.
constexpr double kBf16Tolerance = 2e-5, kFp16Tolerance = 1e-6, kFp32Tolerance = 1e-10;

struct FlashCase {
  const char* name;
  std::uint64_t batch, heads, kv_heads, queries, keys, width;
  bool causal = true;
  double scale = 0;
};

void PrintTo(const FlashCase& c, std::ostream* out) {
  *out << c.name;
}

constexpr FlashCase kFlashCases[] = {
    {"one_token", 1, 1, 1, 1, 1, 64},
    {"two_tokens", 2, 2, 1, 2, 2, 128},
    {"one_short_of_a_step", 1, 2, 2, 31, 31, 96},
    {"a_step", 1, 2, 2, 32, 32, 64},
    {"one_more_than_a_step", 1, 2, 1, 33, 33, 64},
    {"one_short_of_a_tile", 1, 2, 1, 63, 63, 96},
    {"a_tile", 1, 4, 2, 64, 64, 128},
    {"one_more_than_a_tile", 1, 4, 1, 65, 65, 64},
    {"two_tiles", 2, 2, 2, 128, 128, 96},
    {"ragged", 2, 6, 2, 151, 151, 64},
    {"ragged_wide", 1, 4, 4, 201, 201, 128},
    {"all_heads_share", 1, 5, 1, 100, 100, 96},
    {"scaled", 1, 2, 2, 70, 70, 64, true, 0.4},
    {"both_ways_short", 1, 2, 1, 7, 7, 64, false},
    {"both_ways", 2, 4, 2, 130, 130, 96, false},
    {"both_ways_wide", 1, 2, 2, 96, 96, 128, false},
    {"both_ways_of_fewer_keys", 1, 4, 2, 130, 65, 64, false},
    {"both_ways_of_fewer_queries", 2, 2, 1, 33, 130, 96, false},
    {"cached_keys", 2, 4, 2, 3, 140, 128},
    {"one_query_of_many_keys", 1, 8, 2, 1, 193, 64},
    {"queries_across_tiles_of_cached_keys", 1, 2, 1, 70, 100, 96},
};

class FlashOnTensorCores : public testing::TestWithParam<FlashCase> {
 protected:
  static TestTensor drawn(DType dtype, std::uint64_t batch, std::uint64_t heads, std::uint64_t length,
                          std::uint64_t width) {
    std::uniform_real_distribution<double> uniform(-1.5, 1.5);
    TestTensor t = one_op::dense(dtype, {batch, length, heads, width}, {});
    t.memory.resize(t.numel());
    for (double& value : t.memory)
      value = one_op::rounded_to(dtype, uniform(one_op::generator()));
    return one_op::transpose(t, 1, 2);
  }
  static TestTensor empty_like(TestTensor t) {
    t.memory.assign(t.memory.size(), std::nan(""));
    return t;
  }
  static OpCase forward(const FlashCase& c, DType dtype) {
    OpCase result;
    result.op = OpKind::flash_attention;
    const TestTensor q = drawn(dtype, c.batch, c.heads, c.queries, c.width);
    const TestTensor k = drawn(dtype, c.batch, c.kv_heads, c.keys, c.width);
    const TestTensor v = drawn(dtype, c.batch, c.kv_heads, c.keys, c.width);
    result.in = {q, k, v};
    const TestTensor nothing = one_op::empty(DType::u8, {8});
    result.out = {empty_like(q), one_op::empty(DType::f32, {c.batch, c.heads, c.queries}), nothing, nothing};
    result.attr = {c.scale, {0, c.causal ? 0 : 1}};
    return result;
  }
  // `with_sums`: as the trace's flash_attention_backward, else as the stack native's.
  static OpCase backward(const OpCase& forward, const OpResult& result, bool with_sums) {
    OpCase c;
    const TestTensor& q = forward.in[0];
    const std::uint64_t b = q.sizes[0], n = q.sizes[1], s = q.sizes[2], d = q.sizes[3], rows = round_up(s, 128);
    c.op = with_sums ? OpKind::flash_attention_backward : OpKind::own_attention_backward;
    c.in = {drawn(q.dtype, b, n, s, d), q, forward.in[1], forward.in[2], result.out[0], result.out[1]};
    c.out = {empty_like(q), empty_like(forward.in[1]), empty_like(forward.in[2])};
    if (with_sums) {
      c.out.push_back(one_op::empty(DType::f32, {b, n, rows}));
      c.out.push_back(one_op::empty(DType::f32, {b, rows, n, round_up(d, 32)}));
    }
    c.attr = forward.attr;
    return c;
  }
  // The same numbers in fp64; the host's kernel makes the logsumexp anew, so that nothing is rounded.
  static OpCase widened(OpCase c) {
    for (auto* tensors : {&c.in, &c.out}) {
      for (TestTensor& t : *tensors) {
        if (t.dtype == DType::bf16 || t.dtype == DType::f16) t.dtype = DType::f64;
      }
    }
    return c;
  }
  static OpResult on_emulated(const OpCase& c, std::uint64_t launches, int capability = 90) {
    const Trace trace = trace_of(c);
    emulated::EmulatedDevice device;
    device.services().queue.capability = capability;
    device::DeviceExecutor executor(trace, device, {.poison = true, .seat = kSeat});
    OpResult result = run_case(c, trace, executor, device.store());
    EXPECT_EQ(device.services().queue.tensor_core_launches, launches) << "launches on tensor cores";
    EXPECT_EQ(result.failure, "");
    return result;
  }
  static void expect_close(const OpResult& got, const OpResult& want, std::size_t outputs, double tolerance) {
    for (std::size_t i = 0; i < outputs; ++i) {
      const double allowed = got.out[i].dtype == DType::f32 ? kFp32Tolerance : tolerance;
      EXPECT_LT(normalised_error(got.out[i], want.out[i]), allowed) << "output " << i;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, FlashOnTensorCores, testing::ValuesIn(kFlashCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(FlashOnTensorCores, ForwardIsThatOfFp64) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const OpCase c = forward(GetParam(), dtype);
    expect_close(on_emulated(c, 1), on_host(widened(c)), 2, dtype == DType::bf16 ? kBf16Tolerance : kFp16Tolerance);
  }
}

TEST_P(FlashOnTensorCores, GradientsAreThoseOfFp64) {
  // A softmax over few keys: its gradient is a small difference of numbers that were rounded.
  const double few_keys = GetParam().keys < 8 ? 4 : 1;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const OpCase there = forward(GetParam(), dtype);
    const OpResult result = on_emulated(there, 1), exact = on_host(widened(there));
    for (const bool with_sums : {true, false}) {
      const OpCase c = backward(there, result, with_sums);
      OpCase reference = widened(c);
      reference.in[4] = exact.out[0];
      expect_close(on_emulated(c, with_sums ? 1 : 2), on_host(reference), 3,
                   few_keys * (dtype == DType::bf16 ? kBf16Tolerance : kFp16Tolerance));
    }
  }
}

TEST_F(FlashOnTensorCores, ChangingATokenLeavesEarlierResultsBitForBit) {
  constexpr std::uint64_t kChanged = 67, kWidth = 64;
  OpCase c = forward({"", 1, 2, 1, 130, 130, kWidth}, DType::bf16);
  const TestTensor before = on_emulated(c, 1).out[0];
  for (TestTensor& t : c.in) {
    for (std::uint64_t i = 0; i < t.numel(); ++i) {
      if (i / kWidth % 130 == kChanged) t.memory[t.place(i)] += 1;
    }
  }
  const TestTensor after = on_emulated(c, 1).out[0];
  for (std::uint64_t i = 0; i < before.numel(); ++i) {
    if (i / kWidth % 130 < kChanged) {
      ASSERT_EQ(before[i], after[i]) << i;
    } else if (i / kWidth % 130 == kChanged) {
      ASSERT_NE(before[i], after[i]) << i;
    }
  }
}

// Large scores: exp(score) alone would be infinite in fp32, and all weight lies on one key.
TEST_F(FlashOnTensorCores, LargeScoresDoNotOverflow) {
  OpCase c = forward({"", 1, 1, 1, 80, 80, 64, true, 3.0}, DType::bf16);
  for (TestTensor* t : {&c.in[0], &c.in[1]}) {
    for (double& value : t->memory)
      value *= 4;
  }
  const OpResult got = on_emulated(c, 1);
  expect_close(got, on_host(widened(c)), 2, kBf16Tolerance);
}

struct OddCase {
  const char* name;
  std::uint64_t width;
  int capability;
  std::uint64_t offset;  // in elements, of the queries
};

TEST_F(FlashOnTensorCores, LeavesTheRestToTheSlowKernels) {
  for (const OddCase& odd :
       {OddCase{"width", 80, 90, 0}, OddCase{"older card", 64, 75, 0}, OddCase{"not aligned", 64, 90, 1}}) {
    SCOPED_TRACE(odd.name);
    OpCase c = forward({"", 1, 2, 1, 40, 40, odd.width}, DType::bf16);
    c.in[0].memory.insert(c.in[0].memory.begin(), odd.offset, 0.0);
    c.in[0].offset = odd.offset;
    const OpResult result = on_emulated(c, 0, odd.capability);
    expect_close(result, on_host(widened(c)), 2, kBf16Tolerance);
    for (const bool with_sums : {true, false}) {
      const OpCase g = backward(c, result, with_sums);
      const OpResult got = on_emulated(g, 0, odd.capability);
      expect_close(got, on_host(widened(g)), 3, kBf16Tolerance);
    }
  }
}

// The emulation is only worth something if it sees what would go wrong on a GPU.
struct Wrong {
  const char* says;
  void (*body)(emulated::Warps&);
};

TEST(EmulatedWarps, SeeWhatAGpuWouldLeaveToChance) {
  using emulated::Warps;
  static std::array<std::byte, 4096> memory alignas(16){};
  const auto write = [](Warps& warps) { warps.lanes([&](unsigned lane) { warps.put(lane, lane * 4, lane); }); };
  const auto read_next = [](Warps& warps) {
    warps.lanes([&](unsigned lane) { warps.get<unsigned>(lane, (lane + 1) % emulated::kThreads * 4); });
  };
  static const auto put = write;
  static const auto get = read_next;
  static const auto copy = [](Warps& warps) {
    warps.lanes([&](unsigned lane) { warps.copy(lane, lane * 16, &memory[lane * 16], true); });
  };
  const Wrong cases[] = {
      {"", [](Warps& w) { put(w), w.barrier(), get(w), w.barrier(), put(w); }},
      {"", [](Warps& w) { copy(w), w.commit(), w.arrive<0>(), w.barrier(), get(w); }},
      {"without a barrier after it was written", [](Warps& w) { put(w), get(w); }},
      {"without a barrier after others used it", [](Warps& w) { put(w), w.barrier(), get(w), put(w); }},
      {"that nobody has written", [](Warps& w) { get(w); }},
      {"without a barrier after it was written",
       [](Warps& w) { copy(w), w.commit(), w.barrier(), get(w), w.arrive<0>(); }},
      {"without a barrier after it was written", [](Warps& w) { copy(w), w.commit(), w.arrive<0>(), get(w); }},
      {"in no group", [](Warps& w) { copy(w); }},
      {"on its way", [](Warps& w) { copy(w), w.commit(); }},
      {"share banks",
       [](Warps& w) {
         copy(w), w.commit(), w.arrive<0>(), w.barrier();
         emulated::PerLane<std::array<emulated::Fragment, 1>> f;
         w.load<false>(f, 0, [](unsigned lane) { return lane % 8 * 128; });
       }},
      {"not aligned",
       [](Warps& w) {
         w.lanes([&](unsigned lane) { w.copy(lane, lane * 16, &memory[lane * 16 + 2], true); });
         w.commit(), w.arrive<0>();
       }},
  };
  for (const Wrong& wrong : cases) {
    Warps warps(4096);
    warps.begin();
    wrong.body(warps);
    warps.end();
    const std::string fault = warps.fault() == nullptr ? "" : warps.fault();
    EXPECT_EQ(fault.empty(), std::string(wrong.says).empty()) << fault << " / " << wrong.says;
    EXPECT_NE(fault.find(wrong.says), std::string::npos) << fault << " / " << wrong.says;
  }
}

}  // namespace
}  // namespace ledger::op_cases
