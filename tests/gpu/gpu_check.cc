// gpu_check.cc - probe_gpu_check: the CUDA kernels against the host's on a real GPU, operator by operator and as whole
// training steps, and the design's open points. Writes one JSON document; needs no test framework, so that it builds on
// a bare GPU machine.
//   probe_gpu_check ops SEED | steps STEPS | points 1 | ranks SEED | gpus 1
// `ranks` is one of several processes where a launcher started several; `gpus` only says how many GPUs there are.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/base/json.h"
#include "core/training/step.h"
#include "probe/cuda/availability.h"
#include "probe/cuda/run_cuda.h"
#include "probe/cuda/runtime/cuda_store.h"
#include "probe/device_run.h"
#include "probe/host/run_host.h"
#include "tests/gpu/open_points.h"
#include "tests/gpu/ranks_check.h"
#include "tests/probe/device/op_cases.h"
#include "tests/probe/device/step_cases.h"

namespace ledger {
namespace {

constexpr int kNoGpu = 69;
constexpr double kLossTolerance = 2e-3;  // of the loss: bf16 gradients summed in another order

void write_outcome(JsonWriter& out, const std::string& name, const std::string& problem) {
  out.begin_object().member("name", name).member("ok", problem.empty()).member("problem", problem).end_object();
}

// The case with the scratch memory that cuDNN's plan for it wants, where it has one.
bool give_scratch(op_cases::OpCase& c, MeasuredDevice& gpu) {
  const AttentionScratch scratch = gpu.prepare(op_cases::trace_of(c));
  if (!scratch.planned) return false;
  if (c.compared == 0) c.compared = c.out.size();
  op_cases::TestTensor memory = one_op::dense(DType::u8, {plus(scratch.forward_bytes, scratch.backward_bytes)}, {});
  memory.memory.resize(memory.numel());
  if (memory.numel() != 0) c.out.push_back(std::move(memory));
  return true;
}

op_cases::OpResult on_gpu(const op_cases::OpCase& c, MeasuredDevice& gpu) {
  const Trace trace = op_cases::trace_of(c);
  device::DeviceExecutor executor(trace, gpu, {.poison = true, .seat = op_cases::kSeat});
  return op_cases::run_case(c, trace, executor, gpu.store());
}

bool check_ops(JsonWriter& out, MeasuredDevice& gpu, std::uint32_t seed) {
  std::size_t failed = 0, count = 0, by_cudnn = 0;
  const Bytes before = cuda::device_bytes_in_use();
  out.key("failures").begin_array();
  std::vector<op_cases::OpCase> cases = op_cases::all_cases(seed);
  for (op_cases::OpCase& c : cases) {
    by_cudnn += give_scratch(c, gpu) ? 1 : 0;
    const std::string problem = op_cases::disagreement(c, on_gpu(c, gpu), op_cases::on_host(c));
    ++count;
    if (problem.empty()) continue;
    ++failed;
    write_outcome(out, c.name, problem);
    std::fprintf(stderr, "%s: %s\n", c.name.c_str(), problem.c_str());
  }
  // Kernels are loaded when they are first launched, and then stay: a second time takes nothing.
  const Bytes once = cuda::device_bytes_in_use();
  for (const op_cases::OpCase& c : cases)
    on_gpu(c, gpu);
  const auto grown = [](Bytes from, Bytes to) {
    return static_cast<std::int64_t>(to) - static_cast<std::int64_t>(from);
  };
  out.end_array()
      .member("cases", static_cast<std::uint64_t>(count))
      .member("by_cudnn", static_cast<std::uint64_t>(by_cudnn))
      .member("on_tensor_cores", gpu.services().queue.tensor_core_launches)
      .member("loaded_bytes", grown(before, once))
      .member("loaded_again_bytes", grown(once, cuda::device_bytes_in_use()))
      .member("failed", static_cast<std::uint64_t>(failed));
  return failed == 0;
}

void write_losses(JsonWriter& out, const char* key, const std::vector<double>& losses) {
  out.key(key).begin_array();
  for (const double loss : losses)
    out.value(loss);
  out.end_array();
}

// The first step whose losses are too far apart; empty when there is none.
std::string compare_losses(const std::vector<double>& got, const std::vector<double>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double allowed = kLossTolerance * std::fabs(want[i]) * static_cast<double>(i + 1);
    if (i >= got.size() || !(std::fabs(got[i] - want[i]) <= allowed)) return "loss " + std::to_string(i) + " differs";
  }
  return "";
}

bool check_step(JsonWriter& out, MeasuredDevice& gpu, const StepCase& step, std::uint32_t steps) {
  Recipe recipe;
  recipe.batch = 2;
  recipe.seq = 12;
  step.set(recipe);
  TraceOptions options;
  options.steps = steps;
  options.operands = true;
  options.cublas_workspace_bytes = 32 * kMiB;
  Result<Trace> trace = trace_step(read_model_config(step.config).value(), recipe, options);
  out.begin_object().member("name", step.name);
  const AttentionScratch scratch = trace.ok() ? gpu.prepare(trace.value()) : AttentionScratch{};
  if (scratch.planned) {
    options.cudnn_forward_bytes = scratch.forward_bytes;
    options.cudnn_backward_bytes = scratch.backward_bytes;
    trace = trace_step(read_model_config(step.config).value(), recipe, options);
  }
  out.member("cudnn", scratch.planned);
  std::string problem = trace.ok() ? "" : "no trace";
  if (trace.ok()) {
    ReplayOptions replay_options;
    replay_options.record_addresses = true;
    const HostRun host = run_on_host(trace.value(), replay_options);
    const DeviceRun run = run_on_device(trace.value(), replay_options, gpu, {.poison = true});
    write_losses(out, "host", host.losses);
    write_losses(out, "cuda", run.losses);
    problem = run.failure ? run.failure->what : compare_losses(run.losses, host.losses);
    if (problem.empty() && run.replay.addresses != host.replay.addresses) problem = "memory differs";
  }
  out.member("ok", problem.empty()).member("problem", problem).end_object();
  if (!problem.empty()) std::fprintf(stderr, "%s: %s\n", step.name, problem.c_str());
  return problem.empty();
}

bool check_steps(JsonWriter& out, MeasuredDevice& gpu, std::uint32_t steps) {
  bool good = true;
  out.key("steps").begin_array();
  for (const StepCase& step : kSteps)
    good = check_step(out, gpu, step, steps) && good;
  out.end_array();
  return good;
}

int print(JsonWriter& out, bool good) {
  out.member("ok", good).end_object();
  std::fputs(out.take().c_str(), stdout);
  return good ? 0 : 1;
}

int run(const std::string& what, std::uint32_t number) {
  const cuda::Facts machine = cuda::collect_facts();
  const std::string why = cuda::why_not(machine);
  if (!why.empty()) {
    std::fprintf(stderr, "probe_gpu_check: %s.\n", why.c_str());
    return kNoGpu;
  }
  if (what == "gpus" || what == "ranks") {
    JsonWriter out;
    out.begin_object().member("gpus", machine.devices);
    return print(out, what == "gpus" || check_ranks(out, number));
  }
  const cuda::OpenedGpu gpu = cuda::open_gpu(0, true);
  if (gpu.device == nullptr) {
    std::fprintf(stderr, "probe_gpu_check: %s.\n", gpu.error.c_str());
    return kNoGpu;
  }
  JsonWriter out;
  out.begin_object().member("gpu", gpu.device->facts().name).member("seed_or_steps", number);
  const bool good = what == "ops"     ? check_ops(out, *gpu.device, number)
                    : what == "steps" ? check_steps(out, *gpu.device, number)
                                      : OpenPoints(out, *gpu.device).check();
  return print(out, good);
}

}  // namespace
}  // namespace ledger

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "ops" && what != "steps" && what != "points" && what != "ranks" && what != "gpus") {
    std::fputs("usage: probe_gpu_check ops SEED | steps STEPS | points 1 | ranks SEED | gpus 1\n", stderr);
    return 2;
  }
  return ledger::run(what, static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10)));
}
