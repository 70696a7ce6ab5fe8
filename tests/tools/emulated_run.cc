// emulated_run.cc - a training step on the emulated device, written as a GPU's measured file: what schemas and readers
// are tried on where there is no GPU.
//   emulated_run ok|oom|timeout|interrupted|error|hung
#include <unistd.h>

#include <cstdio>
#include <string>

#include "core/answer/prediction.h"
#include "probe/device_run.h"
#include "probe/measured.h"
#include "tests/probe/device/emulated_device.h"
#include "tests/probe/tiny_configs.h"

namespace {

// A GPU whose queue is never done from the second step on.
class Hanging : public ledger::emulated::EmulatedDevice {
 public:
  std::string settle() override {
    constexpr int kLoadAndOneStep = 5;
    while (++settled_ > kLoadAndOneStep)
      sleep(1);
    return EmulatedDevice::settle();
  }

 private:
  int settled_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  using namespace ledger;
  const std::string wanted = argc > 1 ? argv[1] : "ok";
  Recipe recipe;
  recipe.seq = 12;
  if (wanted == "oom") recipe.memory_limit_bytes = 40 * kMiB;
  constexpr std::uint32_t kSteps = 2;
  const PredictOptions options{.steps = kSteps, .operands = true, .record_addresses = true};
  Prediction p = predict_run(read_model_config(tiny::kLlama).value(), recipe, options).value();
  if (wanted == "error") p.trace.views.back().offset = 1u << 30;  // a fault of the trace, found before anything is read
  ReplayOptions replay_options{.allocator = allocator_options(recipe), .record_addresses = true};
  if (recipe.memory_limit_bytes != 0) replay_options.allocator.limit = recipe.memory_limit_bytes;
  int asked = 0;
  DeviceRunOptions run_options{.limits = {.timeout_s = wanted == "timeout" ? 1e-4 : 0}};
  run_options.limits.interrupted = [&] { return wanted == "interrupted" && ++asked > 200; };
  const auto write = [&](const DeviceRun& run) {
    std::fputs(write_measured({&p, &run, kSteps, 1, &run}).c_str(), stdout);
  };
  if (wanted == "hung") {
    run_options.limits.timeout_s = run_options.limits.grace_s = 0.2;
    run_options.hung = [&](const DeviceRun& run) {
      write(run);
      std::fflush(stdout);
      _exit(run.status == RunStatus::timeout ? 0 : 1);
    };
  }
  emulated::EmulatedDevice device;
  Hanging hanging;
  const DeviceRun run = run_on_device(p.trace, replay_options, wanted == "hung" ? hanging : device, run_options);
  write(run);
  return run_status_name(run.status) == wanted ? 0 : 1;
}
