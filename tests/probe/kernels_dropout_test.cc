// Dropout: how much is kept, what the gradient is, and when two runs draw the same mask.
#include <numeric>

#include "one_op.h"
#include "probe/host/kernels.h"

namespace ledger::one_op {
namespace {

struct Dropped {
  TestTensor out, mask;
};

Dropped drop(const TestTensor& x, double p) {
  const std::vector<TestTensor> out =
      run_op(OpKind::dropout, {x}, {empty(x.dtype, x.sizes), empty(DType::boolean, x.sizes)}, {p, {}});
  return {out[0], out[1]};
}

TEST(DropoutKernels, KeepsTheStatedShareAndScalesIt) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const TestTensor x = random(DType::f32, {40, 500}, 1, 2);
    const Dropped d = drop(x, p);
    double kept = 0;
    for (std::uint64_t i = 0; i < x.numel(); ++i) {
      kept += d.mask[i];
      ASSERT_NEAR(d.out[i], x[i] * d.mask[i] / (1 - p), 2e-7 * std::fabs(d.out[i]));
    }
    const double count = static_cast<double>(x.numel());
    EXPECT_NEAR(kept / count, 1 - p, 4 * std::sqrt(p * (1 - p) / count)) << "four standard deviations";
  }
}

TEST(DropoutKernels, MaskDependsOnNeitherStridesNorDtype) {
  const TestTensor x = random_reversed(DType::f64, {6, 7}), y = random(DType::bf16, {6, 7});
  EXPECT_EQ(drop(x, 0.5).mask.values(), drop(y, 0.5).mask.values());
}

TEST(DropoutKernels, BackwardScalesWhatWasKept) {
  const TestTensor x = random(DType::f64, {5, 9}), u = random_reversed(DType::f64, {5, 9});
  const Dropped d = drop(x, 0.3);
  const TestTensor gradient = run_op(OpKind::dropout_backward, {u, d.mask}, {empty(DType::f64, {5, 9})}, {0.3, {}})[0];
  expect_gradient([](const TestTensor& at) { return drop(at, 0.3).out; }, x, u, gradient);
}

// The mask of an operator at (scope, layer) in the given forward pass.
std::vector<double> mask_at(const char* scope, std::int32_t layer, std::uint64_t pass) {
  std::vector<float> x(100, 1.0f), y(100);
  std::vector<std::uint8_t> mask(100);
  const auto view_of = [](void* data, DType dtype) {
    return host::HostView{
        .data = static_cast<std::byte*>(data), .dtype = dtype, .rank = 1, .sizes = {100}, .strides = {1}};
  };
  const std::vector<host::HostView> in = {view_of(x.data(), DType::f32)};
  const std::vector<host::HostView> out = {view_of(y.data(), DType::f32), view_of(mask.data(), DType::boolean)};
  Trace trace;
  trace.names = {"", scope};
  const Run run{.op = OpKind::dropout, .attr = {0.5, {}}, .scope = 1, .layer = layer};
  host::HostMemory host_memory;
  host::KernelCall call{in, out, run.attr, trace, 7919, run, pass, host_memory};
  host::dropout(call);
  return {mask.begin(), mask.end()};
}

TEST(DropoutKernels, EveryScopeLayerAndForwardPassHasAMaskOfItsOwn) {
  const std::vector<double> mask = mask_at("q_proj", 0, 1);
  EXPECT_EQ(mask_at("q_proj", 0, 1), mask) << "what a recomputation needs";
  EXPECT_NE(mask_at("v_proj", 0, 1), mask);
  EXPECT_NE(mask_at("q_proj", 1, 1), mask);
  EXPECT_NE(mask_at("q_proj", 0, 2), mask);
}

}  // namespace
}  // namespace ledger::one_op
