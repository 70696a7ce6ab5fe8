// kv_cache.h - keys and values of earlier tokens, as transformers' cache classes hold them.
//
// Source: transformers 5 cache_utils.py: DynamicLayer, DynamicSlidingWindowLayer, StaticLayer, QuantizedLayer with
// quanto's 4 bits. Not here: static caches of sliding windows, offloaded caches, beam search.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/config/recipe.h"
#include "core/models/attention.h"

namespace ledger {

class KvCache {
 public:
  virtual ~KvCache() = default;

  // Takes in the keys and values [b, nkv, n, d] of new tokens of one layer; returns those that attention is to see.
  virtual std::pair<Tensor, Tensor> update(std::size_t layer, const Tensor& keys, const Tensor& values) = 0;

  // The mask under which `s` tokens more see the keys that update() is going to return.
  virtual MaskShape mask_for(Dim b, Dim s) const = 0;

  // Puts every layer into the state it has after `seen` tokens. Stands in for decoding them one by one: the same
  // tensors are alive afterwards, and on the way never more than after it.
  virtual void skip_to(std::uint64_t seen) = 0;
};

struct CacheOptions {
  KvCacheKind kind = KvCacheKind::dynamic;
  std::size_t layers = 0;
  std::uint64_t window = 0;    // tokens that attention looks back; 0: all
  std::uint64_t capacity = 0;  // of a static cache
};

std::unique_ptr<KvCache> make_cache(Tape& tape, const CacheOptions& options);

// The token, counted from 1, at which a quantised cache last took its unquantised rest in: every 128th
// (QuantizedLayer's residual_length).
inline constexpr std::uint64_t kResidualLength = 128;

std::unique_ptr<KvCache> make_quantized_cache(Tape& tape, std::size_t layers);  // quantized_cache.cc

}  // namespace ledger
