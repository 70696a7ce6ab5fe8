// What each operator keeps for backward: PyTorch's derivatives.yaml, row by row. A tensor named in a gradient formula
// is saved when the input whose formula names it needs a gradient; sizes and dtypes cost nothing.
#include <gtest/gtest.h>

#include "core/models/attention.h"
#include "core/trace/fused_ops.h"
#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

struct Input {
  Sizes sizes;
  bool trainable = true;
  DType dtype = DType::f32;
};

using Inputs = std::vector<Tensor>;

struct Case {
  const char* name;
  std::vector<Input> inputs;
  Tensor (*op)(const Inputs&);
  const char* saved;  // "in0 in1 out", then what else was born in the operator, as dtype[shape]
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class Saves : public testing::TestWithParam<Case> {};

TEST_P(Saves, WhatItsFormulaNames) {
  Tape tape;
  Inputs leaves, inputs;
  std::vector<StorageId> names;
  for (const Input& input : GetParam().inputs) {
    leaves.push_back(leaf(tape, shape_of(input.sizes), input.trainable, input.dtype));
    inputs.push_back(input_of(leaves.back()));
    names.push_back(id_of(inputs.back()));
  }
  Tensor out = GetParam().op(inputs);
  const StorageId out_id = id_of(out);
  const Tensor root = out + 0.0;  // keeps the graph and nothing else
  inputs.clear();
  out.reset();
  std::string saved;
  for (StorageId id = 0; id < tape.trace().storages.size(); ++id) {
    const auto input = std::find(names.begin(), names.end(), id);
    const bool is_leaf = id < leaves.size() * 2 && input == names.end();
    if (is_leaf || id == id_of(root) || !alive(tape, id)) continue;
    saved += saved.empty() ? "" : " ";
    if (input != names.end()) {
      saved += "in" + std::to_string(input - names.begin());
    } else {
      saved += id == out_id ? "out" : shown(tape.trace().storages[id]);
    }
  }
  EXPECT_EQ(saved, GetParam().saved);
}

constexpr bool kFrozen = false;

const Case kElementwise[] = {
    {"add", {{{2, 3}}, {{2, 3}}}, [](const Inputs& in) { return in[0] + in[1]; }, ""},
    {"mul", {{{2, 3}}, {{2, 3}}}, [](const Inputs& in) { return in[0] * in[1]; }, "in0 in1"},
    {"mul_by_frozen", {{{2, 3}}, {{2, 3}, kFrozen}}, [](const Inputs& in) { return in[0] * in[1]; }, "in1"},
    {"mul_of_frozen", {{{2, 3}, kFrozen}, {{2, 3}}}, [](const Inputs& in) { return in[0] * in[1]; }, "in0"},
    {"mul_frozen_both", {{{2, 3}, kFrozen}, {{2, 3}, kFrozen}}, [](const Inputs& in) { return in[0] * in[1]; }, ""},
    {"mul_with_itself_once", {{{2, 3}}}, [](const Inputs& in) { return in[0] * in[0]; }, "in0"},
    {"mul_scalar", {{{2, 3}}}, [](const Inputs& in) { return in[0] * 3.0; }, ""},
    {"add_scalar", {{{2, 3}}}, [](const Inputs& in) { return in[0] + 3.0; }, ""},
    {"div_scalar", {{{2, 3}}}, [](const Inputs& in) { return in[0] / 3.0; }, ""},
    {"neg", {{{2, 3}}}, [](const Inputs& in) { return neg(in[0]); }, ""},
    {"pow", {{{2, 3}}}, [](const Inputs& in) { return pow(in[0], 2); }, "in0"},
    {"pow_frozen", {{{2, 3}, kFrozen}}, [](const Inputs& in) { return pow(in[0], 2); }, ""},
    {"rsqrt_saves_its_result", {{{2, 3}}}, [](const Inputs& in) { return rsqrt(in[0]); }, "out"},
    {"silu_saves_its_input", {{{2, 3}}}, [](const Inputs& in) { return silu(in[0]); }, "in0"},
    {"silu_frozen", {{{2, 3}, kFrozen}}, [](const Inputs& in) { return silu(in[0]); }, ""},
    {"cast", {{{2, 3}}}, [](const Inputs& in) { return to(in[0], DType::bf16); }, ""},
    {"clone", {{{2, 3}}}, [](const Inputs& in) { return clone(in[0]); }, ""},
    {"mean_last", {{{2, 3}}}, [](const Inputs& in) { return mean_last(in[0]); }, ""},
    {"mean_all", {{{2, 3}}}, [](const Inputs& in) { return mean_all(in[0]); }, ""},
    {"cat", {{{2, 3}}, {{2, 3}}}, [](const Inputs& in) { return cat(in[0], in[1], -1); }, ""},
    {"contiguous_copy", {{{2, 3}}}, [](const Inputs& in) { return contiguous(transpose(in[0], 0, 1)); }, ""},
};

// Views save nothing, but what is saved through a view is its whole storage.
const Case kViews[] = {
    {"transpose", {{{2, 3}}}, [](const Inputs& in) { return clone(transpose(in[0], 0, 1)); }, ""},
    {"slice", {{{2, 6}}}, [](const Inputs& in) { return clone(slice(in[0], 1, 2, plain(2))); }, ""},
    {"expand",
     {{{1, 3}}},
     [](const Inputs& in) {
       return clone(expand(in[0], shape_of({4, 3})));
     },
     ""},
    {"reshape",
     {{{2, 6}}},
     [](const Inputs& in) {
       return clone(reshape(in[0], shape_of({3, 4})));
     },
     ""},
    {"slice_saved_by_silu", {{{2, 6}}}, [](const Inputs& in) { return silu(slice(in[0], 1, 2, plain(2))); }, "in0"},
    {"two_slices_are_one_storage",
     {{{2, 6}}},
     [](const Inputs& in) { return slice(in[0], 1, 0, plain(3)) * slice(in[0], 1, 3, plain(3)); },
     "in0"},
};

const Case kMatrices[] = {
    {"mm", {{{2, 3}}, {{3, 4}}}, [](const Inputs& in) { return mm(in[0], in[1]); }, "in0 in1"},
    {"mm_frozen_weight_drops_input",
     {{{2, 3}}, {{3, 4}, kFrozen}},
     [](const Inputs& in) { return mm(in[0], in[1]); },
     "in1"},
    {"mm_frozen_input_drops_weight",
     {{{2, 3}, kFrozen}, {{3, 4}}},
     [](const Inputs& in) { return mm(in[0], in[1]); },
     "in0"},
    {"addmm_never_its_bias",
     {{{4}}, {{2, 3}}, {{3, 4}}},
     [](const Inputs& in) { return addmm(in[0], in[1], in[2]); },
     "in1 in2"},
    {"addmm_only_bias_trained",
     {{{4}}, {{2, 3}, kFrozen}, {{3, 4}, kFrozen}},
     [](const Inputs& in) { return addmm(in[0], in[1], in[2]); },
     ""},
    {"linear", {{{2, 5, 3}}, {{4, 3}}}, [](const Inputs& in) { return linear(in[0], in[1], Tensor()); }, "in0 in1"},
    {"linear_frozen_weight",
     {{{2, 5, 3}}, {{4, 3}, kFrozen}},
     [](const Inputs& in) { return linear(in[0], in[1], Tensor()); },
     "in1"},
    {"two_linears_share_their_input",
     {{{5, 3}}, {{4, 3}}, {{4, 3}}},
     [](const Inputs& in) { return linear(in[0], in[1], Tensor()) + linear(in[0], in[2], Tensor()); },
     "in0 in1 in2"},
};

// Flash attention: logsumexp fp32 [b,nh,s] and two random states beside q, k, v and its result.
const Case kTables[] = {
    {"embedding_saves_ids",
     {{{7, 4}}, {{2, 3}, kFrozen, DType::i64}},
     [](const Inputs& in) { return embedding(in[0], in[1]); },
     "in1"},
    {"embedding_frozen",
     {{{7, 4}, kFrozen}, {{2, 3}, kFrozen, DType::i64}},
     [](const Inputs& in) { return embedding(in[0], in[1]); },
     ""},
    {"log_softmax_saves_its_result", {{{2, 7}}}, [](const Inputs& in) { return log_softmax(in[0]); }, "out"},
    {"nll_loss_and_its_total_weight",
     {{{2, 7}}, {{2}, kFrozen, DType::i64}},
     [](const Inputs& in) { return nll_loss(in[0], in[1]); },
     "in0 in1 fp32[]"},
    {"cross_entropy_shares_log_softmax",
     {{{2, 7}}, {{2}, kFrozen, DType::i64}},
     [](const Inputs& in) { return nll_loss(log_softmax(in[0]), in[1]); },
     "in1 fp32[2,7] fp32[]"},
    {"flash_attention",
     {{{1, 4, 6, 8}, true, DType::bf16}, {{1, 2, 6, 8}, true, DType::bf16}, {{1, 2, 6, 8}, true, DType::bf16}},
     [](const Inputs& in) { return flash_attention(in[0], in[1], in[2]); },
     "in0 in1 in2 out fp32[1,4,6] uint8[16] uint8[8]"},
    {"efficient_attention_with_narrower_values",
     {{{1, 4, 6, 16}, true, DType::bf16}, {{1, 4, 6, 16}, true, DType::bf16}, {{1, 4, 6, 8}, true, DType::bf16}},
     [](const Inputs& in) { return efficient_attention(in[0], in[1], in[2]); },
     "in0 in1 in2 out fp32[1,4,32] int64[] int64[]"},
    {"attention_with_sinks_keeps_probabilities_and_places",
     {{{1, 2, 6, 8}, true, DType::bf16},
      {{1, 2, 6, 8}, true, DType::bf16},
      {{1, 2, 6, 8}, true, DType::bf16},
      {{1, 1, 6, 6}, kFrozen, DType::bf16},
      {{2}, true, DType::bf16}},
     [](const Inputs& in) { return attend_with_sinks(in[0], in[1], in[2], in[3], in[4], {}).output; },
     "in0 in1 in2 int64[1,2,6,1] bf16[1,2,6,7]"},
};

// The sum lies where in1 was.
const Case kFused[] = {
    {"add_rms_norm",
     {{{2, 3}}, {{2, 3}}, {{3}}},
     [](const Inputs& in) { return add_rms_norm(in[0], in[1], in[2], 1e-6).y; },
     "in1 in2 fp32[2,1]"},
    {"rms_norm_of_the_residual_alone",
     {{{2, 3}}, {{3}, kFrozen}},
     [](const Inputs& in) { return add_rms_norm(in[0], Tensor(), in[1], 1e-6).y; },
     "in0 in1 fp32[2,1]"},
    {"rope_keeps_frequencies",
     {{{2, 3, 2, 4}}, {{2}, kFrozen}},
     [](const Inputs& in) { return rope_inplace(in[0], in[1]); },
     "in1"},
    {"swiglu", {{{2, 3}}, {{2, 3}}}, [](const Inputs& in) { return swiglu(in[0], in[1]); }, "in0 in1"},
    {"own_attention",
     {{{1, 4, 6, 8}, true, DType::bf16}, {{1, 2, 6, 8}, true, DType::bf16}, {{1, 2, 6, 8}, true, DType::bf16}},
     [](const Inputs& in) { return own_attention(in[0], in[1], in[2]); },
     "in0 in1 in2 out fp32[1,4,6]"},
};

const Case kRouting[] = {
    {"clamp_saves_its_input", {{{2, 3}}}, [](const Inputs& in) { return clamp(in[0], 7); }, "in0"},
    {"max_saves_places", {{{2, 3}}}, [](const Inputs& in) { return max_last(in[0]).values; }, "int64[2,1]"},
    {"gather_saves_places",
     {{{2, 3}}, {{2, 2}, kFrozen, DType::i64}},
     [](const Inputs& in) { return gather(in[0], in[1]); },
     "in1"},
    {"masked_fill_saves_its_mask",
     {{{2, 3}}, {{2, 3}, kFrozen, DType::boolean}},
     [](const Inputs& in) { return masked_fill(in[0], in[1], 0); },
     "in1"},
    {"scatter_saves_places",
     {{{2, 2}}, {{2, 2}, kFrozen, DType::i64}},
     [](const Inputs& in) {
       return clone(scatter_inplace(zeros(in[0].tape(), shape_of({2, 3}), DType::f32), in[1], in[0]));
     },
     "in1"},
    {"complex_mul_saves_its_turns",
     {{{2, 4}}, {{2, 4}, kFrozen}},
     [](const Inputs& in) { return complex_mul(in[0], in[1]); },
     "in1"},
    {"pad_right", {{{2, 3}}}, [](const Inputs& in) { return pad_right(in[0], plain(5), 0); }, ""},
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Elementwise, Saves, testing::ValuesIn(kElementwise), name_of);
INSTANTIATE_TEST_SUITE_P(Views, Saves, testing::ValuesIn(kViews), name_of);
INSTANTIATE_TEST_SUITE_P(Matrices, Saves, testing::ValuesIn(kMatrices), name_of);
INSTANTIATE_TEST_SUITE_P(Tables, Saves, testing::ValuesIn(kTables), name_of);
INSTANTIATE_TEST_SUITE_P(Fused, Saves, testing::ValuesIn(kFused), name_of);
INSTANTIATE_TEST_SUITE_P(Routing, Saves, testing::ValuesIn(kRouting), name_of);

TEST(SavedTensors, NothingIsKeptWithoutGrad) {
  Tape tape;
  const Tensor w = leaf(tape, shape_of({4, 4}));
  const Tape::NoGrad no_grad(tape);
  Tensor out = silu(mm(w * 1.0, w));
  EXPECT_FALSE(out.requires_grad());
  out.reset();
  EXPECT_EQ(live_bytes(tape), 64u);  // the parameter: 4 x 4 x 4
}

TEST(SavedTensors, DroppingTheRootDropsTheGraph) {
  Tape tape;
  const Tensor w = leaf(tape, shape_of({4, 4}));
  Tensor out = silu(silu(silu(w)));
  EXPECT_EQ(live_bytes(tape), 4 * 64u);  // w, both inner results (saved), out
  out.reset();
  EXPECT_EQ(live_bytes(tape), 64u);
}

TEST(SavedTensors, GraphsAsDeepAsWeLikeDieWithoutRecursion) {
  Tape tape;
  const Tensor w = leaf(tape, shape_of({4}));
  Tensor out = w;
  for (int i = 0; i < 50000; ++i)
    out = neg(out);
  out.reset();
  EXPECT_EQ(live_bytes(tape), 16u);
}

// Tensor size 0 (an empty slice of a batch) has no memory and no events.
TEST(SavedTensors, EmptyTensorsLeaveNoEvents) {
  Tape tape;
  const Tensor empty = zeros(tape, shape_of({0, 4}), DType::f32);
  EXPECT_EQ(id_of(empty), kNoStorage);
  EXPECT_EQ(story(tape.trace()), "");
}

}  // namespace
}  // namespace ledger
