// torchtitan's mixtures of experts by hand: what a layer keeps for backward, what the exchange of tokens adds, and
// which part of the experts a rank has.
//
// Letters: T = b*s tokens, R = T*k rows of experts, with room for R + 8 E where each expert's are rounded up to eights;
// H hidden, F an expert's width, S that of the experts that every token visits. Source: torchtitan models/moe/moe.py,
// models/deepseek_v3/model/model.py, distributed/expert_parallel.py and PyTorch's derivatives.yaml.
#include "core/models/torchtitan_experts.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/config/model_config.h"
#include "core/memory/replay.h"
#include "core/training/step.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

constexpr std::uint64_t kB = 2, kS = 16, kT = kB * kS, kH = 32, kHeads = 2, kNope = 12, kRope = 4, kV = 8, kLatent = 16;
constexpr std::uint64_t kE = 4, kK = 2, kF = 24, kShared = 2 * kF, kRows = kT * kK, kVocabulary = 97;
constexpr std::uint64_t kWidth = kNope + kRope;  // of a head of queries or keys

// The first layer has an MLP, the others experts.
ModelConfig deepseek(std::uint64_t layers) {
  const std::string json =
      R"({"model_type": "deepseek_v2", "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2,
      "intermediate_size": 40, "vocab_size": 97, "q_lora_rank": null, "kv_lora_rank": 16, "qk_nope_head_dim": 12,
      "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 2,
      "moe_intermediate_size": 24, "first_k_dense_replace": 1, "norm_topk_prob": false, "num_hidden_layers": )" +
      std::to_string(layers) + "}";
  const Result<ModelConfig> config = read_model_config(json);
  EXPECT_TRUE(config.ok());
  return config.ok() ? config.value() : ModelConfig();
}

ModelConfig qwen3(std::uint64_t layers) {
  const std::string json =
      R"({"model_type": "qwen3_moe", "hidden_size": 32, "head_dim": 8, "num_attention_heads": 4,
      "num_key_value_heads": 2, "intermediate_size": 40, "vocab_size": 97, "num_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 24, "norm_topk_prob": true, "num_hidden_layers": )" +
      std::to_string(layers) + "}";
  const Result<ModelConfig> config = read_model_config(json);
  EXPECT_TRUE(config.ok());
  return config.ok() ? config.value() : ModelConfig();
}

Trace traced(const ModelConfig& config, const Settings& settings, std::uint64_t rank = 0) {
  Recipe recipe = recipe_of(settings);
  recipe.batch = kB;
  recipe.seq = kS;
  const Result<Trace> trace = trace_step(config, recipe, {.steps = 1, .weights = {}, .adamw = {}, .rank = rank});
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.problem().where + ": " + trace.problem().expected);
  return trace.ok() ? trace.value() : Trace();
}

Settings on_ranks(const char* dp, const char* ep, const char* checkpointing) {
  return {
      {"stack", "torchtitan-0.2.0"},   {"precision", "fp32"}, {"fsdp", "2"}, {"units", "titan"}, {"dp", dp}, {"ep", ep},
      {"checkpointing", checkpointing}};
}

std::map<OpKind, Bytes> alive_at_backward(const Trace& trace) {
  std::map<StorageId, Bytes> alive;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark && trace.phases[event.id] == "step1.backward") break;
    if (event.type == EventType::alloc) alive[event.id] = trace.storages[event.id].bytes;
    if (event.type == EventType::free) alive.erase(event.id);
  }
  std::map<OpKind, Bytes> sums;
  for (const auto& [id, bytes] : alive)
    sums[trace.storages[id].op] += bytes;
  return sums;
}

// What a layer with experts adds to the end of the first forward pass beside its weights and buffers, all 2 bytes but
// for two buffers of 4 bytes an expert.
Bytes kept_by_a_layer(const char* stack, const char* checkpointing) {
  const auto after_forward = [&](std::uint64_t layers) {
    const ModelConfig config = deepseek(layers);
    const Trace trace = traced(config, {{"stack", stack}, {"checkpointing", checkpointing}});
    return replay(trace, {}).phases.at(1).end_bytes - 2 * parameter_count(config);
  };
  const Bytes four = after_forward(4), three = after_forward(3);
  EXPECT_EQ(three - after_forward(2), four - three);
  return four - three - 2 * 4 * kE;
}

constexpr Bytes kAttended = kT * 2 * kHeads * kV + kB * kHeads * 32 * 4 + 8 + 8;  // result, logsumexp, random state

// Norms: input, a number a token, result. Attention: queries, keys, the product that values are part of, what is normed
// between wkv_a and wkv_b, with its number a token, and that product's input.
constexpr Bytes kNormsAndAttention = 2 * kT * (2 * kH + 4 + 2 * kH) + 2 * kT * 2 * kHeads * kWidth +
                                     kT * 2 * kHeads * (kNope + kV) + kT * 2 * (kLatent + kRope) + kT * 4 +
                                     kT * 2 * kLatent + kAttended;

// The router: scores in fp32, the chosen ones' places and values; the order of rows, and where each comes from.
// Experts: rows and the four tensors of SwiGLU, in all the room there is, where each row stands in it (int32), ends;
// what they made in fp32, to be scaled. The shared ones: four tensors.
TEST(TitanExperts, ALayerKeepsWhatItsOperatorsSave) {
  constexpr std::uint64_t kRoom = kRows + 8 * kE;
  constexpr Bytes router = kT * kE * 4 + kRows * 8 + kRows * 4 + 2 * kRows * 8;
  constexpr Bytes experts = kRoom * (2 * kH + 4 * 2 * kF + 4) + kE * 4 + kRows * 4 * kH;
  constexpr Bytes shared = kT * 4 * 2 * kShared;
  for (const char* stack : {"torchtitan", "torchtitan-0.2.0"})
    EXPECT_EQ(kept_by_a_layer(stack, "none"), kNormsAndAttention + router + experts + shared) << stack;
}

// Of eight products the odd ones: wq, wkv_b, the router's and the shared w3's; experts' products are on no list.
TEST(TitanExperts, SelectiveCheckpointingKeepsEveryOtherProduct) {
  constexpr Bytes products = kT * 2 * (kHeads * kWidth + kHeads * (kNope + kV) + kE + kShared);
  for (const char* stack : {"torchtitan", "torchtitan-0.2.0"}) {
    EXPECT_EQ(kept_by_a_layer(stack, "selective"), kT * 2 * kH + kAttended + products) << stack;
    EXPECT_EQ(kept_by_a_layer(stack, "full"), kT * 2 * kH) << stack;
  }
}

// DeepSeek's list has the all-to-alls, two a layer; Qwen's has not.
TEST(TitanExperts, SelectiveCheckpointingKeepsWhatWasExchanged) {
  const auto exchanged = [](const ModelConfig& config, const char* checkpointing) {
    return alive_at_backward(traced(config, on_ranks("2", "2", checkpointing)))[OpKind::all_to_all];
  };
  EXPECT_EQ(exchanged(deepseek(4), "selective"), 3 * 2 * kRows * 2 * kH);
  EXPECT_EQ(exchanged(deepseek(4), "full"), 0u);
  EXPECT_EQ(exchanged(qwen3(4), "selective"), 0u);
}

std::map<OpKind, int> made(const Trace& trace) {
  std::map<OpKind, int> counts;
  for (const StorageInfo& storage : trace.storages)
    ++counts[storage.op];
  return counts;
}

// Embedding, three layers, experts of two of them, and the head, which stays; a recomputation gathers experts for the
// backward pass that follows. One rank alone has nothing to gather, but casts.
TEST(TitanExperts, ExpertsAreAUnitOfTheirOwn) {
  for (const char* checkpointing : {"none", "full", "selective"}) {
    const Trace among = traced(deepseek(3), on_ranks("4", "2", checkpointing));
    EXPECT_EQ(made(among)[OpKind::all_gather], 7 + 6) << checkpointing;
    EXPECT_EQ(made(among)[OpKind::reduce_scatter], 7) << checkpointing;
    EXPECT_EQ(made(traced(deepseek(3), on_ranks("2", "2", checkpointing)))[OpKind::all_gather], 5 + 4);
    EXPECT_EQ(made(traced(deepseek(3), on_ranks("4", "1", checkpointing)))[OpKind::all_gather], 5 + 4);
  }
}

// A layer that runs has had the next one and its experts gathered before it; the last one, the head.
TEST(TitanExperts, LayersNameWhatIsGatheredNext) {
  const Trace trace = traced(qwen3(3), on_ranks("4", "2", "none"));
  int gathers = 0;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark && trace.phases[event.id] == "step1.backward") break;
    if (event.type != EventType::alloc) continue;
    const StorageInfo& storage = trace.storages[event.id];
    gathers += storage.op == OpKind::all_gather;
    // Embedding, the first two layers, the second one's experts; then the first one's, when they run; and so on.
    constexpr int kGathers[] = {4, 7, 8};
    if (storage.op != OpKind::cudnn_attention || storage.dtype != DType::bf16) continue;
    EXPECT_EQ(gathers, kGathers[storage.layer]) << storage.layer;
  }
}

TEST(TitanExperts, ARankHasItsPartOfItsExperts) {
  const std::uint64_t matrix = kF * kH;
  std::uint64_t held = 0;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const Trace trace = traced(deepseek(2), on_ranks("4", "2", "none"), rank);
    for (const Parameter& p : trace.parameters) {
      held += p.held;
      if (!p.name.ends_with(".experts.w1")) continue;
      EXPECT_EQ(p.name, "layers.1.moe.experts.w1");
      EXPECT_EQ(p.elements, kE / 2 * matrix);
      EXPECT_EQ(p.held, matrix) << "one expert";
      EXPECT_EQ(p.first, rank / 2 * matrix);
      EXPECT_EQ(p.cut.piece, kE / 2 * matrix);
      EXPECT_EQ(p.cut.stride, kE * matrix);
      EXPECT_EQ(p.cut.offset, rank % 2 * kE / 2 * matrix);
    }
  }
  EXPECT_EQ(held, parameter_count(deepseek(2)));
}

// torchtitan's "16B" (DeepSeek-V2-Lite): its log says 15,706,484,224 parameters.
TEST(TitanExperts, CountsDeepSeeks16B) {
  const Result<ModelConfig> config = read_model_config(
      R"({"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27,
      "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "n_routed_experts": 64,
      "num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
      "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})");
  ASSERT_TRUE(config.ok());
  std::uint64_t held = 0;
  for (const Parameter& p : traced(config.value(), on_ranks("8", "8", "full"), 3).parameters)
    held += p.held;
  EXPECT_EQ(parameter_count(config.value()), 15706484224u);
  EXPECT_EQ(held, 15706484224u / 8);
}

// Layers are not compiled, whatever `compile` is: the configurations for these models compile the loss alone.
TEST(TitanExperts, CompileMeansTheLoss) {
  const Settings plain = {{"stack", "torchtitan"}}, compiled = {{"stack", "torchtitan"}, {"compile", "true"}};
  std::map<OpKind, int> before = made(traced(deepseek(2), plain)), after = made(traced(deepseek(2), compiled));
  EXPECT_EQ(after[OpKind::silu], before[OpKind::silu]);
  EXPECT_GT(after[OpKind::compiled], 0);
  EXPECT_EQ(after[OpKind::log_softmax], 0);
}

}  // namespace
}  // namespace ledger
