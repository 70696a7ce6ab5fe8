// tape_tester.h - small graphs on a tape, and what of them is alive.
//
// An input is a parameter times 1: the product of a tensor and a number saves nothing, so an input dies when its handle
// does unless a later operator saved it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/memory/census.h"
#include "core/trace/operators.h"

namespace ledger {

inline Dim plain(std::uint64_t size) {
  return {size, Sym::none};
}

using Sizes = std::vector<std::uint64_t>;

inline Shape shape_of(const Sizes& sizes) {
  Shape shape;
  for (const std::uint64_t size : sizes)
    shape.push(plain(size));
  return shape;
}

inline Tensor leaf(Tape& tape, const Shape& shape, bool trainable = true, DType dtype = DType::f32) {
  return tape.parameter("p", shape, dtype, Parameter::Role::matrix, trainable);
}

// Not a leaf; needs a gradient when `leaf` does.
inline Tensor input_of(const Tensor& leaf) {
  return leaf * 1.0;
}

inline StorageId id_of(const Tensor& tensor) {
  return tensor.impl()->storage->id;
}

inline bool alive(Tape& tape, StorageId storage) {
  Census census(tape.trace());
  for (const Event& event : tape.trace().events)
    census.apply(event);
  return census.alive(storage);
}

inline Bytes live_bytes(Tape& tape) {
  Census census(tape.trace());
  for (const Event& event : tape.trace().events)
    census.apply(event);
  Bytes sum = 0;
  for (const Bytes bytes : census.bytes())
    sum += bytes;
  return sum;
}

inline std::string shown(const StorageInfo& storage) {
  std::string text = info(storage.dtype).name;
  text += "[";
  for (std::size_t i = 0; i < storage.shape.rank; ++i) {
    if (i != 0) text += ",";
    text += std::to_string(storage.shape.sizes[i]);
  }
  text += "]";
  return text;
}

// Events from number `from` on: "+silu" for a birth, "-silu" for a death, by the operator that made the storage.
inline std::string story(const Trace& trace, std::size_t from = 0) {
  std::string text;
  for (std::size_t i = from; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (event.type != EventType::alloc && event.type != EventType::free) continue;
    if (!text.empty()) text += " ";
    text += event.type == EventType::alloc ? "+" : "-";
    text += op_name(trace.storages[event.id].op);
  }
  return text;
}

// Births by operator `op` from event number `from` on.
inline std::size_t births(const Trace& trace, OpKind op, std::size_t from = 0) {
  std::size_t count = 0;
  for (std::size_t i = from; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    count += event.type == EventType::alloc && trace.storages[event.id].op == op ? 1 : 0;
  }
  return count;
}

// Runs of operator `op`; the tape records them only with operands.
inline std::size_t runs(const Trace& trace, OpKind op) {
  return static_cast<std::size_t>(
      std::count_if(trace.runs.begin(), trace.runs.end(), [op](const ledger::Run& run) { return run.op == op; }));
}

// Most live bytes from event number `from` on.
inline Bytes peak_bytes(const Trace& trace, std::size_t from = 0) {
  Bytes live = 0, peak = 0;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (event.type == EventType::alloc) live += trace.storages[event.id].bytes;
    if (event.type == EventType::free) live -= trace.storages[event.id].bytes;
    if (i >= from) peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace ledger
