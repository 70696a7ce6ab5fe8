// trace_bench.cc - how long an answer takes: two training steps traced, replayed and reported, through the core's own
// door. The bar: an answer for an 8B model within one frame of a browser (16 ms), a few milliseconds natively.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "core/api.h"

namespace {

std::string request(std::int64_t layers, const char* recipe) {
  return R"({"config":{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_attention_heads":32,)"
         R"("num_key_value_heads":8,"vocab_size":128256,"num_hidden_layers":)" +
         std::to_string(layers) + R"(},"recipe":)" + recipe + R"(,"timeline_points":400})";
}

void answer(benchmark::State& state, const char* recipe) {
  const std::string text = request(state.range(0), recipe);
  if (ledger::predict(text).starts_with(R"({"problem")")) state.SkipWithError("the core answers with a problem");
  for (auto _ : state)
    benchmark::DoNotOptimize(ledger::predict(text));
}

// Arguments: decoder layers; 32 is an 8B model, 126 the depth of the largest llama.
BENCHMARK_CAPTURE(answer, full_bf16, R"({"seq":4096})")->Arg(32)->Arg(126)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(answer, checkpointed, R"({"seq":4096,"checkpointing":"full"})")
    ->Arg(32)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(answer, lora, R"({"seq":4096,"method":"lora"})")->Arg(32)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
