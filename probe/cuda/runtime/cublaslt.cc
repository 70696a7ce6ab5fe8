#include "probe/cuda/runtime/cublaslt.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>

namespace ledger::cuda {
namespace {

const LibraryNames& names() {
  static const LibraryNames kNames = {
      "cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, "matrix products", "nvidia-cublas"};
  return kNames;
}

#define LEDGER_CUBLASLT(X)            \
  X(cublasLtCreate)                   \
  X(cublasLtDestroy)                  \
  X(cublasLtGetVersion)               \
  X(cublasLtMatmul)                   \
  X(cublasLtMatmulAlgoGetHeuristic)   \
  X(cublasLtMatmulDescCreate)         \
  X(cublasLtMatmulDescDestroy)        \
  X(cublasLtMatmulDescSetAttribute)   \
  X(cublasLtMatrixLayoutCreate)       \
  X(cublasLtMatrixLayoutDestroy)      \
  X(cublasLtMatrixLayoutSetAttribute) \
  X(cublasLtMatmulPreferenceCreate)   \
  X(cublasLtMatmulPreferenceDestroy)  \
  X(cublasLtMatmulPreferenceSetAttribute)

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

std::uint32_t alignment(const std::byte* memory) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(memory) | kMost;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

cublasOperation_t operation_of(const ColumnMajor& matrix) {
  return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

struct CublasLt::Functions {
#define LEDGER_DECLARE(name) decltype(&::name) name = nullptr;
  LEDGER_CUBLASLT(LEDGER_DECLARE)
#undef LEDGER_DECLARE

  explicit Functions(SharedLibrary& library) {
#define LEDGER_LOAD(name) name = reinterpret_cast<decltype(name)>(library.symbol(#name));
    LEDGER_CUBLASLT(LEDGER_LOAD)
#undef LEDGER_LOAD
  }
};

// Descriptors live as long as the plan.
struct CublasLt::Plan {
  const Functions& call;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
  bool usable = false;

  explicit Plan(const Functions& functions) : call(functions) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (operation != nullptr) call.cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {left, right, result}) {
      if (layout != nullptr) call.cublasLtMatrixLayoutDestroy(layout);
    }
    if (preference != nullptr) call.cublasLtMatmulPreferenceDestroy(preference);
  }

  template <class T>
  bool set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return call.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
  }
  bool use_bias(const std::byte* memory) {
    const void* bias = memory;
    return bias == nullptr || set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  template <class T>
  bool prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    return call.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  }
  bool make(cublasLtMatrixLayout_t& layout, const ColumnMajor& matrix, std::uint64_t batches) {
    if (call.cublasLtMatrixLayoutCreate(&layout, cuda_type(matrix.dtype), matrix.rows, matrix.columns,
                                        matrix.leading) != CUBLAS_STATUS_SUCCESS) {
      return false;
    }
    if (batches == 1) return true;
    const auto count = static_cast<std::int32_t>(batches);
    return call.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count) ==
               CUBLAS_STATUS_SUCCESS &&
           call.cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.batch,
                                                 sizeof matrix.batch) == CUBLAS_STATUS_SUCCESS;
  }
};

CublasLt::CublasLt() : library_(names()) {
  if (!library_.loaded()) {
    problem_ = library_.error();
    return;
  }
  call_ = std::make_unique<Functions>(library_);
  if (!library_.missing().empty()) {
    problem_ = library_.soname() + " has no function " + library_.missing() + ": it is of another version";
    return;
  }
  version_ = call_->cublasLtGetVersion();
}

CublasLt::~CublasLt() {
  plans_.clear();
  if (handle_ != nullptr) call_->cublasLtDestroy(handle_);
}

bool CublasLt::open(void* stream) {
  if (!problem_.empty()) return false;
  stream_ = stream;
  const cublasStatus_t status = call_->cublasLtCreate(&handle_);
  if (status != CUBLAS_STATUS_SUCCESS) {
    problem_ = library_.soname() + " could not be started (status " + std::to_string(status) + ")";
  }
  return problem_.empty();
}

void CublasLt::use_workspace(std::byte* memory, Bytes bytes) {
  workspace_ = memory;
  workspace_bytes_ = memory == nullptr ? 0 : bytes;
}

CublasLt::Key CublasLt::key_of(const LibraryCall& p) const {
  Key key = {p.batches, p.depth, p.bias != nullptr, p.bias == nullptr ? 0 : alignment(p.bias), workspace_bytes_};
  std::size_t next = 5;
  for (const ColumnMajor* m : {&p.left, &p.right, &p.result}) {
    key[next++] = m->rows;
    key[next++] = m->columns;
    key[next++] = static_cast<std::uint64_t>(m->leading);
    key[next++] = static_cast<std::uint64_t>(m->batch);
    key[next++] = static_cast<std::uint64_t>(m->dtype) << 16 | static_cast<std::uint64_t>(m->transposed) << 15 |
                  alignment(m->data);
  }
  return key;
}

bool CublasLt::describe(Plan& plan, const LibraryCall& p) {
  const bool wide = p.left.dtype == DType::f64;
  if (call_->cublasLtMatmulDescCreate(&plan.operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                      wide ? CUDA_R_64F : CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
      call_->cublasLtMatmulPreferenceCreate(&plan.preference) != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  const cublasLtEpilogue_t epilogue = p.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  return plan.set(CUBLASLT_MATMUL_DESC_TRANSA, operation_of(p.left)) &&
         plan.set(CUBLASLT_MATMUL_DESC_TRANSB, operation_of(p.right)) &&
         plan.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) && plan.use_bias(p.bias) &&
         plan.make(plan.left, p.left, p.batches) && plan.make(plan.right, p.right, p.batches) &&
         plan.make(plan.result, p.result, p.batches) &&
         plan.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes_) &&
         plan.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.left.data)) &&
         plan.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.right.data)) &&
         plan.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.result.data)) &&
         plan.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.result.data));
}

CublasLt::Plan* CublasLt::plan_for(const LibraryCall& product) {
  std::unique_ptr<Plan>& plan = plans_[key_of(product)];
  if (plan != nullptr) return plan.get();
  plan = std::make_unique<Plan>(*call_);
  int found = 0;
  plan->usable = describe(*plan, product) &&
                 call_->cublasLtMatmulAlgoGetHeuristic(handle_, plan->operation, plan->left, plan->right, plan->result,
                                                       plan->result, plan->preference, 1, &plan->choice,
                                                       &found) == CUBLAS_STATUS_SUCCESS &&
                 found > 0;
  return plan.get();
}

bool CublasLt::describes(const device::Product& product) {
  const std::optional<LibraryCall> p = library_call(product);
  if (!p || !problem_.empty()) return false;
  Plan plan(*call_);
  return describe(plan, *p);
}

bool CublasLt::multiply(const device::Product& product, const char*& error) {
  const std::optional<LibraryCall> p = handle_ == nullptr ? std::nullopt : library_call(product);
  Plan* plan = p ? plan_for(*p) : nullptr;
  if (plan == nullptr || !plan->usable) {
    ++declined_;
    return false;
  }
  plan->use_bias(p->bias);
  const double wide_one = 1, wide_zero = 0;
  const float one = 1, zero = 0;
  const bool wide = p->left.dtype == DType::f64;
  const void* alpha = wide ? static_cast<const void*>(&wide_one) : &one;
  const void* beta = wide ? static_cast<const void*>(&wide_zero) : &zero;
  const cublasStatus_t status =
      call_->cublasLtMatmul(handle_, plan->operation, alpha, p->left.data, plan->left, p->right.data, plan->right, beta,
                            p->result.data, plan->result, p->result.data, plan->result, &plan->choice.algo, workspace_,
                            workspace_bytes_, static_cast<cudaStream_t>(stream_));
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  error_ = "cublasLtMatmul failed with status " + std::to_string(status);
  error = error_.c_str();
  return false;
}

}  // namespace ledger::cuda
