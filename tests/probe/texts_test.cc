// Every problem code and every reason has a sentence, with its data filled in.
#include "probe/texts.h"

#include <gtest/gtest.h>

namespace ledger {
namespace {

TEST(Texts, EveryCodeIsASentenceWithoutHoles) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(ProblemCode::count_); ++i) {
    const std::string text = say({static_cast<ProblemCode>(i), "WHERE", "READ", "EXPECTED", "NEAREST"}, "cfg.json");
    EXPECT_TRUE(text.starts_with("cfg.json: ")) << text;
    EXPECT_EQ(text.find('{'), text.find("'{'") == std::string::npos ? std::string::npos : text.find("'{'") + 1) << text;
    EXPECT_TRUE(text.ends_with(" Did you mean NEAREST?")) << text;
    const std::string plain = say({static_cast<ProblemCode>(i), "", "", "", ""}, "cfg.json");
    EXPECT_TRUE(plain.ends_with(".") || plain.ends_with("?")) << plain;
  }
}

TEST(Texts, WrongFilesAreCalledByWhatTheyAre) {
  const auto said = [](const char* id) { return say({ProblemCode::wrong_file, "", id, "", ""}, "x"); };
  EXPECT_TRUE(said("empty").starts_with("x: this is an empty file, not a model's config.json."));
  EXPECT_TRUE(said("adapter_config").starts_with("x: this is an adapter_config file, not"));
  EXPECT_TRUE(said("tokenizer_config").starts_with("x: this is a tokenizer_config file, not"));
}

TEST(Texts, DataWithBracesIsLeftAlone) {
  EXPECT_EQ(say({ProblemCode::wrong_type, "k", "{\"a\":1}", "integer", ""}, "x"),
            "x: k: expected integer, found {\"a\":1}.");
}

}  // namespace
}  // namespace ledger
