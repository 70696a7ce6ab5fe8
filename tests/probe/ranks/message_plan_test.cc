// What stages of a pipeline say to each other where a send ends when it is received and messages have no tags: threads
// in the place of ranks, on the turns of real traces. Nobody waits for ever, and everybody gets what was meant for it.
#include "probe/ranks/message_plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "probe/ranks/message_batch.h"
#include "probe/ranks/stand_in.h"
#include "tests/probe/ranks/shared_runs.h"
#include "tests/probe/tiny_models.h"

namespace ledger {
namespace {

using Number = std::uint64_t;  // what a message holds

// Where messages meet: one of a pair is taken from either side, in the order in which they come.
class Rendezvous {
 public:
  explicit Rendezvous(std::chrono::milliseconds patience) : patience_(patience) {}

  bool messages(std::uint64_t rank, std::span<const Message> batch) {
    std::unique_lock lock(mutex_);
    std::deque<bool> over(batch.size(), false);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Message& one = batch[i];
      const std::pair way = one.outgoing ? std::pair(rank, one.other) : std::pair(one.other, rank);
      auto& others = (one.outgoing ? receives_ : sends_)[way];
      if (others.empty()) {
        (one.outgoing ? sends_ : receives_)[way].push_back({one.buffer.data, &over[i]});
        continue;
      }
      const Side other = others.front();
      others.pop_front();
      std::byte* const from = one.outgoing ? one.buffer.data : other.data;
      std::byte* const to = one.outgoing ? other.data : one.buffer.data;
      std::copy(from, from + sizeof(Number), to);
      over[i] = *other.over = true;
    }
    changed_.notify_all();
    const auto all_over = [&] { return std::find(over.begin(), over.end(), false) == over.end(); };
    if (changed_.wait_for(lock, patience_, [&] { return stuck_ || all_over(); }) && !stuck_) return true;
    stuck_ = true;
    changed_.notify_all();
    return false;
  }

  // All members have come, or somebody waits for ever.
  bool meet(std::uint32_t group, std::size_t members) {
    std::unique_lock lock(mutex_);
    const std::size_t round = come_[group]++ / members;
    changed_.notify_all();
    const auto complete = [&] { return come_[group] >= (round + 1) * members; };
    if (changed_.wait_for(lock, patience_, [&] { return stuck_ || complete(); }) && !stuck_) return true;
    stuck_ = true;
    changed_.notify_all();
    return false;
  }

 private:
  struct Side {
    std::byte* data;
    bool* over;
  };
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stuck_ = false;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::deque<Side>> sends_, receives_;
  std::map<std::uint32_t, std::size_t> come_;
};

class RendezvousRank : public StandIn {
 public:
  RendezvousRank(std::uint64_t rank, std::uint64_t world, Rendezvous& meeting)
      : StandIn(rank, world), meeting_(meeting) {}
  bool messages(std::span<const Message> batch) override {
    return meeting_.messages(rank(), batch) || fail("nobody came");
  }

 private:
  Rendezvous& meeting_;
};

struct StageRun {
  std::size_t messages = 0, wrong = 0, copies = 0;  // copies: the most sends that waited at once behind a pass
  std::string failure;
};

// As DeviceExecutor does: what has its turn is exchanged before a pass computes, and before a collective.
StageRun run_stage(const StageTurns& turns, const StageTurns& plan, std::size_t stage, std::size_t stages,
                   Rendezvous& meeting) {
  StageRun run;
  RendezvousRank rank(stage, stages, meeting);
  MessageBatch batch;
  batch.follow(plan);
  std::deque<Number> memory;
  std::map<std::array<std::uint64_t, 4>, Number> numbers;  // of the messages between two stages with one tag
  std::vector<std::pair<const Number*, Number>> expected;
  const auto exchange = [&] {
    if (!batch.exchange()) return false;
    std::size_t copies = 0;
    for (MessageBatch::Waiting* one = batch.not_aside(); one != nullptr; one = batch.not_aside()) {
      one->aside = batch.free_aside();
      copies = std::max(copies, *one->aside + 1);
    }
    run.copies = std::max(run.copies, copies);
    return true;
  };
  bool well = true, received = false;
  for (const StageTurn& turn : turns) {
    const bool computed = turn.passes != 0 || (received && turn.kind == StageTurn::send);
    received = turn.kind == StageTurn::receive;
    well = well && (!computed || exchange());
    if (!well) break;
    if (turn.kind == StageTurn::together) {
      const bool ends = turn.other == static_cast<std::uint32_t>(RankGroup::pipeline_ends);
      well = exchange() && batch.meet(rank) && meeting.meet(turn.other, ends ? 2 : stages);
      continue;
    }
    const bool outgoing = turn.kind == StageTurn::send;
    const std::uint64_t from = outgoing ? stage : turn.other, to = outgoing ? turn.other : stage;
    const Number number = ((from * 16 + to) * 64 + turn.tag) * 4096 + ++numbers[{from, to, turn.tag, outgoing}];
    memory.push_back(outgoing ? number : 0);
    if (!outgoing) expected.emplace_back(&memory.back(), number);
    batch.add(rank, {{reinterpret_cast<std::byte*>(&memory.back()), 1, DType::i64}, turn.other, outgoing}, turn.tag);
    ++run.messages;
  }
  if (!well || !exchange()) run.failure = rank.failure().empty() ? "waited for ever" : rank.failure();
  if (!batch.empty()) run.failure += " something was left over";
  for (const auto& [place, number] : expected)
    run.wrong += *place == number ? 0 : 1;
  return run;
}

std::vector<StageRun> run_stages(const std::vector<StageTurns>& turns, const std::vector<StageTurns>& plans,
                                 std::chrono::milliseconds patience) {
  Rendezvous meeting(patience);
  std::vector<StageRun> runs(turns.size());
  std::vector<std::thread> threads;
  for (std::size_t stage = 0; stage < turns.size(); ++stage) {
    threads.emplace_back(
        [&, stage] { runs[stage] = run_stage(turns[stage], plans[stage], stage, turns.size(), meeting); });
  }
  for (std::thread& thread : threads)
    thread.join();
  return runs;
}

std::vector<StageTurns> turns_of(const char* config, const Recipe& recipe) {
  std::vector<StageTurns> all;
  for (std::uint64_t stage = 0; stage < recipe.pp; ++stage)
    all.push_back(stage_turns(tiny::trace(config, recipe, {.steps = 2, .rank = stage})));
  return all;
}

std::vector<StageTurns> plans_of(const std::vector<StageTurns>& turns) {
  std::vector<StageTurns> plans;
  for (std::size_t stage = 0; stage < turns.size(); ++stage) {
    const auto plan = message_plan(turns, stage);
    EXPECT_TRUE(plan) << "stage " << stage;
    plans.push_back(plan.value_or(StageTurns()));
  }
  return plans;
}

constexpr const char* kManyLayers = R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 16, "n_head": 2,
  "vocab_size": 128, "n_positions": 16, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";

struct PipelineCase {
  Shared run;
  std::uint64_t parts;  // that the model is cut in
};

constexpr PipelineCase kPipelines[] = {
    {{"one_f_one_b", kMegatronLlama, [](Recipe& r) { megatron(r, 1, 4); }}, 4},
    {{"one_f_one_b_tied", kMegatronGpt, [](Recipe& r) { megatron(r, 1, 2); }}, 2},
    {{"interleaved_of_two", kMegatronLlama,
      [](Recipe& r) {
        megatron(r, 1, 2);
        r.micro_batches = 4;
        r.pipeline_schedule = PipelineSchedule::interleaved;
      }},
     4},
    {{"interleaved_of_four", kMegatronDeep,
      [](Recipe& r) {
        megatron(r, 1, 4);
        r.micro_batches = 8;
        r.pipeline_schedule = PipelineSchedule::interleaved;
      }},
     12},
    {{"interleaved_of_eight_tied", kManyLayers,
      [](Recipe& r) {
        megatron(r, 1, 8);
        r.micro_batches = 16;
        r.pipeline_schedule = PipelineSchedule::interleaved;
      }},
     16},
    {{"torchtitan", kTitanDeep, [](Recipe& r) { titan_stages(r, Stack::torchtitan, 4, 5); }}, 4},
    {{"torchtitan_interleaved", kTitanDeep,
      [](Recipe& r) {
        titan_stages(r, Stack::torchtitan_0_1, 3, 6);
        r.pipeline_schedule = PipelineSchedule::interleaved;
      }},
     6},
};

class PlannedMessages : public testing::TestWithParam<PipelineCase> {};
INSTANTIATE_TEST_SUITE_P(All, PlannedMessages, testing::ValuesIn(kPipelines),
                         [](const auto& p) { return std::string(p.param.run.name); });

TEST_P(PlannedMessages, ReachThoseTheyAreForAndNobodyWaitsForEver) {
  Recipe recipe;
  GetParam().run.set(recipe);
  const std::vector<StageTurns> turns = turns_of(GetParam().run.config, recipe);
  std::size_t messages = 0;
  for (const StageRun& run : run_stages(turns, plans_of(turns), std::chrono::seconds(20))) {
    EXPECT_EQ(run.failure, "");
    EXPECT_EQ(run.wrong, 0u);
    EXPECT_LE(run.copies, recipe.pp) << "sends wait for their turn, not for the end";
    messages += run.messages;
  }
  constexpr std::uint64_t kStepsBothWaysBothEnds = 2 * 2 * 2;
  EXPECT_EQ(messages, kStepsBothWaysBothEnds * recipe.micro_batches * (GetParam().parts - 1));
}

// What the plan is for: one stage sends an activation, the next one a gradient, and neither receives yet.
TEST(UnplannedMessages, OfTwoStagesWaitForEachOther) {
  Recipe recipe;
  titan_stages(recipe, Stack::torchtitan, 2, 3);
  const std::vector<StageTurns> turns = turns_of(kTitanDeep, recipe);
  for (const StageRun& run : run_stages(turns, std::vector<StageTurns>(2), std::chrono::milliseconds(100)))
    EXPECT_EQ(run.failure, "nobody came");
}

TEST(MessagePlan, TakesWhatArrivesFirstFirst) {
  using enum StageTurn::Kind;
  const std::vector<StageTurns> all = {{{send, 1, 0, 1}, {receive, 1, 1, 1}, {together, 8, 0, 0}},
                                       {{send, 0, 1, 3}, {receive, 0, 0, 0}, {together, 8, 0, 0}}};
  EXPECT_EQ(message_plan(all, 0), (StageTurns{{receive, 1, 1, 0}, {send, 1, 0, 0}, {together, 8, 0, 0}}))
      << "both arrive when the second stage is through with its passes";
  EXPECT_EQ(message_plan(all, 1), (StageTurns{{send, 0, 1, 0}, {receive, 0, 0, 0}, {together, 8, 0, 0}}));
}

TEST(MessagePlan, IsNoneWhereSomethingNeverArrives) {
  using enum StageTurn::Kind;
  EXPECT_FALSE(message_plan({{{receive, 1, 0, 0}}, {}}, 0)) << "it is never sent";
  EXPECT_FALSE(message_plan({{{send, 1, 0, 0}}, {}}, 0)) << "it is never received";
  EXPECT_FALSE(message_plan({{{send, 1, 0, 0}}, {{receive, 0, 1, 0}}}, 1)) << "it has another tag";
  EXPECT_FALSE(message_plan({{{send, 7, 0, 0}}, {{receive, 0, 0, 0}}}, 1)) << "there is no such stage";
  EXPECT_FALSE(message_plan({{{together, 8, 0, 0}}, {}}, 0)) << "the other does not come";
}

TEST(MessagePlan, HasNothingToSayWithoutAPipeline) {
  Recipe recipe;
  megatron(recipe, 1, 1);
  recipe.cp = 2;
  EXPECT_TRUE(stage_turns(tiny::trace(kMegatronLlama, recipe, {.steps = 1})).empty()) << "a ring needs no plan";
}

}  // namespace
}  // namespace ledger
