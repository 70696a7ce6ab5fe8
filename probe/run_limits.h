// run_limits.h - how long a run may take, and what is kept of one that ends before its time.
//
// --budget ends a run between two steps, --timeout and signals between two operators. Where an operator does not come
// back (a device that hangs), a thread says so with what was measured until the end of the last phase.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "probe/measured_result.h"

namespace ledger {

struct RunLimits {
  double timeout_s = 0;                         // 0: none
  double budget_s = 0;                          // 0: none; the first step is always finished
  std::function<bool()> interrupted = nullptr;  // asked between operators
  // Called on another thread when an operator has not come back for grace_s after the timeout; ends the program.
  std::function<void(const MeasuredResult&)> hung = nullptr;
  double grace_s = 5;
};

// Calls `bark` on a thread of its own when it was not destroyed within `seconds`.
class Watchdog {
 public:
  Watchdog(double seconds, std::function<void()> bark);
  ~Watchdog();

 private:
  std::mutex mutex_;
  std::condition_variable called_off_;
  bool done_ = false;
  std::thread thread_;
};

class Stops {
 public:
  // All outlive it.
  Stops(const RunLimits& limits, const Trace& trace, const ReplayOptions& options);

  bool now();                                                              // asked between operators
  void phase_ended(const CheckedExecutor& executor, std::uint32_t phase);  // index into Trace::phases

  // Times, losses and status of a run that is over; of one that was stopped or failed, the replay of what ran.
  void conclude(const CheckedExecutor& executor, MeasuredResult& result);

 private:
  double elapsed() const;
  MeasuredResult so_far();

  const RunLimits& limits_;
  const Trace& trace_;
  const ReplayOptions& options_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  RunStatus status_ = RunStatus::ok;
  const char* stopped_by_ = "";
  double unit_began_s_ = 0, longest_s_ = 0;  // of a step
  std::mutex mutex_;
  MeasuredResult latest_;  // at the end of the last phase, for the thread
  std::optional<Watchdog> watchdog_;
};

}  // namespace ledger
