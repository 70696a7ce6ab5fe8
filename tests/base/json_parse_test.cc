// What parse_json accepts and refuses. Case names y_/n_/i_ follow the public JSON Parsing Test Suite
// (nst/JSONTestSuite).
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/base/json.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

using namespace std::string_literals;

struct Case {
  const char* name;
  std::string text;
  std::string want;  // outcome()
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

std::string named(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

class Accepts : public testing::TestWithParam<Case> {};

// want: the document as JsonWriter prints it.
TEST_P(Accepts, AndMeans) {
  const Result<Json> json = parse_json(GetParam().text);
  ASSERT_EQ(outcome(json), "ok");
  EXPECT_EQ(JsonWriter().value(json.value()).take(), GetParam().want);
}

INSTANTIATE_TEST_SUITE_P(
    JsonParse, Accepts,
    testing::ValuesIn(std::vector<Case>{
        {"y_array_empty", "[]", "[]"},
        {"y_array_arrays_with_spaces", "[[]   ]", "[[]]"},
        {"y_array_heterogeneous", "[null, 1, \"1\", {}]", "[null,1,\"1\",{}]"},
        {"y_array_with_1_and_newline", "[1\n]", "[1]"},
        {"y_array_with_leading_space", " [1]", "[1]"},
        {"y_array_with_trailing_space", "[2] ", "[2]"},
        {"y_number", "[123e65]", "[1.23e+67]"},
        {"y_number_0e1", "[0e1]", "[0]"},
        {"y_number_after_space", "[ 4]", "[4]"},
        {"y_number_double_close_to_zero", "[-0.000000000000000000000000000000000000000000000000001]", "[-1e-51]"},
        {"y_number_int_with_exp", "[20e1]", "[200]"},
        {"y_number_minus_zero", "[-0]", "[0]"},
        {"y_number_negative_int", "[-123]", "[-123]"},
        {"y_number_real_capital_e_neg_exp", "[1E-2]", "[0.01]"},
        {"y_number_real_fraction_exponent", "[123.456e78]", "[1.23456e+80]"},
        {"y_object_duplicated_key_last_wins", "{\"a\":\"b\",\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"y_object_duplicated_key_keeps_first_place", "{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}"},
        {"y_object_empty_key", "{\"\":0}", "{\"\":0}"},
        {"y_object_escaped_null_in_key", "{\"foo\\u0000bar\": 42}", "{\"foo\\u0000bar\":42}"},
        {"y_object_with_newlines", "{\n\"a\": \"b\"\n}", "{\"a\":\"b\"}"},
        {"y_string_surrogate_pair", "[\"\\uD801\\udc37\"]", "[\"\xF0\x90\x90\xB7\"]"},
        {"y_string_allowed_escapes", "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]", "[\"\\\"\\\\/\\b\\f\\n\\r\\t\"]"},
        {"y_string_backslash_and_u_escaped_zero", "[\"\\\\u0000\"]", "[\"\\\\u0000\"]"},
        {"y_string_comments_inside", "[\"a/*b*/c/*d//e\"]", "[\"a/*b*/c/*d//e\"]"},
        {"y_string_utf8", "[\"\xE6\x98\xBE\xE5\xAD\x98\"]", "[\"\xE6\x98\xBE\xE5\xAD\x98\"]"},
        {"y_string_del_character", "[\"a\x7F\"]", "[\"a\x7F\"]"},
        {"y_structure_lonely_string", "\"asd\"", "\"asd\""},
        {"y_structure_lonely_false", "false", "false"},
        {"y_structure_lonely_negative_real", "-0.1", "-0.1"},
        {"y_structure_whitespace_array", " [] ", "[]"},
        {"i_structure_utf8_bom_object", "\xEF\xBB\xBF{}", "{}"},
        {"largest_unsigned_is_exact", "18446744073709551615", "18446744073709551615"},
        {"smallest_integer_is_exact", "-9223372036854775808", "-9223372036854775808"},
        {"integer_beyond_64_bits_becomes_real", "18446744073709551616", "1.8446744073709552e+19"},
        {"negative_integer_beyond_64_bits_becomes_real", "-9223372036854775809", "-9.223372036854776e+18"},
    }),
    named);

class Refuses : public testing::TestWithParam<Case> {};

TEST_P(Refuses, WithPositionAndToken) {
  EXPECT_EQ(outcome(parse_json(GetParam().text)), GetParam().want);
}

std::string syntax(const std::string& where, const std::string& read) {
  return "json_syntax where=" + where + " read=" + read + " expected= nearest=";
}

INSTANTIATE_TEST_SUITE_P(
    JsonParse, Refuses,
    testing::ValuesIn(std::vector<Case>{
        {"n_structure_no_data", "", syntax("1:1", "end_of_text")},
        {"n_structure_only_space", "  \n ", syntax("2:2", "end_of_text")},
        {"n_structure_lone_bom", "\xEF\xBB\xBF", syntax("1:1", "end_of_text")},
        {"n_structure_open_object", "{", syntax("1:2", "end_of_text")},
        {"n_structure_unclosed_array", "[1", syntax("1:3", "end_of_text")},
        {"n_structure_unclosed_on_line_3", "{\n \"a\": 1,\n \"b\": [1, 2\n", syntax("4:1", "end_of_text")},
        {"n_structure_close_unopened", "1]", syntax("1:2", "]")},
        {"n_structure_trailing_hash", "{\"a\":\"b\"}#{}", syntax("1:10", "#")},
        {"n_structure_two_documents", "{}{}", syntax("1:3", "{")},
        {"n_structure_array_with_extra_close", "[1]]", syntax("1:4", "]")},
        {"n_structure_capitalized_true", "[True]", syntax("1:2", "True")},
        {"n_structure_comment", "{\"a\":/*c*/1}", syntax("1:6", "/")},
        {"n_structure_angle_bracket", "<.>", syntax("1:1", "<")},
        {"n_structure_unicode_identifier", "\xC3\xA5", syntax("1:1", "\xC3\xA5")},
        {"n_structure_null_byte_after", "{}\0x"s, syntax("1:3", "0x00")},
        {"n_structure_null_byte_inside", "[1,\0 2]"s, syntax("1:4", "0x00")},
        {"n_structure_null_byte_first", "\0"s, syntax("1:1", "0x00")},
        {"n_array_extra_comma", "[1,]", syntax("1:4", "]")},
        {"n_array_double_comma", "[1,,2]", syntax("1:4", ",")},
        {"n_array_just_comma", "[,]", syntax("1:2", ",")},
        {"n_array_colon_instead_of_comma", "[\"\": 1]", syntax("1:4", ":")},
        {"n_array_items_separated_by_semicolon", "[1:2]", syntax("1:3", ":")},
        {"n_object_trailing_comma", "{\"id\":0,}", syntax("1:9", "}")},
        {"n_object_missing_colon", "{\"a\" \"b\"}", syntax("1:8", "\"b\"")},
        {"n_object_missing_value", "{\"a\":}", syntax("1:6", "}")},
        {"n_object_unquoted_key", "{a: \"b\"}", syntax("1:2", "a")},
        {"n_object_single_quote", "{'a':0}", syntax("1:2", "'")},
        {"n_object_non_string_key", "{1:1}", syntax("1:2", "1")},
        {"n_object_two_commas", "{\"a\":1,,\"b\":2}", syntax("1:8", ",")},
        {"n_object_on_line_2", "{\"a\": 1\n \"b\": 2}", syntax("2:4", "\"b\"")},
        {"n_number_python_nan", "[NaN]", syntax("1:2", "NaN")},
        {"n_number_python_infinity", "[Infinity]", syntax("1:2", "Infinity")},
        {"n_number_python_minus_infinity", "{\"a\": -Infinity}", syntax("1:7", "-Infinity")},
        {"n_number_leading_zero", "[012]", syntax("1:2", "012")},
        {"n_number_hex", "[0x1]", syntax("1:2", "0x1")},
        {"n_number_plus", "[+1]", syntax("1:2", "+1")},
        {"n_number_starting_with_dot", "[.123]", syntax("1:2", ".123")},
        {"n_number_ending_with_dot", "[2.]", syntax("1:4", "]")},
        {"n_number_minus_alone", "[-]", syntax("1:3", "]")},
        {"n_number_exponent_alone", "[1e]", syntax("1:4", "]")},
        {"n_number_two_dots", "[1.2.3]", syntax("1:2", "1.2.3")},
        {"n_number_too_large_for_a_double", "[1e999]", syntax("1:2", "1e999")},
        {"n_string_control_character", "[\"a\nb\"]", syntax("1:4", "\"a<U+000A>")},
        {"n_string_unescaped_tab", "[\"\t\"]", syntax("1:3", "\"<U+0009>")},
        {"n_string_bad_escape", "[\"\\x00\"]", syntax("1:4", "\"\\x")},
        {"n_string_incomplete_unicode_escape", "[\"\\u00A\"]", syntax("1:8", "\"\\u00A\"")},
        {"n_string_lone_surrogate", "[\"\\uD800\"]", syntax("1:9", "\"\\uD800\"")},
        {"n_string_unclosed", "[\"abc", syntax("1:6", "end_of_text")},
        {"column_counts_characters_not_bytes", "[\"\xE6\x98\xBE\xE5\xAD\x98\",]", syntax("1:7", "]")},
        {"carriage_returns_end_no_line", "[\r\n1,\r\n]", syntax("3:1", "]")},
    }),
    named);

TEST(JsonParse, RefusesInvalidUtf8InStrings) {
  for (const char* text :
       {"[\"\xFF\"]", "[\"\xC3\x28\"]", "[\"\xED\xA0\x80\"]", "[\"\xF4\xBF\xBF\xBF\"]", "[\"\xC0\xAF\"]"}) {
    EXPECT_EQ(code_of(parse_json(text)), "json_syntax") << text;
  }
}

TEST(JsonParse, ShortensTheTokenTo80Bytes) {
  const Result<Json> json = parse_json("[" + std::string(500, 'x') + "]");
  ASSERT_FALSE(json.ok());
  EXPECT_EQ(json.problem().read, std::string(80, 'x'));
}

TEST(JsonParse, DepthIsLimitedAndNamed) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(outcome(parse_json(nested(64))), "ok");
  EXPECT_EQ(outcome(parse_json(nested(65))), "json_too_deep where= read= expected=64 nearest=");
  EXPECT_EQ(code_of(parse_json(std::string(1000000, '['))), "json_too_deep");
  std::string objects;
  for (int i = 0; i < 100000; ++i)
    objects += "{\"\":";
  EXPECT_EQ(code_of(parse_json(objects)), "json_too_deep");
}

TEST(JsonParse, SizeIsLimitedAndNamed) {
  EXPECT_EQ(outcome(parse_json("[1, 2]", {.bytes = 6})), "ok");
  EXPECT_EQ(outcome(parse_json("[1, 2]", {.bytes = 5})), "json_too_large where=bytes read=6 expected=5 nearest=");
  EXPECT_EQ(outcome(parse_json("[1, 2]", {.values = 2})), "json_too_large where=values read=3 expected=2 nearest=");
}

TEST(JsonParse, TypedReadingNeverConvertsTypes) {
  const Result<Json> result =
      parse_json(R"({"t":true,"i":7,"n":-7,"r":7.5,"w":8.0,"s":"7","a":[],"z":null,"big":1e300})");
  ASSERT_TRUE(result.ok());
  const Json& json = result.value();
  EXPECT_EQ(json.find("t")->as_bool(), true);
  EXPECT_FALSE(json.find("t")->as_unsigned());
  EXPECT_FALSE(json.find("i")->as_bool());
  EXPECT_EQ(json.find("i")->as_unsigned(), 7u);
  EXPECT_FALSE(json.find("n")->as_unsigned());
  EXPECT_EQ(json.find("n")->as_real(), -7.0);
  EXPECT_FALSE(json.find("r")->as_unsigned());
  EXPECT_EQ(json.find("w")->as_unsigned(), 8u);
  EXPECT_FALSE(json.find("big")->as_unsigned());
  EXPECT_FALSE(json.find("s")->as_unsigned());
  EXPECT_EQ(json.find("s")->as_string(), "7");
  EXPECT_TRUE(json.find("z")->is_null());
  EXPECT_EQ(json.find("absent"), nullptr);
  EXPECT_EQ(json.find("a")->find("x"), nullptr);
}

TEST(JsonParse, ManyEqualKeysAreNotQuadratic) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i)
    text += "\"k" + std::to_string(i % 1000) + "\":" + std::to_string(i) + ",";
  text += "\"end\":1}";
  const Result<Json> json = parse_json(text);
  ASSERT_EQ(outcome(json), "ok");
  EXPECT_EQ(json.value().members().size(), 1001u);
  EXPECT_EQ(json.value().find("k999")->as_unsigned(), 199999u);
}

}  // namespace
}  // namespace ledger
