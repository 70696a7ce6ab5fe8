// parameter_units.h - how a model tells whoever spreads its parameters over GPUs which of them belong together and when
// they are used. Models know no more of parallelism than this.
#pragma once

#include <cstdint>
#include <string>

#include "core/trace/operators.h"

namespace ledger {

// A piece of the model that is gathered and given up together.
using UnitId = std::uint32_t;
inline constexpr UnitId kRootUnit = 0;       // the model itself, and every parameter that no other unit takes
inline constexpr UnitId kEmbeddingUnit = 1;  // the token embedding
inline constexpr UnitId kHeadUnit = 2;       // final norm and output layer
inline constexpr UnitId kFirstLayerUnit = 3;
inline constexpr UnitId kNoUnit = ~UnitId{0};

class ParameterUnits {
 public:
  virtual ~ParameterUnits() = default;

  // Parameters made until the next call belong to `unit`.
  virtual void open(UnitId unit) = 0;

  // The tensor that the model computes with, of the full shape. `trained` is what the optimizer updates, in its place.
  virtual Tensor parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role,
                           bool trainable, Tensor& trained) = 0;

  // Around a unit's forward pass: its input as the unit is to see it, and its output.
  virtual Tensor before_forward(UnitId unit, const Tensor& input) = 0;
  virtual void after_forward(UnitId unit, const Tensor& output) = 0;
};

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
