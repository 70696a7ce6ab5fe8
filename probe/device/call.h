// call.h - what a device kernel is given: operands, and the services of the device it runs on.
#pragma once

#include <cstdint>
#include <span>

#include "core/trace/trace.h"
#include "probe/host/host_view.h"
#include "probe/ranks/communicator.h"
#include "probe/ranks/shard_moves.h"

namespace ledger::device {

// A View resolved to the device's memory. (On the host it is called HostView; it is the same arithmetic.)
using Operand = host::HostView;

// Where work is queued; it runs in order.
struct Queue {
  void* stream = nullptr;  // cudaStream_t
  std::uint64_t multiprocessors = 1;
  int capability = 0;                      // 90 for 9.0; decides whether there are tensor cores for 16 bits
  std::uint64_t launches = 0;              // counted by the emulated device
  std::uint64_t tensor_core_launches = 0;  // of kernels of our own (warps.h)
};

// out[batches][M,N] = a[batches][M,K] b[batches][K,N] (+ bias, broadcast to [M,N]). All operands are of rank 3.
struct Product {
  Operand a, b, out;
  const Operand* bias = nullptr;  // [M,N] with strides of 0 where it is repeated
};

// The device's library of matrix products. False: not for operands of these dtypes or strides, and nothing was done.
class MatrixLibrary {
 public:
  virtual ~MatrixLibrary() = default;
  virtual bool multiply(const Product& product, const char*& error) = 0;
};

struct Call;

// The device's library of attention. False: not for operands of these shapes, or without scratch memory for it, and
// nothing was done.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  virtual bool attend(Call& call) = 0;
};

// Host memory that the device reaches: what copy_to_host put aside, by number.
class HostSide {
 public:
  virtual ~HostSide() = default;
  virtual std::byte* keep(std::int64_t number, Bytes bytes) = 0;        // nullptr: the host has no memory left
  virtual std::byte* find(std::int64_t number, Bytes bytes) const = 0;  // nullptr: nothing of this number and size
  virtual void drop(std::int64_t number) = 0;                           // once the work queued so far has run
};

// What a kernel found wrong with its data (indices, labels) while it ran; the first one stays.
enum Fault : std::int32_t { kNoFault, kBadToken, kBadTarget, kBadIndex, kBadPosition };
inline const char* fault_text(std::int32_t fault) {
  constexpr const char* kTexts[] = {"", "a token id lies outside the table", "a target lies outside the classes",
                                    "an index lies outside the rows", "a position or its label is out of range"};
  return kTexts[fault];
}

struct Services {
  Queue queue;
  double* scratch = nullptr;              // kScratch numbers on the device for results in parts; free between kernels
  std::int32_t* fault = nullptr;          // on the device
  MatrixLibrary* library = nullptr;       // may be null: kernels of our own then multiply
  AttentionLibrary* attention = nullptr;  // may be null, as above
  HostSide* host_side = nullptr;
};
inline constexpr std::uint64_t kScratch = 4096;

struct Call {
  std::span<const Operand> in;
  std::span<const Operand> out;
  const Attr& attr;
  const Trace& trace;
  std::uint64_t seed;  // of tokens, input features and dropout
  const Run& run;
  std::uint64_t forward_pass;  // how many forward phases have begun
  Services& services;
  RankSeat seat = {};             // in whose place this process is
  Communicator* ranks = nullptr;  // of the operator's group; null: others' parts are copies of its own
  const char* error = nullptr;    // set by a kernel that cannot do what it was asked

  // The same call of other operands.
  Call with(std::span<const Operand> inputs, std::span<const Operand> outputs, const Attr& other) const {
    return {inputs, outputs, other, trace, seed, run, forward_pass, services, seat, ranks};
  }
};

using KernelFn = void (*)(Call&);

}  // namespace ledger::device
