#include "probe/cuda/nccl_shared.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "probe/exit.h"
#include "probe/ranks/sockets.h"
#include "probe/run_limits.h"

namespace ledger::cuda {
namespace {

using nccl::Result;

constexpr double kAbortSeconds = 5;   // that the library may take to give up
constexpr double kLeaveSeconds = 10;  // to take leave of the others
constexpr auto kQuick = std::chrono::milliseconds(2);
constexpr auto kPause = std::chrono::microseconds(50);

// Spins while it is likely to be over at once, then sleeps between looks.
class Patience {
 public:
  void pause() const {
    if (Clock::now() - began_ < kQuick) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  Clock::time_point began_ = Clock::now();
};

// Another process ends this one's calls by its end; a library that does not give up must not keep us.
void give_up(const Nccl& library, nccl::Comm comm) {
  const Watchdog watchdog(kAbortSeconds, [] {
    std::fputs("probe: NCCL did not give up.\n", stderr);
    _exit(kRankLost);
  });
  library.call().ncclCommAbort(comm);
}

}  // namespace

NcclCommunicator::Shared::~Shared() {
  for (const Made& one : made) {
    if (one.comm != nullptr) leave(one.comm);
  }
}

void NcclCommunicator::Shared::abort_all() {
  for (Made& one : made) {
    if (one.comm != nullptr) give_up(library, one.comm);
    one.comm = nullptr;
    one.memory.init_bytes = one.memory.connect_bytes = 0;  // given back
  }
}

void NcclCommunicator::Shared::leave(nccl::Comm comm) const {
  Result state = control.failure().empty() ? library.call().ncclCommFinalize(comm) : nccl::kInternalError;
  const Deadline deadline = in_seconds(kLeaveSeconds);
  for (const Patience patience; state == nccl::kInProgress && Clock::now() < deadline; patience.pause()) {
    if (library.call().ncclCommGetAsyncError(comm, &state) != nccl::kSuccess) state = nccl::kInternalError;
  }
  if (state != nccl::kSuccess || library.call().ncclCommDestroy(comm) != nccl::kSuccess) give_up(library, comm);
}

// What it has taken is known while its communicators are there.
void NcclCommunicator::Shared::lack_memory() {
  Bytes taken = 0;
  for (const Made& one : made)
    taken = plus(taken, plus(one.memory.init_bytes, one.memory.connect_bytes));
  shortage = Shortage{.by = "nccl", .taken_bytes = taken, .device_bytes_in_use = device.bytes_in_use()};
}

std::string NcclCommunicator::Shared::complaint(const std::string& what, Result result, nccl::Comm comm) {
  const std::string words = library.last_words(comm);
  if (!words.empty()) std::fprintf(stderr, "probe: NCCL says: %s.\n", words.c_str());
  if (!Nccl::lacks_memory(result, words)) return what + ": " + library.explain(result);
  lack_memory();
  return what + ": the GPU has no memory left for NCCL";
}

Bytes NcclCommunicator::Shared::taken_since(Bytes before) const {
  const Bytes now = device.bytes_in_use();
  return now - std::min(before, now);
}

bool NcclCommunicator::Shared::queue_is_empty() const {
  for (const Patience patience; !device.idle(); patience.pause()) {
    if (!control.still_there()) return false;
  }
  return true;
}

std::string NcclCommunicator::Shared::wait(nccl::Comm comm, bool queue, const std::string& what) {
  const Deadline deadline = in_seconds(timeout_s);
  for (const Patience patience;; patience.pause()) {
    Result state = nccl::kSuccess;
    const Result asked = library.call().ncclCommGetAsyncError(comm, &state);
    if (asked != nccl::kSuccess) return complaint(what, asked, comm);
    if (!is_well(state)) return complaint(what, state, comm);
    if (state == nccl::kSuccess && (!queue || device.idle())) return "";
    if (!control.still_there()) return "";  // after it: others may be through, and gone
    if (Clock::now() > deadline)
      return what + " did not end within " + std::to_string(static_cast<std::uint64_t>(timeout_s)) + " s";
  }
}

}  // namespace ledger::cuda
