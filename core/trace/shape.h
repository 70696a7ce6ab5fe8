// shape.h - shapes whose dimensions remember which letter of the model they are.
//
// A ledger line prints "32 layers x b x s x ffn x 2 B" because every dimension carries its symbol. The letters are
// defined once, in docs/memory-model.md; products such as tokens = b*s are symbols of their own that expand to letters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/base/bytes.h"

namespace ledger {

enum class Sym : std::uint8_t {
  none,      // a plain number
  b,         // micro-batch
  s,         // sequence length
  h,         // hidden size
  ffn,       // intermediate size of the MLP
  V,         // vocabulary size
  nh,        // attention (query) heads
  nkv,       // key/value heads
  d,         // head dimension
  L,         // layers
  r,         // adapter rank
  tokens,    // b*s
  q_dim,     // nh*d
  kv_dim,    // nkv*d
  half_d,    // d/2
  s_plus_1,  // s+1: labels padded before the shift
  cached,    // tokens in the key/value cache
  in,        // input features of a plain linear layer
  out,       // output features of a plain linear layer
  experts,   // of a mixture
  ffn_e,     // intermediate size of an expert
  routed,    // b*s*k: every token as often as it visits an expert
  images,    // of the whole batch
  patches,   // of an image, as tokens of its encoder
  h_v,       // hidden size of the vision tower
  ffn_v,     // intermediate size of its MLP
  packed,    // i*p: the patches of all images, one after the other
  count_
};

struct SymInfo {
  const char* name;          // "b", "s", "ffn", "d/2"
  std::array<Sym, 2> parts;  // factors of a product; {none, none} when the symbol is a letter itself
};

const SymInfo& info(Sym sym);

struct Dim {
  std::uint64_t size = 1;
  Sym sym = Sym::none;
};

inline constexpr Dim kOne{1, Sym::none};

inline constexpr std::size_t kMaxRank = 5;

// Sizes and symbols apart: shapes are copied tens of thousands of times a step, and a Dim of its own takes 16 bytes.
struct Shape {
  std::array<std::uint64_t, kMaxRank> sizes{};
  std::array<Sym, kMaxRank> syms{};
  std::uint8_t rank = 0;

  Shape() = default;
  Shape(std::initializer_list<Dim> list) {  // NOLINT(google-explicit-constructor): shapes are written as lists
    for (const Dim& dim : list)
      push(dim);
  }
  Dim operator[](std::size_t i) const { return {sizes[i], syms[i]}; }
  Dim last() const { return (*this)[rank - 1u]; }
  void set(std::size_t i, Dim dim) {
    sizes[i] = dim.size;
    syms[i] = dim.sym;
  }
  void set_last(Dim dim) { set(rank - 1u, dim); }
  void push(Dim dim) { set(rank++, dim); }

  std::uint64_t numel() const {
    std::uint64_t n = 1;
    for (std::size_t i = 0; i < rank; ++i)
      n = times(n, sizes[i]);
    return n;
  }
  bool same_sizes(const Shape& other) const {
    if (rank != other.rank) return false;
    for (std::size_t i = 0; i < rank; ++i) {
      if (sizes[i] != other.sizes[i]) return false;
    }
    return true;
  }
};

}  // namespace ledger
