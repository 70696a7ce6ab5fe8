// A pass that is copied leaves what tracing it once more would have left; and what cannot be copied is not.
#include "core/trace/repeat.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

// A loop of passes over one parameter, each of them a product, its loss and the way back.
class Loop {
 public:
  explicit Loop(bool copies) : copies_(copies) {}

  void pass(const std::string& prefix, const std::function<void()>& besides = {}) {
    if (copies_ && pass_.again(prefix, {&weight_, 1})) {
      ++copied;
      return;
    }
    pass_.begin(prefix, {&weight_, 1});
    tape.begin_phase(prefix + "forward");
    if (!input_) {
      const Tape::Once once(tape);
      input_ = zeros(tape, {plain(3), plain(4)}, DType::f32);
    }
    tape.ensure_cublas_workspace();
    Tensor loss = mean_all(mm(input_, weight_) * 2.0);
    if (besides) besides();
    tape.begin_phase(prefix + "backward");
    tape.backward(loss);
    loss.reset();
    pass_.end({&weight_, 1});
  }

  void clear() { weight_.clear_grad(); }

  Tape tape{{.cublas_workspace_bytes = 512}};
  int copied = 0;

 private:
  bool copies_;
  Tensor weight_ = leaf(tape, {plain(4), plain(5)});
  Tensor input_;
  Repeated pass_{tape};
};

void expect_same(Loop& copied, Loop& traced) {
  const Trace a = copied.tape.finish(), b = traced.tape.finish();
  ASSERT_EQ(a.events.size(), b.events.size());
  for (std::size_t i = 0; i < a.events.size(); ++i) {
    EXPECT_EQ(a.events[i].type, b.events[i].type) << i;
    EXPECT_EQ(a.events[i].category, b.events[i].category) << i;
    EXPECT_EQ(a.events[i].id, b.events[i].id) << i;
  }
  ASSERT_EQ(a.storages.size(), b.storages.size());
  for (std::size_t i = 0; i < a.storages.size(); ++i)
    EXPECT_EQ(shown(a.storages[i]), shown(b.storages[i])) << i;
  EXPECT_EQ(a.phases, b.phases);
  EXPECT_EQ(a.parameters.front().gradient, b.parameters.front().gradient);
}

TEST(Repeated, LeavesWhatTracingWouldHaveLeft) {
  Loop copied(true), traced(false);
  for (Loop* const loop : {&copied, &traced}) {
    for (const char* const step : {"step1.", "step2.", "step10."}) {
      loop->pass(step);
      loop->clear();
    }
  }
  EXPECT_EQ(copied.copied, 2);
  expect_same(copied, traced);
}

TEST(Repeated, IsTracedWhereGradientsWaitAlready) {
  Loop copied(true), traced(false);
  for (Loop* const loop : {&copied, &traced}) {
    loop->pass("1.");
    loop->pass("2.");  // adds to what the first made
    loop->pass("3.");
  }
  EXPECT_EQ(copied.copied, 1);
  expect_same(copied, traced);
}

TEST(Repeated, IsTracedWhereSomethingStays) {
  Loop loop(true);
  std::vector<Tensor> kept;
  for (const char* const step : {"1.", "2.", "3."}) {
    loop.pass(step, [&] { kept.push_back(zeros(loop.tape, {plain(7)}, DType::f32)); });
    loop.clear();
  }
  EXPECT_EQ(loop.copied, 0);
  EXPECT_EQ(kept.size(), 3u);
}

TEST(Repeated, IsTracedWhereSomethingOlderDies) {
  Loop loop(true);
  std::vector<Tensor> older;
  for (int i = 0; i < 3; ++i)
    older.push_back(zeros(loop.tape, {plain(7)}, DType::f32));
  for (const char* const step : {"1.", "2.", "3."}) {
    loop.pass(step, [&] { older.pop_back(); });
    loop.clear();
  }
  EXPECT_EQ(loop.copied, 0);
  EXPECT_TRUE(older.empty());
}

}  // namespace
}  // namespace ledger
