// DDP and FSDP2 on rank 0: what is whole, what is a shard, and what is gathered for how long.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/answer/prediction.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

Prediction predicted(const Settings& settings, ModelConfig config = odd_llama(3)) {
  Result<Prediction> result = predict_run(config, recipe_of(settings));
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.problem().expected);
  return result.ok() ? std::move(result.value()) : Prediction{};
}

Bytes of(const Prediction& p, Category category) {
  return p.at_peak.categories[static_cast<std::size_t>(category)];
}

Bytes loaded(const Prediction& p) {
  return p.replay.phases.front().end_bytes;
}

// Bytes of all storages of `op` in the whole trace.
std::vector<Bytes> sizes_of(const Trace& trace, OpKind op) {
  std::vector<Bytes> sizes;
  for (const StorageInfo& storage : trace.storages) {
    if (storage.op == op) sizes.push_back(storage.bytes);
  }
  return sizes;
}

constexpr Bytes kRotary = 2 * 4 * 8;  // two buffers of head_dim / 2 fp32

TEST(Ddp, BucketsAreAsLargeAsAllGradients) {
  const Prediction one = predicted({}), eight = predicted({{"dp", "8"}});
  EXPECT_EQ(loaded(eight) - loaded(one), 2 * one.params);
  EXPECT_EQ(eight.replay.peak_tensor_bytes - one.replay.peak_tensor_bytes, 2 * one.params);
}

TEST(Ddp, WithBucketViewsGradientsHaveNoMemoryOfTheirOwn) {
  // Short enough for gradients to be alive at the peak.
  const Prediction beside = predicted({{"dp", "2"}, {"batch", "1"}, {"seq", "4"}});
  const Prediction inside = predicted({{"dp", "2"}, {"batch", "1"}, {"seq", "4"}, {"ddp_bucket_view", "true"}});
  EXPECT_EQ(loaded(beside), loaded(inside));
  EXPECT_LT(inside.replay.peak_tensor_bytes, beside.replay.peak_tensor_bytes);
  EXPECT_EQ(of(inside, Category::communication), 2 * inside.params);
  EXPECT_LT(of(inside, Category::gradients), of(beside, Category::gradients));
}

TEST(Ddp, AdaptersAloneAreReduced) {
  const Prediction p = predicted({{"dp", "2"}, {"method", "lora"}});
  EXPECT_EQ(of(p, Category::communication), 4 * p.trainable);
}

TEST(Fsdp2, WeightsAreHeldInShardsOfWholeRows) {
  // Every matrix of rows divisible by 1, 2, 4: nothing is padded.
  ModelConfig config = odd_llama(2);
  config.vocab_size = 256;
  config.intermediate_size = 64;
  for (const char* dp : {"2", "4", "8", "16"}) {
    const Prediction p = predicted({{"dp", dp}, {"fsdp", "2"}, {"precision", "fp32"}}, config);
    EXPECT_EQ(loaded(p) - kRotary, 4 * p.params / std::stoull(dp)) << dp;
  }
}

TEST(Fsdp2, AFirstDimensionThatDoesNotDivideIsPadded) {
  ModelConfig config = odd_llama(1);  // vocabulary 259, hidden 48, intermediate 77
  const Prediction p = predicted({{"dp", "5"}, {"fsdp", "2"}, {"precision", "fp32"}}, config);
  std::uint64_t elements = 2 * 52 * 48;     // embedding and head: ceil(259 / 5) rows
  elements += (20 + 7 + 7) * 48 + 10 * 96;  // q 96, k 32, v 32, o 48 rows
  elements += 2 * 16 * 48 + 10 * 77;        // gate and up 77, down 48 rows
  elements += 3 * 10;                       // norms of 48
  EXPECT_EQ(loaded(p) - kRotary, 4 * elements);
}

TEST(Fsdp2, AUnitIsGatheredForForwardAndForBackward) {
  const Prediction p = predicted({{"dp", "2"}, {"fsdp", "2"}, {"precision", "fp32"}});
  // Three layers and the root, twice a step, two steps.
  EXPECT_EQ(sizes_of(p.trace, OpKind::all_gather).size(), 2u * 2u * 4u);
  const Prediction kept =
      predicted({{"dp", "2"}, {"fsdp", "2"}, {"precision", "fp32"}, {"reshard_after_forward", "false"}});
  EXPECT_EQ(sizes_of(kept.trace, OpKind::all_gather).size(), 2u * 4u) << "one all-gather less a unit";
  EXPECT_EQ(sizes_of(p.trace, OpKind::reduce_scatter).size(), 2u * 4u);
  EXPECT_GT(kept.replay.peak_tensor_bytes, p.replay.peak_tensor_bytes);
}

TEST(Fsdp2, GradientsAndStatesAreShards) {
  const Prediction p = predicted({{"dp", "4"}, {"fsdp", "2"}, {"precision", "fp32"}});
  std::uint64_t shards = 0;
  for (const Parameter& parameter : p.trace.parameters)
    shards += p.trace.storages[parameter.storage].shape.numel();
  Bytes reduced = 0;
  for (const Bytes bytes : sizes_of(p.trace, OpKind::reduce_scatter))
    reduced += bytes;
  EXPECT_EQ(reduced, 2 * 4 * shards) << "fp32, in each of two steps";
  Bytes moments = 0;
  for (const Bytes bytes : sizes_of(p.trace, OpKind::zeros_like))
    moments += bytes;
  EXPECT_EQ(moments, 2 * 4 * shards);
  EXPECT_EQ(p.trainable, p.params) << "parameters are counted whole";
}

TEST(Fsdp2, MoreRanksNeverTakeMore) {
  Bytes before = kOverflow;
  for (const char* dp : {"2", "4", "8", "64"}) {
    const Prediction p = predicted({{"dp", dp}, {"fsdp", "2"}, {"precision", "fp32"}, {"checkpointing", "full"}});
    EXPECT_LE(p.replay.peak_tensor_bytes, before) << dp;
    before = p.replay.peak_tensor_bytes;
  }
}

TEST(Fsdp2, AFrozenBaseReducesAdaptersOnly) {
  const Prediction p = predicted({{"dp", "2"}, {"fsdp", "2"}, {"method", "lora"}});
  const Prediction full = predicted({{"dp", "2"}, {"fsdp", "2"}});
  // The root has nothing to train: three layers, two steps.
  EXPECT_EQ(sizes_of(p.trace, OpKind::reduce_scatter).size(), 2u * 3u);
  EXPECT_EQ(sizes_of(full.trace, OpKind::reduce_scatter).size(), 2u * 4u);
}

// Gathering happens while some module's gradient is computed; its buffers bear no module's name.
TEST(Fsdp2, BuffersAreNamedForThemselves) {
  const Prediction p = predicted({{"dp", "2"}, {"fsdp", "2"}, {"checkpointing", "full"}});
  const std::map<OpKind, std::string> names = {{OpKind::all_gather, "fsdp.all_gather"},
                                               {OpKind::gather_copy_out, "fsdp.unsharded"},
                                               {OpKind::reduce_copy_in, "fsdp.reduce_scatter"}};
  std::size_t seen = 0;
  for (const StorageInfo& storage : p.trace.storages) {
    const auto named = names.find(storage.op);
    if (named == names.end()) continue;
    EXPECT_EQ(p.trace.names[storage.scope], named->second);
    ++seen;
  }
  EXPECT_GT(seen, 0u);
}

double gib(Bytes bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kGiB);
}

// What a published run of torchtitan reserved, in all and until its first step was over, and how far off that is.
struct Titan {
  std::string id;
  double off = 0;
  bool eager = false;
};

double difference(Bytes bytes, const Json& measured) {
  return gib(bytes) / *measured.as_real() - 1;
}

Titan compare(const Json& row, const Json& models) {
  const Result<ModelConfig> config = model_config_from(*models.find(*row.find("model")->as_string()));
  const Result<Recipe> recipe = recipe_from(*row.find("recipe"));
  EXPECT_TRUE(config.ok() && recipe.ok());
  const Result<Prediction> p = predict_run(config.value(), recipe.value());
  EXPECT_TRUE(p.ok()) << p.problem().expected;
  if (const Json* active = row.find("active_gib")) {
    EXPECT_NEAR(difference(p.value().replay.peak_allocated_bytes, *active), 0, recipe.value().compile ? 0.05 : 0.003);
  }
  Bytes first = 0;
  for (const PhasePeak& phase : p.value().replay.phases) {
    if (p.value().trace.phases[phase.phase].starts_with("step1")) first = std::max(first, phase.reserved_peak_bytes);
  }
  if (const Json* measured = row.find("first_step_reserved_gib")) {
    EXPECT_NEAR(difference(first, *measured), 0, recipe.value().compile ? 0.05 : 0.006);
  }
  return {std::string(*row.find("id")->as_string()),
          difference(p.value().replay.peak_reserved_bytes, *row.find("reserved_gib")), !recipe.value().compile};
}

// docs/accuracy.md has the table. Runs of one node in eager mode, whose settings and allocator are known, come out as
// measured; the bar for all is a median of 3 % and nine in ten within 8 %.
TEST(Fsdp2, ReservesWhatTorchtitanMeasured) {
  const Result<Json> parsed = parse_json(fixture("measured_published/torchtitan.json"), {.bytes = 1u << 20});
  ASSERT_TRUE(parsed.ok());
  std::vector<double> off;
  for (const Json& row : parsed.value().find("rows")->items()) {
    SCOPED_TRACE(*row.find("id")->as_string());
    const Titan run = compare(row, *parsed.value().find("models"));
    off.push_back(std::abs(run.off));
    for (const char* exact :
         {"torchtitan-025", "torchtitan-027", "torchtitan-035", "torchtitan-036", "torchtitan-045", "torchtitan-075"}) {
      if (run.id == exact) {
        EXPECT_NEAR(run.off, 0, 0.003);
      }
    }
  }
  std::sort(off.begin(), off.end());
  EXPECT_LE(off[off.size() / 2], 0.03);
  EXPECT_LE(off[off.size() * 9 / 10], 0.08);
}

// --- FSDP1
// -----------------------------------------------------------------------------------------------------------------

const Settings kFsdp1 = {{"dp", "4"}, {"fsdp", "1"}, {"precision", "fp32"}, {"reduce_dtype", "bf16"}};

Settings fsdp1(Settings more) {
  more.insert(more.begin(), kFsdp1.begin(), kFsdp1.end());
  return more;
}

std::uint64_t layer_elements(const ModelConfig& c) {
  const std::uint64_t h = c.hidden_size, q = c.num_attention_heads * c.head_dim,
                      kv = c.num_key_value_heads * c.head_dim;
  return 2 * h * q + 2 * h * kv + 3 * h * c.intermediate_size + 2 * h;
}

TEST(Fsdp1, EachUnitIsOneFlatParameterPaddedToTheRanks) {
  const ModelConfig config = odd_llama(3);
  for (const char* dp : {"2", "5", "7"}) {
    const Prediction p = predicted({{"dp", dp}, {"fsdp", "1"}, {"precision", "fp32"}});
    const std::uint64_t ranks = std::stoull(dp), layer = layer_elements(config), root = 2 * 259 * 48 + 48;
    EXPECT_EQ(p.params, 3 * layer + root);
    EXPECT_EQ(loaded(p) - kRotary, 4 * (3 * divide_up(layer, ranks) + divide_up(root, ranks))) << dp;
  }
}

TEST(Fsdp1, LayersAreGatheredTwiceAndTheRootOnce) {
  const Prediction p = predicted(fsdp1({})), kept = predicted(fsdp1({{"reshard_after_forward", "false"}}));
  EXPECT_EQ(sizes_of(p.trace, OpKind::all_gather).size(), 2u * (2u * 3u + 1u));
  EXPECT_EQ(sizes_of(kept.trace, OpKind::all_gather).size(), 2u * (3u + 1u));
  EXPECT_EQ(sizes_of(p.trace, OpKind::reduce_scatter).size(), 2u * 4u);
  EXPECT_GT(kept.replay.peak_tensor_bytes, p.replay.peak_tensor_bytes);
}

// A layer's gradients are joined while all of them are still there; the root's wait for the embedding's.
TEST(Fsdp1, FlatGradientsAreAsLargeAsTheirUnits) {
  const Prediction p = predicted(fsdp1({}));
  std::vector<Bytes> joined;
  for (const StorageInfo& storage : p.trace.storages) {
    if (storage.op == OpKind::cat && p.trace.names[storage.scope] == "fsdp.flat_gradient")
      joined.push_back(storage.bytes);
  }
  const Bytes layer = 2 * layer_elements(odd_llama()), root = 2 * (2 * 259 * 48 + 48);
  EXPECT_EQ(joined, (std::vector<Bytes>{layer, layer, layer, root, layer, layer, layer, root}));
}

// Rank 0 has the first quarter of every unit: of the root's, a part of the embedding and no norm or head.
TEST(Fsdp1, TheOptimizerHasWhatLiesInRankZerosPieces) {
  const Prediction p = predicted(fsdp1({}));
  Bytes moments = 0;
  for (const StorageInfo& storage : p.trace.storages) {
    if (storage.op == OpKind::zeros_like && p.trace.names[storage.scope] == "adamw.exp_avg") moments += storage.bytes;
  }
  EXPECT_EQ(moments, 4 * (3 * divide_up(layer_elements(odd_llama()), 4) + divide_up(2 * 259 * 48 + 48, 4)));
  EXPECT_EQ(p.trainable, p.params) << "parameters are counted whole";
}

TEST(Fsdp1, AccumulatingKeepsAllGradientsWhole) {
  const Prediction once = predicted(fsdp1({{"seq", "4"}})),
                   twice = predicted(fsdp1({{"seq", "4"}, {"grad_accum", "2"}}));
  const auto end_of = [](const Prediction& p, const std::string& phase) {
    for (const PhasePeak& peak : p.replay.phases) {
      if (p.trace.phases[peak.phase] == phase) return peak.end_bytes;
    }
    return Bytes{0};
  };
  EXPECT_EQ(end_of(twice, "step1.1.backward") - end_of(once, "load"), 2 * once.params + 3 * 4 * 8)
      << "and the token ids";
  EXPECT_EQ(end_of(twice, "step1.2.backward"), end_of(once, "step1.backward"));
}

TEST(Fsdp1, MoreRanksNeverTakeMoreAndCheckpointingGathersNoMore) {
  Bytes before = kOverflow;
  for (const char* dp : {"2", "4", "8", "64"}) {
    const Prediction p = predicted({{"dp", dp}, {"fsdp", "1"}, {"precision", "fp32"}, {"checkpointing", "full"}});
    EXPECT_LE(p.replay.peak_tensor_bytes, before) << dp;
    EXPECT_EQ(sizes_of(p.trace, OpKind::all_gather).size(), 2u * (2u * 3u + 1u)) << dp;
    before = p.replay.peak_tensor_bytes;
  }
}

// A layer is gathered to be computed again, given up when it has been, and gathered once more for its backward, as
// peft's own example has it (examples/sft/run_peft_qlora_fsdp.sh). The one before is not gathered ahead: it has not
// been computed again yet.
TEST(Fsdp1, AReentrantRegionGathersItsLayerTwiceInBackward) {
  const Prediction p = predicted(fsdp1({{"checkpointing", "full-reentrant"}}));
  EXPECT_EQ(sizes_of(p.trace, OpKind::all_gather).size(), 2u * (1u + 3u + 2u * 3u));
}

// peft utils/other.py, fsdp_auto_wrap_policy: every lora_A and lora_B of the seven linears beside the layers and the
// root, each gathered before it runs and before its backward.
TEST(Fsdp1, EveryAdapterIsAUnitOfItsOwn) {
  const Prediction p = predicted(fsdp1({{"method", "lora"}}));
  EXPECT_EQ(sizes_of(p.trace, OpKind::all_gather).size(), 2u * (2u * 3u * (1u + 14u) + 1u));
  EXPECT_EQ(sizes_of(p.trace, OpKind::reduce_scatter).size(), 2u * 3u * 14u);
  Bytes moments = 0, largest_gradient = 0;
  for (const StorageInfo& storage : p.trace.storages) {
    if (p.trace.names[storage.scope] == "fsdp.flat_gradient")
      largest_gradient = std::max(largest_gradient, storage.bytes);
    if (storage.op == OpKind::zeros_like && p.trace.names[storage.scope] == "adamw.exp_avg") moments += storage.bytes;
  }
  EXPECT_EQ(moments, 4 * divide_up(p.trainable, 4)) << "rank 16: no padding";
  EXPECT_EQ(largest_gradient, 2 * 16 * 96u) << "of q_proj's lora_B, in bf16";
}

// A recomputation gathers a layer's adapters once more, but for those whose backward has begun.
TEST(Fsdp1, CheckpointingGathersAdaptersAgain) {
  const Prediction p = predicted(fsdp1({{"method", "lora"}, {"checkpointing", "full"}}));
  const std::size_t gathers = sizes_of(p.trace, OpKind::all_gather).size();
  EXPECT_GT(gathers, 2u * (2u * 3u * 15u + 1u));
  EXPECT_LE(gathers, 2u * (3u * (2u + 3u * 14u) + 1u));
}

// bitsandbytes: codes of two weights a byte in blocks of 64, held as bf16 numbers; their scales whole on every rank.
struct Quantised {
  Bytes codes = 0, state = 0;
};
Quantised quantised_layer(const ModelConfig& c, std::uint64_t ranks) {
  const std::uint64_t h = c.hidden_size, q = c.num_attention_heads * c.head_dim,
                      kv = c.num_key_value_heads * c.head_dim, f = c.intermediate_size;
  Quantised sum;
  for (const std::uint64_t weights : {h * q, h * kv, h * kv, q * h, h * f, h * f, f * h}) {
    const std::uint64_t blocks = divide_up(weights, 64);
    sum.codes += 2 * divide_up(divide_up(weights, 4), ranks);
    sum.state += blocks + 4 * divide_up(blocks, 256) + 4 * (16 + 256 + 1);
  }
  return sum;
}

// r x in and out x r of every linear in bf16, rows shared: rank 16 divides, an output may not.
Bytes adapter_shards(const ModelConfig& c, std::uint64_t ranks) {
  const std::uint64_t h = c.hidden_size, q = c.num_attention_heads * c.head_dim,
                      kv = c.num_key_value_heads * c.head_dim, f = c.intermediate_size;
  Bytes sum = 0;
  for (const auto& [in, out] : {std::pair{h, q}, {h, kv}, {h, kv}, {q, h}, {h, f}, {h, f}, {f, h}})
    sum += 2 * (16 / ranks * in + divide_up(out, ranks) * 16);
  return sum;
}

TEST(Sharded4Bit, CodesAreSharedAndScalesAreNot) {
  const ModelConfig config = odd_llama(3);
  for (const char* dp : {"2", "4"}) {
    const std::uint64_t ranks = std::stoull(dp), h = config.hidden_size, v = config.vocab_size;
    const Settings settings = {{"method", "qlora"}, {"dp", dp}, {"fsdp", "2"}, {"adapter_dtype", "bf16"}};
    const Prediction p = predicted(settings);
    const Quantised layer = quantised_layer(config, ranks);
    const Bytes norms = 2 * 7 * divide_up(h, ranks), tables = 2 * 2 * divide_up(v, ranks) * h;
    EXPECT_EQ(loaded(p) - kRotary, 3 * (layer.codes + layer.state + adapter_shards(config, ranks)) + norms + tables)
        << dp;
  }
}

TEST(Sharded4Bit, FlatParametersHaveTheSame) {
  const Settings settings = {{"method", "qlora"}, {"dp", "2"}, {"adapter_dtype", "bf16"}};
  Settings flat = settings, rows = settings;
  flat.push_back({"fsdp", "1"});
  rows.push_back({"fsdp", "2"});
  const Prediction one = predicted(flat), two = predicted(rows);
  // Padding: of rows and tables under FSDP2, of whole units under FSDP1.
  EXPECT_NEAR(static_cast<double>(loaded(one)), static_cast<double>(loaded(two)),
              0.01 * static_cast<double>(loaded(two)));
  EXPECT_LT(one.replay.peak_tensor_bytes,
            predicted({{"method", "qlora"}, {"dp", "2"}, {"adapter_dtype", "bf16"}}).replay.peak_tensor_bytes);
}

TEST(Sharded4Bit, WhatACastWouldDestroyIsRefused) {
  const Result<Prediction> result =
      predict_run(odd_llama(1), recipe_of({{"method", "qlora"}, {"dp", "2"}, {"fsdp", "2"}, {"param_dtype", "fp32"}}));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.problem().expected, "sharded_4_bit_wants_one_dtype");
}

// --- offloaded parameters
// ---------------------------------------------------------------------------------------------------

Bytes on_host(const Prediction& p, Category category) {
  Bytes sum = 0;
  for (const HostLine& line : host_ledger(p.trace))
    sum += line.category == category ? line.bytes : 0;
  return sum;
}

Bytes end_of_step(const Prediction& p) {
  return p.replay.phases.back().end_bytes;
}

TEST(FsdpOffloaded, ShardsGradientsAndStatesAreInHostMemory) {
  for (const char* fsdp : {"1", "2"}) {
    const Settings settings = {{"dp", "4"}, {"fsdp", fsdp}, {"precision", "fp32"}};
    Settings offloaded = settings;
    offloaded.push_back({"offload", "params"});
    const Prediction here = predicted(settings), p = predicted(offloaded);
    const Bytes shards = loaded(here) - kRotary;
    EXPECT_EQ(loaded(p), kRotary) << fsdp;
    EXPECT_EQ(on_host(p, Category::weights), shards) << fsdp;
    EXPECT_EQ(on_host(p, Category::gradients), shards) << fsdp;
    EXPECT_GE(on_host(p, Category::optimizer_states), 2 * shards) << fsdp;
    EXPECT_EQ(of(p, Category::optimizer_states), 0u) << fsdp;
    EXPECT_EQ(end_of_step(here) - end_of_step(p), shards + on_host(p, Category::optimizer_states)) << fsdp;
  }
}

// A shard comes in its own dtype; fp32 ones are cast here, under FSDP2 parameter by parameter.
TEST(FsdpOffloaded, EveryGatheringBringsTheShardFirst) {
  const Settings settings = {{"dp", "4"}, {"fsdp", "1"}, {"precision", "bf16"}};
  Settings offloaded = settings;
  offloaded.push_back({"offload", "params"});
  const Bytes layer = 2 * divide_up(layer_elements(odd_llama()), 4), root = 2 * divide_up(2 * 259 * 48 + 48, 4);
  const std::vector<Bytes> gathered = {root, layer, layer, layer, layer, layer, layer};  // forward; backward
  std::vector<Bytes> brought = sizes_of(predicted(offloaded).trace, OpKind::gather_copy_in);
  ASSERT_EQ(brought.size(), 2 * gathered.size());
  brought.resize(gathered.size());
  EXPECT_EQ(brought, gathered);
  EXPECT_TRUE(sizes_of(predicted(settings).trace, OpKind::gather_copy_in).empty());

  Settings wide = offloaded;
  wide[2].second = "fp32";
  const std::vector<Bytes> both = sizes_of(predicted(wide).trace, OpKind::gather_copy_in);
  ASSERT_EQ(both.size(), 2 * brought.size() * 2);
  EXPECT_EQ(both[0], root) << "in 16 bits";
  EXPECT_EQ(both[1], 2 * root) << "as it came";
}

// FSDP1 holds on to what it copied; FSDP2 gives it up at once.
TEST(FsdpOffloaded, ReducedGradientsStayUntilBackwardEndsUnderVersionOne) {
  const auto reduced_alive = [](const char* fsdp) {
    const Prediction p = predicted({{"dp", "4"}, {"fsdp", fsdp}, {"precision", "fp32"}, {"offload", "params"}});
    std::uint64_t alive = 0, most = 0;
    for (const Event& event : p.trace.events) {
      if (event.type != EventType::alloc && event.type != EventType::free) continue;
      const StorageInfo& storage = p.trace.storages[event.id];
      if (storage.op != OpKind::reduce_scatter || storage.category != Category::gradients) continue;
      event.type == EventType::alloc ? ++alive : --alive;
      most = std::max(most, alive);
    }
    return most;
  };
  EXPECT_EQ(reduced_alive("1"), 4u) << "three layers and the root";
  EXPECT_EQ(reduced_alive("2"), 1u);
}

TEST(FsdpOffloaded, FourBitWeightsLeaveTheirScales) {
  const ModelConfig config = odd_llama(3);
  for (const char* fsdp : {"1", "2"}) {
    const Prediction p = predicted(
        {{"method", "qlora"}, {"dp", "2"}, {"fsdp", fsdp}, {"adapter_dtype", "bf16"}, {"offload", "params"}}, config);
    EXPECT_EQ(loaded(p) - kRotary, 3 * quantised_layer(config, 2).state) << fsdp;
  }
}

// A layer's first adapter, the last whose gradients come, fetches the layer before it while its own is still gathered.
TEST(Fsdp1, WithCheckpointsWithinItsUnitsAdaptersSeeTwoLayersAtATime) {
  Settings around = fsdp1({{"method", "lora"}, {"checkpointing", "full-reentrant"}});
  Settings within = around;
  within.push_back({"fsdp_activation_checkpointing", "true"});
  const ModelConfig config = odd_llama(3);
  const auto backward = [&](const Settings& settings) {
    const Prediction p = predicted(settings, config);
    for (const PhasePeak& peak : p.replay.phases) {
      if (p.trace.phases[peak.phase] == "step2.backward") return peak.peak_bytes;
    }
    return Bytes{0};
  };
  EXPECT_GT(backward(within), backward(around));
}

TEST(Fsdp1, WhatIsNotModelledIsRefused) {
  const auto reason = [](const Settings& settings) {
    const Result<Prediction> result = predict_run(odd_llama(1), recipe_of(settings));
    return result.ok() ? "" : result.problem().expected;
  };
  EXPECT_EQ(reason(fsdp1({{"units", "titan"}})), "titan_units_are_fsdp2s");
  EXPECT_EQ(reason(fsdp1({{"fsdp_activation_checkpointing", "true"}})), "fsdp1_checkpoints_decoder_layers");
  EXPECT_EQ(reason({{"dp", "2"}, {"fsdp", "2"}, {"checkpointing", "full"}, {"fsdp_activation_checkpointing", "true"}}),
            "fsdp1_checkpoints_decoder_layers");
  EXPECT_EQ(reason(fsdp1({{"method", "lora"}, {"dora", "true"}})), "") << "each of its parts is called as a module";
}

}  // namespace
}  // namespace ledger
