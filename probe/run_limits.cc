#include "probe/run_limits.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace ledger {
namespace {

// "step2" of "step2.1.forward".
std::string_view unit_of(std::string_view phase) {
  return phase.substr(0, phase.find('.'));
}

// The allocator is deterministic: the part that ran is replayed alone.
template <class Ends>
Replay replay_until(const Trace& trace, const ReplayOptions& options, Ends ends) {
  Trace part = trace;
  part.events.erase(std::find_if(part.events.begin(), part.events.end(), ends), part.events.end());
  return replay(part, options);
}

Replay replay_until_phase(const Trace& trace, const ReplayOptions& options, std::uint32_t phase) {
  return replay_until(trace, options, [phase](const Event& e) { return e.type == EventType::mark && e.id == phase; });
}

Replay replay_until_run(const Trace& trace, const ReplayOptions& options, std::uint32_t run) {
  return replay_until(trace, options, [run](const Event& e) { return e.type == EventType::run && e.id == run; });
}

constexpr const char* kTimeout = "--timeout";
constexpr const char* kBudget = "--budget";
constexpr const char* kHung = "--timeout, while an operator did not come back";

}  // namespace

Watchdog::Watchdog(double seconds, std::function<void()> bark)
    : thread_([this, seconds, bark = std::move(bark)] {
        std::unique_lock lock(mutex_);
        if (called_off_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; })) return;
        lock.unlock();
        bark();
      }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    done_ = true;
  }
  called_off_.notify_all();
  thread_.join();
}

Stops::Stops(const RunLimits& limits, const Trace& trace, const ReplayOptions& options)
    : limits_(limits), trace_(trace), options_(options) {
  latest_.phase_ms.assign(trace.phases.size(), 0.0);
  if (limits.timeout_s > 0 && limits.hung)
    watchdog_.emplace(limits.timeout_s + limits.grace_s, [this] { limits_.hung(so_far()); });
}

double Stops::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

bool Stops::now() {
  if (limits_.interrupted && limits_.interrupted()) status_ = RunStatus::interrupted;
  if (status_ == RunStatus::ok && limits_.timeout_s > 0 && elapsed() > limits_.timeout_s) {
    status_ = RunStatus::timeout;
    stopped_by_ = kTimeout;
  }
  return status_ != RunStatus::ok;
}

void Stops::phase_ended(const CheckedExecutor& executor, std::uint32_t phase) {
  if (watchdog_) {
    const std::scoped_lock lock(mutex_);
    latest_.phase_ms = executor.phase_ms();
    latest_.losses = executor.losses();
    latest_.phases_done = phase + 1;
  }
  if (phase + 1 == trace_.phases.size()) return;
  const std::string_view unit = unit_of(trace_.phases[phase]);
  if (unit == unit_of(trace_.phases[phase + 1])) return;
  const double now_s = elapsed();
  if (unit != "load") longest_s_ = std::max(longest_s_, now_s - unit_began_s_);
  unit_began_s_ = now_s;
  if (limits_.budget_s <= 0 || longest_s_ == 0 || now_s + longest_s_ <= limits_.budget_s) return;
  status_ = RunStatus::timeout;
  stopped_by_ = kBudget;
}

MeasuredResult Stops::so_far() {
  MeasuredResult result;
  {
    const std::scoped_lock lock(mutex_);
    result = latest_;
  }
  result.replay = replay_until_phase(trace_, options_, result.phases_done);
  result.status = RunStatus::timeout;
  result.stopped_by = kHung;
  return result;
}

void Stops::conclude(const CheckedExecutor& executor, MeasuredResult& result) {
  result.phase_ms = executor.phase_ms();
  result.losses = executor.losses();
  const bool cut = result.replay.out_of_memory && executor.phases_done() > 0;  // its last phase did not end
  result.phases_done = executor.phases_done() - (cut ? 1 : 0);
  result.stopped_by = stopped_by_;
  const bool stopped = executor.failure() && status_ != RunStatus::ok;
  if (stopped && stopped_by_ == kBudget) {
    result.replay = replay_until_phase(trace_, options_, result.phases_done);
    std::fill(result.phase_ms.begin() + result.phases_done, result.phase_ms.end(), 0.0);  // the next was not begun
  } else if (executor.failure()) {
    result.replay = replay_until_run(trace_, options_, executor.failure()->run);
  }
  if (!stopped) result.failure = executor.failure();
  result.status = stopped ? status_ : status_of(result);
}

}  // namespace ledger
