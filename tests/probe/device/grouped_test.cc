// Products of experts' groups on tensor cores, run by the emulated device, against the host's in fp64: forward, the
// gradient of the rows and that of the experts' weights, in the layouts that the models' traces have.
#include <gtest/gtest.h>

#include "emulated_device.h"
#include "op_cases.h"
#include "tests/probe/one_op.h"

namespace ledger::op_cases {
namespace {

struct GroupedCase {
  const char* name;
  std::vector<double> ends;
  std::uint64_t inner, columns;
};

void PrintTo(const GroupedCase& c, std::ostream* out) {
  *out << c.name;
}

const GroupedCase kGroupedCases[] = {
    {"one_row", {1}, 8, 8},
    {"one_group", {64}, 32, 64},
    {"a_tile", {128}, 96, 128},
    {"one_more_than_a_tile", {129}, 40, 136},
    {"empty_groups", {0, 3, 3, 68, 69, 200, 200}, 72, 40},
    {"groups_of_several_tiles", {130, 131, 400}, 24, 264},
    {"deep", {7, 90}, 328, 16},
    {"nothing", {0, 0}, 16, 16},
};

class GroupedOnTensorCores : public testing::TestWithParam<GroupedCase> {
 protected:
  static TestTensor drawn_matrix(DType dtype, const Sizes& sizes) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    TestTensor t = one_op::dense(dtype, sizes, {});
    t.memory.resize(t.numel());
    for (double& value : t.memory)
      value = one_op::rounded_to(dtype, uniform(one_op::generator()));
    return t;
  }
  // [R,K] [E,K,N]; `turned`: the weights are [E,N,K] in memory, as Linear keeps them.
  static OpCase rows(const GroupedCase& c, DType dtype, bool turned) {
    const auto groups = static_cast<std::uint64_t>(c.ends.size()), r = static_cast<std::uint64_t>(c.ends.back()) + 5;
    OpCase result;
    result.op = OpKind::grouped_mm;
    const TestTensor weights = turned ? one_op::transpose(drawn_matrix(dtype, {groups, c.columns, c.inner}), 1, 2)
                                      : drawn_matrix(dtype, {groups, c.inner, c.columns});
    result.in = {drawn_matrix(dtype, {r, c.inner}), weights, one_op::dense(DType::i32, {groups}, c.ends)};
    result.out = {drawn_matrix(dtype, {r, c.columns})};  // rows past the last group stay as they are
    return result;
  }
  // [M,R] [R,N] by groups of R.
  static OpCase depth(const GroupedCase& c, DType dtype) {
    const auto groups = static_cast<std::uint64_t>(c.ends.size()), r = static_cast<std::uint64_t>(c.ends.back()) + 5;
    OpCase result;
    result.op = OpKind::grouped_mm;
    result.in = {one_op::transpose(drawn_matrix(dtype, {r, c.inner}), 0, 1), drawn_matrix(dtype, {r, c.columns}),
                 one_op::dense(DType::i32, {groups}, c.ends)};
    result.out = {one_op::empty(dtype, {groups, c.inner, c.columns})};
    return result;
  }
  static void expect_product(const OpCase& c, std::uint64_t launches, int capability = 90) {
    OpCase exact = c;
    for (TestTensor* t : {&exact.in[0], &exact.in[1], &exact.out[0]})
      t->dtype = DType::f64;
    const Trace trace = trace_of(c);
    emulated::EmulatedDevice device;
    device.services().queue.capability = capability;
    device::DeviceExecutor executor(trace, device, {.poison = true, .seat = kSeat});
    const OpResult got = run_case(c, trace, executor, device.store());
    EXPECT_EQ(got.failure, "");
    EXPECT_EQ(device.services().queue.tensor_core_launches, launches);
    EXPECT_LT(normalised_error(got.out[0], on_host(exact).out[0]), tolerance_of(c.in[0].dtype));
  }
};

INSTANTIATE_TEST_SUITE_P(All, GroupedOnTensorCores, testing::ValuesIn(kGroupedCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(GroupedOnTensorCores, RowsTimesWeightsOfTheirGroup) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const bool turned : {true, false})
      expect_product(rows(GetParam(), dtype, turned), 1);
  }
}

TEST_P(GroupedOnTensorCores, GradientsOfTheWeights) {
  for (const DType dtype : {DType::bf16, DType::f16})
    expect_product(depth(GetParam(), dtype), 1);
}

TEST_F(GroupedOnTensorCores, LeavesTheRestToTheSlowKernels) {
  const GroupedCase good{"", {3, 90}, 24, 40}, odd{"", {3, 90}, 21, 40};
  expect_product(rows(odd, DType::bf16, true), 0);
  expect_product(depth(odd, DType::bf16), 0);
  expect_product(rows(good, DType::f32, false), 0);
  expect_product(rows(good, DType::bf16, false), 0, 75);
  expect_product(depth(good, DType::bf16), 0, 75);
}

}  // namespace
}  // namespace ledger::op_cases
