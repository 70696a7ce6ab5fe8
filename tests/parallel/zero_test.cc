// DeepSpeed's ZeRO on rank 0: which buffers it makes, how large, and how long they live. Numbers by the source's own
// rules: DeepSpeed 0.19.6, runtime/zero/{stage_1_and_2,stage3}.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/answer/prediction.h"
#include "tests/models/tiny_families.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

Prediction predicted(const Settings& settings, const ModelConfig& config = odd_llama(3)) {
  Result<Prediction> result = predict_run(config, recipe_of(settings));
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.problem().where + " " + result.problem().expected);
  return result.ok() ? std::move(result.value()) : Prediction{};
}

std::string refusal(const Settings& settings, const ModelConfig& config = odd_llama(1)) {
  const Result<Prediction> result = predict_run(config, recipe_of(settings));
  return result.ok() ? "" : result.problem().where + ": " + result.problem().expected;
}

using ByName = std::map<std::string, Bytes>;

// What is alive when `phase` ends (or, with `most`, the most of each name at one moment of it), by the storages' names.
ByName alive(const Trace& trace, const std::string& phase, bool most = false) {
  ByName now, result;
  bool within = false;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark) {
      if (within && !most) return now;
      within = trace.phases[event.id] == phase;
      if (within && most) result = now;
    }
    if (event.type != EventType::alloc && event.type != EventType::free) continue;
    const StorageInfo& storage = trace.storages[event.id];
    Bytes& bytes = now[trace.names[storage.scope]];
    bytes = event.type == EventType::alloc ? bytes + storage.bytes : bytes - storage.bytes;
    if (within && most) result[trace.names[storage.scope]] = std::max(result[trace.names[storage.scope]], bytes);
  }
  return most ? result : now;
}

Bytes of(const ByName& names, const std::string& name) {
  const auto found = names.find(name);
  return found == names.end() ? 0 : found->second;
}

Bytes sum_of(const ByName& names, std::initializer_list<const char*> wanted) {
  Bytes sum = 0;
  for (const char* name : wanted)
    sum += of(names, name);
  return sum;
}

// As many equal layers as ranks: partitions end where parameters do, and nothing is padded.
ModelConfig even_stack(std::uint64_t layers) {
  std::vector<PlainLinear> all(static_cast<std::size_t>(layers), PlainLinear{64, 64, false});
  return plain_stack(all);
}

// A Llama whose every parameter is a multiple of 16.
ModelConfig even_llama(std::uint64_t layers = 2) {
  ModelConfig config = odd_llama(layers);
  config.vocab_size = 256;
  config.intermediate_size = 64;
  return config;
}

Settings zero(const char* stage, const char* dp, Settings more = {}) {
  more.insert(more.begin(), {{"zero", stage}, {"dp", dp}});
  return more;
}

// --- model states
// ---------------------------------------------------------------------------------------------------------------

// arXiv 1910.02054, table 1, K = 12: bytes of parameters, gradients and states for each parameter, on one of N GPUs.
TEST(Zero, ModelStatesAreThePapersTable) {
  struct Row {
    std::uint64_t ranks;
    double stage1, stage2, stage3;  // GB of a model of 7.5 billion parameters
  };
  constexpr Row kRows[] = {{4, 52.5, 41.25, 30}, {16, 35.625, 21.5625, 7.5}, {64, 31.40625, 16.640625, 1.875}};
  for (const Row& row : kRows) {
    const std::string ranks = std::to_string(row.ranks);
    const ModelConfig stack = even_stack(row.ranks);
    const Prediction one = predicted(zero("1", ranks.c_str()), stack), two = predicted(zero("2", ranks.c_str()), stack);
    const double params = static_cast<double>(one.params);
    const auto gb = [&](Bytes bytes) { return static_cast<double>(bytes) / params * 7.5; };
    const auto states = [](const Prediction& p, Bytes gradients) {
      const ByName kept = alive(p.trace, "step2.zero_grad");
      return sum_of(kept, {"zero.params", "zero.master_partition", "adamw.exp_avg", "adamw.exp_avg_sq"}) + gradients;
    };
    EXPECT_DOUBLE_EQ(gb(states(one, 2 * one.params)), row.stage1) << ranks;
    EXPECT_DOUBLE_EQ(gb(states(two, of(alive(two.trace, "step2.backward"), "zero.gradient_partition"))), row.stage2)
        << ranks;
  }
  const Prediction three = predicted(zero("3", "16"), even_llama());
  const ByName kept = alive(three.trace, "step2.backward");
  const Bytes states = sum_of(kept, {"zero.param_partitions", "zero.master_partition", "zero.gradient_partitions",
                                     "adamw.exp_avg", "adamw.exp_avg_sq"});
  EXPECT_EQ(states, 16 * three.params / 16);
}

// deepspeed estimate_zero2_model_states_mem_needs: 2 + 18/N bytes a parameter, where 16-bit and fp32 gradients meet.
TEST(Zero, TheStepHoldsWhatDeepSpeedsEstimatorCounts) {
  const Prediction two = predicted(zero("2", "8"), even_stack(8));
  const ByName most = alive(two.trace, "step2.optimizer", true);
  // The partition is one parameter's gradient, and flattening a list of one copies nothing.
  EXPECT_EQ(sum_of(most, {"zero.params", "zero.master_partition", "adamw.exp_avg", "adamw.exp_avg_sq",
                          "zero.gradient_partition", "zero.fp32_gradients"}),
            2 * two.params + 18 * two.params / 8);
}

// estimate_zero3_model_states_mem_needs: 18/N bytes a parameter. It leaves out the 16-bit gradients and takes all fp32
// ones to be there at once; the step makes them by parameter group, of a flat copy of the 16-bit ones.
TEST(Zero, TheStepOfStageThreeHoldsFp32GradientsOfOneGroup) {
  const Prediction three = predicted(zero("3", "8"), even_llama());
  const Bytes norms = 5 * 48, larger = (three.params - norms) / 8;
  const ByName most = alive(three.trace, "step2.optimizer", true);
  EXPECT_EQ(of(most, "zero.fp32_gradients"), (2 + 4) * larger);
  const Bytes estimated = 18 * three.params / 8;
  EXPECT_EQ(sum_of(most, {"zero.param_partitions", "zero.master_partition", "adamw.exp_avg", "adamw.exp_avg_sq"}) +
                4 * larger + 4 * norms / 8,
            estimated);
  EXPECT_EQ(of(most, "zero.gradient_partitions"), 2 * three.params / 8);
}

TEST(Zero, StagesAndRanksOnlyEverTakeModelStatesAway) {
  const auto states = [](const char* stage, const char* dp) {
    const Prediction p = predicted(zero(stage, dp), even_llama(3));
    const ByName kept = alive(p.trace, "step2.zero_grad");
    return sum_of(kept, {"zero.params", "zero.param_partitions", "zero.master_partition", "zero.gradient_partitions",
                         "adamw.exp_avg", "adamw.exp_avg_sq", "zero.persistent"});
  };
  for (const char* stage : {"1", "2", "3"}) {
    Bytes before = kOverflow;
    for (const char* dp : {"2", "3", "4", "7", "16", "64"}) {
      EXPECT_LE(states(stage, dp), before) << stage << " " << dp;
      before = states(stage, dp);
    }
  }
  for (const char* dp : {"2", "4", "16"}) {
    const Bytes one = predicted(zero("1", dp), even_llama(3)).replay.peak_tensor_bytes;
    const Bytes two = predicted(zero("2", dp), even_llama(3)).replay.peak_tensor_bytes;
    EXPECT_LE(two, one) << dp;
  }
}

// --- stages 1 and 2
// -------------------------------------------------------------------------------------------------------------

TEST(Zero12, FlatWeightsArePaddedToTwiceTheRanksInEachGroup) {
  const Prediction p = predicted(zero("2", "5"));
  std::uint64_t with_decay = 0, without = 0;
  for (const Parameter& parameter : p.trace.parameters) {
    const std::uint64_t elements = parameter.elements;
    (parameter.decays() ? with_decay : without) += elements;
  }
  const Bytes aligned = round_up(with_decay, 10) + round_up(without, 10);
  const ByName kept = alive(p.trace, "load");
  EXPECT_NE(aligned, p.params) << "the model must not divide";
  EXPECT_EQ(of(kept, "zero.params"), 2 * aligned);
  EXPECT_EQ(of(kept, "zero.master_partition"), 4 * aligned / 5);
}

// At initialisation the weights are flattened beside themselves.
TEST(Zero12, LoadingHoldsTheWeightsTwice) {
  const Prediction p = predicted(zero("2", "4"));
  EXPECT_GE(p.replay.phases.front().peak_bytes, 2 * 2 * (p.params - 7 * 48));
  EXPECT_LT(p.replay.phases.front().end_bytes, 2 * p.params + 4 * p.params / 4 + 1024);
}

TEST(Zero12, TheBucketIsOneBufferOfItsSizeAndTwoWhenCommunicationOverlaps) {
  for (const char* stage : {"1", "2"}) {
    const Prediction one = predicted(zero(stage, "2", {{"reduce_bucket_size", "5000"}}));
    const Prediction two = predicted(zero(stage, "2", {{"reduce_bucket_size", "5000"}, {"overlap_comm", "on"}}));
    EXPECT_EQ(of(alive(one.trace, "step1.backward", true), "zero.reduce_bucket"), 2 * 5000u) << stage;
    EXPECT_EQ(of(alive(two.trace, "step1.backward", true), "zero.reduce_bucket"), 2 * 2 * 5000u) << stage;
    EXPECT_EQ(of(alive(one.trace, "step1.backward"), "zero.reduce_bucket"), 0u) << "given up after the pass";
  }
}

TEST(Zero12, AutomaticBucketsAreTheSquareOfTheHiddenSize) {
  const Prediction p = predicted(zero("2", "2"));
  EXPECT_EQ(of(alive(p.trace, "step1.backward", true), "zero.reduce_bucket"), 2 * 48 * 48u);
}

// grads_in_partition: all of every parameter that begins in rank 0's partition.
TEST(Zero12, GradientsOfThePartitionAreKeptWhole) {
  const Prediction p = predicted(zero("2", "4"));
  std::uint64_t kept = 0;
  for (const bool matrices : {true, false}) {
    std::uint64_t total = 0, offset = 0;
    for (const int pass : {0, 1}) {
      for (const Parameter& parameter : p.trace.parameters) {
        if (parameter.decays() != matrices) continue;
        const std::uint64_t elements = parameter.elements;
        if (pass == 0) {
          total += elements;
          continue;
        }
        if (offset < round_up(total, 8) / 4) kept += elements;
        offset += elements;
      }
    }
  }
  EXPECT_EQ(of(alive(p.trace, "step1.backward"), "zero.gradient_partition"), 2 * kept);
}

TEST(Zero12, StageOneKeepsAllGradientsUntilTheBackwardPassIsOver) {
  const Settings small = {{"batch", "1"}, {"seq", "4"}, {"reduce_bucket_size", "64"}};
  const Prediction one = predicted(zero("1", "4", small)), two = predicted(zero("2", "4", small));
  const auto gradients = [](const Prediction& p) {
    Bytes most = 0, now = 0;
    std::vector<Category> category(p.trace.storages.size());
    for (const Event& event : p.trace.events) {
      if (event.type == EventType::alloc) category[event.id] = event.category;
      if (event.type == EventType::label && event.category == Category::gradients) {
        category[event.id] = event.category;
        now += p.trace.storages[event.id].bytes;
      } else if (event.type == EventType::alloc && event.category == Category::gradients) {
        now += p.trace.storages[event.id].bytes;
      } else if (event.type == EventType::free && category[event.id] == Category::gradients) {
        now -= p.trace.storages[event.id].bytes;
      }
      most = std::max(most, now);
    }
    return most;
  };
  EXPECT_GE(gradients(one), 2 * one.params);
  EXPECT_LT(gradients(two), gradients(one));
}

TEST(Zero12, AccumulationHoldsTwoPartitionsOfGradients) {
  const Prediction once = predicted(zero("2", "4")), twice = predicted(zero("2", "4", {{"grad_accum", "2"}}));
  const Bytes partition = of(alive(once.trace, "step1.backward"), "zero.gradient_partition");
  EXPECT_EQ(of(alive(twice.trace, "step1.1.backward"), "zero.gradient_partition"), partition);
  EXPECT_EQ(of(alive(twice.trace, "step1.2.backward", true), "zero.gradient_partition"), 2 * partition);
  EXPECT_EQ(of(alive(twice.trace, "step1.2.backward"), "zero.gradient_partition"), partition);
}

// DeepSpeed empties the cache when it lays the weights out anew.
TEST(Zero3, PartitionsAreLaidOutAnewWithTheCacheEmptied) {
  const Prediction p = predicted(zero("3", "2"));
  const auto emptied = std::find_if(p.trace.events.begin(), p.trace.events.end(),
                                    [](const Event& event) { return event.type == EventType::empty_cache; });
  ASSERT_NE(emptied, p.trace.events.end());
  const auto at = static_cast<std::uint32_t>(emptied - p.trace.events.begin());
  const auto sample =
      std::find_if(p.replay.samples.begin(), p.replay.samples.end(), [at](const Sample& s) { return s.event >= at; });
  ASSERT_NE(sample, p.replay.samples.end());
  EXPECT_EQ(sample->event, at);
  EXPECT_EQ(sample->reserved, 2 * kMiB) << "one segment of the small pool, with the rotary frequencies";
}

// A bucket that lies in two partitions is copied to be reduced; one within a partition is not.
TEST(Zero12, OnlyBucketsAcrossPartitionsAreCopied) {
  const Prediction apart = predicted(zero("2", "4", {{"reduce_bucket_size", "4096"}}), even_stack(4));
  const Prediction across = predicted(zero("2", "4", {{"reduce_bucket_size", "8192"}}), even_stack(4));
  EXPECT_EQ(of(alive(apart.trace, "step1.backward", true), "zero.reduce_copy"), 0u);
  EXPECT_EQ(of(alive(across.trace, "step1.backward", true), "zero.reduce_copy"), 2 * 8192u);
  const Prediction whole =
      predicted(zero("2", "4", {{"reduce_bucket_size", "8192"}, {"reduce_scatter", "false"}}), even_stack(4));
  EXPECT_EQ(of(alive(whole.trace, "step1.backward", true), "zero.reduce_copy"), 0u) << "all-reduced in place";
}

TEST(Zero12, FlatGradientsAreThereIn16BitsAndIn32) {
  const Prediction p = predicted(zero("2", "4"));
  std::uint64_t with_decay = 0;
  for (const Parameter& parameter : p.trace.parameters) {
    if (parameter.decays()) with_decay += parameter.elements;
  }
  EXPECT_EQ(of(alive(p.trace, "step1.optimizer", true), "zero.fp32_gradients"), (2 + 4) * round_up(with_decay, 8) / 4);
}

// Offloaded: of the optimizer nothing but staging stays on the GPU, and the host's ledger has 2 + 4 + 4 + 8 bytes.
TEST(Zero12, OffloadingTheOptimizerMovesItToTheHost) {
  const Prediction p = predicted(zero("2", "4", {{"offload", "optimizer"}}), even_stack(4));
  const ByName kept = alive(p.trace, "step2.zero_grad");
  EXPECT_EQ(of(kept, "zero.master_partition"), 0u);
  EXPECT_EQ(of(kept, "adamw.exp_avg"), 0u);
  EXPECT_EQ(of(kept, "zero.offload_staging"), 2 * 64 * 64u) << "the largest gradient";
  Bytes host = 0;
  for (const HostBuffer& buffer : p.trace.host)
    host += buffer.elements * element_bytes(buffer.dtype);
  EXPECT_EQ(host, 18 * p.params / 4 + 2 * 64 * 64);
  EXPECT_LT(p.replay.peak_tensor_bytes, predicted(zero("2", "4"), even_stack(4)).replay.peak_tensor_bytes);
}

TEST(Zero12, OneGpuMayOffload) {
  EXPECT_EQ(refusal({{"zero", "2"}, {"offload", "optimizer"}}), "");
  EXPECT_EQ(refusal({{"zero", "2"}}), "zero: zero_needs_ranks");
  EXPECT_EQ(refusal({{"zero", "3"}, {"offload", "params"}}), "");
  EXPECT_EQ(refusal({{"zero", "3"}, {"offload", "optimizer"}}), "zero: zero_needs_ranks");
}

// The engine casts adapters, and what PEFT prepared, back to 16 bits; only adapters are flattened.
TEST(Zero12, AFrozenBaseStaysAsItIs) {
  for (const char* method : {"lora", "qlora"}) {
    const Prediction p = predicted(zero("2", "4", {{"method", method}, {"checkpointing", "full"}}));
    const Bytes aligned = round_up(p.trainable, 8);
    EXPECT_EQ(of(alive(p.trace, "load"), "zero.params"), 2 * aligned) << method;
    for (const Parameter& parameter : p.trace.parameters) {
      if (p.trace.storages[parameter.storage].dtype == DType::u8) continue;
      EXPECT_EQ(p.trace.storages[parameter.storage].dtype, DType::bf16) << method << " " << parameter.name;
    }
  }
}

TEST(Zero12, Fp16LooksForInfiniteGradients) {
  const Prediction bf16 = predicted(zero("2", "4")), fp16 = predicted(zero("2", "4", {{"precision", "amp-fp16"}}));
  EXPECT_EQ(of(alive(bf16.trace, "step1.optimizer", true), "zero.overflow"), 0u);
  EXPECT_EQ(of(alive(fp16.trace, "step1.optimizer", true), "zero.overflow"), 11 * 259 * 48u) << "the embedding's";
  EXPECT_EQ(alive(bf16.trace, "load"), alive(fp16.trace, "load"));
}

// --- stage 3
// --------------------------------------------------------------------------------------------------------------------

TEST(Zero3, EveryParameterIsCutAndPaddedByItself) {
  const Prediction p = predicted(zero("3", "7"));
  std::uint64_t parts = 0;
  for (const Parameter& parameter : p.trace.parameters)
    parts += divide_up(parameter.elements, 7);
  const ByName kept = alive(p.trace, "load");
  EXPECT_EQ(of(kept, "zero.param_partitions"), 2 * parts);
  EXPECT_EQ(of(kept, "zero.master_partition"), 4 * parts);
  EXPECT_EQ(of(kept, "zero.gradient_partitions"), 2 * parts);
  EXPECT_EQ(of(kept, "zero.reduce_bucket"), 2 * 48 * 48u) << "stays, from loading on";
  EXPECT_EQ(p.trainable, p.params) << "parameters are counted whole";
}

// The first pass is recorded and fetches what it needs; parameters within reach of max_reuse_distance stay later.
TEST(Zero3, TheFirstPassFetchesOneModuleAtATime) {
  const Prediction p = predicted(zero("3", "2", {{"max_reuse_distance", "0"}, {"max_live_parameters", "1"}}));
  const Bytes largest = 2 * 259 * 48 + 2;  // embedding and head, padded to an even number
  EXPECT_LE(of(alive(p.trace, "step1.forward", true), "zero.gathered"), largest);
  EXPECT_EQ(of(alive(p.trace, "step1.forward"), "zero.gathered"), 0u);
  EXPECT_EQ(of(alive(p.trace, "step2.forward"), "zero.gathered"), 0u)
      << "nothing is to be used again within 0 elements";
  const Prediction kept = predicted(zero("3", "2"));
  EXPECT_GT(of(alive(kept.trace, "step2.forward"), "zero.gathered"), 2 * (kept.params - 1000))
      << "all, of a small model";
  EXPECT_EQ(of(alive(kept.trace, "step2.optimizer"), "zero.gathered"), 0u) << "until the step";
}

TEST(Zero3, LiveParametersAreLimitedWherePrefetchingIs) {
  const auto live = [](const char* most) {
    const Prediction p = predicted(
        zero("3", "2", {{"max_live_parameters", most}, {"max_reuse_distance", "0"}, {"prefetch_bucket_size", "2000"}}),
        odd_llama(8));
    const ByName names = alive(p.trace, "step2.backward", true);
    return of(names, "zero.gathered") + of(names, "zero.all_gather");
  };
  EXPECT_LT(live("1"), live("20000"));
  EXPECT_LT(live("20000"), live("60000"));
}

TEST(Zero3, SmallParametersPersistFromTheFirstStepOn) {
  const Prediction p = predicted(zero("3", "2"));
  const Bytes norms = 2 * 7 * 48;  // of 48 elements, below 10 x 48
  EXPECT_EQ(of(alive(p.trace, "step1.optimizer"), "zero.persistent"), norms);
  EXPECT_EQ(of(alive(p.trace, "step2.forward"), "zero.persistent"), norms);
  const Prediction none = predicted(zero("3", "2", {{"param_persistence_threshold", "1"}}));
  EXPECT_EQ(of(alive(none.trace, "step1.optimizer"), "zero.persistent"), 0u);
}

TEST(Zero3, GradientsLeaveThroughOneBucket) {
  const Settings wide = {{"reduce_bucket_size", "4000"}};  // a matrix of the MLP and the norm before it
  const Prediction p = predicted(zero("3", "2", wide));
  const ByName most = alive(p.trace, "step1.backward", true);
  EXPECT_EQ(of(most, "zero.reduce_bucket"), 2 * 4000u);
  EXPECT_EQ(of(most, "zero.reduce"), 2 * (77 * 48 + 48u)) << "partitions of several gradients, side by side";
  EXPECT_EQ(of(alive(p.trace, "step1.backward"), "zero.reduce"), 0u);
  const Prediction in_order = predicted(zero("3", "2", {{"reduce_bucket_size", "4000"}, {"overlap_comm", "off"}}));
  EXPECT_EQ(of(alive(in_order.trace, "step1.backward", true), "zero.reduce_copy"), of(most, "zero.reduce"));
}

TEST(Zero3, TheStepGoesBySubGroups) {
  const Prediction whole = predicted(zero("3", "2")), cut = predicted(zero("3", "2", {{"sub_group_size", "4000"}}));
  EXPECT_LT(of(alive(cut.trace, "step1.optimizer", true), "zero.fp32_gradients"),
            of(alive(whole.trace, "step1.optimizer", true), "zero.fp32_gradients"));
  EXPECT_EQ(of(alive(cut.trace, "step2.optimizer"), "adamw.exp_avg"),
            of(alive(whole.trace, "step2.optimizer"), "adamw.exp_avg"));
}

// stage3.py _create_fp32_partitions: what each release makes on the way to the masters.
TEST(Zero3, MastersComeFromACopy) {
  const auto made = [](const Settings& settings) {
    Bytes sum = 0;
    const Prediction p = predicted(zero("3", "2", settings));
    for (const StorageInfo& storage : p.trace.storages) {
      if (p.trace.names[storage.scope] == "zero.master_partition") sum += storage.bytes;
    }
    return sum;
  };
  const Bytes masters = of(alive(predicted(zero("3", "2")).trace, "load"), "zero.master_partition");
  EXPECT_EQ(made({}), 2 * masters);
  EXPECT_EQ(made({{"deepspeed", "0.18.2"}}), masters + masters / 2);
}

TEST(Zero3, OffloadedParametersHaveNothingOnTheGpuButWhatIsGathered) {
  const Prediction p = predicted(zero("3", "2", {{"offload", "params"}}), even_llama());
  const ByName kept = alive(p.trace, "load");
  EXPECT_EQ(of(kept, "zero.param_partitions") + of(kept, "zero.master_partition"), 0u);
  EXPECT_EQ(of(kept, "zero.gradient_partitions"), 0u);
  Bytes host = 0;
  for (const HostBuffer& buffer : p.trace.host)
    host += buffer.elements * element_bytes(buffer.dtype);
  EXPECT_EQ(host, (2 + 4 + 4 + 2 + 8) * p.params / 2);
  const Prediction optimizer = predicted(zero("3", "2", {{"offload", "optimizer"}}), even_llama());
  EXPECT_EQ(of(alive(optimizer.trace, "load"), "zero.param_partitions"), p.params);
}

// Loaded whole, for bitsandbytes packs them on the GPU; then partitioned into host memory, all but their scales.
TEST(Zero3, FourBitWeightsAreOffloadedOnceTheyAreLoaded) {
  const Settings settings = {{"method", "qlora"}, {"adapter_dtype", "bf16"}};
  Settings offloaded = settings;
  offloaded.push_back({"offload", "params"});
  const Prediction here = predicted(zero("3", "2", settings)), p = predicted(zero("3", "2", offloaded));
  const Prediction one =
      predicted({{"method", "qlora"}, {"adapter_dtype", "bf16"}, {"prepare_kbit", "false"}, {"seq", "8"}});
  EXPECT_GE(p.replay.phases[0].peak_bytes, one.replay.phases[0].end_bytes) << "all of it is there once";
  Bytes frozen = 0;
  for (const HostBuffer& buffer : p.trace.host)
    frozen += buffer.name == std::string("zero.frozen_partitions") ? buffer.elements * element_bytes(buffer.dtype) : 0;
  const Bytes trained = 2 * p.trainable / 2;
  const ByName kept = alive(p.trace, "load"), before = alive(here.trace, "load");
  const auto sum = [](const ByName& lines) {
    Bytes all = 0;
    for (const auto& [name, bytes] : lines)
      all += name.starts_with("model.") || name.starts_with("lm_head") || name == "zero.param_partitions" ? bytes : 0;
    return all;
  };
  EXPECT_GT(frozen, 0u);
  EXPECT_EQ(sum(before) - sum(kept), frozen + trained);
}

TEST(Zero3, AFrozenBaseIsPartitionedAndAdaptersAreTrained) {
  const Prediction p = predicted(zero("3", "2", {{"method", "lora"}, {"checkpointing", "full"}}));
  const ByName kept = alive(p.trace, "load");
  // Half of the base, and of it nothing whole.
  EXPECT_GE(kept.at("model.embed_tokens.weight") + kept.at("lm_head.weight"), 2 * 259 * 48);
  const Bytes adapters = (4 + 2) * p.trainable / 2, bucket = 2 * 48 * 48, rotary = 2 * 4 * 8;
  EXPECT_EQ(p.replay.phases.front().end_bytes, p.params + adapters + bucket + rotary);
  // Adapters are fp32, as PEFT makes them, and their own masters.
  EXPECT_EQ(of(kept, "zero.master_partition"), 0u);
  EXPECT_EQ(of(alive(p.trace, "step2.optimizer"), "adamw.exp_avg"), of(kept, "zero.param_partitions"));
  const Prediction bf16 = predicted(zero("3", "2", {{"method", "lora"}, {"adapter_dtype", "bf16"}}));
  EXPECT_EQ(of(alive(bf16.trace, "load"), "zero.master_partition"),
            2 * of(alive(bf16.trace, "load"), "zero.param_partitions"));
}

// Whatever the family: no module computes with a parameter that was not fetched for it.
// transformers leaves zero.Init out where it quantises; codes are cut, their scales are not.
TEST(Zero3, AQuantisedModelIsLoadedWholeAndThenCut) {
  const ModelConfig config = even_llama();
  const Trace trace = predicted(zero("3", "4", {{"method", "qlora"}}), config).trace;
  const ByName loaded = alive(trace, "load", true), kept = alive(trace, "load");
  const std::string gate = "model.layers.*.mlp.gate_proj.";
  const std::uint64_t weights = config.num_hidden_layers * config.hidden_size * config.intermediate_size;
  const Bytes codes = weights / 2;
  EXPECT_EQ(of(loaded, gate + "weight"), codes + codes / 2 / 4) << "the first layer's partition beside all of it";
  EXPECT_EQ(of(kept, gate + "weight"), codes / 4);
  EXPECT_EQ(of(kept, gate + "absmax"), weights / 64);
}

TEST(Zero3, EveryFamilysParametersAreFetched) {
  std::size_t traced = 0, experts = 0;
  for (const tiny::TinyFamily& family : tiny::kFamilies) {
    const Result<ModelConfig> config = read_model_config(tiny::text_of(family));
    ASSERT_TRUE(config.ok()) << family.name;
    const bool refused = config.value().architecture == Architecture::t5 || !config.value().vision.model_type.empty();
    if (refused) continue;
    const Settings settings = zero("3", "2", {{"max_reuse_distance", "0"}, {"param_persistence_threshold", "1"}});
    experts += config.value().moe.layers.empty() ? 0 : 1;
    const Prediction p = predicted(settings, config.value());
    Bytes fetched = 0, held = 0;
    std::size_t phase = 0;
    for (const Event& event : p.trace.events) {
      if (event.type == EventType::mark) phase = event.id;
      if (event.type != EventType::alloc || p.trace.phases[phase] != "step1.forward") continue;
      const StorageInfo& storage = p.trace.storages[event.id];
      const std::string& name = p.trace.names[storage.scope];  // the second: what another module reads
      if (name == "zero.gathered" || name == "zero.persistent") fetched += storage.bytes;
    }
    for (const Parameter& parameter : p.trace.parameters)
      held += 2 * parameter.elements;
    EXPECT_GE(fetched, held) << family.name;
    ++traced;
  }
  EXPECT_GE(traced, 24u);
  EXPECT_GE(experts, 8u);
}

// A loss that multiplies with the output layer's weight itself has it gathered until the step.
TEST(Zero3, AWeightReadElsewhereStaysUntilTheStep) {
  const Prediction p = predicted(zero("3", "2", {{"loss", "fused_linear"}}));
  EXPECT_EQ(of(alive(p.trace, "step1.backward"), "zero.persistent"), 2 * (259 * 48 + 0u));
  EXPECT_EQ(of(alive(p.trace, "step2.optimizer"), "zero.persistent"), 2 * 7 * 48u);
}

TEST(Zero3, CheckpointedLayersAreFetchedAgain) {
  for (const char* checkpointing : {"none", "full", "full-reentrant"}) {
    const Prediction p = predicted(zero("3", "4", {{"checkpointing", checkpointing}, {"max_reuse_distance", "0"}}));
    const ByName after = alive(p.trace, "step2.optimizer");
    EXPECT_EQ(of(after, "zero.gathered") + of(after, "zero.all_gather"), 0u) << checkpointing;
    EXPECT_EQ(of(after, "zero.persistent"), 2 * 7 * 48u) << checkpointing;
  }
}

// --- all stages
// ------------------------------------------------------------------------------------------------------------------

TEST(Zero, SumsAgreeAndEveryBufferHasAName) {
  for (const char* stage : {"1", "2", "3"}) {
    for (const Settings& more : std::vector<Settings>{{},
                                                      {{"grad_accum", "3"}},
                                                      {{"method", "lora"}},
                                                      {{"checkpointing", "full"}, {"overlap_comm", "on"}},
                                                      {{"offload", "optimizer"}, {"grad_accum", "2"}},
                                                      {{"precision", "amp-fp16"}, {"reduce_scatter", "false"}}}) {
      const Prediction p = predicted(zero(stage, "3", more));
      Bytes sum = 0;
      for (const Bytes bytes : p.at_peak.categories)
        sum += bytes;
      EXPECT_EQ(sum, p.replay.peak_tensor_bytes + p.at_peak.categories[static_cast<std::size_t>(Category::workspace)]);
      for (const StorageInfo& storage : p.trace.storages)
        EXPECT_FALSE(p.trace.names[storage.scope].empty());
      const std::vector<PhasePeak>& phases = p.replay.phases;
      EXPECT_EQ(phases[phases.size() - 1].end_bytes, phases[phases.size() / 2].end_bytes)
          << "a step leaves what it found";
    }
  }
}

TEST(Zero, WhatCannotBeIsRefusedByName) {
  EXPECT_EQ(refusal(zero("2", "2", {{"fsdp", "2"}})), "zero: zero_or_fsdp");
  EXPECT_EQ(refusal(zero("2", "2", {{"precision", "fp32"}})), "precision: zero_casts_to_16_bits");
  EXPECT_EQ(refusal(zero("2", "2", {{"autocast", "true"}})), "precision: zero_casts_to_16_bits");
  EXPECT_EQ(refusal(zero("2", "2", {{"optimizer", "muon"}})), "optimizer: optimizer_not_for_shards");
  EXPECT_EQ(refusal(zero("2", "2", {{"offload", "params"}})), "offload: params_offload_needs_zero3");
  EXPECT_EQ(refusal(zero("2", "2", {{"offload", "activations"}})), "offload: offload_not_modelled");
  EXPECT_EQ(refusal(zero("2", "2", {{"offload", "optimizer"}, {"optimizer", "sgd"}})),
            "optimizer: offload_steps_with_adam");
  EXPECT_EQ(refusal({{"reduce_bucket_size", "5"}}), "zero: deepspeed_keys_want_a_stage");
  EXPECT_EQ(refusal({{"offload", "optimizer"}}), "offload: offload_not_modelled");
  EXPECT_EQ(refusal(zero("2", "2", {{"ddp_bucket_view", "true"}})), "ddp_bucket_view: ddp_needs_ranks");
  EXPECT_EQ(refusal(zero("3", "2"), even_stack(2)), "zero: parallelism_not_modelled");
}

}  // namespace
}  // namespace ledger
