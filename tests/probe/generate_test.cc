// Generation really runs: decoding with a cache gives the logits that reading all tokens at once gives, whatever kind
// of cache and attention.
#include "core/inference/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "probe/host/run_host.h"
#include "tiny_models.h"

namespace ledger {
namespace {

Recipe generating(std::uint64_t seq, std::uint64_t new_tokens) {
  Recipe recipe;
  recipe.task = Task::generate;
  recipe.batch = 2;
  recipe.seq = seq;
  recipe.new_tokens = new_tokens;
  return recipe;
}

Trace traced(const char* config, const Recipe& recipe, std::optional<DType> weights) {
  TraceOptions options;
  options.operands = true;
  options.weights = weights;
  Result<Trace> trace = trace_generation(read_model_config(config).value(), recipe, options);
  EXPECT_TRUE(trace.ok()) << trace.problem().expected;
  return trace.ok() ? std::move(trace.value()) : Trace{};
}

// The host's executor, with a prompt of our choice in place of its own.
class Prompted : public Executor {
 public:
  Prompted(const Trace& trace, HostStore& store, std::vector<double> prompt)
      : trace_(trace), prompt_(std::move(prompt)), host_(trace, store, options()) {}

  void born(StorageId storage, std::uint64_t address) override { host_.born(storage, address); }
  void died(StorageId storage) override { host_.died(storage); }
  void mark(std::uint32_t phase) override { host_.mark(phase); }
  void run(std::uint32_t index) override {
    host_.run(index);
    const Run& run = trace_.runs[index];
    if (run.op == OpKind::load_tokens && !prompt_.empty()) host_.write(trace_.views[run.first_view].storage, prompt_);
    const StorageId out = trace_.views[run.first_view + run.input_count()].storage;
    const std::string& scope = trace_.names[run.scope];
    if (scope == "next_token_logits") logits_.push_back(host_.read(out));
    if (run.op == OpKind::load_tokens || (scope == "input_ids" && run.op == OpKind::cat)) tokens_ = host_.read(out);
  }
  void finish() { host_.finish(); }

  const HostExecutor& host() const { return host_; }
  const std::vector<std::vector<double>>& logits() const { return logits_; }  // of each new token
  const std::vector<double>& tokens() const { return tokens_; }               // [b, prompt and new ones]

 private:
  static HostExecutor::Options options() {
    HostExecutor::Options options;
    options.poison = true;
    return options;
  }

  const Trace& trace_;
  std::vector<double> prompt_;
  HostExecutor host_;
  std::vector<std::vector<double>> logits_;
  std::vector<double> tokens_;
};

struct Generated {
  std::vector<std::vector<double>> logits;
  std::vector<double> tokens;
};

Generated generate(const Trace& trace, std::vector<double> prompt = {}) {
  HostStore store(kOverflow);
  Prompted executor(trace, store, std::move(prompt));
  replay(trace, {.allocator = {}}, &executor, &store);
  executor.finish();
  EXPECT_FALSE(executor.host().failure()) << executor.host().failure()->what;
  return {executor.logits(), executor.tokens()};
}

// The first `length` tokens of each of two rows.
std::vector<double> prefix(const std::vector<double>& tokens, std::size_t length) {
  const std::size_t row = tokens.size() / 2;
  std::vector<double> result;
  for (std::size_t b = 0; b < 2; ++b)
    result.insert(result.end(), tokens.begin() + static_cast<std::ptrdiff_t>(b * row),
                  tokens.begin() + static_cast<std::ptrdiff_t>(b * row + length));
  return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

struct Case {
  const char* name;
  const char* config;
  Attention attention;
  KvCacheKind cache;
};

class Generation : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Caches, Generation,
                         testing::Values(Case{"Dynamic", tiny::kLlama, Attention::sdpa, KvCacheKind::dynamic},
                                         Case{"DynamicEager", tiny::kLlama, Attention::eager, KvCacheKind::dynamic},
                                         Case{"DynamicMath", tiny::kLlama, Attention::math, KvCacheKind::dynamic},
                                         Case{"StaticEager", tiny::kLlama, Attention::eager, KvCacheKind::fixed},
                                         Case{"Static", tiny::kLlama, Attention::sdpa, KvCacheKind::fixed},
                                         Case{"StaticUngrouped", tiny::kUngrouped, Attention::sdpa, KvCacheKind::fixed},
                                         Case{"Tied", tiny::kTied, Attention::sdpa, KvCacheKind::dynamic},
                                         Case{"Ungrouped", tiny::kUngrouped, Attention::efficient,
                                              KvCacheKind::dynamic},
                                         Case{"Qwen2", tiny::kQwen2, Attention::sdpa, KvCacheKind::dynamic},
                                         Case{"Qwen3", tiny::kQwen3, Attention::sdpa, KvCacheKind::dynamic}),
                         [](const auto& test) { return test.param.name; });

// In fp64 the two ways differ by rounding alone; RMSNorm and the logits' copy are fp32, as in transformers.
TEST_P(Generation, DecodingWithACacheIsReadingAllTokens) {
  constexpr std::uint64_t kPrompt = 7, kNew = 5;
  Recipe recipe = generating(kPrompt, kNew);
  recipe.attention = GetParam().attention;
  recipe.kv_cache = GetParam().cache;
  const Generated cached = generate(traced(GetParam().config, recipe, DType::f64));
  ASSERT_EQ(cached.logits.size(), kNew);
  ASSERT_EQ(cached.tokens.size(), 2 * (kPrompt + kNew));
  for (std::size_t i = 0; i < kNew; ++i) {
    Recipe whole = generating(kPrompt + i, 1);
    whole.attention = GetParam().attention;
    const Generated read = generate(traced(GetParam().config, whole, DType::f64), prefix(cached.tokens, kPrompt + i));
    ASSERT_EQ(read.logits.size(), 1u);
    EXPECT_LT(largest_difference(cached.logits[i], read.logits[0]), 2e-6) << "token " << i;
    EXPECT_EQ(prefix(cached.tokens, kPrompt + i + 1), read.tokens) << "token " << i;
  }
}

TEST(GenerationKinds, WithoutNoGradTheSameTokensCome) {
  Recipe recipe = generating(6, 4);
  const Generated plain = generate(traced(tiny::kLlama, recipe, std::nullopt));
  recipe.no_grad = false;
  const Generated graph = generate(traced(tiny::kLlama, recipe, std::nullopt));
  EXPECT_EQ(plain.tokens, graph.tokens);
  EXPECT_EQ(plain.logits, graph.logits);
  recipe.no_grad = true;
  recipe.prefill_logits = PrefillLogits::all;
  EXPECT_EQ(generate(traced(tiny::kLlama, recipe, std::nullopt)).logits, plain.logits);
}

// One weight, decoded whole for a prompt of 12 rows and within the kernel for 2: the same product up to rounding in
// bf16.
TEST(GenerationKinds, TheFusedFourBitKernelComputesWhatTheDecodedWeightDoes) {
  constexpr const char* kBlocks = R"({"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 64})";
  for (const bool double_quant : {true, false}) {
    Recipe recipe = generating(6, 3);
    recipe.weights = Weights::nf4;
    recipe.double_quant = double_quant;
    const Trace trace = traced(kBlocks, recipe, std::nullopt);
    const auto fused = [](const ledger::Run& run) { return run.op == OpKind::gemm_4bit; };
    ASSERT_TRUE(std::any_of(trace.runs.begin(), trace.runs.end(), fused));
    const Generated cached = generate(trace);
    const Generated read = generate(traced(
                                        kBlocks,
                                        [&] {
                                          Recipe whole = recipe;
                                          whole.seq = 7;
                                          whole.new_tokens = 1;
                                          return whole;
                                        }(),
                                        std::nullopt),
                                    prefix(cached.tokens, 7));
    EXPECT_LT(largest_difference(cached.logits[1], read.logits[0]), 0.02) << "of logits up to 1";
  }
}

// Window 4: decoding with the last three tokens' keys is reading all tokens under a windowed mask.
TEST(GenerationKinds, ASlidingWindowForgetsAlike) {
  constexpr const char* kWindowed = R"({"model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64, "sliding_window": 4})";
  for (const Attention attention : {Attention::sdpa, Attention::eager}) {
    Recipe recipe = generating(6, 5);
    recipe.attention = attention;
    const Generated cached = generate(traced(kWindowed, recipe, DType::f64));
    for (std::size_t i = 1; i < 5; ++i) {
      Recipe whole = generating(6 + i, 1);
      whole.attention = Attention::eager;
      const Generated read = generate(traced(kWindowed, whole, DType::f64), prefix(cached.tokens, 6 + i));
      EXPECT_LT(largest_difference(cached.logits[i], read.logits[0]), 2e-6) << "token " << i;
    }
  }
}

TEST(GenerationKinds, AQuantizedCacheHasNoKernelHere) {
  constexpr const char* kGroups = R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 64})";
  Recipe recipe = generating(6, 3);
  recipe.kv_cache = KvCacheKind::quantized;
  EXPECT_EQ(first_not_computed(traced(kGroups, recipe, std::nullopt)), "quantize_affine");
}

}  // namespace
}  // namespace ledger
