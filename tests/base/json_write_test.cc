// JsonWriter's output is always JSON and reads back equal.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "core/base/json.h"
#include "core/base/utf8.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

template <class T>
std::string written(T value) {
  return JsonWriter().value(value).take();
}

TEST(JsonWrite, KeepsKeyOrderAndCommas) {
  JsonWriter out;
  out.begin_object().member("b", 1).member("a", "x");
  out.key("list").begin_array().value(true).null().begin_object().end_object().begin_array().end_array().end_array();
  out.member("last", -1).end_object();
  EXPECT_EQ(out.take(), R"({"b":1,"a":"x","list":[true,null,{},[]],"last":-1})");
}

TEST(JsonWrite, IntegersAreExact) {
  EXPECT_EQ(written(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(written(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

TEST(JsonWrite, DoublesAreShortWhereTheyCanBe) {
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(1e-6), "1e-06");
  EXPECT_EQ(written(500000.0), "500000");
  EXPECT_EQ(written(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(written(-0.0), "-0");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(written(std::nan("")), "null");
}

// The C library's shortest of %.15g, %.16g and %.17g, which readers know.
TEST(JsonWrite, DoublesAreSpelledAsPrintfDoes) {
  std::mt19937_64 random(2);
  std::uniform_int_distribution<int> exponent(-9, 20);
  for (int i = 0; i < 20000; ++i) {
    const double value = static_cast<double>(random() % 1000000) * std::pow(10.0, exponent(random)) * (i % 2 ? 1 : -1);
    char expected[32];
    for (int precision = 15; precision <= 17; ++precision) {
      std::snprintf(expected, sizeof expected, "%.*g", precision, value);
      if (std::strtod(expected, nullptr) == value) break;
    }
    ASSERT_EQ(written(value), expected);
  }
}

TEST(JsonWrite, DoublesReadBackEqual) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const Result<Json> back = parse_json(written(value));
    ASSERT_TRUE(back.ok()) << written(value);
    ASSERT_EQ(back.value().as_real(), value) << written(value);
  }
}

struct Text {
  const char* name;
  std::string in;
  std::string out;
};

TEST(JsonWrite, EscapesAndReplaces) {
  const Text cases[] = {
      {"plain", "abc", "\"abc\""},
      {"named escapes", "\"\\\b\f\n\r\t", "\"\\\"\\\\\\b\\f\\n\\r\\t\""},
      {"control characters", std::string("\0\x1F", 2), "\"\\u0000\\u001f\""},
      {"characters of 2, 3 and 4 bytes", "\xC3\xA9\xE6\x98\xBE\xF0\x9F\x98\x80",
       "\"\xC3\xA9\xE6\x98\xBE\xF0\x9F\x98\x80\""},
      {"a byte that never occurs", "a\xFFz", "\"a\xEF\xBF\xBDz\""},
      {"a lone continuation", "\x80", "\"\xEF\xBF\xBD\""},
      {"an overlong slash is two errors", "\xC0\xAF", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
      {"a surrogate is three", "\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
      {"a cut character is one", "\xF0\x9F\x98", "\"\xEF\xBF\xBD\""},
      {"a cut character before a letter", "\xE6\x98z", "\"\xEF\xBF\xBDz\""},
      {"above U+10FFFF", "\xF4\x90\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
  };
  for (const Text& c : cases)
    EXPECT_EQ(written(c.in), c.out) << c.name;
}

TEST(JsonWrite, AnyBytesMakeJson) {
  std::mt19937 random(2);
  for (int i = 0; i < 5000; ++i) {
    std::string bytes(random() % 12, ' ');
    for (char& c : bytes)
      c = static_cast<char>(random());
    const Result<Json> back = parse_json(written(bytes));
    ASSERT_EQ(outcome(back), "ok");
    ASSERT_EQ(written(std::string(*back.value().as_string())), written(bytes));
  }
}

TEST(JsonWrite, TreesReadBackEqual) {
  const std::string text = R"({"a":[1,-2,0.5,"x",null,true,{"b":{}}],"":18446744073709551615})";
  const Result<Json> json = parse_json(text);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(JsonWriter().value(json.value()).take(), text);
}

TEST(JsonBrief, IsAtMostTheLimitAndCutBetweenCharacters) {
  EXPECT_EQ(Json::of_string("abc").brief(), "\"abc\"");
  EXPECT_EQ(Json::of_unsigned(42).brief(), "42");
  const std::string brief = Json::of_string(std::string(300, 'x')).brief();
  EXPECT_EQ(brief.size(), 80u);
  EXPECT_TRUE(brief.ends_with("..."));
  std::string wide;
  for (int i = 0; i < 100; ++i)
    wide += "\xE6\x98\xBE";
  for (std::size_t limit = 0; limit < 40; ++limit) {
    const std::string cut = Json::of_string(wide).brief(limit);
    EXPECT_LE(cut.size(), limit);
    for (std::size_t at = 0; at < cut.size(); at += utf8_step(cut, at).bytes)
      EXPECT_TRUE(utf8_step(cut, at).valid);
  }
}

TEST(JsonBrief, DoesNotRenderAHugeTree) {
  std::vector<Json> items(1000000, Json::of_unsigned(7));
  const std::string brief = Json::of_array(std::move(items)).brief(20);
  EXPECT_EQ(brief, "[7,7,7,7,7,7,7,7,...");
}

}  // namespace
}  // namespace ledger
