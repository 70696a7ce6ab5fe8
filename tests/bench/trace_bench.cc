// trace_bench.cc - how long an answer takes and where the time goes, beside baselines of the same run: PyTorch's own
// structure for the allocator (a std::set of blocks), and copying the bytes that were made. Ratios are printed at the
// end; they travel between machines, times do not.
//
// The bar: an answer for an 8B model within one frame of a browser (16 ms), a few milliseconds natively.
#include <benchmark/benchmark.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "core/answer/report.h"
#include "core/api.h"
#include "tests/bench/set_allocator.h"

namespace {

using namespace ledger;

struct Shape {
  const char* name;
  std::uint64_t layers, hidden, ffn, heads, kv_heads, vocab;
};

constexpr Shape k8B{"8B", 32, 4096, 14336, 32, 8, 128256};
constexpr Shape k405B{"405B", 126, 16384, 53248, 128, 8, 128256};

std::string config_text(const Shape& s) {
  const auto member = [](const char* key, std::uint64_t value) {
    return ",\"" + std::string(key) + "\":" + std::to_string(value);
  };
  return R"({"model_type":"llama")" + member("num_hidden_layers", s.layers) + member("hidden_size", s.hidden) +
         member("intermediate_size", s.ffn) + member("num_attention_heads", s.heads) +
         member("num_key_value_heads", s.kv_heads) + member("vocab_size", s.vocab) + "}";
}

Recipe recipe_text(const char* text) {
  return read_recipe(text).value();
}

// bf16, 4096 tokens, two steps: what the page computes at a keystroke.
Prediction predicted(const Shape& shape, const char* recipe = R"({"seq":4096})") {
  return predict_run(read_model_config(config_text(shape)).value(), recipe_text(recipe)).value();
}

void count_events(benchmark::State& state, const Trace& trace) {
  state.counters["events"] = static_cast<double>(trace.events.size());
}

void trace(benchmark::State& state, const Shape& shape) {
  const ModelConfig config = read_model_config(config_text(shape)).value();
  const Recipe recipe = recipe_text(R"({"seq":4096})");
  for (auto _ : state)
    benchmark::DoNotOptimize(trace_step(config, recipe).value().events.data());
  count_events(state, trace_step(config, recipe).value());
}

// Baseline: the events and storages of the same trace, copied.
void trace_copy(benchmark::State& state, const Shape& shape) {
  const Prediction p = predicted(shape);
  std::vector<Event> events(p.trace.events.size());
  std::vector<StorageInfo> storages(p.trace.storages.size());
  for (auto _ : state) {
    std::memcpy(events.data(), p.trace.events.data(), events.size() * sizeof(Event));
    std::copy(p.trace.storages.begin(), p.trace.storages.end(), storages.begin());
    benchmark::ClobberMemory();
  }
}

void replayed(benchmark::State& state, const Shape& shape) {
  const Prediction p = predicted(shape);
  for (auto _ : state)
    benchmark::DoNotOptimize(replay(p.trace, {}).peak_allocated_bytes);
  count_events(state, p.trace);
}

// Baseline: the same births and deaths through a std::set of heap blocks; peaks and samples are not even kept.
void replay_set(benchmark::State& state, const Shape& shape) {
  const Prediction p = predicted(shape);
  std::vector<SetAllocator::Block*> blocks(p.trace.storages.size());
  Bytes peak = 0;
  for (auto _ : state) {
    SetAllocator allocator;
    peak = 0;
    for (const Event& event : p.trace.events) {
      if (event.type == EventType::alloc) blocks[event.id] = allocator.allocate(p.trace.storages[event.id].bytes);
      if (event.type == EventType::free) allocator.release(blocks[event.id]);
      peak = std::max(peak, allocator.allocated);
    }
    benchmark::DoNotOptimize(peak);
  }
  if (peak != p.replay.peak_allocated_bytes) state.SkipWithError("the baseline computes another peak");
}

void report(benchmark::State& state, const Shape& shape) {
  const Prediction p = predicted(shape);
  for (auto _ : state) {
    benchmark::DoNotOptimize(ledger_at(p.trace, p.replay.peak_event).tensor_bytes);
    benchmark::DoNotOptimize(write_report(p).data());
  }
}

void report_copy(benchmark::State& state, const Shape& shape) {
  const std::string text = write_report(predicted(shape));
  std::string copy(text.size(), ' ');
  for (auto _ : state) {
    std::memcpy(copy.data(), text.data(), text.size());
    benchmark::ClobberMemory();
  }
}

void answer(benchmark::State& state, const Shape& shape, const char* recipe) {
  const std::string text = "{\"config\":" + config_text(shape) + ",\"recipe\":" + recipe + "}";
  if (predict(text).starts_with(R"({"problem")")) state.SkipWithError("the core answers with a problem");
  for (auto _ : state)
    benchmark::DoNotOptimize(predict(text));
}

#define LEDGER_BENCH(function, name, ...) BENCHMARK_CAPTURE(function, name, __VA_ARGS__)->Unit(benchmark::kMillisecond)

LEDGER_BENCH(trace, 8B, k8B);
LEDGER_BENCH(trace_copy, 8B, k8B);
LEDGER_BENCH(replayed, 8B, k8B);
LEDGER_BENCH(replay_set, 8B, k8B);
LEDGER_BENCH(report, 8B, k8B);
LEDGER_BENCH(report_copy, 8B, k8B);
LEDGER_BENCH(trace, 405B, k405B);
LEDGER_BENCH(trace_copy, 405B, k405B);
LEDGER_BENCH(replayed, 405B, k405B);
LEDGER_BENCH(replay_set, 405B, k405B);
LEDGER_BENCH(answer, 8B_full, k8B, R"({"seq":4096})");
LEDGER_BENCH(answer, 8B_checkpointed, k8B, R"({"seq":4096,"checkpointing":"full"})");
LEDGER_BENCH(answer, 8B_lora, k8B, R"({"seq":4096,"method":"lora"})");
LEDGER_BENCH(answer, 405B_full, k405B, R"({"seq":4096})");

struct Ratio {
  const char* what;
  const char* of;
  const char* to;
};

constexpr Ratio kRatios[] = {
    {"tracing 8B, beside copying its trace", "trace/8B", "trace_copy/8B"},
    {"tracing 405B, beside copying its trace", "trace/405B", "trace_copy/405B"},
    {"tracing 405B, beside 8B (126 to 32 layers: 3.9)", "trace/405B", "trace/8B"},
    {"replaying 8B, beside a std::set allocator", "replayed/8B", "replay_set/8B"},
    {"replaying 405B, beside a std::set allocator", "replayed/405B", "replay_set/405B"},
    {"replaying 8B, beside tracing it", "replayed/8B", "trace/8B"},
    {"ledger and report of 8B, beside copying the text", "report/8B", "report_copy/8B"},
    {"a whole answer for 8B, beside tracing it", "answer/8B_full", "trace/8B"},
    {"a whole answer for 405B, beside 8B", "answer/405B_full", "answer/8B_full"},
};

class KeepTimes : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (!run.error_occurred) times_[run.benchmark_name()] = run.GetAdjustedCPUTime();
    }
    ConsoleReporter::ReportRuns(runs);
  }

  void print_ratios() const {
    std::printf("\nratios of CPU time within this run\n");
    for (const Ratio& ratio : kRatios) {
      const auto of = times_.find(ratio.of), to = times_.find(ratio.to);
      if (of == times_.end() || to == times_.end()) continue;
      std::printf("  %-52s %8.2f\n", ratio.what, of->second / to->second);
    }
  }

 private:
  std::map<std::string, double> times_;
};

// A page's heap keeps what it has had, so does this one: glibc would give the pages of every answer back and fault them
// in again, which takes two thirds of the time of a whole answer.
void keep_heap() {
#ifdef __GLIBC__
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  keep_heap();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  KeepTimes reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  reporter.print_ratios();
  return 0;
}
