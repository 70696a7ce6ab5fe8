// quantized_cache.cc - transformers' QuantizedLayer on quanto: 4 bits in groups of 64 beside an unquantised rest.
//
// Sources: transformers 5 cache_utils.py, QuantizedLayer and QuantoQuantizedLayer; optimum-quanto library/quantize.py
// (quantize_affine), tensor/packed.py (pack_weights), tensor/qbits.py (QBitsDequantizer), tensor/optimizers.

#include <vector>

#include "core/models/kv_cache.h"

namespace ledger {
namespace {

constexpr std::uint64_t kGroup = 64;  // q_group_size

Tensor step(Tape& tape, const Shape& shape, DType dtype, const Tensor& from) {
  Tensor result = tape.empty(OpKind::cache_quantise, shape, dtype);
  tape.run(OpKind::cache_quantise, {&from}, {&result});
  return result;
}

// [b, nkv, c, d] in two halves of bytes, with a scale and a shift for each group.
struct Quantized {
  Shape shape;
  DType dtype = DType::bf16;
  Tensor packed, scale, shift;
};

Shape groups_of(const Shape& shape) {
  return {{shape.numel() / kGroup, Sym::none}, {kGroup, Sym::none}};
}

// MaxOptimizer: scale = (max - min) / 15, shift = -min, in the dtype of what is quantised.
void find_range(Quantized& q, const Tensor& groups) {
  Tape& tape = groups.tape();
  const Shape each{groups.dim(0), {1, Sym::none}};
  const Tensor low = step(tape, each, q.dtype, groups);
  const Tensor high = step(tape, each, q.dtype, groups);
  const Tensor range = step(tape, each, q.dtype, high);
  q.scale = step(tape, each, q.dtype, range);
  q.shift = step(tape, each, q.dtype, low);
}

// quantize_affine: clamp(round((x + shift) / scale)) as bytes; each temporary lives until the next is made.
Tensor to_bytes(const Quantized& q, const Tensor& groups) {
  Tape& tape = groups.tape();
  const Category category = Category::activations;
  const Tape::In in(tape, category);
  Tensor data = step(tape, groups.shape(), q.dtype, groups);  // + shift
  data = step(tape, groups.shape(), q.dtype, data);           // / scale
  data = step(tape, groups.shape(), q.dtype, data);           // round
  const Tensor clamped = step(tape, groups.shape(), q.dtype, data);
  return step(tape, groups.shape(), DType::u8, clamped);
}

Quantized quantize(const Tensor& states) {
  Tape& tape = states.tape();
  const Tensor whole = contiguous(states);
  Quantized q;
  q.shape = whole.shape();
  q.dtype = whole.dtype();
  const Tensor groups = view(whole, groups_of(q.shape));
  find_range(q, groups);
  const Tensor bytes = to_bytes(q, groups);
  const Shape half{{divide_up(bytes.dim(0).size, 2), Sym::none}, {kGroup, Sym::none}};
  q.packed = zeros(tape, half, DType::u8);
  for (int shifted = 0; shifted < 2; ++shifted)
    step(tape, half, DType::u8, bytes);  // unpacked << 4 i, or-ed into packed
  return q;
}

Tensor dequantize(const Quantized& q) {
  Tape& tape = q.packed.tape();
  const Shape groups = groups_of(q.shape);
  const Tensor bytes = step(tape, groups, DType::u8, q.packed);
  const Tensor values = step(tape, groups, q.dtype, bytes);  // scale * data; -= shift in place
  return view(values, q.shape);
}

class QuantizedCache : public KvCache {
 public:
  QuantizedCache(Tape& tape, std::size_t layers) : tape_(tape), layers_(layers) {}

  std::pair<Tensor, Tensor> update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    State& state = layers_[layer];
    const Tape::In in(tape_, Category::kv_cache);
    state.seen += keys.dim(2).size;
    if (!state.keys.packed) {
      state.keys = quantize(keys);
      state.values = quantize(values);
      return {keys, values};
    }
    return decode(state, keys, values);
  }

  MaskShape mask_for(Dim b, Dim s) const override {
    const std::uint64_t before = layers_.front().seen;
    const Dim keys = before == 0 ? s : Dim{plus(before, s.size), Sym::cached};
    return {.b = b, .s = s, .keys = keys, .before = before};
  }

  void skip_to(std::uint64_t seen) override {
    const Tape::In in(tape_, Category::kv_cache);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Tape::Layer layer(tape_, static_cast<std::int32_t>(i));
      skip(layers_[i], seen);
    }
  }

 private:
  struct State {
    Quantized keys, values;
    Tensor rest_keys, rest_values;
    std::uint64_t seen = 0;
  };

  // Both whole caches come back in full precision for the time of the layer's attention.
  static std::pair<Tensor, Tensor> decode(State& state, const Tensor& keys, const Tensor& values) {
    const Tensor old_keys = dequantize(state.keys), old_values = dequantize(state.values);
    Tensor all_keys = whole(old_keys, state.rest_keys, keys);
    Tensor all_values = whole(old_values, state.rest_values, values);
    if (state.rest_keys && plus(state.rest_keys.dim(2).size, 1) >= kResidualLength) {
      state.keys = quantize(all_keys);
      state.values = quantize(all_values);
      state.rest_keys.reset();
      state.rest_values.reset();
    } else {
      state.rest_keys = extended(state.rest_keys, keys);
      state.rest_values = extended(state.rest_values, values);
    }
    return {std::move(all_keys), std::move(all_values)};
  }

  static Tensor whole(const Tensor& old, const Tensor& rest, const Tensor& fresh) {
    return rest ? cat(old, rest, fresh, 2, Sym::cached) : cat(old, fresh, 2, Sym::cached);
  }

  static Tensor extended(const Tensor& rest, const Tensor& fresh) {
    return rest ? cat(rest, fresh, 2, Sym::none) : cat(fresh, 2);
  }

  // Blocks of 128 tokens have gone into the quantised part, what is left over is the rest.
  void skip(State& state, std::uint64_t seen) {
    const std::uint64_t quantised = state.keys.shape[2].size;
    const std::uint64_t rest = (seen - quantised) % kResidualLength;
    resize(state.keys, seen - rest);
    resize(state.values, seen - rest);
    state.rest_keys = rest_of(state.keys, rest);
    state.rest_values = rest_of(state.values, rest);
    state.seen = seen;
  }

  void resize(Quantized& q, std::uint64_t length) {
    if (length == q.shape[2].size) return;
    q.shape.set(2, {length, Sym::cached});
    const Shape groups = groups_of(q.shape);
    q.scale = tape_.empty(OpKind::cache_quantise, {groups[0], {1, Sym::none}}, q.dtype);
    q.shift = tape_.empty(OpKind::cache_quantise, {groups[0], {1, Sym::none}}, q.dtype);
    q.packed = tape_.empty(OpKind::zeros, {{divide_up(groups[0].size, 2), Sym::none}, {kGroup, Sym::none}}, DType::u8);
  }

  Tensor rest_of(const Quantized& q, std::uint64_t length) {
    if (length == 0) return Tensor();
    Shape shape = q.shape;
    shape.set(2, {length, Sym::none});
    return tape_.empty(OpKind::cat, shape, q.dtype);
  }

  Tape& tape_;
  std::vector<State> layers_;
};

}  // namespace

std::unique_ptr<KvCache> make_quantized_cache(Tape& tape, std::size_t layers) {
  return std::make_unique<QuantizedCache>(tape, layers);
}

}  // namespace ledger
