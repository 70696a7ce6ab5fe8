#include "probe/finish.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "probe/check.h"
#include "probe/exit.h"
#include "probe/files.h"
#include "probe/measured.h"
#include "probe/ranks/stand_in.h"
#include "probe/table.h"

namespace ledger {
namespace {

std::string out_of_memory_sentence(const Prediction& p, const Replay& replay) {
  const StorageInfo& storage = p.trace.storages[replay.oom_storage];
  std::string place = p.trace.names[storage.scope];
  if (storage.layer >= 0) place = "layer " + std::to_string(storage.layer) + ", " + place;
  return "out of memory in " + p.trace.phases[replay.phases.back().phase] + ", " + place + " (" + op_name(storage.op) +
         ", " + human_bytes(storage.bytes) + "): " + human_bytes(replay.allocator.allocated) +
         " allocated; the predicted peak is " + human_bytes(p.replay.peak_allocated_bytes) + ".";
}

// Of what is not the allocator's.
std::string shortage_sentence(const Prediction& p, const MeasuredResult& run) {
  const RunFailure& failure = *run.failure;
  const Run& at = p.trace.runs[failure.run];
  const std::vector<PhasePeak>& phases = run.replay.phases;
  std::string place = phases.empty() ? "" : " in " + p.trace.phases[phases.back().phase];
  if (at.layer >= 0) place += ", layer " + std::to_string(at.layer);
  return "out of memory" + place + " (" + op_name(at.op) + "): " + failure.what + ". " +
         human_bytes(run.replay.allocator.reserved) + " are the allocator's; the predicted peak is " +
         human_bytes(p.replay.peak_allocated_bytes) + ".";
}

volatile std::sig_atomic_t signal_received = 0;

// Says how it ended.
int verdict_on(const Flags& flags, const Prediction& p, const MeasuredResult& run, const RankChoice& choice,
               const DeviceRun* device) {
  switch (run.status) {
    case RunStatus::error:
      return fail(kInternal, "the " + std::string(device == nullptr ? "host" : "CUDA") +
                                 " executor stopped: " + run.failure->what + ".");
    case RunStatus::out_of_memory:
      return fail(kOutOfMemory, run.failure ? shortage_sentence(p, run) : out_of_memory_sentence(p, run.replay));
    case RunStatus::timeout:
      return fail(kTimeOut,
                  "stopped by " + std::string(run.stopped_by) + "; the file holds what was measured until then.");
    case RunStatus::interrupted:
      return fail(kSignal + signal_received, "interrupted; the file holds what was measured until then.");
    case RunStatus::ok:
      break;
  }
  if (flags.check_percent < 0) return kOk;
  const std::string missed = check_of(p, run, flags.check_percent, choice.stand_in);
  return missed.empty() ? kOk : fail(kCheckFailed, missed);
}

// The first signal ends the run between two operators, so that its file is written; the second ends the program.
void on_signal(int number) {
  if (signal_received != 0) _exit(kSignal + number);
  signal_received = number;
}

}  // namespace

int emit(const Flags& flags, const std::string& json, const std::string& table) {
  if (!flags.json.empty()) {
    const std::string error = write_file(flags.json, json);
    if (!error.empty()) return fail(kUsage, error);
  }
  if (flags.json != "-" && !flags.quiet) std::fputs(table.c_str(), stdout);
  return kOk;
}

int finish_run(Flags flags, const Prediction& p, MeasuredResult& run, const DeviceRun* device, Communicator& ranks,
               const RankChoice& choice) {
  const bool with_nccl = device != nullptr && device->memory.nccl;
  const RanksOfRun all =
      leave_ranks(ranks, choice, p, run, with_nccl ? std::optional(device->memory.nccl->total()) : std::nullopt);
  const bool first = choice.stand_in || choice.place.rank == 0, each_its_own = name_file_after_rank(flags.json, choice);
  std::string json = write_measured({&p, &run, flags.steps, flags.warmup, device, &all});
  if (!all.peaks.empty() && !each_its_own && !fetch_text(ranks, all.worst(), json)) {
    run.status = RunStatus::error;
    run.failure = RunFailure{ranks.failure(), 0, kNoStorage};
  }
  if (!first && !each_its_own) flags.json.clear();
  if (!first) flags.quiet = true;
  const int code = emit(flags, json,
                        measured_table(p, run.replay, run.phase_ms,
                                       choice.stand_in ? std::vector<double>() : known_losses(p.trace, run)) +
                            ranks_table(all));
  if (code != kOk) return code;
  const bool lost = run.failure && !run.failure->shortage;  // and not this rank itself
  if (!ranks.failure().empty() && lost) return fail(kRankLost, ranks.failure() + ".");
  return verdict_on(flags, p, run, choice, device);
}

RunLimits limits_of(const Flags& flags) {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  return {.timeout_s = flags.timeout_s, .budget_s = flags.budget_s, .interrupted = [] { return signal_received != 0; }};
}

void leave(const Flags& flags, const Prediction& p, MeasuredResult run, const DeviceRun* device,
           const RankChoice& choice) {
  StandIn nobody(choice.place.rank, choice.place.world);
  const int code = finish_run(flags, p, run, device, nobody, choice);
  std::fflush(stdout);
  _exit(code);
}

}  // namespace ledger
