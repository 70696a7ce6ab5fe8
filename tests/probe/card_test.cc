// What CUDA calls a card, and which row of the catalogue that is.
#include "probe/card.h"

#include <gtest/gtest.h>

namespace ledger {
namespace {

struct Named {
  const char* name;
  double total_gib;
  const char* id;  // nullptr: not in the catalogue
};

void PrintTo(const Named& n, std::ostream* out) {
  *out << n.name;
}

// Names as nvidia-smi -L prints them.
const Named kCards[] = {
    {"NVIDIA H200", 139.8, "h200-141gb"},
    {"NVIDIA H100 80GB HBM3", 79.1, "h100-80gb"},
    {"NVIDIA H100 PCIe", 79.1, "h100-80gb"},
    {"NVIDIA H100 NVL", 93.0, "h100-nvl-94gb"},
    {"NVIDIA A100-SXM4-80GB", 79.2, "a100-80gb"},
    {"NVIDIA A100-SXM4-40GB", 39.4, "a100-40gb"},
    {"NVIDIA A100 80GB PCIe", 79.2, "a100-80gb"},
    {"NVIDIA GeForce RTX 4090", 23.6, "rtx4090-24gb"},
    {"NVIDIA GeForce RTX 5060 Ti", 15.5, "rtx5060ti-16gb"},
    {"NVIDIA RTX A6000", 47.5, "a6000-48gb"},
    {"NVIDIA RTX A6000", 44.5, "a6000-48gb-ecc"},
    {"NVIDIA L4", 22.05, "l4-24gb"},
    {"NVIDIA L40S", 44.4, "l40s-48gb"},
    {"NVIDIA B200", 178.3, "b200-180gb"},
    {"NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9.5, nullptr},
    {"NVIDIA Unheard-of 9000", 24, nullptr},
};

class Cards : public testing::TestWithParam<Named> {};

INSTANTIATE_TEST_SUITE_P(All, Cards, testing::ValuesIn(kCards));

TEST_P(Cards, AreFoundByNameAndSize) {
  const Gpu* card = find_card(GetParam().name, static_cast<Bytes>(GetParam().total_gib * static_cast<double>(kGiB)));
  if (GetParam().id == nullptr) {
    EXPECT_EQ(card, nullptr) << card->id;
  } else {
    ASSERT_NE(card, nullptr);
    EXPECT_STREQ(card->id, GetParam().id);
  }
}

}  // namespace
}  // namespace ledger
