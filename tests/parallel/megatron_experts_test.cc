// Mixtures of experts on the stack `megatron`: what a layer of them keeps, what each kind of cut leaves on a rank, and
// who shares what with whom.
#include <gtest/gtest.h>

#include "core/answer/prediction.h"
#include "core/answer/remarks.h"
#include "core/parallel/mesh_of.h"
#include "core/training/megatron_step.h"

namespace ledger {
namespace {

ModelConfig mixture(const std::string& more = "") {
  const Result<ModelConfig> config = read_model_config(
      R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 1024, "num_local_experts": 8,
          "num_experts_per_tok": 2)" +
      more + "}");
  EXPECT_TRUE(config.ok());
  return config.value();
}

Recipe on_megatron() {
  Recipe r;
  r.stack = Stack::megatron;
  r.precision = Precision::megatron_bf16;
  r.batch = 2;
  r.seq = 64;
  return r;
}

// Without the tensors that stand for gradients which products add up themselves.
Replay replayed(const ModelConfig& config, const Recipe& recipe) {
  const Result<Trace> trace = trace_megatron(config, recipe, 0, {.gradient_accumulation_fusion = false});
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.problem().where + ": " + trace.problem().expected);
  return trace.ok() ? replay(trace.value(), {}) : Replay{};
}

Bytes kept_by_a_layer(ModelConfig config, const Recipe& recipe) {
  const auto kept = [&](std::uint64_t layers) {
    config.num_hidden_layers = layers;
    if (!config.moe.layers.empty()) config.moe.layers.assign(static_cast<std::size_t>(layers), true);
    const Replay r = replayed(config, recipe);
    return r.phases[1].end_bytes - r.phases[0].end_bytes;
  };
  return (kept(4) - kept(2)) / 2;
}

// What a token dispatcher holds from one micro-batch to the next: probabilities, the map, the places of all visits.
Bytes held_by_dispatcher(const ModelConfig& c, std::uint64_t tokens) {
  return tokens * c.moe.experts * (2 + 1) + 8 * tokens * c.moe.per_token;
}

// In place of a plain layer's 4 ffn and 2 ffn a token. A visit: 2 h of its input, 4 ffn and 2 ffn, its probability
// twice (before and after chunks were swapped, of which the first goes) and its place; a token: places and
// probabilities in fp32 of its experts; a pair: where it was sorted from, its probability and its bit of the map.
Bytes experts_keep(const ModelConfig& c, std::uint64_t tokens, std::uint64_t visits, std::uint64_t etp) {
  const std::uint64_t here = visits * etp, sent = visits * 8 + tokens * c.moe.experts * 8;
  const std::uint64_t routed = tokens * c.moe.per_token * (8 + 4) + tokens * c.moe.experts * 3;
  return here * (2 * c.hidden_size + 6 * c.moe.width / etp + 2) + sent + routed;
}

Bytes plain_layer_keeps(const ModelConfig& c, std::uint64_t tokens, std::uint64_t tp) {
  return tokens * 6 * c.intermediate_size / tp;
}

TEST(MegatronExperts, ALayerKeepsItsVisits) {
  const ModelConfig experts = mixture();
  ModelConfig plain = experts;
  plain.moe = {};
  const Recipe r = on_megatron();
  const std::uint64_t tokens = r.batch * r.seq, visits = tokens * 2;
  EXPECT_EQ(kept_by_a_layer(experts, r) - kept_by_a_layer(plain, r) + plain_layer_keeps(plain, tokens, 1),
            experts_keep(experts, tokens, visits, 1));
}

// Balanced experts bring as many visits as they take away. Where their matrices are cut, every rank of those that share
// them computes all that come to one of them.
TEST(MegatronExperts, ARankKeepsAsManyVisitsAsItSends) {
  const ModelConfig experts = mixture();
  ModelConfig plain = experts;
  plain.moe = {};
  Recipe r = on_megatron();
  r.dp = 4;
  const Bytes alone = kept_by_a_layer(experts, r);
  r.ep = 4;
  EXPECT_EQ(kept_by_a_layer(experts, r), alone);
  r.dp = r.tp = 2;
  r.ep = 2;
  r.sequence_parallel = true;
  Recipe without = r;
  without.ep = 1;
  const std::uint64_t tokens = r.batch * r.seq / r.tp, visits = tokens * 2;
  const Bytes rest = kept_by_a_layer(plain, without) - plain_layer_keeps(plain, r.batch * r.seq, r.tp);
  EXPECT_EQ(kept_by_a_layer(experts, r) - rest, experts_keep(experts, tokens, visits, 2));
  r.etp = 1;
  EXPECT_EQ(kept_by_a_layer(experts, r) - rest, experts_keep(experts, tokens, visits, 1));
}

// 6 bytes of a rank's own, and 12 of its share among those that have the same: dp of what is no expert's, dp / ep of
// experts.
TEST(MegatronExperts, ExpertsAreSharedAmongFewerRanks) {
  const ModelConfig c = mixture();
  const std::uint64_t experts = 2 * 8 * 3 * c.hidden_size * c.moe.width, rest = parameter_count(c) - experts;
  Recipe r = on_megatron();
  r.zero = 1;
  r.dp = 8;
  for (const std::uint64_t ep : {1u, 2u, 4u, 8u}) {
    r.ep = ep;
    const std::uint64_t own = experts / ep;
    const Bytes held = c.num_hidden_layers * held_by_dispatcher(c, r.batch * r.seq);
    EXPECT_EQ(replayed(c, r).phases.back().end_bytes - held - 4 * r.seq * c.head_dim - 2 * c.head_dim,
              6 * (rest + own) + 12 * divide_up(rest, 8) + 12 * divide_up(own, 8 / ep))
        << ep;
  }
}

TEST(MegatronExperts, RanksAreNumberedOnceMoreForTheirExperts) {
  Recipe r = on_megatron();
  r.tp = 2;
  r.dp = 4;
  r.pp = 2;
  r.ep = 2;
  const Mesh mesh = mesh_of(r);  // etp 2: as tp
  using Ranks = std::vector<std::uint64_t>;
  EXPECT_EQ(mesh.members(5, RankGroup::expert_tensor), (Ranks{4, 5}));
  EXPECT_EQ(mesh.members(5, RankGroup::expert), (Ranks{5, 7}));
  EXPECT_EQ(mesh.members(5, RankGroup::expert_data), (Ranks{1, 5}));
  EXPECT_EQ(mesh.members(13, RankGroup::expert_data), (Ranks{9, 13}));
  EXPECT_EQ(mesh.members(5, RankGroup::expert_model), (Ranks{4, 5, 6, 7, 12, 13, 14, 15}));
  r.etp = 1;
  const Mesh whole = mesh_of(r);
  EXPECT_EQ(whole.members(5, RankGroup::expert), (Ranks{4, 5}));
  EXPECT_EQ(whole.members(5, RankGroup::expert_data), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(whole.members(5, RankGroup::tensor), (Ranks{4, 5})) << "other groups are as they were";
}

TEST(MegatronExperts, WhatCannotBeCutSoIsRefused) {
  const ModelConfig c = mixture();
  const auto refused = [&](void (*set)(Recipe&), const ModelConfig& config) {
    Recipe r = on_megatron();
    set(r);
    const auto problem = unsupported_in_megatron(config, r);
    return problem ? problem->where + ": " + problem->expected : "";
  };
  EXPECT_EQ(refused([](Recipe&) {}, c), "");
  EXPECT_EQ(refused([](Recipe& r) { r.dp = r.ep = 3; }, c), "ep: ep_divides_the_experts");
  EXPECT_EQ(refused([](Recipe& r) { r.dp = 2, r.ep = 4; }, c), "ep: ep_divides_the_ranks");
  EXPECT_EQ(refused([](Recipe& r) { r.dp = r.etp = 5; }, c), "etp: etp_cuts_the_experts_width");
  EXPECT_EQ(refused([](Recipe& r) { r.tp = 2; }, c), "sequence_parallel: experts_want_the_sequence_cut");
  ModelConfig plain = c;
  plain.moe = {};
  EXPECT_EQ(refused([](Recipe& r) { r.dp = r.ep = 2; }, plain), "ep: ep_needs_experts");
  EXPECT_EQ(refused([](Recipe& r) { r.etp = 1; }, plain), "ep: ep_needs_experts");
  ModelConfig grouped = c;
  grouped.moe.groups = 2;
  EXPECT_EQ(refused([](Recipe&) {}, grouped), "stack: megatron_builds_gpt_and_llama");
}

TEST(MegatronExperts, BalanceIsNamedWhereSizesDependOnIt) {
  Recipe r = on_megatron();
  r.dp = 2;
  const auto names_it = [&] {
    const Result<Prediction> p = predict_run(mixture(), r);
    EXPECT_TRUE(p.ok());
    JsonWriter out;
    out.begin_object();
    write_remarks(out, p.value());
    out.end_object();
    return out.take().find("router_imbalance") != std::string::npos;
  };
  EXPECT_FALSE(names_it()) << "every visit is computed here, whichever expert it is to";
  r.ep = 2;
  EXPECT_TRUE(names_it());
}

}  // namespace
}  // namespace ledger
