// elementwise.h - the formulas of operators that treat each element alone; the host and the device kernels both call
// them. What each stands for is in core/trace/ops.h. C is the compute type, float or double.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include "probe/math/host_device.h"

namespace ledger::math {

inline constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
inline constexpr double kTanhCube = 0.044715;
inline constexpr double kHalfRoot = std::numbers::sqrt2 / 2;

#define LEDGER_UNARY(name, formula)              \
  struct name {                                  \
    template <class C>                           \
    LEDGER_HOST_DEVICE C operator()(C x) const { \
      return formula;                            \
    }                                            \
  };
#define LEDGER_UNARY_SCALAR(name, formula)       \
  struct name {                                  \
    double scalar;                               \
    template <class C>                           \
    LEDGER_HOST_DEVICE C operator()(C x) const { \
      const C a = static_cast<C>(scalar);        \
      return formula;                            \
    }                                            \
  };
#define LEDGER_BINARY(name, formula)                  \
  struct name {                                       \
    template <class C>                                \
    LEDGER_HOST_DEVICE C operator()(C x, C y) const { \
      return formula;                                 \
    }                                                 \
  };

LEDGER_UNARY(Identity, x)
LEDGER_UNARY(Negative, -x)
LEDGER_UNARY(Square, x* x)
LEDGER_UNARY(Sqrt, std::sqrt(x))
LEDGER_UNARY(Rsqrt, 1 / std::sqrt(x))
LEDGER_UNARY(Reciprocal, 1 / x)
LEDGER_UNARY(Cos, std::cos(x))
LEDGER_UNARY(Sin, std::sin(x))
LEDGER_UNARY(Tanh, std::tanh(x))
LEDGER_UNARY(Floor, std::floor(x))
LEDGER_UNARY(Log1p, std::log1p(x))
LEDGER_UNARY(Exp, std::exp(x))
LEDGER_UNARY(Log, std::log(x))
LEDGER_UNARY(LogSigmoid, (x < 0 ? x : C{0}) - std::log1p(std::exp(x < 0 ? x : -x)))
LEDGER_UNARY(Silu, x / (1 + std::exp(-x)))
LEDGER_UNARY(Sigmoid, 1 / (1 + std::exp(-x)))
LEDGER_UNARY(Relu, x < 0 ? C{0} : x)  // NaN passes through
LEDGER_UNARY(IsMasked, static_cast<C>(x == -std::numeric_limits<C>::infinity()))
LEDGER_UNARY_SCALAR(AddScalar, x + a)
LEDGER_UNARY_SCALAR(RsubScalar, a - x)
LEDGER_UNARY_SCALAR(MulScalar, x* a)
LEDGER_UNARY_SCALAR(DivScalar, x / a)
LEDGER_UNARY_SCALAR(PowScalar, std::pow(x, a))
LEDGER_UNARY_SCALAR(ClampMax, x > a ? a : x)  // NaN passes through, as in PyTorch
LEDGER_UNARY_SCALAR(Clamp, x > a ? a : x < -a ? -a : x)
LEDGER_UNARY_SCALAR(Above, static_cast<C>(x > a))
LEDGER_UNARY_SCALAR(Outside, static_cast<C>(x > a || x < -a))

LEDGER_BINARY(Add, x + y)
LEDGER_BINARY(Subtract, x - y)
LEDGER_BINARY(Multiply, x* y)
LEDGER_BINARY(Divide, x / y)
LEDGER_BINARY(LogAddExp, (x < y ? y : x) + std::log1p(std::exp(x < y ? x - y : y - x)))
LEDGER_BINARY(Or, static_cast<C>(x != 0 || y != 0))
LEDGER_BINARY(ZeroMaskedRows, x != 0 ? C{0} : y)    // x: masked; y may be NaN
LEDGER_BINARY(ThresholdBackward, y > 0 ? x : C{0})  // here and below x is the gradient
LEDGER_BINARY(TanhBackward, x*(1 - y * y))

LEDGER_BINARY(SigmoidBackward, x*(1 - y) * y)
LEDGER_BINARY(Swiglu, x / (1 + std::exp(-x)) * y)  // gate, up

#undef LEDGER_UNARY
#undef LEDGER_UNARY_SCALAR
#undef LEDGER_BINARY

// Constants and formulas: aten/src/ATen/native/cuda/ActivationGeluKernel.cu.
struct GeluTanh {
  template <class C>
  LEDGER_HOST_DEVICE C operator()(C x) const {
    const C inner = static_cast<C>(kTanhScale) * (x + static_cast<C>(kTanhCube) * x * x * x);
    return static_cast<C>(0.5) * x * (1 + std::tanh(inner));
  }
};

struct GeluErf {
  template <class C>
  LEDGER_HOST_DEVICE C operator()(C x) const {
    return x * static_cast<C>(0.5) * (1 + std::erf(x * static_cast<C>(kHalfRoot)));
  }
};

struct GeluTanhBackward {
  template <class C>
  LEDGER_HOST_DEVICE C operator()(C gradient, C x) const {
    const C t = std::tanh(static_cast<C>(kTanhScale) * (x + static_cast<C>(kTanhCube) * x * x * x));
    const C slope = static_cast<C>(kTanhScale) * (1 + 3 * static_cast<C>(kTanhCube) * x * x);
    return gradient * static_cast<C>(0.5) * ((1 + t) + x * (1 - t * t) * slope);
  }
};

struct GeluErfBackward {
  template <class C>
  LEDGER_HOST_DEVICE C operator()(C gradient, C x) const {
    const C cdf = static_cast<C>(0.5) * (1 + std::erf(x * static_cast<C>(kHalfRoot)));
    const C density = static_cast<C>(std::numbers::inv_sqrtpi * kHalfRoot) * std::exp(static_cast<C>(-0.5) * x * x);
    return gradient * (cdf + x * density);
  }
};

struct SiluBackward {
  template <class C>
  LEDGER_HOST_DEVICE C operator()(C gradient, C x) const {
    const C sigmoid = 1 / (1 + std::exp(-x));
    return gradient * sigmoid * (1 + x * (1 - sigmoid));
  }
};

// Of silu(gate) * up: to the gate and, in its place, to up.
struct SwigluBackward {
  template <class C>
  LEDGER_HOST_DEVICE void operator()(C gradient, C& gate, C& up) const {
    const C sigmoid = 1 / (1 + std::exp(-gate));
    const C to_up = gradient * (gate * sigmoid);
    gate = SiluBackward{}(gradient * up, gate);
    up = to_up;
  }
};

struct Geglu {
  template <class C>
  LEDGER_HOST_DEVICE C operator()(C gate, C up) const {
    return GeluTanh{}(gate)*up;
  }
};

struct GegluBackward {
  template <class C>
  LEDGER_HOST_DEVICE void operator()(C gradient, C& gate, C& up) const {
    const C to_up = gradient * GeluTanh{}(gate);
    gate = GeluTanhBackward{}(gradient * up, gate);
    up = to_up;
  }
};

struct MaskedFill {
  double value;
  template <class C>
  LEDGER_HOST_DEVICE C operator()(C x, C masked) const {
    return masked != 0 ? static_cast<C>(value) : x;
  }
};

struct DropoutBackward {
  double scale;  // 1 / (1 - p)
  template <class C>
  LEDGER_HOST_DEVICE C operator()(C gradient, C kept) const {
    return gradient * kept * static_cast<C>(scale);
  }
};

}  // namespace ledger::math
