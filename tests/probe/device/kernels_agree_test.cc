// The device kernels' bodies, run by the emulated device, against the host's kernels: operator by operator, in every
// dtype and layout, with and without the matrix library.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "emulated_device.h"
#include "op_cases.h"
#include "probe/device/memory.h"
#include "probe/host/kernels.h"

namespace ledger::op_cases {
namespace {

constexpr std::uint32_t kSeed = 20240229;

OpResult on_emulated(const OpCase& c, bool with_library) {
  const Trace trace = trace_of(c);
  emulated::EmulatedDevice device(with_library);
  device::DeviceExecutor executor(trace, device, {.poison = true, .seat = kSeat});
  OpResult result = run_case(c, trace, executor, device.store());
  if (result.failure.empty()) result.failure = device.settle();
  return result;
}

TEST(DeviceKernels, AgreeWithTheHost) {
  const std::vector<OpCase> cases = all_cases(kSeed);
  EXPECT_GT(cases.size(), 800u);
  for (const OpCase& c : cases)
    EXPECT_EQ(disagreement(c, on_emulated(c, true), on_host(c)), "") << c.name;
}

TEST(DeviceKernels, MultiplyWithoutALibraryToo) {
  for (const OpCase& c : all_cases(kSeed + 1)) {
    if (c.op != OpKind::mm && c.op != OpKind::addmm && c.op != OpKind::bmm) continue;
    EXPECT_EQ(disagreement(c, on_emulated(c, false), on_host(c)), "") << c.name;
  }
}

// Liger's norm writes dx over the gradient that came, of which the weight's is made, too.
TEST(DeviceKernels, ANormsWeightIsDifferentiatedBeforeTheGradientIsOverwritten) {
  std::size_t compared = 0;
  for (const OpCase& c : all_cases(kSeed)) {
    if (c.op != OpKind::rms_norm_backward || c.out.size() < 2) continue;
    Trace apart = trace_of(c), shared = apart;
    shared.views[c.in.size()] = shared.views[0];
    const auto on_device = [&](const Trace& trace) {
      emulated::EmulatedDevice device(true);
      device::DeviceExecutor executor(trace, device, {.poison = true, .seat = kSeat});
      OpResult result = run_case(c, trace, executor, device.store());
      EXPECT_EQ(device.settle(), "");
      return result;
    };
    EXPECT_EQ(on_device(shared).out[1].memory, on_device(apart).out[1].memory) << c.name;
    ++compared;
  }
  EXPECT_GE(compared, 12u);
}

TEST(DeviceKernels, AreThereForEveryOperatorOfTheHost) {
  std::set<OpKind> compared;
  for (const OpCase& c : all_cases(kSeed))
    compared.insert(c.op);
  compared.insert(OpKind::copy_to_host);  // emulated_training_test.cc: they need two runs
  compared.insert(OpKind::copy_from_host);
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    const auto op = static_cast<OpKind>(i);
    EXPECT_EQ(emulated::kKernels[i] != nullptr, host::computes(op)) << op_name(op);
    EXPECT_EQ(compared.contains(op), host::computes(op)) << op_name(op) << " is compared with the host's";
  }
}

TEST(DeviceMemory, RoundsAsTheNumberFormatsDo) {
  for (std::uint32_t i = 0; i < (1u << 16); ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const emulated::Bf16 stored{bits};
    const float value = emulated::widen(stored);
    const float expected = float_from_bf16(bits);
    ASSERT_EQ(std::memcmp(&value, &expected, sizeof value), 0) << i;
    for (const std::uint32_t tail : {0u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const std::uint32_t whole = i << 16 | tail;
      float wide = 0;
      std::memcpy(&wide, &whole, sizeof wide);
      emulated::Bf16 narrow{};
      emulated::narrow(wide, narrow);
      ASSERT_EQ(narrow.bits, bf16_from_float(wide)) << whole;
    }
  }
}

struct BadData {
  const char* name;
  OpKind op;
  std::vector<TestTensor> in, out;
  const char* says;
};

TEST(DeviceKernels, SayWhatIsWrongWithTheirData) {
  const auto ids = [](std::vector<double> values) { return one_op::dense(DType::i64, {values.size()}, values); };
  const auto zeros = [](DType dtype, const Sizes& sizes) { return one_op::filled(dtype, sizes, 0); };
  const BadData cases[] = {
      {"embedding",
       OpKind::embedding,
       {zeros(DType::f32, {4, 3}), ids({1, 4})},
       {zeros(DType::f32, {2, 3})},
       "token id"},
      {"embedding_backward",
       OpKind::embedding_backward,
       {zeros(DType::f32, {2, 3}), ids({-1, 0})},
       {zeros(DType::f32, {4, 3})},
       "token id"},
      {"nll",
       OpKind::nll_loss,
       {zeros(DType::f32, {2, 5}), ids({1, 5})},
       {zeros(DType::f32, {}), zeros(DType::f32, {})},
       "target"},
      {"index", OpKind::index_rows, {zeros(DType::f32, {4, 3}), ids({9})}, {zeros(DType::f32, {1, 3})}, "index"},
  };
  for (const BadData& bad : cases) {
    OpCase c;
    c.op = bad.op;
    c.in = bad.in;
    c.out = bad.out;
    EXPECT_NE(on_emulated(c, true).failure.find(bad.says), std::string::npos) << bad.name;
    EXPECT_FALSE(on_host(c).failure.empty()) << bad.name;
  }
}

TEST(DeviceKernels, RefuseShapesThatDoNotGoTogether) {
  const auto zeros = [](const Sizes& sizes) { return one_op::filled(DType::f32, sizes, 0); };
  OpCase c;
  c.op = OpKind::mm;
  c.in = {zeros({2, 3}), zeros({4, 5})};
  c.out = {zeros({2, 5})};
  EXPECT_NE(on_emulated(c, true).failure.find("shapes do not match"), std::string::npos);
  c.op = OpKind::flash_attention;
  c.in = {zeros({1, 2, 4, 257}), zeros({1, 2, 4, 257}), zeros({1, 2, 4, 257})};
  c.out = {zeros({1, 2, 4, 257}), zeros({1, 2, 4})};
  EXPECT_NE(on_emulated(c, true).failure.find("wider than 256"), std::string::npos);
}

}  // namespace
}  // namespace ledger::op_cases
