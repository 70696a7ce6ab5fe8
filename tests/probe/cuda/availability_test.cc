// Why there is no GPU: each cause gets its own sentence.
#include "probe/cuda/availability.h"

#include <gtest/gtest.h>

#include <set>

namespace ledger::cuda {
namespace {

// A machine on which everything is as it should be; the cases take something away.
Facts good() {
  Facts facts;
  facts.built = true;
  facts.built_for = 13000;
  facts.driver_library = true;
  facts.driver_version = 13000;
  facts.devices = 1;
  return facts;
}

struct Case {
  const char* name;
  void (*spoil)(Facts&);
  const char* says;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

void without_driver(Facts& f) {
  f.driver_library = false;
  f.driver_version = 0;
  f.devices = 0;
  f.error = 35;  // what the runtime says without a driver
}

const Case kCases[] = {
    {"no_driver", without_driver, "no NVIDIA driver was found on this machine"},
    {"no_driver_and_not_built",
     [](Facts& f) {
       without_driver(f);
       f.built = false;
     },
     "no NVIDIA driver was found on this machine"},
    {"no_driver_in_a_container",
     [](Facts& f) {
       without_driver(f);
       f.container = true;
     },
     "docker run --gpus all"},
    {"no_driver_in_wsl",
     [](Facts& f) {
       without_driver(f);
       f.wsl = true;
     },
     "Windows"},
    {"not_built", [](Facts& f) { f.built = false; }, "the build found no nvcc"},
    {"old_driver",
     [](Facts& f) {
       f.driver_version = 12040;
       f.error = 35;
     },
     "serves CUDA 12.4, and probe was built with 13.0"},
    {"no_device", [](Facts& f) { f.error = 100; }, "sees no GPU: nvidia-smi -L"},
    {"zero_devices", [](Facts& f) { f.devices = 0; }, "sees no GPU"},
    {"hidden_device",
     [](Facts& f) {
       f.error = 100;
       f.visible_devices = "7";
     },
     "CUDA_VISIBLE_DEVICES is \"7\""},
    {"stub", [](Facts& f) { f.error = 34; }, "stub"},
    {"exclusive", [](Facts& f) { f.error = 46; }, "EXCLUSIVE_PROCESS"},
    {"fabric_manager", [](Facts& f) { f.error = 802; }, "fabricmanager"},
    {"not_restarted", [](Facts& f) { f.error = 803; }, "not restarted"},
    {"compat_package", [](Facts& f) { f.error = 804; }, "compatibility package"},
    {"mps", [](Facts& f) { f.error = 805; }, "MPS control daemon"},
    {"full", [](Facts& f) { f.error = 2; }, "other processes fill it"},
    {"sandbox", [](Facts& f) { f.error = 304; }, "refused the driver a call"},
    {"unheard_of", [](Facts& f) { f.error = 12345; }, "error 12345"},
};

class WhyNot : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(All, WhyNot, testing::ValuesIn(kCases), [](const auto& c) { return c.param.name; });

TEST_P(WhyNot, IsSaid) {
  Facts facts = good();
  GetParam().spoil(facts);
  const std::string sentence = why_not(facts);
  EXPECT_NE(sentence.find(GetParam().says), std::string::npos) << sentence;
  EXPECT_EQ(sentence.find('\n'), std::string::npos);
  EXPECT_FALSE(sentence.ends_with(".")) << "the caller adds what to do instead";
}

TEST(WhyNotAtAll, WhereEverythingIsThere) {
  EXPECT_EQ(why_not(good()), "");
}

TEST(ErrorTable, EveryRowIsASentenceOfItsOwn) {
  std::set<std::string> sentences;
  int rows = 0;
  for (int code = 0; code < 1000; ++code) {
    if (const char* meaning = explain_error(code)) {
      sentences.insert(meaning);
      ++rows;
    }
  }
  EXPECT_GE(rows, 20);
  EXPECT_EQ(sentences.size(), static_cast<std::size_t>(rows));
}

// Whatever this machine has, facts and judgement agree with each other.
TEST(CollectedFacts, AreConsistent) {
  const Facts facts = collect_facts();
  EXPECT_EQ(facts.built, facts.built_for > 0);
  if (!facts.driver_library) {
    EXPECT_EQ(facts.driver_version, 0);
  }
  EXPECT_EQ(why_not(facts).empty(), facts.devices > 0);
}

}  // namespace
}  // namespace ledger::cuda
