// parameter_units.h - how a model tells whoever spreads its parameters over GPUs which of them belong together and when
// they are used. Models know no more of parallelism than this.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {

// A piece of the model that is gathered and given up together.
using UnitId = std::uint32_t;
inline constexpr UnitId kRootUnit = 0;       // the model itself, and every parameter that no other unit takes
inline constexpr UnitId kEmbeddingUnit = 1;  // the token embedding
inline constexpr UnitId kHeadUnit = 2;       // final norm and output layer
inline constexpr UnitId kFirstLayerUnit = 3;
inline constexpr UnitId kNoUnit = ~UnitId{0};

// Writes the codes of a packed weight, [bytes, 1].
using FillCodes = std::function<void(const Tensor& codes)>;

// The codes that stand in `stored`, whatever its dtype.
inline Tensor as_bytes(const Tensor& stored, Bytes bytes) {
  const Shape shape{{bytes, Sym::none}, {1, Sym::none}};
  Tensor codes = stored.tape().view_of(stored, shape, contiguous_strides(shape), 0);
  codes.impl()->dtype = DType::u8;
  codes.impl()->offset = times(stored.impl()->offset, element_bytes(stored.dtype()));
  return codes;
}

// [n, 1] of a floating-point dtype that has room for `bytes` (bitsandbytes: quant_storage).
inline Shape storage_of(Bytes bytes, DType dtype) {
  return {{divide_up(bytes, element_bytes(dtype)), Sym::none}, {1, Sym::none}};
}

// Of a unit that runs piece by piece, each with its backward pass: until the last one it stays gathered, and its
// gradients are summed here.
enum class Pieces : std::uint8_t { over, some, last };

class ParameterUnits {
 public:
  virtual ~ParameterUnits() = default;

  // Parameters made until the next call belong to `unit`.
  virtual void open(UnitId unit) = 0;

  // The tensor that the model computes with, of the full shape. `trained` is what the optimizer updates, in its place.
  virtual Tensor parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role,
                           bool trainable, Tensor& trained) = 0;

  // The same for a frozen weight of packed codes, which are stored as floating-point numbers that are none: only these
  // can be sharded.
  virtual Tensor packed(const std::string& name, Bytes bytes, const FillCodes& fill) = 0;

  // Around a unit's forward pass: its input as the unit is to see it, and its output.
  virtual Tensor before_forward(UnitId unit, const Tensor& input) = 0;
  virtual void after_forward(UnitId unit, const Tensor& output) = 0;

  // From here on; `over` gives the unit up. Only those that models which work so can be asked for know it.
  virtual void in_pieces(UnitId, Pieces) {}
};

// A module's forward pass between the hooks of its unit, where there are units.
template <class Forward>
Tensor in_unit(ParameterUnits* units, UnitId unit, const Tensor& hidden, const Forward& forward) {
  if (units == nullptr) return forward(hidden);
  const Tensor input = units->before_forward(unit, hidden);
  Tensor output = forward(input);
  units->after_forward(unit, output);
  return output;
}

// The model's own forward pass, with its loss: the root unit's, where there are units.
template <class Forward>
Tensor as_root(ParameterUnits* units, const Forward& forward) {
  if (units == nullptr) return forward();
  units->before_forward(kRootUnit, Tensor());
  Tensor loss = forward();
  units->after_forward(kRootUnit, loss);
  return loss;
}

}  // namespace ledger
