#include "core/oom/squash.h"

#include <gtest/gtest.h>

namespace ledger::oom {
namespace {

TEST(Squash, KeepsLettersAndForgetsLayout) {
  EXPECT_EQ(Squashed("Tried to\n allo_cate **4\n0.30 GiB**").text(), "triedtoallocate40.30gib");
  EXPECT_EQ(Squashed("\xc2\xa0"
                     "a\xe2\x94\x82"
                     "b\xe2\x80\x8b"
                     "c")
                .text(),
            "abc");
  EXPECT_EQ(Squashed("\x1b[1;31mred\x1b[0m").text(), "red");
  EXPECT_EQ(Squashed("").text(), "");
}

TEST(Squash, DropsWhatLaunchersPutBeforeLines) {
  for (const char* line : {"[rank3]: x", "> x", "0: x", "worker-0: [rank7]:   x", "(Actor pid=7, ip=10.0.0.1) x",
                           "  \xe2\x94\x82 x", "[0]: x"})
    EXPECT_EQ(Squashed(line).text(), "x") << line;
}

TEST(Squash, LeavesLinesThatOnlyLookLikePrefixes) {
  EXPECT_EQ(Squashed("Error: x").text(), "error:x");
  EXPECT_EQ(Squashed("[a long name]: x").text(), "[alongname]:x");
  EXPECT_EQ(Squashed("4\n0.30 GiB").text(), "40.30gib");
}

TEST(Squash, QuotesTheAuthorsOwnLine) {
  const std::string text = "first\n[rank1]:   File \"a.py\", line 3, in step  \nlast";
  const Squashed squashed(text);
  EXPECT_EQ(squashed.quote(squashed.text().find("instep")), "File \"a.py\", line 3, in step");
  EXPECT_EQ(squashed.quote(squashed.text().size()), "");
}

TEST(Squash, CutsLongLinesAtCharacters) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "\xe6\x98\xbe";  // one Chinese character
  text += "here";
  const Squashed squashed(text);
  const std::string quote = squashed.quote(squashed.text().find("here"), 50);
  EXPECT_LE(quote.size(), 50u);
  EXPECT_NE(quote.find("here"), std::string::npos);
  EXPECT_NE(static_cast<unsigned char>(quote[0]) & 0xC0, 0x80u);
}

}  // namespace
}  // namespace ledger::oom
