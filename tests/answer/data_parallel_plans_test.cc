// Plans of DDP, FSDP and ZeRO: their time against runs that were published, what they send against their traces, and
// that every plan found fits, is as the report has it, and is no slower than one that was passed over.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/answer/advice.h"
#include "core/answer/data_parallel_time.h"
#include "core/answer/plans.h"
#include "core/answer/prediction.h"
#include "core/api.h"
#include "core/training/step.h"
#include "tests/answer/json_path.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

const TraceOptions kOneStep{.steps = 1, .operands = true, .weights = {}, .adamw = {}};

DataParallelModel model_of(const ModelConfig& config, Recipe recipe, const Gpu& gpu) {
  recipe.batch = recipe.grad_accum = 1;
  const Result<Trace> trace = trace_step(config, recipe, kOneStep);
  return *DataParallelModel::of(trace.value(), gpu);
}

ModelConfig llama_3_1_8b() {
  return model_config_from(parsed(fixture("configs/llama-3.1-8b.json"))).value();
}

Recipe bf16(std::uint64_t seq) {
  Recipe r;
  r.seq = seq;
  r.attention = Attention::flash;
  return r;
}

// Sent by one of n ranks in a ring, read off the collectives of one step's trace.
Bytes sent_in(const Trace& trace, std::uint64_t ranks) {
  Bytes sent = 0;
  bool loading = true;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark) loading = trace.phases[event.id] == "load";
    if (event.type != EventType::run || loading) continue;
    const Run& run = trace.runs[event.id];
    const View* view = &trace.views[run.first_view];
    const View& whole = run.op == OpKind::reduce_scatter ? view[0] : view[run.input_count()];
    std::uint64_t bytes = element_bytes(whole.dtype);
    for (std::size_t i = 0; i < whole.rank; ++i)
      bytes *= whole.sizes[i];
    const std::uint64_t rounds = run.op == OpKind::all_reduce                                       ? 2
                                 : run.op == OpKind::all_gather || run.op == OpKind::reduce_scatter ? 1
                                                                                                    : 0;
    if (bytes >= 64) sent += rounds * bytes * (ranks - 1) / ranks;  // smaller: norms, to clip by
  }
  return sent;
}

// Rajbhandari et al. 2020 (arXiv:1910.02054), section 7, in elements of all parameters.
std::uint64_t volume_printed(std::uint64_t stage) {
  const Json formulas = parsed(fixture("papers/formulas.json"));
  for (const Json& row : formulas.find("rows")->items()) {
    if (row.find("id")->as_string() == "T012" + std::to_string(stage)) return number(row, "value");
  }
  return 0;
}

TEST(DataParallelTime, ZeROSendsWhatItsPaperSays) {
  const DataParallelModel model = model_of(odd_llama(3), bf16(64), *find_gpu("h100-80gb"));
  Recipe r = bf16(64);
  r.dp = 2;
  for (r.zero = 0; r.zero <= 3; ++r.zero)
    EXPECT_EQ(model.sent_bytes(r), volume_printed(r.zero) * (model.weight_bytes(2) / 2)) << r.zero;
}

// Twice the parameters without sharding them, three times with; in 16 bits throughout.
TEST(DataParallelTime, SendsWhatTheTraceSends) {
  const ModelConfig config = odd_llama(12);
  const Gpu& gpu = *find_gpu("h100-80gb");
  const DataParallelModel model = model_of(config, bf16(64), gpu);
  const Bytes psi = model.weight_bytes(2);
  struct Row {
    std::uint64_t zero, fsdp;
    bool reshards;
    std::uint64_t times_psi;
  };
  for (const Row& row : {Row{0, 0, true, 2}, Row{1, 0, true, 2}, Row{2, 0, true, 2}, Row{3, 0, true, 3},
                         Row{0, 1, true, 3}, Row{0, 2, true, 3}, Row{0, 1, false, 2}, Row{0, 2, false, 2}}) {
    Recipe r = bf16(64);
    r.dp = 4;
    r.zero = row.zero;
    r.fsdp = row.fsdp;
    r.reshard_after_forward = row.reshards;
    r.reduce_dtype = ShardDtype::bf16;
    EXPECT_EQ(model.sent_bytes(r), row.times_psi * (psi * 3 / 4)) << row.zero << row.fsdp << row.reshards;
    if (row.fsdp == 0 && row.zero != 0) continue;  // DeepSpeed pads partitions and keeps small parameters
    const Result<Trace> trace = trace_step(config, r, kOneStep);
    ASSERT_TRUE(trace.ok()) << trace.problem().expected;
    // The root is gathered once; shards are padded.
    EXPECT_NEAR(static_cast<double>(sent_in(trace.value(), 4)), static_cast<double>(model.sent_bytes(r)),
                0.1 * static_cast<double>(model.sent_bytes(r)))
        << row.zero << row.fsdp << row.reshards;
  }
}

TEST(DataParallelTime, AccumulationIsWaitedForOnlyBySome) {
  const DataParallelModel model = model_of(odd_llama(12), bf16(64), *find_gpu("h100-80gb"));
  Recipe r = bf16(64);
  r.dp = 4;
  const Bytes ddp = model.sent_bytes(r);
  r.grad_accum = 8;
  EXPECT_EQ(model.sent_bytes(r), ddp);
  r.fsdp = 2;
  r.reduce_dtype = ShardDtype::bf16;
  EXPECT_EQ(model.sent_bytes(r), 8 * (ddp / 2 * 3));
}

TEST(DataParallelPlans, AreValidFitAndComeQuickestFirst) {
  const Result<Plans> found = find_plans(llama_3_1_8b(), bf16(4096), {.gpus = 8, .global_batch = 64});
  ASSERT_TRUE(found.ok());
  const Plans& plans = found.value();
  EXPECT_EQ(plans.stack, Stack::hf);
  ASSERT_GE(plans.plans.size(), 2u);
  EXPECT_TRUE(plans.complete);
  double last = 0;
  Offload offload = Offload::none;
  for (const Plan& plan : plans.plans) {
    const Recipe& r = plan.recipe;
    EXPECT_GE(r.offload, offload) << "what is offloaded stands behind";
    if (r.offload != offload) last = 0;
    offload = r.offload;
    EXPECT_EQ(r.dp * r.batch * r.grad_accum, 64u);
    EXPECT_EQ(r.dp, 8u);
    EXPECT_GE(plan.time.seconds(), last);
    last = plan.time.seconds();
    Bytes most = 0;
    for (const std::uint64_t rank : {0u, 7u}) {
      PredictOptions options;
      options.trace.rank = rank;
      const Result<Prediction> run = predict_run(llama_3_1_8b(), r, options);
      ASSERT_TRUE(run.ok());
      EXPECT_EQ(run.value().verdict.answer, Answer::fits);
      most = std::max(most, run.value().replay.peak_allocated_bytes);
    }
    EXPECT_EQ(most, plan.allocated_bytes);
  }
}

// No rank between the first and the last needs more.
TEST(DataParallelPlans, TheWorstRankIsTheFirstOrTheLast) {
  for (const std::uint64_t zero : {1u, 2u, 3u}) {
    Recipe r = bf16(64);
    r.dp = 4;
    r.zero = zero;
    Bytes most = 0, ends = 0;
    for (std::uint64_t rank = 0; rank < 4; ++rank) {
      const Bytes peak = run_rank(odd_llama(12), r, rank).value().replay.peak_allocated_bytes;
      most = std::max(most, peak);
      if (rank == 0 || rank == 3) ends = std::max(ends, peak);
    }
    EXPECT_EQ(most, ends) << zero;
  }
}

// Everything quicker than the first plan was passed over for a reason: run one by one, none of it fits.
TEST(DataParallelPlans, NothingQuickerFits) {
  Recipe small = bf16(2048);
  small.memory_limit_bytes = 40 * kGiB;
  const ModelConfig config = llama_3_1_8b();
  const Result<Plans> found = find_plans(config, small, {.gpus = 4, .global_batch = 16});
  ASSERT_TRUE(found.ok() && !found.value().plans.empty());
  const double first = found.value().plans.front().time.seconds();
  const DataParallelModel plain = model_of(config, small, *find_gpu(small.gpu));
  int quicker = 0;
  for (const std::uint64_t zero : {0u, 1u, 2u, 3u}) {
    for (const std::uint64_t batch : {1u, 2u, 4u}) {
      Recipe r = small;
      r.dp = 4;
      r.zero = zero;
      r.batch = batch;
      r.grad_accum = 4 / batch;
      if (plain.time(r, *links_of(*find_gpu(r.gpu))).seconds() >= first) continue;
      ++quicker;
      EXPECT_NE(weigh(config, r).value().answer, Answer::fits) << zero << " " << batch;
    }
  }
  EXPECT_GT(quicker, 0);
}

TEST(DataParallelPlans, WhatIsRefusedIsLeftOutByItsReason) {
  Recipe r = bf16(512);
  r.optimizer = Optimizer::lion;
  const Result<Plans> found = find_plans(odd_llama(12), r, {.gpus = 2, .global_batch = 4});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found.value().left_out.size(), 1u);
  EXPECT_EQ(found.value().left_out.front().problem.expected, "optimizer_not_for_shards");
  for (const Plan& plan : found.value().plans)
    EXPECT_EQ(plan.recipe.zero + plan.recipe.fsdp, 0u);
  EXPECT_FALSE(found.value().plans.empty());
}

// 8 billion parameters in 16 bits, their gradients and fp32 states: too much for two cards of 40 GiB, and for one.
TEST(DataParallelPlans, OffloadedOnesComeLastWithTheirHostMemory) {
  Recipe small = bf16(1024);
  small.precision = Precision::amp_bf16;
  small.memory_limit_bytes = 40 * kGiB;
  small.optimizer = Optimizer::adamw_foreach;
  const ModelConfig config = llama_3_1_8b();
  for (const std::uint64_t gpus : {1u, 2u, 8u}) {
    const Result<Plans> found = find_plans(config, small, {.gpus = gpus, .global_batch = 8});
    ASSERT_TRUE(found.ok());
    ASSERT_FALSE(found.value().plans.empty()) << gpus;
    bool offloads = false;
    for (const Plan& plan : found.value().plans) {
      EXPECT_TRUE(!offloads || plan.host_bytes != 0) << "behind all that need no host memory";
      offloads = plan.host_bytes != 0;
      EXPECT_EQ(offloads, plan.recipe.offload != Offload::none);
      const Result<Prediction> run = predict_run(config, plan.recipe, {});
      ASSERT_TRUE(run.ok());
      EXPECT_EQ(run.value().verdict.answer, Answer::fits);
      if (!offloads) continue;
      Bytes host = 0;
      for (const HostLine& line : host_ledger(run.value().trace))
        host += line.bytes;
      EXPECT_EQ(host, plan.host_bytes);
    }
    EXPECT_TRUE(offloads) << "the leanest of all";
    EXPECT_EQ(found.value().plans.front().host_bytes == 0, gpus == 8) << gpus;
  }
}

TEST(DataParallelPlans, LeaveOutWhatMegatronAloneKnows) {
  Recipe r = bf16(64);
  r.stack = Stack::megatron;
  r.precision = Precision::megatron_bf16;
  r.pp = 2;
  r.decoder_first_pipeline_num_layers = r.decoder_last_pipeline_num_layers = 1;
  r.num_layers_per_virtual_pipeline_stage = 2;
  r.transformer_impl = TransformerImpl::local;
  r.loss = Loss::vocab_parallel_fused;
  const Result<Plans> found = find_data_parallel_plans(odd_llama(3), r, {.gpus = 2, .global_batch = 4});
  ASSERT_TRUE(found.ok()) << found.problem().where << " " << found.problem().expected;
  EXPECT_FALSE(found.value().plans.empty());
}

// A run that ends as soon as it shows that it does not fit says what the whole of it would; one that fits, its bytes.
TEST(RunOfARank, EndsEarlyWithTheSameVerdict) {
  int refused = 0, fitting = 0;
  for (const std::uint64_t fsdp : {0, 1, 2}) {
    for (const Method method : {Method::full, Method::lora}) {
      for (const Precision precision : {Precision::bf16, Precision::fp32}) {
        Recipe r = bf16(256);
        r.fsdp = fsdp;
        r.dp = fsdp == 0 ? 1 : 4;
        r.grad_accum = 3;
        r.method = method;
        r.precision = precision;
        const ModelConfig config = llama_3_1_8b();
        const Bytes most = run_rank(config, r, 0).value().replay.peak_allocated_bytes;
        for (const std::uint64_t hundredths : {20, 60, 90, 102, 104, 108, 130}) {
          r.memory_limit_bytes = most / 100 * hundredths + find_gpu(r.gpu)->context_high_bytes;
          const RankRun whole = run_rank(config, r, 0).value();
          const Bytes trained = parameter_count(config) / (fsdp == 0 ? 1 : r.dp);
          const Bytes states = method == Method::lora ? 0 : trained * (precision == Precision::bf16 ? 4 : 8);
          const RankRun early = run_rank_if_it_fits(config, r, 0, states).value();
          EXPECT_EQ(early.fits, whole.fits) << fsdp << " " << hundredths;
          ++(whole.fits ? fitting : refused);
          if (whole.fits) {
            EXPECT_EQ(early.replay.peak_allocated_bytes, whole.replay.peak_allocated_bytes);
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 30);
  EXPECT_GT(fitting, 12);
}

TEST(RunOfARank, IsNotTracedBeyondThePhaseThatIsTooLarge) {
  const ModelConfig config = llama_3_1_8b();
  const Recipe r = bf16(256);
  const Bytes weights = 2 * parameter_count(config);
  const auto phases = [&](Bytes limit, Bytes states = 0) {
    TraceOptions options;
    options.limit = limit;
    options.states_to_come = states;
    return trace_step(config, r, options).value().phases;
  };
  EXPECT_EQ(phases(weights / 2), std::vector<std::string>{"load"});
  EXPECT_EQ(phases(weights + kKiB).back(), "step1.forward");
  EXPECT_EQ(phases(2 * weights).back(), "step1.backward");
  EXPECT_EQ(phases(3 * weights).back(), "step1.zero_grad");
  EXPECT_EQ(phases(3 * weights, 2 * weights).back(), "step1.forward");
  EXPECT_EQ(phases(9 * weights).back(), "step2.zero_grad");
}

TEST(Cards, LessIsTrainedOnFewerOfThem) {
  Recipe r = bf16(4096);
  r.precision = Precision::amp_bf16;
  const Result<Cards> found = find_cards(llama_3_1_8b(), r, {.gpus = 1, .global_batch = 16});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found.value().methods.size(), 3u);
  const CardsOf &full = found.value().methods[0], &lora = found.value().methods[1], &qlora = found.value().methods[2];
  EXPECT_GT(full.gpus, 1u);
  EXPECT_EQ(lora.gpus, 1u);
  EXPECT_EQ(qlora.gpus, 1u);
  EXPECT_EQ(full.plan->recipe.dp, full.gpus);
  // With half of them nothing fits but what is offloaded.
  const Result<Plans> fewer = find_plans(llama_3_1_8b(), r, {full.gpus / 2, 16});
  for (const Plan& plan : fewer.value().plans)
    EXPECT_NE(plan.recipe.offload, Offload::none);
  ASSERT_TRUE(full.offloaded);
  EXPECT_LT(full.offloaded->recipe.dp, full.gpus);
  EXPECT_NE(full.offloaded->host_bytes, 0u);
  EXPECT_FALSE(lora.offloaded) << "one card is enough";
}

// What searches on other numbers of cards found out is used again; asked for each by itself, the answer is the same.
TEST(Cards, AreTheFewestOfAllThatWereAsked) {
  for (const std::uint64_t gib : {8, 16, 28}) {
    Recipe r = bf16(512);
    r.memory_limit_bytes = gib * kGiB;
    const Result<Cards> found = find_cards(llama_3_1_8b(), r, {.gpus = 1, .global_batch = 16});
    ASSERT_TRUE(found.ok());
    for (const CardsOf& row : found.value().methods) {
      std::uint64_t fewest = 0;
      for (std::uint64_t gpus = 1; gpus <= 16 && fewest == 0; gpus *= 2) {
        PlanQuestion question{gpus, 16};
        question.wanted = 1;
        question.keep = PlanQuestion::Keep::on_gpu;
        const Result<Plans> plans = find_data_parallel_plans(llama_3_1_8b(), with_method(r, row.method), question);
        if (!plans.value().plans.empty()) fewest = gpus;
      }
      EXPECT_EQ(row.gpus, fewest) << gib << " GiB, method " << static_cast<int>(row.method);
    }
  }
}

// What a plan's micro-batches need together is no less than what one needs: by one alone a plan may be refused.
TEST(DataParallelPlans, OneMicroBatchNeedsNoMoreThanThree) {
  struct Kind {
    std::uint64_t zero, fsdp;
    Offload offload;
  };
  for (const Kind& kind : {Kind{0, 0, {}}, Kind{1, 0, {}}, Kind{2, 0, {}}, Kind{3, 0, {}}, Kind{0, 1, {}},
                           Kind{0, 2, {}}, Kind{2, 0, Offload::optimizer}, Kind{3, 0, Offload::optimizer},
                           Kind{3, 0, Offload::params}, Kind{0, 1, Offload::params}, Kind{0, 2, Offload::params}}) {
    for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full}) {
      for (const Method method : {Method::full, Method::lora}) {
        for (const bool reshards : {true, false}) {
          Recipe r = bf16(64);
          r.batch = 2;
          r.dp = 4;
          r.zero = kind.zero;
          r.fsdp = kind.fsdp;
          r.offload = kind.offload;
          r.checkpointing = checkpointing;
          r.method = method;
          r.reshard_after_forward = reshards;
          const Result<RankRun> once = run_rank(odd_llama(3), r, 0);
          r.grad_accum = 3;
          const Result<RankRun> thrice = run_rank(odd_llama(3), r, 0);
          ASSERT_EQ(once.ok(), thrice.ok());
          if (!once.ok()) continue;
          EXPECT_LE(once.value().replay.peak_allocated_bytes, thrice.value().replay.peak_allocated_bytes)
              << kind.zero << " " << kind.fsdp << " " << static_cast<int>(kind.offload)
              << static_cast<int>(checkpointing) << static_cast<int>(method) << reshards;
        }
      }
    }
  }
}

// Answer.AI's and PEFT's question: a 70B model on cards of 24 GB. They get it onto two, with weights in host memory.
TEST(Cards, SeventyBillionsInFourBitsTakeSomeCardsOf24Gigabytes) {
  Recipe r = bf16(1024);
  r.gpu = "rtx4090-24gb";
  r.rank = 8;
  const ModelConfig config = model_config_from(parsed(fixture("configs/llama-3.1-8b.json"))).value();
  ModelConfig large = config;
  large.hidden_size = 8192;
  large.intermediate_size = 28672;
  large.num_hidden_layers = 80;
  large.num_attention_heads = 64;
  const Result<Cards> found = find_cards(large, r, {.gpus = 1, .global_batch = 8});
  ASSERT_TRUE(found.ok());
  const CardsOf &full = found.value().methods[0], &qlora = found.value().methods[2];
  EXPECT_EQ(full.gpus, 0u);
  EXPECT_FALSE(full.plan);
  EXPECT_EQ(qlora.gpus, 4u);
  EXPECT_NE(qlora.plan->recipe.fsdp + qlora.plan->recipe.zero, 0u);
  ASSERT_TRUE(qlora.offloaded);
  EXPECT_EQ(qlora.offloaded->recipe.dp, 2u);
  EXPECT_EQ(qlora.offloaded->recipe.offload, Offload::params);
  EXPECT_GT(qlora.offloaded->host_bytes, 15 * kGiB) << "half of 35 GB, each";
}

TEST(Cards, TheDoorAnswersWithTheSame) {
  const std::string config = fixture("configs/llama-3.1-8b.json");
  const Json answer =
      parsed(advise(R"({"about":"cards","global_batch":8,"recipe":{"seq":1024},"config":)" + config + "}"));
  EXPECT_EQ(text(answer, "advice.about"), "cards");
  EXPECT_EQ(text(answer, "advice.methods.1.method"), "lora");
  const Json wrong = parsed(advise(R"({"about":"plans","stack":"torchtune","config":)" + config + "}"));
  EXPECT_EQ(text(wrong, "problem.code"), "not_one_of");
}

// torchtitan's own runs of FSDP2, eager and compiled, on H100s with slower memory than most.
TEST(DataParallelTime, PublishedRunsTookBetweenItsBoundsTimesThis) {
  const Json document = parsed(fixture("measured_published/torchtitan.json"));
  Gpu gpu = *find_gpu("h100-80gb");
  gpu.bandwidth_gb_per_s = 2400;
  double low = 1e9, high = 0;
  std::size_t runs = 0;
  for (const Json& row : document.find("rows")->items()) {
    const Json* speed = row.find("tokens_per_second");
    if (speed == nullptr) continue;
    const Recipe recipe = recipe_from(*row.find("recipe")).value();
    const ModelConfig config = model_config_from(*document.find("models")->find(text(row, "model"))).value();
    const StepTime time = model_of(config, recipe, gpu).time(recipe, *links_of(gpu));
    const double measured = static_cast<double>(recipe.batch * recipe.seq) / *speed->as_real();
    const double ratio = measured / time.seconds();
    EXPECT_GE(ratio, kFastestShards) << text(row, "id");
    EXPECT_LE(ratio, kSlowestShards) << text(row, "id");
    EXPECT_NEAR(time.seconds(), *row.find("computed_s")->as_real(), 1e-4 * time.seconds()) << text(row, "id");
    low = std::min(low, ratio);
    high = std::max(high, ratio);
    ++runs;
  }
  EXPECT_GE(runs, 20u);
  EXPECT_NEAR(low, kFastestShards, 0.1);  // the bounds are those of the rows, not wider
  EXPECT_NEAR(high, kSlowestShards, 0.1);
}

}  // namespace
}  // namespace ledger
