// against_report.h - an out-of-memory message beside the prediction for the same run: which tensor was asked for, how
// far the step had come, and whether it should have fitted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/oom/diagnosis.h"

namespace ledger::oom {

struct TensorMatch {
  std::string name, category, op, dtype;
  Bytes bytes = 0;          // of one tensor as it would have been asked for
  std::uint64_t count = 1;  // tensors of this shape alive at the predicted peak
  std::uint64_t element_bytes = 0;
  bool other_dtype = false;      // only with another element size than predicted: an unintended fp32 copy, say
  std::uint64_t divided_by = 1;  // all parameters, shared among so many
};

struct AgainstReport {
  std::vector<TensorMatch> matches;      // tensors that the allocator would round to the request; likeliest first
  bool request_says_nothing = false;     // 2 MiB or 20 MiB: what every small tensor is printed as
  std::string phase;                     // the first that reaches what was allocated plus the request
  Bytes predicted_allocated_bytes = 0;   // at the peak
  Bytes least_device_bytes = 0;          // allocated and context: without any cached block
  Bytes predicted_device_bytes = 0;      // upper end of the band, with everything reserved
  std::vector<const char*> conclusions;  // ids
};

// What PyTorch's allocator asks the driver for, and prints, when a tensor of `bytes` finds no room.
Bytes printed_request(Bytes bytes);

AgainstReport against_report(const Message& message, const Diagnosis& diagnosis, const Json& report);

}  // namespace ledger::oom
