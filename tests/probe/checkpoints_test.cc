// The checkpoints known by name: each is read and counted to the parameter, and found by either of its names.
#include "probe/checkpoints.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/config/model_config.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

TEST(NamedCheckpoints, AreCountedExactly) {
  ASSERT_GE(checkpoint_files().size(), 100u);
  for (const CheckpointFile& file : checkpoint_files()) {
    const Result<Json> row = parse_json(file.json);
    ASSERT_TRUE(row.ok()) << file.id;
    const Result<ModelConfig> config = model_config_from(*row.value().find("config"));
    ASSERT_EQ(outcome(config), "ok") << file.id;
    EXPECT_EQ(parameter_count(config.value()), row.value().find("params")->as_unsigned()) << file.id;
  }
}

TEST(NamedCheckpoints, BearTheirFilesNamesAndASource) {
  std::set<std::string> names;
  for (const CheckpointFile& file : checkpoint_files()) {
    const Json row = parse_json(file.json).value();
    EXPECT_EQ(row.find("id")->as_string(), file.id);
    ASSERT_NE(row.find("source"), nullptr) << file.id;
    EXPECT_FALSE(row.find("source")->as_string()->empty()) << file.id;
    EXPECT_TRUE(names.insert(std::string(*row.find("name")->as_string())).second) << file.id;
  }
}

TEST(NamedCheckpoints, AreFoundByEitherName) {
  ASSERT_TRUE(checkpoint_config("llama-3-8b"));
  EXPECT_EQ(checkpoint_config("llama-3-8b")->find("hidden_size")->as_unsigned(), 4096u);
  ASSERT_TRUE(checkpoint_config("META-LLAMA/meta-llama-3-8b"));
  EXPECT_EQ(checkpoint_config("META-LLAMA/meta-llama-3-8b")->find("vocab_size")->as_unsigned(), 128256u);
  EXPECT_FALSE(checkpoint_config("llama-3"));
  EXPECT_FALSE(checkpoint_config(""));
}

TEST(NamedCheckpoints, AMistypedNameIsPutRight) {
  EXPECT_EQ(nearest_checkpoint("lama-3-8b"), "llama-3-8b");
  EXPECT_EQ(nearest_checkpoint("Qwen/Qwen2.5_7B"), "qwen2.5-7b");
  EXPECT_EQ(nearest_checkpoint("zzzzzzzzzzzz"), "");
}

}  // namespace
}  // namespace ledger
