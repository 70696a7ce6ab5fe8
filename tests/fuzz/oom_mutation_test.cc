// Thousands of seeded mutations of error texts, and texts made to hurt: never a crash, always a document that can be
// read back, whose quotes stand in the text.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/oom/explain.h"
#include "tests/answer/json_path.h"

namespace ledger::oom {
namespace {

constexpr int kRounds = 4000;

const std::vector<std::string> kSeeds = {
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 2 has a total capacity of "
    "79.25 GiB of which 50.00 "
    "MiB is free. Process 12 has 1.00 GiB memory in use. Including non-PyTorch memory, this process has 78.00 GiB "
    "memory in use. Of the "
    "allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
    "RuntimeError: CUDA out of memory. Tried to allocate 36.00 MiB (GPU 1; 11.50 GiB total capacity; 9.25 GiB already "
    "allocated; 30.50 MiB "
    "free; 512.00 MiB cached)\n  0%| | 1/4000 [00:06<7:54:55]",
    "Loading checkpoint shards:  40%|##| 4/10 [00:08<00:12]\nOOM when allocating tensor with shape[4,12,512] and type "
    "float",
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1048576000 bytes.\nexits with return code = -9",
    "(Actor pid=7, ip=10.0.0.1) ValueError: Free memory on device (5.25/24.00 GiB) on startup is less than desired GPU "
    "memory utilization "
    "(0.9, 21.50 GiB).",
    "trainable params: 1 || all params: 2 || trainable%: 0.5\ntotal += loss\nmemory: 3.0GiB memory: 5.0GiB nvidia-smi "
    "96GB reserved 82GB",
};
const std::vector<std::string> kPieces = {"GiB",
                                          "MiB",
                                          "99999999999999999999999999.99 GiB",
                                          "17179869184.00 GiB",
                                          "-1",
                                          "1e308 GiB",
                                          "NaN",
                                          "\n",
                                          "\x1b[31m",
                                          "\xff",
                                          "\xe6\x98",
                                          "process 18446744073709551616 has 1 b",
                                          "shape[",
                                          "shape[99999999999,99999999999,99999]",
                                          "(",
                                          ")",
                                          "/",
                                          "/9[",
                                          "0/0[",
                                          "tried to allocate",
                                          "of the allocated memory",
                                          "free on device (",
                                          std::string(1, '\0'),
                                          "<script>alert(1)</script>",
                                          "\xe2\x94\x82",
                                          "[rank",
                                          "]:",
                                          "trainable%:",
                                          "+=loss",
                                          ";",
                                          "other allocations:"};

std::string mutate(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t edits = 1 + below(6); edits > 0; --edits) {
    const std::size_t at = below(text.size() + 1);
    switch (below(4)) {
      case 0:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 1:
        text.erase(at, below(12));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), below(40)));
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(random());
    }
  }
  return text;
}

void expect_sound(const std::string& text) {
  const Explanation e = explain(text);
  const Json document = parsed(write_explanation(e));
  ASSERT_EQ(document.find("kind")->as_string(), "oom");
  EXPECT_LE(e.diagnosis.also_possible.size(), 2u);
  EXPECT_TRUE(e.diagnosis.confidence > 0 && e.diagnosis.confidence <= 1);
  for (const Evidence& evidence : e.diagnosis.evidence)
    EXPECT_NE(text.find(evidence.quote), std::string::npos);
}

TEST(OomFuzz, MutatedTextsAreExplained) {
  std::mt19937 random(20240607);
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = mutate(kSeeds[random() % kSeeds.size()], random);
    expect_sound(text);
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "round " << round << ": " << text;
  }
}

TEST(OomFuzz, HostileTexts) {
  expect_sound("");
  expect_sound(std::string(3u << 20, '9') + " GiB total capacity");
  expect_sound(std::string(1u << 20, '/') + "[");
  expect_sound(std::string(1u << 20, '\n'));
  expect_sound(std::string(1u << 20, '\x1b'));
  std::string many;
  for (int i = 0; i < 5000; ++i)
    many += "Tried to allocate 1.00 MiB (GPU 0; 2.00 GiB total capacity; ";
  expect_sound(many);
  std::string processes = "Tried to allocate 1.00 MiB. ";
  for (int i = 0; i < 5000; ++i)
    processes += "Process " + std::to_string(i) + " has 1.00 GiB memory in use. ";
  expect_sound(processes);
  for (const char* tail : {"Tried to allocate", "shape[", "Free memory on device (", "trainable%:", "memory:", "1/"})
    expect_sound(tail);
}

TEST(OomFuzz, OneLineOfAHundredMegabytes) {
  const Explanation e = explain(std::string(100u << 20, 'a') + " CUDA out of memory. Tried to allocate 64.00 MiB");
  ASSERT_EQ(e.messages.size(), 1u);
  EXPECT_EQ(e.messages[0][Field::requested], 64 * kMiB);
}

}  // namespace
}  // namespace ledger::oom
