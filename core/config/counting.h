// counting.h - sums of parameters, module by module.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/base/bytes.h"
#include "core/config/fields.h"
#include "core/config/model_config.h"

namespace ledger::counting {

using Count = std::uint64_t;

inline constexpr Count kMaxImageSide = 1u << 16;

inline Count size(Fields& fields, const char* key, Count most = kMaxHiddenSize, Count value = 1) {
  fields.integer(key, 1, most, value);
  return value;
}

inline Count linear(Count in, Count out, bool bias = true) {
  return plus(times(in, out), bias ? out : 0);
}

inline Count layer_norm(Count size) {
  return times(2, size);
}

inline Count sum_of(std::initializer_list<Count> terms) {
  Count sum = 0;
  for (const Count term : terms)
    sum = plus(sum, term);
  return sum;
}

inline Count squared(Count side) {
  return times(side, side);
}

// An encoder layer with biases everywhere: attention, a plain MLP and two layer norms (BERT, ViT, CLIP, SigLIP).
inline Count encoder_layer(Count width, Count ffn, bool qkv_bias = true) {
  return sum_of({times(3, linear(width, width, qkv_bias)), linear(width, width), linear(width, ffn), linear(ffn, width),
                 layer_norm(width), layer_norm(width)});
}

}  // namespace ledger::counting
