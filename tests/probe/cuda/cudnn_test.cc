// cuDNN's attention without a device: which shapes are asked for, what the library itself says of the graphs, and how
// what it declines falls back. What it computes is for tests/gpu to compare.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/models/model.h"
#include "probe/cuda/cudnn_attention.h"
#include "tests/probe/device/emulated_device.h"
#include "tests/probe/tiny_models.h"

namespace ledger::cuda {
namespace {

constexpr std::size_t kVersion = 91900;

struct Sizes {
  std::int64_t b, n, kv, s, d;
  DType dtype = DType::bf16;
};

// [b, n, s, d] as projections leave it: tokens outside heads.
Four strides(const Sizes& z, std::int64_t heads) {
  return {z.s * heads * z.d, z.d, heads * z.d, 1};
}

AttentionShape shape_of(const Sizes& z, bool backward) {
  AttentionShape shape;
  shape.dtype = z.dtype;
  shape.backward = backward;
  shape.query = {z.b, z.n, z.s, z.d};
  shape.key = {z.b, z.kv, z.s, z.d};
  shape.of_query = shape.of_result = strides(z, z.n);
  shape.of_key = shape.of_value = strides(z, z.kv);
  if (backward) {
    shape.of_gradient = shape.of_dquery = shape.of_query;
    shape.of_dkey = shape.of_dvalue = shape.of_key;
  }
  return shape;
}

class CudnnGraphs : public testing::Test {
 protected:
  CudnnGraphs() {
    if (!library.problem().empty()) skipped = library.problem();
  }
  Cudnn library;
  std::string skipped;
};

#define LEDGER_NEEDS_CUDNN() \
  if (!skipped.empty()) GTEST_SKIP() << skipped

TEST_F(CudnnGraphs, OfAGridOfShapesAreAccepted) {
  LEDGER_NEEDS_CUDNN();
  for (const bool backward : {false, true}) {
    for (const auto& [n, kv] : {std::pair<int, int>{8, 8}, {8, 2}, {32, 8}, {6, 1}}) {
      for (const std::int64_t s : {128, 100, 4096}) {
        for (const std::int64_t d : {64, 96, 128}) {
          for (const DType dtype : {DType::bf16, DType::f16}) {
            CudnnAttention attention(library, shape_of({2, n, kv, s, d, dtype}, backward));
            EXPECT_TRUE(attention.finish(nullptr)) << attention.error();
            EXPECT_GT(attention.engines(), 0) << n << " " << kv << " " << s << " " << d;
          }
        }
      }
    }
  }
}

TEST_F(CudnnGraphs, WithShapesThatDoNotGoTogetherAreRefusedInASentence) {
  LEDGER_NEEDS_CUDNN();
  for (const bool backward : {false, true}) {
    CudnnAttention grouped(library, shape_of({2, 6, 4, 128, 64}, backward));
    EXPECT_FALSE(grouped.finish(nullptr));
    EXPECT_TRUE(grouped.error().starts_with("cuDNN refused a matrix product of these shapes: ")) << grouped.error();
    AttentionShape widths = shape_of({2, 8, 8, 128, 64}, backward);
    widths.key[3] = 32;
    CudnnAttention uneven(library, widths);
    EXPECT_FALSE(uneven.finish(nullptr));
    EXPECT_TRUE(uneven.error().starts_with("cuDNN refused ")) << uneven.error();
    AttentionShape empty = shape_of({2, 8, 8, 128, 64}, backward);
    empty.query[2] = -1;
    CudnnAttention negative(library, empty);
    EXPECT_FALSE(negative.finish(nullptr));
    EXPECT_TRUE(negative.error().starts_with("cuDNN refused ")) << negative.error();
  }
}

// dQ in fp32 and a number a row, each in whole pieces of 256 bytes; forward keeps nothing.
TEST_F(CudnnGraphs, KeepWhatTheyHandFromPartToPart) {
  LEDGER_NEEDS_CUDNN();
  EXPECT_EQ(CudnnAttention(library, shape_of({2, 8, 2, 100, 64}, false)).scratch_bytes(), 0u);
  EXPECT_EQ(CudnnAttention(library, shape_of({2, 8, 2, 100, 64}, true)).scratch_bytes(),
            2u * 8 * 100 * 64 * 4 + round_up(2 * 8 * 100 * 4, 256));
}

TEST_F(CudnnGraphs, NeedADeviceForAPlan) {
  LEDGER_NEEDS_CUDNN();
  if (library.open(nullptr).empty()) GTEST_SKIP() << "this machine has a device";
  CudnnAttention attention(library, shape_of({2, 8, 2, 128, 64}, false));
  ASSERT_TRUE(attention.finish(nullptr));
  EXPECT_FALSE(attention.plan(nullptr));
  EXPECT_TRUE(attention.error().starts_with("none of cuDNN's engines takes this graph on this device"));
}

TEST(Cudnn, ThatIsMissingIsSaidWithWhereItWasLookedFor) {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  SharedLibrary library({"cuDNN", {"libcudnn_of_no_version.so"}, "attention by cuDNN", "nvidia-cudnn"});
  EXPECT_FALSE(library.loaded());
  for (const char* part : {"cuDNN is needed for attention by cuDNN and was not found: libcudnn_of_no_version.so",
                           "LD_LIBRARY_PATH", "/usr/local/cuda/lib64", "pip's nvidia-cudnn"})
    EXPECT_NE(library.error().find(part), std::string::npos) << library.error();
  EXPECT_EQ(path, std::getenv("LD_LIBRARY_PATH"));
}

// --- what is asked
// -------------------------------------------------------------------------------------------------------

device::Operand operand(const Sizes& z, std::int64_t heads) {
  device::Operand result;
  result.dtype = z.dtype;
  result.rank = 4;
  result.sizes = {static_cast<std::uint64_t>(z.b), static_cast<std::uint64_t>(heads), static_cast<std::uint64_t>(z.s),
                  static_cast<std::uint64_t>(z.d)};
  const Four of = strides(z, heads);
  for (std::size_t i = 0; i < of.size(); ++i)
    result.strides[i] = of[i];
  return result;
}

const char* refusal(const Sizes& z, bool backward, Attr attr = {}, std::size_t version = kVersion,
                    std::int64_t step = 1) {
  device::Operand q = operand(z, z.n), k = operand(z, z.kv);
  q.strides[3] = step;
  const std::vector<device::Operand> in = backward ? std::vector{q, q, k, k, q, q} : std::vector{q, k, k};
  const std::vector<device::Operand> out = backward ? std::vector{q, k, k} : std::vector{q, q};
  const OpKind op = backward ? OpKind::cudnn_attention_backward : OpKind::cudnn_attention;
  const AttentionQuestion question = attention_question(op, in, out, attr, version);
  if (question.refusal == nullptr) {
    EXPECT_EQ(question.shape, shape_of(z, backward));
  }
  return question.refusal == nullptr ? "" : question.refusal;
}

TEST(CudnnQuestions, NameWhatCudnnIsNotAsked) {
  for (const bool backward : {false, true}) {
    EXPECT_STREQ(refusal({2, 8, 2, 128, 64}, backward), "");
    EXPECT_STREQ(refusal({2, 8, 2, 128, 64, DType::f32}, backward), "cuDNN's attention computes in 16 bits");
    EXPECT_STREQ(refusal({2, 6, 4, 128, 64}, backward), "the heads of keys do not divide those of queries");
    EXPECT_STREQ(refusal({2, 8, 2, 128, 60}, backward), "heads are not a multiple of 8 up to 128 wide");
    EXPECT_STREQ(refusal({2, 8, 2, 128, 256}, backward), "heads are not a multiple of 8 up to 128 wide");
    EXPECT_STREQ(refusal({2, 8, 2, 128, 64}, backward, {0, {1, 0}}),
                 "probabilities are dropped, or what is not causal");
    EXPECT_STREQ(refusal({2, 8, 2, 128, 64}, backward, {0, {0, 1}}),
                 "probabilities are dropped, or what is not causal");
    EXPECT_STREQ(refusal({2, 8, 2, 128, 64}, backward, {}, kVersion, 2), "heads do not lie side by side");
  }
  EXPECT_STREQ(refusal({2, 8, 2, 100, 64}, false, {}, 90800), "");
  EXPECT_STREQ(refusal({2, 8, 2, 100, 64}, true, {}, 90800),
               "before cuDNN 9.15.1 backward takes sequences in multiples of 128");
  EXPECT_STREQ(refusal({2, 8, 2, 256, 64}, true, {}, 90800), "");
}

// --- what the executor does with it
// ---------------------------------------------------------------------------------------------

// Declines everything, and remembers what scratch memory it was given.
class Declining : public device::AttentionLibrary {
 public:
  bool attend(device::Call& call) override {
    const bool backward = call.run.op == OpKind::cudnn_attention_backward;
    const std::size_t always = backward ? 3 : 4;
    ++(backward ? backwards : forwards);
    if (call.out.size() > always) (backward ? backward_bytes : forward_bytes) = call.out[always].numel();
    return false;
  }
  int forwards = 0, backwards = 0;
  Bytes forward_bytes = 0, backward_bytes = 0;
};

TEST(CudnnAttentionOfATrace, IsGivenItsScratchMemoryAndFallsBackWhereItDeclines) {
  Recipe recipe;
  recipe.attention = Attention::cudnn;
  recipe.seq = 12;
  TraceOptions options;
  options.operands = true;
  options.steps = 2;
  const ModelConfig config = read_model_config(tiny::kLlama).value();
  const Trace plain = trace_step(config, recipe, options).value();
  options.cudnn_forward_bytes = 3000;
  options.cudnn_backward_bytes = 70000;
  const Trace trace = trace_step(config, recipe, options).value();
  emulated::EmulatedDevice device;
  Declining library;
  device.services().attention = &library;
  device::DeviceExecutor executor(trace, device, {.poison = true});
  const Replay played = replay(trace, {}, &executor, &device.store());
  executor.finish();
  ASSERT_FALSE(executor.failure()) << executor.failure()->what;
  EXPECT_EQ(library.forwards, 2 * 2);
  EXPECT_EQ(library.backwards, 2 * 2);
  EXPECT_EQ(library.forward_bytes, 3000u);
  EXPECT_EQ(library.backward_bytes, 70000u);
  EXPECT_EQ(played.peak_workspace_bytes, 70000u) << "one at a time";
  EXPECT_EQ(played.peak_tensor_bytes, replay(plain, {}).peak_tensor_bytes) << "it is no tensor";
  emulated::EmulatedDevice without;
  device::DeviceExecutor expected(plain, without, {.poison = true});
  replay(plain, {}, &expected, &without.store());
  expected.finish();
  EXPECT_EQ(executor.losses(), expected.losses());
}

}  // namespace
}  // namespace ledger::cuda
