// memory.h - elements between a device's memory in any dtype and registers of the compute type, and walks over
// operands.
//
// A strip is eight neighbours along the innermost dimension: whole strips of dense operands move as 16-byte accesses,
// and what is asked of a dtype or an address is asked once a strip.
#pragma once

#include <array>
#include <cstring>

#include "core/base/number_format.h"
#include "probe/device/on_device.h"
#include "probe/host/strided_loop.h"

namespace ledger::LEDGER_DEVICE {

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

template <class To, class From>
LEDGER_DEVICE_ONLY inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

LEDGER_DEVICE_ONLY inline float widen(Bf16 value) {
  return bits_as<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
LEDGER_DEVICE_ONLY inline float widen(Fp16 value) {
#if defined(__CUDACC__)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  return float_from_fp16(value.bits);
#endif
}
template <class T>
LEDGER_DEVICE_ONLY inline T widen(T value) {
  return value;
}

// To nearest even; the same roundings as core/base/number_format.h, which a test compares.
LEDGER_DEVICE_ONLY inline void narrow(float value, Bf16& out) {
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t nearest_even = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  out.bits = static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : nearest_even);
}
LEDGER_DEVICE_ONLY inline void narrow(float value, Fp16& out) {
#if defined(__CUDACC__)
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
#else
  out.bits = fp16_from_float(value);
#endif
}
template <class C, class T>
LEDGER_DEVICE_ONLY inline void narrow(C value, T& out) {
  out = static_cast<T>(value);
}
LEDGER_DEVICE_ONLY inline void narrow(double value, Bf16& out) {
  narrow(static_cast<float>(value), out);  // as PyTorch: through fp32
}
LEDGER_DEVICE_ONLY inline void narrow(double value, Fp16& out) {
  narrow(static_cast<float>(value), out);
}

// f(T{}) with the type that stores `dtype`. Kernels that compute in float meet no fp64 and no wide integers
// (needs_double), so a third of the code is not made for them.
template <class C, class F>
LEDGER_DEVICE_ONLY inline void with_type(DType dtype, F f) {
  if constexpr (sizeof(C) == sizeof(double)) {
    if (dtype == DType::f64) return f(double{});
    if (dtype == DType::i64) return f(std::int64_t{});
    if (dtype == DType::i32) return f(std::int32_t{});
  }
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(Bf16{});
    case DType::f16:
      return f(Fp16{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::i8:
      return f(std::int8_t{});
    default:
      return f(bool{});
  }
}

// The same for floating-point operands.
template <class C, class F>
LEDGER_DEVICE_ONLY inline void with_float(DType dtype, F f) {
  if constexpr (sizeof(C) == sizeof(double)) {
    if (dtype == DType::f64) return f(double{});
  }
  if (dtype == DType::bf16) return f(Bf16{});
  if (dtype == DType::f16) return f(Fp16{});
  return f(float{});
}

template <class C>
LEDGER_DEVICE_ONLY inline C load(const std::byte* at, DType dtype) {
  C value;
  with_type<C>(dtype, [&]<class T>(T) { value = static_cast<C>(widen(*reinterpret_cast<const T*>(at))); });
  return value;
}

template <class C>
LEDGER_DEVICE_ONLY inline void store(std::byte* at, C value, DType dtype) {
  with_type<C>(dtype, [&]<class T>(T) { narrow(value, *reinterpret_cast<T*>(at)); });
}

// Of floating-point memory.
template <class C>
LEDGER_DEVICE_ONLY inline C load_float(const std::byte* at, DType dtype) {
  C value;
  with_float<C>(dtype, [&]<class T>(T) { value = static_cast<C>(widen(*reinterpret_cast<const T*>(at))); });
  return value;
}

template <class C>
LEDGER_DEVICE_ONLY inline void store_float(std::byte* at, C value, DType dtype) {
  with_float<C>(dtype, [&]<class T>(T) { narrow(value, *reinterpret_cast<T*>(at)); });
}

// The value as memory of this dtype would keep it.
template <class C>
LEDGER_DEVICE_ONLY inline C rounded(C value, DType dtype) {
  std::byte memory alignas(8)[8];
  store_float(memory, value, dtype);
  return load_float<C>(memory, dtype);
}

inline constexpr unsigned kStrip = 8;

// Strip-sized accesses need their natural alignment, 16 bytes at most.
template <class T>
struct alignas(sizeof(T) * kStrip < 16 ? sizeof(T) * kStrip : 16) Packed {
  T items[kStrip];
};

template <class T>
LEDGER_DEVICE_ONLY inline bool packed(const std::byte* at, std::int64_t step, unsigned count) {
  return count == kStrip && step == static_cast<std::int64_t>(sizeof(T)) &&
         reinterpret_cast<std::uintptr_t>(at) % alignof(Packed<T>) == 0;
}

template <class C>
LEDGER_DEVICE_ONLY inline void load_strip(C (&to)[kStrip], const std::byte* from, std::int64_t step, unsigned count,
                                          DType dtype) {
  with_type<C>(dtype, [&]<class T>(T) {
    if (packed<T>(from, step, count)) {
      const Packed<T> all = *reinterpret_cast<const Packed<T>*>(from);
      LEDGER_UNROLL
      for (unsigned i = 0; i < kStrip; ++i)
        to[i] = static_cast<C>(widen(all.items[i]));
      return;
    }
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      if (i < count) to[i] = static_cast<C>(widen(*reinterpret_cast<const T*>(from + i * step)));
    }
  });
}

template <class C>
LEDGER_DEVICE_ONLY inline void store_strip(std::byte* to, std::int64_t step, const C (&from)[kStrip], unsigned count,
                                           DType dtype) {
  with_type<C>(dtype, [&]<class T>(T) {
    if (packed<T>(to, step, count)) {
      Packed<T> all;
      LEDGER_UNROLL
      for (unsigned i = 0; i < kStrip; ++i)
        narrow(from[i], all.items[i]);
      *reinterpret_cast<Packed<T>*>(to) = all;
      return;
    }
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      if (i < count) narrow(from[i], *reinterpret_cast<T*>(to + i * step));
    }
  });
}

// Index to addresses over the dimensions of several operands of one shape, neighbouring dimensions merged where all lay
// them out as one. The innermost is first.
template <std::size_t N>
struct Walk {
  std::byte* data[N] = {};
  std::int64_t steps[kMaxRank][N] = {};
  std::uint64_t sizes[kMaxRank] = {};
  unsigned rank = 0;

  Walk() = default;
  Walk(const Operand& shape, const std::array<Operand, N>& operands) {
    const host::StridedLoop<N> loop(shape, operands);
    rank = static_cast<unsigned>(loop.rank);
    for (std::size_t n = 0; n < N; ++n)
      data[n] = loop.data[n];
    for (std::size_t dim = 0; dim < loop.rank; ++dim) {
      sizes[dim] = loop.sizes[dim];
      for (std::size_t n = 0; n < N; ++n)
        steps[dim][n] = loop.steps[dim][n];
    }
  }
  std::uint64_t count() const {
    std::uint64_t all = 1;
    for (unsigned dim = 0; dim < rank; ++dim)
      all *= sizes[dim];
    return all;
  }
  // Where the operands' elements of this index lie, dimensions before `first` left out.
  LEDGER_DEVICE_ONLY void locate(std::uint64_t index, std::byte* (&at)[N], unsigned first = 0) const {
    LEDGER_UNROLL
    for (std::size_t n = 0; n < N; ++n)
      at[n] = data[n];
    for (unsigned dim = first; dim < rank; ++dim) {
      // 64-bit division is a function call of some 40 instructions; most indices are small.
      std::uint64_t rest, quotient;
      if (dim + 1 == rank) {
        rest = index;
        quotient = 0;
      } else if ((index | sizes[dim]) >> 32 == 0) {
        quotient = static_cast<std::uint32_t>(index) / static_cast<std::uint32_t>(sizes[dim]);
        rest = index - quotient * sizes[dim];
      } else {
        quotient = index / sizes[dim];
        rest = index - quotient * sizes[dim];
      }
      LEDGER_UNROLL
      for (std::size_t n = 0; n < N; ++n)
        at[n] += static_cast<std::int64_t>(rest) * steps[dim][n];
      index = quotient;
    }
  }
};

template <std::size_t N>
struct Strips {
  Walk<N> walk;
  DType dtypes[N] = {};
  std::uint64_t strips_of_row = 0;

  Strips() = default;
  Strips(const Operand& shape, const std::array<Operand, N>& operands) : walk(shape, operands) {
    for (std::size_t n = 0; n < N; ++n)
      dtypes[n] = operands[n].dtype;
    strips_of_row = divide_up(walk.sizes[0], kStrip);
  }
  std::uint64_t count() const { return walk.sizes[0] == 0 ? 0 : walk.count() / walk.sizes[0] * strips_of_row; }

  struct Place {
    std::byte* at[N];
    unsigned count;
    std::uint64_t index;  // of the first element, in row-major order
  };
  LEDGER_DEVICE_ONLY Place place(std::uint64_t strip) const {
    Place p;
    std::uint64_t row = 0, first = strip;
    if (walk.rank > 1) {
      row = strip / strips_of_row;
      first = strip - row * strips_of_row;
    }
    first *= kStrip;
    walk.locate(row, p.at, 1);
    LEDGER_UNROLL
    for (std::size_t n = 0; n < N; ++n)
      p.at[n] += static_cast<std::int64_t>(first) * walk.steps[0][n];
    const std::uint64_t rest = walk.sizes[0] - first;
    p.count = rest < kStrip ? static_cast<unsigned>(rest) : kStrip;
    p.index = row * walk.sizes[0] + first;
    return p;
  }
  template <class C>
  LEDGER_DEVICE_ONLY void read(const Place& p, std::size_t n, C (&to)[kStrip]) const {
    load_strip(to, p.at[n], walk.steps[0][n], p.count, dtypes[n]);
  }
  template <class C>
  LEDGER_DEVICE_ONLY void write(const Place& p, std::size_t n, const C (&from)[kStrip]) const {
    store_strip(p.at[n], walk.steps[0][n], from, p.count, dtypes[n]);
  }
};

// Rows of the last dimension of several operands of one shape.
template <std::size_t N>
struct Rows {
  Walk<N> leading;
  std::int64_t steps[N];
  DType dtypes[N];
  std::uint64_t width;

  // `width` is that of operands[0]'s rows.
  explicit Rows(const std::array<Operand, N>& operands) {
    std::array<Operand, N> without_last = operands;
    for (std::size_t n = 0; n < N; ++n) {
      without_last[n].rank = static_cast<std::uint8_t>(operands[n].rank - 1);
      steps[n] = host::last_step(operands[n]);
      dtypes[n] = operands[n].dtype;
    }
    leading = Walk<N>(without_last[0], without_last);
    width = operands[0].last_size();
  }
  std::uint64_t count() const { return leading.count(); }

  template <class C>
  LEDGER_DEVICE_ONLY C get(std::byte* const (&at)[N], std::size_t n, std::uint64_t i) const {
    return load<C>(at[n] + static_cast<std::int64_t>(i) * steps[n], dtypes[n]);
  }
  template <class C>
  LEDGER_DEVICE_ONLY void set(std::byte* const (&at)[N], std::size_t n, std::uint64_t i, C value) const {
    store(at[n] + static_cast<std::int64_t>(i) * steps[n], value, dtypes[n]);
  }
};

// out[i] = value(i) with i counting elements in row-major order; C is what value() returns.
template <class C, class Value>
struct Generate {
  Strips<1> strips;
  Value value;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto p = strips.place(strip);
    C values[kStrip];
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i)
      values[i] = i < p.count ? static_cast<C>(value(p.index + i)) : C{0};
    strips.write(p, 0, values);
  }
};

template <class C, class Value>
void generate(Call& call, const Operand& out, const Value& value) {
  const Strips<1> strips(out, {out});
  for_elements(call, strips.count(), Generate<C, Value>{strips, value});
}

// Elements of one dtype, bit by bit; `from` broadcasts to `to`.
void move_elements(Call& call, const Operand& to, const Operand& from);

// Integers of a column or row, by index.
struct Integers {
  const std::byte* data;
  std::int64_t step;
  std::uint64_t count;

  explicit Integers(const Operand& view) : data(view.data), step(view.byte_stride(0)), count(view.sizes[0]) {}
  LEDGER_DEVICE_ONLY std::int64_t operator[](std::uint64_t i) const {
    return *reinterpret_cast<const std::int64_t*>(data + static_cast<std::int64_t>(i) * step);
  }
};

// Whether `index` is one of `limit` things; says what is at fault where it is not.
LEDGER_DEVICE_ONLY inline bool inside(std::int64_t index, std::uint64_t limit, std::int32_t* fault,
                                      device::Fault kind) {
  if (index >= 0 && static_cast<std::uint64_t>(index) < limit) return true;
  *fault = kind;  // several lanes may write here; any one of them tells the truth
  return false;
}

// Computation is in double as soon as one operand is; integers as well, which double holds exactly to 2^53.
inline bool needs_double(const Call& call) {
  return host::any_wide(call.in) || host::any_wide(call.out);
}

}  // namespace ledger::LEDGER_DEVICE
