// gemm.h - matrix product on strided operands of any dtype, accumulated in the compute type.
//
// The usual scheme (Goto, van de Geijn: Anatomy of high-performance matrix multiplication, 2008): blocks of both
// operands are widened and packed into panels that stay in cache, and a small tile of the result stays in registers.
// Packing is where dtypes and transposition are dealt with, so one inner loop serves all.
#pragma once

#include "probe/host/host_view.h"

namespace ledger::host {

// out[M,N] = a[M,K] b[K,N] (+ bias, broadcast to [M,N] by strides of 0); rounded to out's dtype once.
template <class C>
void multiply(const Matrix& a, const Matrix& b, const Matrix& out, const Matrix* bias = nullptr);

// out[rows][cols] += a b on dense row-major buffers of the compute type, where a's element (i,k) is a[i*a_row +
// k*a_col]. For blocks that are in cache already (attention).
template <class C>
struct SmallProduct {
  const C* a;
  std::size_t a_row, a_col;
  const C* b;
  C* out;
  std::size_t rows, cols, depth;  // cols is also the row length of b and out
};

void add_product(const SmallProduct<float>& product);
void add_product(const SmallProduct<double>& product);

}  // namespace ledger::host
