#include "core/models/kv_cache.h"

#include <algorithm>
#include <vector>

namespace ledger {
namespace {

struct Pair {
  Tensor keys, values;
};

// What skip_to() makes in place of `like`: memory of `length` tokens that no operator wrote.
Tensor resized(const Tensor& like, std::uint64_t length) {
  Shape shape = like.shape();
  shape.set(2, {length, Sym::cached});
  return like.tape().empty(OpKind::cat, shape, like.dtype());
}

// torch.cat([held, fresh], dim=-2) allocates the whole cache of a layer anew, also when nothing is held yet.
Tensor joined(const Tensor& held, const Tensor& fresh) {
  if (held) return cat(held, fresh, 2, Sym::cached);
  return cat(fresh, 2);
}

// DynamicLayer, or DynamicSlidingWindowLayer with a window: the latter returns all of what it joined and keeps a view
// of the last window - 1 tokens, so that the prompt's whole storage lives until the next token replaces it.
class DynamicCache : public KvCache {
 public:
  DynamicCache(Tape& tape, const CacheOptions& options)
      : tape_(tape), window_(options.window), layers_(options.layers), seen_(options.layers) {}

  std::pair<Tensor, Tensor> update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    const Tape::In in(tape_, Category::kv_cache);
    Pair& held = layers_[layer];
    seen_[layer] += keys.dim(2).size;
    Tensor all_keys = joined(held.keys, keys);
    if (window_ == 0)
      held.keys = all_keys;  // `self.keys = torch.cat(...)`: the old keys die before new values are made
    Tensor all_values = joined(held.values, values);
    held.keys = last(all_keys);
    held.values = last(all_values);
    return {std::move(all_keys), std::move(all_values)};
  }

  MaskShape mask_for(Dim b, Dim s) const override {
    const std::uint64_t before = kept(seen_.front());
    const Dim keys = before == 0 ? s : Dim{plus(before, s.size), Sym::cached};
    return {.b = b, .s = s, .keys = keys, .before = before, .window = window_};
  }

  void skip_to(std::uint64_t seen) override {
    const Tape::In in(tape_, Category::kv_cache);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Tape::Layer layer(tape_, static_cast<std::int32_t>(i));
      seen_[i] = seen;
      // The step before joined what was kept with one token.
      const std::uint64_t length = window_ == 0 ? seen : std::min(seen, window_);
      layers_[i].keys = last(resized(layers_[i].keys, length));
      layers_[i].values = last(resized(layers_[i].values, length));
    }
  }

 private:
  std::uint64_t kept(std::uint64_t length) const { return window_ == 0 ? length : std::min(length, window_ - 1); }

  Tensor last(const Tensor& all) const {
    const std::uint64_t length = all.dim(2).size, keep = kept(length);
    return keep == length ? all : slice(all, 2, length - keep, {keep, Sym::cached});
  }

  Tape& tape_;
  std::uint64_t window_;
  std::vector<Pair> layers_;
  std::vector<std::uint64_t> seen_;
};

// StaticLayer: all that will ever be needed, made and zeroed when a layer first runs, then written in place.
class StaticCache : public KvCache {
 public:
  StaticCache(Tape& tape, const CacheOptions& options)
      : tape_(tape), capacity_(options.capacity), layers_(options.layers), seen_(options.layers) {}

  std::pair<Tensor, Tensor> update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    Pair& held = layers_[layer];
    if (!held.keys) {
      const Tape::In in(tape_, Category::kv_cache);
      held.keys = zeros(tape_, whole(keys), keys.dtype());
      held.values = zeros(tape_, whole(values), values.dtype());
    }
    const Dim n = keys.dim(2);
    copy_into(slice(held.keys, 2, seen_[layer], n), keys);
    copy_into(slice(held.values, 2, seen_[layer], n), values);
    seen_[layer] += n.size;
    return {held.keys, held.values};
  }

  MaskShape mask_for(Dim b, Dim s) const override {
    return {.b = b, .s = s, .keys = {capacity_, Sym::cached}, .before = seen_.front(), .always = true};
  }
  void skip_to(std::uint64_t seen) override { std::fill(seen_.begin(), seen_.end(), seen); }

 private:
  Shape whole(const Tensor& states) const {
    Shape shape = states.shape();
    shape.set(2, {capacity_, Sym::cached});
    return shape;
  }

  Tape& tape_;
  std::uint64_t capacity_;
  std::vector<Pair> layers_;
  std::vector<std::uint64_t> seen_;
};

}  // namespace

std::unique_ptr<KvCache> make_cache(Tape& tape, const CacheOptions& options) {
  switch (options.kind) {
    case KvCacheKind::fixed:
      return std::make_unique<StaticCache>(tape, options);
    case KvCacheKind::quantized:
      return make_quantized_cache(tape, options.layers);
    default:
      return std::make_unique<DynamicCache>(tape, options);
  }
}

}  // namespace ledger
