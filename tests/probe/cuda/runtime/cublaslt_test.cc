// The parts of the CUDA runtime code that work without a driver: libraries load, descriptions of products are accepted,
// and what is missing is said.
#include "probe/cuda/runtime/cublaslt.h"

#include <gtest/gtest.h>

#include "probe/cuda/availability.h"
#include "probe/cuda/run_cuda.h"
#include "probe/cuda/runtime/cuda_store.h"

namespace ledger::cuda {
namespace {

bool has_gpu() {
  return collect_facts().devices > 0;
}

device::Operand matrix(DType dtype, std::uint64_t rows, std::uint64_t columns, bool by_columns = false) {
  device::Operand x;
  x.dtype = dtype;
  x.rank = 3;
  x.sizes = {1, rows, columns};
  x.strides = {0, by_columns ? 1 : static_cast<std::int64_t>(columns),
               by_columns ? static_cast<std::int64_t>(rows) : 1};
  return x;
}

TEST(CublasLtLibrary, IsFoundWithAllItsFunctions) {
  CublasLt library;
  if (library.version() == 0) GTEST_SKIP() << library.problem();
  EXPECT_EQ(library.problem(), "");
  EXPECT_GE(library.version(), 120000u);
}

TEST(CublasLtLibrary, TakesDescriptionsOfEveryLayoutAndDtype) {
  CublasLt library;
  if (library.version() == 0) GTEST_SKIP() << library.problem();
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    for (int layouts = 0; layouts < 8; ++layouts) {
      for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{128256}}) {
        const device::Product product{matrix(dtype, 33, 64, layouts & 1), matrix(dtype, 64, n, layouts & 2),
                                      matrix(dtype, 33, n, layouts & 4)};
        EXPECT_TRUE(library.describes(product)) << info(dtype).name << " layouts " << layouts << " n " << n;
      }
    }
  }
  const device::Operand bias = [] {
    device::Operand x = matrix(DType::bf16, 33, 40);
    x.strides = {0, 0, 1};
    return x;
  }();
  EXPECT_TRUE(library.describes(
      {matrix(DType::bf16, 33, 64), matrix(DType::bf16, 64, 40), matrix(DType::bf16, 33, 40), &bias}));
  EXPECT_TRUE(
      library.describes({matrix(DType::bf16, 33, 64), matrix(DType::bf16, 64, 40), matrix(DType::f32, 33, 40)}));
  EXPECT_FALSE(library.describes({matrix(DType::bf16, 33, 64), matrix(DType::f32, 64, 40), matrix(DType::f32, 33, 40)}))
      << "mixed operands are for our own kernels";
}

TEST(CublasLtLibrary, SaysThatItCannotStartWithoutAGpu) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  CublasLt library;
  EXPECT_FALSE(library.open(nullptr));
  EXPECT_FALSE(library.problem().empty());
  const char* error = nullptr;
  EXPECT_FALSE(library.multiply({matrix(DType::f32, 2, 2), matrix(DType::f32, 2, 2), matrix(DType::f32, 2, 2)}, error));
  EXPECT_EQ(error, nullptr) << "left to our own kernel";
  EXPECT_EQ(library.declined(), 1u);
}

TEST(CudaStore, WithoutAGpuRefusesAndSaysWhy) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  CudaStore store;
  EXPECT_FALSE(store.reserve(std::uint64_t{1} << 40, 2 * kMiB));
  EXPECT_NE(store.error().find("cudaMalloc"), std::string::npos);
  EXPECT_EQ(store.locate(std::uint64_t{1} << 40, 1), nullptr);
}

TEST(OpenGpu, WithoutOneIsAnError) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const OpenedGpu gpu = open_gpu(0, false);
  EXPECT_EQ(gpu.device, nullptr);
  EXPECT_FALSE(gpu.error.empty());
  EXPECT_FALSE(gpu.busy);
}

}  // namespace
}  // namespace ledger::cuda
