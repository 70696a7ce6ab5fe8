// The catalogue holds what it promises: sourced capacities below the label, contexts with a low and a high end.
#include "core/config/gpu.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ledger {
namespace {

class EachGpu : public testing::TestWithParam<Gpu> {};

INSTANTIATE_TEST_SUITE_P(Catalogue, EachGpu, testing::ValuesIn(gpus().begin(), gpus().end()), [](const auto& test) {
  std::string name = test.param.id;
  for (char& c : name)
    c = c == '-' ? '_' : c;
  return name;
});

TEST_P(EachGpu, HasPlausibleCapacities) {
  const Gpu& gpu = GetParam();
  EXPECT_LE(gpu.usable_bytes, gpu.label_bytes);
  EXPECT_GE(gpu.usable_bytes, gpu.label_bytes - gpu.label_bytes / 11);  // ECC takes a sixteenth, the driver some more
  EXPECT_GT(gpu.context_low_bytes, 0u);
  EXPECT_LT(gpu.context_low_bytes, gpu.context_high_bytes);
  EXPECT_LT(gpu.context_high_bytes, gpu.usable_bytes / 10);
}

TEST_P(EachGpu, NamesItsSources) {
  EXPECT_NE(std::string(GetParam().source), "");
  EXPECT_NE(std::string(GetParam().context_source), "");
}

TEST_P(EachGpu, CarriesItsLabelInIdAndName) {
  const Gpu& gpu = GetParam();
  const std::string label = std::to_string(gpu.label_bytes / kGiB);
  EXPECT_NE(std::string(gpu.id).find("-" + label + "gb"), std::string::npos);
  EXPECT_NE(std::string(gpu.name).find(" " + label + "GB"), std::string::npos);
  EXPECT_TRUE(std::string(gpu.name).starts_with("NVIDIA "));
}

TEST_P(EachGpu, HasSpeedsOfItsGeneration) {
  const Gpu& gpu = GetParam();
  EXPECT_GT(gpu.bandwidth_gb_per_s, 100);
  EXPECT_LE(gpu.bandwidth_gb_per_s, 8000);
  EXPECT_LE(gpu.dense_bf16_tflops, 2500);
  const bool has_bf16_tensor_cores = gpu.compute_capability >= 80;
  EXPECT_TRUE(has_bf16_tensor_cores || gpu.dense_bf16_tflops == 0);
}

TEST_P(EachGpu, IsFoundByItsId) {
  ASSERT_NE(find_gpu(GetParam().id), nullptr);
  EXPECT_STREQ(find_gpu(GetParam().id)->name, GetParam().name);
}

TEST(Gpus, IdsAreDifferentAndListedInOrder) {
  std::set<std::string> ids;
  ASSERT_EQ(gpu_ids().size(), gpus().size());
  for (std::size_t i = 0; i < gpus().size(); ++i) {
    EXPECT_STREQ(gpu_ids()[i], gpus()[i].id);
    EXPECT_TRUE(ids.insert(gpus()[i].id).second) << gpus()[i].id;
  }
  EXPECT_GE(ids.size(), 25u);
  EXPECT_EQ(find_gpu("h100"), nullptr);
  EXPECT_EQ(find_gpu(""), nullptr);
}

TEST(Gpus, CublasWorkspaceFollowsTheArchitecture) {
  EXPECT_EQ(cublas_workspace_bytes(*find_gpu("a100-80gb")), 8519680u);
  EXPECT_EQ(cublas_workspace_bytes(*find_gpu("rtx4090-24gb")), 8519680u);
  EXPECT_EQ(cublas_workspace_bytes(*find_gpu("h100-80gb")), 32 * kMiB);
  EXPECT_EQ(cublas_workspace_bytes(*find_gpu("b200-180gb")), 32 * kMiB);
}

}  // namespace
}  // namespace ledger
