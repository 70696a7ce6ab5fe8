// kernels_matrix.cc - matrix products; gemm.h does the work.
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

}  // namespace ledger::host
