// Rows by index, masks and the order of labels, and the losses that work on the output layer.
#include "one_op.h"

namespace ledger::one_op {
namespace {

TEST(IndexKernels, TakeAndPutBackRows) {
  const TestTensor x = dense(DType::f32, {3, 2}, {1, 2, 3, 4, 5, 6});
  const TestTensor order = dense(DType::i64, {4}, {2, 0, 2, 1});
  const TestTensor taken = run_op(OpKind::index_rows, {x, order}, {empty(DType::f32, {4, 2})})[0];
  EXPECT_EQ(taken.values(), (std::vector<double>{5, 6, 1, 2, 5, 6, 3, 4}));
  const TestTensor back = run_op(OpKind::index_rows_backward, {taken, order}, {empty(DType::f32, {3, 2})})[0];
  EXPECT_EQ(back.values(), (std::vector<double>{1, 2, 3, 4, 10, 12})) << "rows taken twice are added";
}

TEST(IndexKernels, LabelsFirstAndInOrder) {
  const TestTensor labels = dense(DType::i64, {5}, {7, -100, 3, -100, 9});
  const TestTensor mask = run_op(OpKind::not_equal, {labels}, {empty(DType::boolean, {5})}, {0, {-100, 0}})[0];
  EXPECT_EQ(mask.values(), (std::vector<double>{1, 0, 1, 0, 1}));
  const TestTensor keys = dense(DType::i8, {5}, mask.values());
  const auto sorted = run_op(OpKind::sort_true_first, {keys}, {empty(DType::i8, {5}), empty(DType::i64, {5})});
  EXPECT_EQ(sorted[0].values(), (std::vector<double>{1, 1, 1, 0, 0}));
  EXPECT_EQ(sorted[1].values(), (std::vector<double>{0, 2, 4, 1, 3}));
}

TEST(HeadLossKernels, LigerTurnsLogitsIntoTheirGradient) {
  const TestTensor logits = random(DType::f64, {4, 9}, -2, 2);
  TestTensor targets = random_ids({4}, 9);
  targets.memory[1] = -100;
  const auto nll = [&](const TestTensor& at) {
    const TestTensor y = run_op(OpKind::log_softmax, {at}, {empty(DType::f64, {4, 9})})[0];
    return run_op(OpKind::nll_loss, {y, targets}, {empty(DType::f64, {}), empty(DType::f64, {})})[0];
  };
  const auto out = run_op(OpKind::liger_cross_entropy, {logits, targets, targets}, {logits, empty(DType::f32, {4})});
  double total = 0;
  for (std::uint64_t i = 0; i < 4; ++i)
    total += out[1][i];
  EXPECT_NEAR(total, nll(logits)[0], 1e-6);
  EXPECT_EQ(out[1][1], 0) << "an ignored target costs nothing";
  expect_gradient(nll, logits, filled(DType::f64, {}, 1), out[0]);
}

TEST(HeadLossKernels, CutPositionsAreThoseBeforeALabel) {
  const TestTensor labels = dense(DType::i64, {2, 4}, {5, 6, -100, 7, 1, -100, -100, 2});
  const TestTensor out = run_op(OpKind::cut_positions, {labels}, {empty(DType::i64, {3})})[0];
  EXPECT_EQ(out.values(), (std::vector<double>{0, 2, 6}));
}

TEST(HeadLossKernels, CutBackwardIsTheGradientOfTheMean) {
  const TestTensor e = random(DType::f64, {6, 5}), c = random(DType::f64, {7, 5});
  const TestTensor positions = dense(DType::i64, {4}, {0, 1, 3, 4});
  const TestTensor labels = random_ids({6}, 7);
  const auto lse_of = [&](const TestTensor& x, const TestTensor& w) {
    return run_op(OpKind::cut_logsumexp, {x, w, positions}, {empty(DType::f64, {4}), empty(DType::f32, {7})})[0];
  };
  const auto loss = [&](const TestTensor& x, const TestTensor& w) {
    const TestTensor lse = lse_of(x, w);
    const TestTensor dot = run_op(OpKind::cut_neg_dot, {x, w, positions, labels}, {empty(DType::f64, {4})})[0];
    double total = 0;
    for (std::uint64_t i = 0; i < 4; ++i)
      total += lse[i] + dot[i];
    return dense(DType::f64, {}, {total / 4});
  };
  const TestTensor u = filled(DType::f64, {}, 1);
  const auto gradients = run_op(OpKind::cut_backward, {u, e, c, lse_of(e, c), positions, labels},
                                {empty(DType::f64, {6, 5}), empty(DType::f64, {7, 5})}, {0, {1, 1}});
  expect_gradient([&](const TestTensor& x) { return loss(x, c); }, e, u, gradients[0]);
  expect_gradient([&](const TestTensor& w) { return loss(e, w); }, c, u, gradients[1]);
}

}  // namespace
}  // namespace ledger::one_op
