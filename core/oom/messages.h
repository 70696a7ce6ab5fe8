// messages.h - the numbers of out-of-memory messages: a table of formats, and the fields each states.
//
// A format is an anchor (words that only it has) and the words that stand beside each number. Fields are looked for
// from the anchor to the next one, so that two ranks' messages in one paste keep their numbers apart.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/oom/squash.h"

namespace ledger::oom {

enum class Field : std::uint8_t {
  requested,
  capacity,
  allocated,
  reserved,
  free,
  unallocated,   // reserved but unallocated
  this_process,  // "this process has P memory in use"
  private_pools,
  allowed,  // set_per_process_memory_fraction
  count_
};
inline constexpr std::size_t kFields = static_cast<std::size_t>(Field::count_);

struct ProcessUse {
  std::uint64_t pid = 0;
  std::optional<Bytes> bytes;  // unknown under WSL, which prints 2^64
};

// Where the memory is that ran out.
enum class Memory : std::uint8_t {
  device,
  host,
  other
};  // other: a limit that is no capacity (a kernel's shared memory)

struct Message {
  const char* format = "";
  const char* device = "";  // "cuda", "hip", "xpu", "npu", "hpu", "mps", "mlx", "tpu", "host", or "" where unsaid
  Memory memory = Memory::device;
  std::array<std::optional<Bytes>, kFields> bytes{};
  std::vector<ProcessUse> processes;  // without the own one where the message tells it apart
  std::optional<std::uint64_t> gpu;
  std::size_t at = 0;   // in the squashed text
  bool stated = false;  // at least one number was read

  const std::optional<Bytes>& operator[](Field field) const { return bytes[static_cast<std::size_t>(field)]; }
  std::optional<Bytes>& operator[](Field field) { return bytes[static_cast<std::size_t>(field)]; }
};

// At most `most` messages, in the order of the text.
std::vector<Message> read_messages(const Squashed& text, std::size_t most = 64);

// Reading numbers with units in squashed text: "23.65gib", "772mb", "12bytes". Values of 2^63 and more are unknown.
struct Number {
  std::optional<Bytes> bytes;
  std::size_t begin = 0, end = 0;  // the place of the number and its unit
};
std::optional<Number> number_at(std::string_view text, std::size_t begin, char default_unit = '\0');
std::optional<Number> number_before(std::string_view text, std::size_t end);

}  // namespace ledger::oom
