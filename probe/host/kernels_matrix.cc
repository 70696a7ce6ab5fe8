// kernels_matrix.cc - matrix products; gemm.h does the work.
#include <vector>

#include "probe/host/gemm.h"
#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

bool fits(const Matrix& a, const Matrix& b, const Matrix& out) {
  return a.rows == out.rows && a.cols == b.rows && b.cols == out.cols;
}

void product(KernelCall& call, const Matrix& a, const Matrix& b, const Matrix& out, const Matrix* bias = nullptr) {
  if (!fits(a, b, out)) {
    call.error = "the matrices' shapes do not match";
    return;
  }
  if (needs_double(call)) {
    multiply<double>(a, b, out, bias);
  } else {
    multiply<float>(a, b, out, bias);
  }
}

}  // namespace

void mm(KernelCall& call) {
  product(call, matrix_of(call.in[0]), matrix_of(call.in[1]), matrix_of(call.out[0]));
}

void addmm(KernelCall& call) {
  const HostView& bias = call.in[0];
  const HostView& out = call.out[0];
  if (!broadcasts_to(bias, out)) {
    call.error = "the bias does not broadcast to the product's shape";
    return;
  }
  const Matrix repeated{
      bias.data, bias.dtype, out.sizes[0], out.sizes[1], broadcast_step(bias, 1), broadcast_step(bias, 0)};
  product(call, matrix_of(call.in[1]), matrix_of(call.in[2]), matrix_of(out), &repeated);
}

void bmm(KernelCall& call) {
  const std::uint64_t batches = call.out[0].sizes[0];
  if (call.in[0].sizes[0] != batches || call.in[1].sizes[0] != batches) {
    call.error = "the numbers of matrices differ";
    return;
  }
  for (std::uint64_t i = 0; i < batches && call.error == nullptr; ++i) {
    product(call, matrix_of(call.in[0], i), matrix_of(call.in[1], i), matrix_of(call.out[0], i));
  }
}

namespace {

// out = in0 + alpha * the product that is in `scratch`, whose rows are dense.
template <class C>
void add_scaled(KernelCall& call) {
  const HostView& out = call.out[0];
  std::vector<C> scratch(out.numel());
  const HostView product_view =
      dense_view(out, reinterpret_cast<std::byte*>(scratch.data()), sizeof(C) == 8 ? DType::f64 : DType::f32);
  for (std::uint64_t i = 0; i < out.sizes[0]; ++i)
    multiply<C>(matrix_of(call.in[1], i), matrix_of(call.in[2], i), matrix_of(product_view, i));
  const StridedLoop<3> loop(out, {out, call.in[0], product_view});
  const C alpha = static_cast<C>(call.attr.x);
  loop.for_each_row([&](auto at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const C added = load_one<C>(at[1], call.in[0].dtype);
      store_one(at[0], added + alpha * load_one<C>(at[2], product_view.dtype), out.dtype);
      for (std::size_t n = 0; n < 3; ++n)
        at[n] += loop.steps[0][n];
    }
  });
}

}  // namespace

void baddbmm(KernelCall& call) {
  if (!broadcasts_to(call.in[0], call.out[0])) {
    call.error = "what is added does not broadcast to the product's shape";
    return;
  }
  (needs_double(call) ? add_scaled<double> : add_scaled<float>)(call);
}

}  // namespace ledger::host
