// Optimizers and clipping: what their states take, and what one step takes for a moment. Sources: torch/optim/*.py
// (2.14), bitsandbytes optim/optimizer.py (0.50).
#include "core/training/optimizer.h"

#include <gtest/gtest.h>

#include <map>

#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "core/training/step.h"
#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

// A layer's matrix of 8192 and its vector of 128 elements, with gradients.
constexpr std::uint64_t kMatrix = 64 * 128, kVector = 128, kAll = kMatrix + kVector;

std::vector<Tensor> with_gradients(Tape& tape, DType dtype) {
  const auto of_layer = [&](const char* name, const Shape& shape, Parameter::Role role) {
    return tape.parameter(name, shape, dtype, role, true);
  };
  std::vector<Tensor> parameters;
  parameters.push_back(of_layer("layers.0.weight", shape_of({64, 128}), Parameter::Role::matrix));
  parameters.push_back(of_layer("layers.0.bias", shape_of({128}), Parameter::Role::bias));
  tape.backward(mean_all(parameters[0] * parameters[1]));
  return parameters;
}

struct Case {
  const char* name;
  Optimizer optimizer;
  DType dtype;
  Bytes states;
  Bytes temporaries;  // of a later step
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class OptimizerBytes : public testing::TestWithParam<Case> {};

TEST_P(OptimizerBytes, StatesAndTemporaries) {
  Tape tape;
  const std::vector<Tensor> parameters = with_gradients(tape, GetParam().dtype);
  const Bytes before = live_bytes(tape);
  const auto optimizer = make_optimizer(GetParam().optimizer);
  ASSERT_NE(optimizer, nullptr);
  optimizer->step(tape, parameters);
  EXPECT_EQ(live_bytes(tape) - before, GetParam().states);
  const std::size_t start = tape.trace().events.size();
  optimizer->step(tape, parameters);
  EXPECT_EQ(live_bytes(tape) - before, GetParam().states) << "states are made once";
  EXPECT_EQ(peak_bytes(tape.trace(), start) - before - GetParam().states, GetParam().temporaries);
}

// Moments in the parameters' dtype. fused: a counter on the device for each of the two parameters. foreach: square
// roots of all second moments at once. forloop: square root, quotient and the quotient before it, of the largest.
// bitsandbytes: one byte a moment and an fp32 scale per 256, two maps of 256 fp32; below 4096 elements both moments in
// fp32.
const Case kCases[] = {
    {"fused_bf16", Optimizer::adamw_fused, DType::bf16, 4 * kAll + 2 * 4, 0},
    {"fused_fp32", Optimizer::adamw_fused, DType::f32, 8 * kAll + 2 * 4, 0},
    {"foreach_bf16", Optimizer::adamw_foreach, DType::bf16, 4 * kAll, 2 * kAll},
    {"foreach_fp32", Optimizer::adamw_foreach, DType::f32, 8 * kAll, 4 * kAll},
    // Momentum of the matrix, AdamW for the vector; the update, its bf16 iterate twice, X X^T and its polynomial [64,
    // 64].
    {"muon_bf16", Optimizer::muon, DType::bf16, 2 * kMatrix + 4 * kVector + 4, 3 * 2 * kMatrix + 2 * 2 * 64 * 64},
    {"muon_fp32", Optimizer::muon, DType::f32, 4 * kMatrix + 8 * kVector + 4,
     4 * kMatrix + 2 * 2 * kMatrix + 2 * 2 * 64 * 64},
    // Rank min(128, 64): the projection [64, 64] and moments [64, 128]. At the end of a step the projected gradient,
    // the denominator, the direction, and the update twice.
    {"galore_bf16", Optimizer::galore_adamw, DType::bf16, 2 * 64 * 64 + 4 * kAll, 5 * 2 * kMatrix},
    {"sgd", Optimizer::sgd, DType::bf16, 0, 0},
    {"sgd_momentum", Optimizer::sgd_momentum, DType::bf16, 2 * kAll, 0},
    {"bnb_8bit", Optimizer::adamw_8bit, DType::bf16, 2 * kMatrix + 2 * 4 * kMatrix / 256 + 8 * kVector + 2 * 256 * 4,
     0},
};

INSTANTIATE_TEST_SUITE_P(Cases, OptimizerBytes, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

class ClipGradNorm : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Dtypes, ClipGradNorm, testing::Values(DType::bf16, DType::f32),
                         [](const auto& row) { return std::string(ledger::info(row.param).name); });

TEST_P(ClipGradNorm, TakesScalarsOnly) {
  Tape tape;
  const std::vector<Tensor> parameters = with_gradients(tape, GetParam());
  const Bytes before = live_bytes(tape);
  const std::size_t start = tape.trace().events.size();
  clip_grad_norm(tape, parameters, 1.0);
  EXPECT_EQ(live_bytes(tape), before);
  // Two norms, their stack; total norm, + 1e-6, reciprocal and the scaled coefficient: at most seven numbers at once.
  EXPECT_LE(peak_bytes(tape.trace(), start) - before, 7 * element_bytes(GetParam()));
}

TEST(OptimizerStep, LeavesParametersWithoutGradientAlone) {
  Tape tape({.operands = true});
  const std::vector<Tensor> parameters = {leaf(tape, shape_of({4})), leaf(tape, shape_of({4}))};
  tape.backward(mean_all(pow(parameters[0], 2)));
  clip_grad_norm(tape, parameters, 1.0);
  make_optimizer(Optimizer::adamw_fused)->step(tape, parameters);
  EXPECT_EQ(runs(tape.trace(), OpKind::adamw), 1u);
  EXPECT_EQ(runs(tape.trace(), OpKind::mul_inplace), 1u);
}

// transformers trainer.py, register_module_override for every nn.Embedding: whatever a family calls it.
TEST(OptimizerStep, EightBitStatesAreNotForEmbeddings) {
  const auto config = read_model_config(
      R"({"model_type":"gpt2","n_embd":64,"n_layer":1,"n_head":4,"vocab_size":1000,"n_positions":128})");
  const auto recipe = read_recipe(R"({"optimizer":"adamw_8bit","seq":16})");
  const Trace trace = trace_step(config.value(), recipe.value()).value();
  std::map<std::uint64_t, int> in_32_bits;  // by elements
  for (const StorageInfo& storage : trace.storages) {
    if (storage.category == Category::optimizer_states && storage.dtype == DType::f32) ++in_32_bits[storage.bytes / 4];
  }
  EXPECT_EQ(in_32_bits[64 * 1000], 2) << "both moments of wte, which is the head, too";
  EXPECT_EQ(in_32_bits[64 * 128], 2) << "of wpe";
  EXPECT_EQ(in_32_bits[64 * 64], 0) << "attn.c_proj's are bytes";
}

struct Outer {
  const char* name;
  const char* config;
  std::map<std::uint64_t, int>
      states;  // by elements: Muon's momentum of each matrix, AdamW's two of each table of words
};

// Each family calls embedding and output layer something else; Muon's momentum is one per matrix of the layers.
TEST(OptimizerStep, MuonLeavesWhateverIsOutsideTheLayersAlone) {
  const Outer cases[] = {
      {"t5",
       R"({"model_type":"t5","d_model":32,"d_ff":48,"d_kv":8,"num_heads":4,"num_layers":1,"vocab_size":100})",
       {{32 * 32, 3 * 4}, {32 * 48, 2 * 2}, {32 * 100, 2}}},
      {"internlm2",
       R"({"model_type":"internlm2","hidden_size":32,"intermediate_size":48,"num_hidden_layers":1,
           "num_attention_heads":4,"num_key_value_heads":4,"vocab_size":100})",
       {{3 * 32 * 32, 1}, {32 * 32, 1}, {32 * 48, 3}, {32 * 100, 4}}},
      {"gpt_neox",
       R"({"model_type":"gpt_neox","hidden_size":32,"intermediate_size":48,"num_hidden_layers":1,
           "num_attention_heads":4,"vocab_size":100})",
       {{3 * 32 * 32, 1}, {32 * 32, 1}, {32 * 48, 2}, {32 * 100, 4}}},
  };
  const Recipe muon = read_recipe(R"({"optimizer":"muon","seq":16,"precision":"bf16"})").value();
  for (const Outer& row : cases) {
    const Trace trace = trace_step(read_model_config(row.config).value(), muon).value();
    std::map<std::uint64_t, int> states;
    for (const StorageInfo& storage : trace.storages) {
      const Bytes elements = storage.bytes / element_bytes(storage.dtype);
      if (storage.category == Category::optimizer_states && elements >= 32 * 32) ++states[elements];
    }
    EXPECT_EQ(states, row.states) << row.name;
  }
}

TEST(OptimizerStep, ClippingNothingIsNoError) {
  Tape tape;
  const Tensor frozen = leaf(tape, shape_of({4}));
  clip_grad_norm(tape, {frozen}, 1.0);
  EXPECT_EQ(live_bytes(tape), 16u);
}

}  // namespace
}  // namespace ledger
