// widen.h - a trace whose fp32 tensors are fp64: modules compute norms, rotary embeddings and losses in fp32 whatever
// dtype the weights have; then nothing but the order of sums differs between two ways to compute the same.
#pragma once

#include "core/trace/trace.h"

namespace ledger {

inline void widen(Trace& trace) {
  for (StorageInfo& storage : trace.storages) {
    if (storage.dtype != DType::f32) continue;
    storage.dtype = DType::f64;
    storage.bytes *= 2;
  }
  for (View& view : trace.views) {
    if (view.dtype == DType::f32) view.dtype = DType::f64;
  }
}

}  // namespace ledger
