#include "probe/host/strips.h"

#include <array>
#include <bit>
#include <cstdint>

#include "core/base/number_format.h"

namespace ledger::host {
namespace {

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

// The same roundings as number_format.h, which a test compares; inline here so that whole strips vectorise.
float widen(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
void narrow(float value, Bf16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nearest_even = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  out.bits = static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : nearest_even);
}
float widen(Fp16 value) {
  return float_from_fp16(value.bits);
}
void narrow(float value, Fp16& out) {
  out.bits = fp16_from_float(value);
}
template <class T>
T widen(T value) {
  return value;
}
template <class C, class T>
void narrow(C value, T& out) {
  out = static_cast<T>(value);
}
// As PyTorch: fp64 to a 16-bit float goes through fp32.
void narrow(double value, Bf16& out) {
  narrow(static_cast<float>(value), out);
}
void narrow(double value, Fp16& out) {
  narrow(static_cast<float>(value), out);
}

template <class C, class T>
void load_as(C* to, const std::byte* from, std::ptrdiff_t stride, std::size_t count) {
  if (stride == static_cast<std::ptrdiff_t>(sizeof(T))) {
    const T* items = reinterpret_cast<const T*>(from);
    for (std::size_t i = 0; i < count; ++i)
      to[i] = static_cast<C>(widen(items[i]));
    return;
  }
  for (std::size_t i = 0; i < count; ++i, from += stride)
    to[i] = static_cast<C>(widen(*reinterpret_cast<const T*>(from)));
}

template <class C, class T>
void store_as(std::byte* to, std::ptrdiff_t stride, const C* from, std::size_t count) {
  if (stride == static_cast<std::ptrdiff_t>(sizeof(T))) {
    T* items = reinterpret_cast<T*>(to);
    for (std::size_t i = 0; i < count; ++i)
      narrow(from[i], items[i]);
    return;
  }
  for (std::size_t i = 0; i < count; ++i, to += stride)
    narrow(from[i], *reinterpret_cast<T*>(to));
}

constexpr std::size_t kDTypes = static_cast<std::size_t>(DType::count_);

template <class C>
using Load = void (*)(C*, const std::byte*, std::ptrdiff_t, std::size_t);
template <class C>
using Store = void (*)(std::byte*, std::ptrdiff_t, const C*, std::size_t);

// In the order of DType.
template <class C>
constexpr std::array<Load<C>, kDTypes> kLoads = {
    load_as<C, double>,       load_as<C, float>,        load_as<C, Bf16>,
    load_as<C, Fp16>,         load_as<C, std::int64_t>, load_as<C, std::int32_t>,
    load_as<C, std::uint8_t>, load_as<C, std::int8_t>,  load_as<C, bool>};
template <class C>
constexpr std::array<Store<C>, kDTypes> kStores = {
    store_as<C, double>,       store_as<C, float>,        store_as<C, Bf16>,
    store_as<C, Fp16>,         store_as<C, std::int64_t>, store_as<C, std::int32_t>,
    store_as<C, std::uint8_t>, store_as<C, std::int8_t>,  store_as<C, bool>};

}  // namespace

template <class C>
void load_strip(C* to, const std::byte* from, std::ptrdiff_t byte_stride, std::size_t count, DType dtype) {
  kLoads<C>[static_cast<std::size_t>(dtype)](to, from, byte_stride, count);
}

template <class C>
void store_strip(std::byte* to, std::ptrdiff_t byte_stride, const C* from, std::size_t count, DType dtype) {
  kStores<C>[static_cast<std::size_t>(dtype)](to, byte_stride, from, count);
}

template void load_strip(float*, const std::byte*, std::ptrdiff_t, std::size_t, DType);
template void load_strip(double*, const std::byte*, std::ptrdiff_t, std::size_t, DType);
template void store_strip(std::byte*, std::ptrdiff_t, const float*, std::size_t, DType);
template void store_strip(std::byte*, std::ptrdiff_t, const double*, std::size_t, DType);

}  // namespace ledger::host
