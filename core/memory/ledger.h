// ledger.h - what is alive at one event, as lines that add up.
//
// A line is one group of tensors alike in scope, operator, shape, dtype and category ("model.layers.*.mlp.gate_proj: 32
// outputs of mm, [T, ffn] bf16"). Lines are sorted by size; their sum is the timeline's value at that event, to the
// byte.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/trace/trace.h"

namespace ledger {

struct LedgerLine {
  NameId scope = 0;
  OpKind op = OpKind::workspace;
  Category category = Category::activations;  // at the event, after relabelling
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t count = 0;
  Bytes bytes = 0;  // of all `count` tensors
};

struct Ledger {
  std::array<Bytes, kCategories> categories{};  // workspace included, under its own category
  std::vector<LedgerLine> lines;                // largest first; ties in order of first birth
  Bytes tensor_bytes = 0;                       // sum of all but workspace
  Bytes workspace_bytes = 0;
};

// What is alive just after event number `event` of `trace`.
Ledger ledger_at(const Trace& trace, std::uint32_t event);

// Host memory of a trace, buffers of one name and dtype on one line, in the order of their making.
struct HostLine {
  const char* name;
  Category category;
  DType dtype;
  std::uint64_t count = 0;
  Bytes bytes = 0;
};
std::vector<HostLine> host_ledger(const Trace& trace);

}  // namespace ledger
