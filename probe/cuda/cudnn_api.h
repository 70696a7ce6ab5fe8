// cudnn_api.h - the part of cuDNN's backend interface that attention needs, declared here: toolkits come without cuDNN,
// and what is loaded at run time needs no header at build time. Values: cudnn_graph_v9.h of cuDNN 9.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ledger::cuda::cudnn {

using Handle = void*;
using Descriptor = void*;
using Status = int;
inline constexpr Status kSuccess = 0;

enum Kind : int {  // of a descriptor
  kPointwise = 0,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
};

enum Attribute : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceSize = 402,
  kPointwiseOperationPointwise = 750,
  kPointwiseOperationX = 751,
  kPointwiseOperationB = 752,
  kPointwiseOperationY = 753,
  kPointwiseOperationT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kGraphEngineCount = 802,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kMatmulPrecision = 1500,
  kMatmulOperationA = 1520,
  kMatmulOperationB = 1521,
  kMatmulOperationC = 1522,
  kMatmulOperationMatmul = 1523,
  kReductionOperator = 1600,
  kReductionPrecision = 1601,
  kReductionOperationX = 1610,
  kReductionOperationY = 1611,
  kReductionOperationReduction = 1612,
  kReshapeOperationX = 2200,
  kReshapeOperationY = 2201,
};

enum Type : int {  // of an attribute's elements
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypePointer = 6,
  kTypeHeuristicsMode = 8,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeReductionOperator = 18,
};

enum DataType : int { kFloat = 0, kHalf = 2, kInt32 = 4, kBf16 = 9, kBoolean = 11 };
enum Mode : int {  // of a pointwise operation
  kAdd = 0,
  kMul = 1,
  kDiv = 6,
  kSub = 9,
  kExp = 13,
  kLog = 15,
  kIdentity = 21,
  kGreaterOrEqual = 303,
  kIndex = 501,
  kSelect = 601,
};
enum Reduce : int { kSum = 0, kMax = 3 };
enum Heuristics : int { kFallback = 2, kBest = 3 };  // cuDNN's modes FALLBACK and A

#define LEDGER_CUDNN(X)                                                                           \
  X(std::size_t, cudnnGetVersion, ())                                                             \
  X(void, cudnnGetLastErrorString, (char*, std::size_t))                                          \
  X(Status, cudnnCreate, (Handle*))                                                               \
  X(Status, cudnnDestroy, (Handle))                                                               \
  X(Status, cudnnSetStream, (Handle, void*))                                                      \
  X(Status, cudnnBackendCreateDescriptor, (int, Descriptor*))                                     \
  X(Status, cudnnBackendDestroyDescriptor, (Descriptor))                                          \
  X(Status, cudnnBackendFinalize, (Descriptor))                                                   \
  X(Status, cudnnBackendSetAttribute, (Descriptor, int, int, std::int64_t, const void*))          \
  X(Status, cudnnBackendGetAttribute, (Descriptor, int, int, std::int64_t, std::int64_t*, void*)) \
  X(Status, cudnnBackendExecute, (Handle, Descriptor, Descriptor))

}  // namespace ledger::cuda::cudnn
