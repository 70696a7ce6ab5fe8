// The Llama decoder's memory as formulas, and its parameters as state dicts name them.
//
// Letters: T = b*s tokens, H hidden, F ffn, Dq = nh*d, Dkv = nkv*d, V vocabulary, L layers. Source of the per-layer
// formulas: saved tensors of transformers 5.12 modeling_llama.py by PyTorch's derivatives.yaml (docs/memory-model.md).
#include "core/models/llama.h"

#include <gtest/gtest.h>

#include "core/memory/replay.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

struct Shape3 {
  const char* name;
  std::uint64_t h, ffn, nh, nkv, d, V, b, s;

  std::uint64_t tokens() const { return b * s; }
  std::uint64_t q() const { return nh * d; }
  std::uint64_t kv() const { return nkv * d; }
  std::uint64_t linear_weights() const { return 2 * h * q() + 2 * h * kv() + 3 * h * ffn; }
  std::uint64_t layer_params() const { return linear_weights() + 2 * h; }
};

void PrintTo(const Shape3& shape, std::ostream* out) {
  *out << shape.name;
}

constexpr Shape3 kShapes[] = {
    {"llama_like", 64, 160, 4, 4, 16, 97, 1, 32},
    {"grouped", 64, 160, 8, 2, 8, 97, 2, 16},
    {"one_kv_head", 48, 77, 6, 1, 8, 51, 3, 7},
    {"heads_wider_than_hidden", 40, 33, 5, 5, 24, 101, 1, 13},
    {"heads_narrower_than_hidden", 72, 19, 2, 1, 10, 11, 5, 3},
    {"one_token", 64, 128, 4, 2, 16, 13, 1, 1},
};

class LlamaShapes : public testing::TestWithParam<Shape3> {
 protected:
  // Live tensor bytes when the first forward pass has ended.
  Bytes after_forward(std::uint64_t layers, Settings settings) const {
    const Shape3& n = GetParam();
    ModelConfig config = odd_llama(layers);
    config.hidden_size = n.h;
    config.intermediate_size = n.ffn;
    config.num_attention_heads = n.nh;
    config.num_key_value_heads = n.nkv;
    config.head_dim = n.d;
    config.vocab_size = n.V;
    Recipe recipe = recipe_of(settings);
    recipe.batch = n.b;
    recipe.seq = n.s;
    const Result<Trace> trace = trace_step(config, recipe, {.steps = 1, .weights = {}, .adamw = {}});
    EXPECT_TRUE(trace.ok());
    return trace.ok() ? replay(trace.value(), {}).phases.at(1).end_bytes : 0;
  }

  // What a decoder layer adds: its weights of `weight_bytes` each, and what it keeps for backward.
  Bytes kept_by_a_layer(Settings settings, Bytes weight_bytes) const {
    const Bytes three = after_forward(3, settings), two = after_forward(2, settings), one = after_forward(1, settings);
    EXPECT_EQ(three - two, two - one);
    return three - two - weight_bytes * GetParam().layer_params();
  }
};

INSTANTIATE_TEST_SUITE_P(Odd, LlamaShapes, testing::ValuesIn(kShapes),
                         [](const auto& row) { return std::string(row.param.name); });

// Flash attention's random state and a second small tensor (uint8 [16] and [8]) come with every layer.
constexpr Bytes kRandomState = 16 + 8;

// Two norms: fp32 copy 4H, rsqrt 4, cast product 2H, output 2H each. Attention: q, out 2Dq each, k, v 2Dkv each,
// logsumexp 4nh. MLP: gate, silu, up, product 2F each.
TEST_P(LlamaShapes, LayerInBf16) {
  const Shape3& n = GetParam();
  EXPECT_EQ(kept_by_a_layer({}, 2),
            n.tokens() * (16 * n.h + 4 * n.q() + 4 * n.kv() + 8 * n.ffn + 4 * n.nh + 8) + kRandomState);
}

// Llama's norms are fp32 inside already, and bf16 weights need no cast.
TEST_P(LlamaShapes, LayerInBf16UnderAutocastIsTheSame) {
  EXPECT_EQ(kept_by_a_layer({{"autocast", "true"}}, 2), kept_by_a_layer({}, 2));
}

// fp32 residual stream: norms keep x (it is the residual itself) and its fp32 product, 8H each; q, k and v save a bf16
// copy of the norm's output each, gate and up too: 5 x 2H. Every linear weight's bf16 copy is kept.
TEST_P(LlamaShapes, LayerUnderAutocast) {
  const Shape3& n = GetParam();
  EXPECT_EQ(kept_by_a_layer({{"precision", "amp-bf16"}}, 4),
            n.tokens() * (26 * n.h + 4 * n.q() + 4 * n.kv() + 8 * n.ffn + 4 * n.nh + 8) + 2 * n.linear_weights() +
                kRandomState);
}

TEST_P(LlamaShapes, CheckpointedLayerKeepsItsInput) {
  const Shape3& n = GetParam();
  EXPECT_EQ(kept_by_a_layer({{"checkpointing", "full"}}, 2), 2 * n.h * n.tokens());
  EXPECT_EQ(kept_by_a_layer({{"checkpointing", "full"}, {"precision", "amp-bf16"}}, 4), 4 * n.h * n.tokens());
}

// Outside the layers, bf16: weights of embedding, final norm and head, two buffers of inverse frequencies; final norm
// with its output 8H + 4 a token, log_softmax fp32 4V a token, cos and sin, ids and shifted labels int64; loss, total
// weight.
TEST_P(LlamaShapes, WholeModelInBf16) {
  const Shape3& n = GetParam();
  const Bytes t = n.tokens();
  const Bytes layer = t * (16 * n.h + 4 * n.q() + 4 * n.kv() + 8 * n.ffn + 4 * n.nh + 8) + kRandomState;
  const Bytes weights = 2 * (2 * n.layer_params() + 2 * n.V * n.h + n.h) + 2 * 4 * (n.d / 2);
  const Bytes labels = n.b == 1 ? t + 1 : t;
  const Bytes rest = t * (8 * n.h + 4) + 4 * t * n.V + 2 * 2 * n.s * n.d + 8 * t + 8 * labels + 4 + 4;
  EXPECT_EQ(after_forward(2, {}), weights + 2 * layer + rest);
}

// Check value of the formula for Llama-3-8B, b = 1, s = 4096: 784.53 MiB a layer
// (4096 x (16 x 4096 + 4 x 4096 + 4 x 1024 + 8 x 14336 + 4 x 32 + 8) = 822 640 640).
TEST(Llama, EightBillionsLayerAtFourThousandTokens) {
  ModelConfig config = odd_llama(2);
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  Recipe recipe;
  recipe.seq = 4096;
  const auto after = [&](std::uint64_t layers) {
    config.num_hidden_layers = layers;
    return replay(trace_step(config, recipe).value(), {}).phases.at(1).end_bytes - 2 * parameter_count(config);
  };
  EXPECT_EQ(after(2) - after(1), 822640640u + kRandomState);
}

std::vector<std::string> parameter_names(const ModelConfig& config) {
  std::vector<std::string> names;
  const Trace trace = trace_step(config, Recipe{}).value();
  for (const Parameter& parameter : trace.parameters)
    names.push_back(parameter.name);
  return names;
}

TEST(Llama, ParametersAreNamedAndOrderedAsInStateDicts) {
  const std::vector<std::string> names = {
      "model.embed_tokens.weight",
      "model.layers.0.self_attn.q_proj.weight",
      "model.layers.0.self_attn.k_proj.weight",
      "model.layers.0.self_attn.v_proj.weight",
      "model.layers.0.self_attn.o_proj.weight",
      "model.layers.0.mlp.gate_proj.weight",
      "model.layers.0.mlp.up_proj.weight",
      "model.layers.0.mlp.down_proj.weight",
      "model.layers.0.input_layernorm.weight",
      "model.layers.0.post_attention_layernorm.weight",
      "model.norm.weight",
      "lm_head.weight",
  };
  EXPECT_EQ(parameter_names(odd_llama(1)), names);
}

TEST(Llama, TiedHeadsHaveNoWeightOfTheirOwn) {
  ModelConfig tied = odd_llama(1);
  tied.tie_word_embeddings = true;
  EXPECT_EQ(parameter_names(tied).back(), "model.norm.weight");
}

TEST(Llama, BiasesStandBehindTheirWeights) {
  ModelConfig biased = odd_llama(1);
  biased.attention_bias = true;
  const std::vector<std::string> names = parameter_names(biased);
  EXPECT_EQ(names.size(), 12u + 4u);
  EXPECT_EQ(names.at(1), "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(names.at(2), "model.layers.0.self_attn.q_proj.bias");
}

TEST(Llama, LoadedBytesAreTheParametersAndTwoBuffers) {
  for (const auto& [name, config] : small_configs()) {
    if (config.architecture != Architecture::llama) continue;
    const Trace trace = trace_step(config, Recipe{}).value();
    EXPECT_EQ(replay(trace, {}).phases.front().end_bytes, 2 * parameter_count(config) + 2 * 4 * config.head_dim / 2)
        << name;
  }
}

}  // namespace
}  // namespace ledger
