#include "core/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

namespace minke {
namespace {

Json MustParse(std::string_view text, const JsonParseOptions& options = {}) {
  auto json = ParseJson(text, "test input", options);
  EXPECT_TRUE(json.has_value()) << json.error().message;
  return json ? std::move(*json) : Json();
}

std::string ErrorOf(std::string_view text) {
  auto json = ParseJson(text, "test input");
  EXPECT_FALSE(json.has_value()) << text.substr(0, 80);
  return json ? std::string() : json.error().message;
}

bool Mentions(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

TEST(Json, ReadsEveryType) {
  const Json json = MustParse(R"( {"n":null,"b":true,"i":-7,"d":1.5,"s":"x","a":[1,2],"o":{}} )");
  ASSERT_TRUE(json.is_object());
  EXPECT_TRUE(json.Find("n")->is_null());
  EXPECT_TRUE(json.Find("b")->as_bool());
  EXPECT_EQ(json.Find("i")->as_int(), -7);
  EXPECT_EQ(json.Find("d")->as_double(), 1.5);
  EXPECT_FALSE(json.Find("d")->is_integer());
  EXPECT_EQ(json.Find("s")->as_string(), "x");
  ASSERT_EQ(json.Find("a")->as_array().size(), 2u);
  EXPECT_EQ(json.Find("a")->as_array()[1].as_int(), 2);
  EXPECT_TRUE(json.Find("o")->as_object().empty());
  EXPECT_EQ(json.Find("absent"), nullptr);
  EXPECT_EQ(Json(3).Find("n"), nullptr);
}

TEST(Json, KeepsTheOrderOfKeys) {
  const Json json = MustParse(R"({"zebra":1,"apple":2,"mango":3})");
  const JsonObject& members = json.as_object();
  EXPECT_EQ(members[0].first, "zebra");
  EXPECT_EQ(members[1].first, "apple");
  EXPECT_EQ(members[2].first, "mango");
}

TEST(Json, IntegersAreExactUpTo64Bits) {
  EXPECT_EQ(MustParse("9007199254740993").as_int(), 9007199254740993);
  EXPECT_EQ(MustParse("9223372036854775807").as_int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(MustParse("-9223372036854775808").as_int(), std::numeric_limits<int64_t>::min());
  const Json largest = MustParse("18446744073709551615");
  EXPECT_TRUE(largest.is_integer());
  EXPECT_EQ(std::get<uint64_t>(largest.value()), std::numeric_limits<uint64_t>::max());
  // Beyond that it is a number, but no longer an integer.
  EXPECT_FALSE(MustParse("18446744073709551616").is_integer());
  EXPECT_EQ(MustParse("18446744073709551616").as_double(), 0x1p64);
}

TEST(Json, NumberBeyondDoubleIsRefused) {
  EXPECT_TRUE(Mentions(ErrorOf("[1e999]"), "too large"));
}

TEST(Json, DuplicateKeysAreRefused) {
  const std::string message = ErrorOf(R"({"first":1,"second":2,"first":3})");
  EXPECT_TRUE(Mentions(message, "\"first\" twice")) << message;
  EXPECT_TRUE(Mentions(message, "test input")) << message;
  EXPECT_TRUE(Mentions(message, "byte 32")) << message;
  EXPECT_TRUE(Mentions(ErrorOf(R"([{"a":{"k":1,"k":1}}])"), "\"k\" twice"));
}

TEST(Json, DuplicateKeysCanBeMerged) {
  JsonParseOptions options;
  options.reject_duplicate_keys = false;
  const Json json = MustParse(R"({"a":1,"b":2,"a":3,"c":4,"b":5,"a":6})", options);
  EXPECT_EQ(DumpJson(json, JsonStyle::kCompact), R"({"a":6,"b":5,"c":4})");
}

TEST(Json, DepthLimitIsExact) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  MustParse(nested(kJsonDepthLimit));
  const std::string message = ErrorOf(nested(kJsonDepthLimit + 1));
  EXPECT_TRUE(Mentions(message, "deeper than 64 levels")) << message;
  EXPECT_TRUE(Mentions(message, "byte 65")) << message;
}

TEST(Json, AMillionBracketsDoNotExhaustTheStack) {
  EXPECT_TRUE(Mentions(ErrorOf(std::string(1'000'000, '[')), "deeper than"));
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(Mentions(ErrorOf(objects), "deeper than"));
}

TEST(Json, MalformedTextIsRefused) {
  for (const std::string_view text :
       {"",           " ",     "{",   "}",           "[1,]",     "{\"a\"}",
        "{\"a\":1,}", "{a:1}", "tru", "nul",         "01",       "+1",
        "1.",         ".5",    "1e",  "-",           "\"",       "\"\\x\"",
        "\"\\u12\"",  "[1 2]", "'a'", "NaN",         "Infinity", "// c\n1",
        "/**/1",      "[1]]",  "1 2", "{\"a\":1}{}", "\"a\nb\"", "\"a\tb\""}) {
    EXPECT_FALSE(ParseJson(text, "test input").has_value()) << text;
  }
}

TEST(Json, InvalidUtf8IsRefusedWithItsPlace) {
  EXPECT_TRUE(Mentions(ErrorOf("{\"a\":\"x\xFFy\"}"), "byte 8"));
  for (const std::string_view text :
       {"\"\xC0\x80\"", "\"\xE2\x82\"", "\"\xED\xA0\x80\"", "\"\xF5\x80\x80\x80\"", "\"\x80\"",
        "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\""}) {
    EXPECT_FALSE(ParseJson(text, "test input").has_value()) << text;
  }
  EXPECT_EQ(MustParse("\"\\ud83d\\ude00\"").as_string(), "\xF0\x9F\x98\x80");
}

TEST(Json, NulBytesDoNotEndTheText) {
  EXPECT_TRUE(Mentions(ErrorOf(std::string_view("{}\0{\"hidden\":1}", 15)), "byte 2"));
  EXPECT_FALSE(ParseJson(std::string_view("\"a\0b\"", 5), "test input").has_value());
  // Escaped, it is an ordinary character.
  EXPECT_EQ(MustParse("\"a\\u0000b\"").as_string(), std::string_view("a\0b", 3));
}

TEST(Json, ErrorsShowAtMostFortyBytesOfTheInput) {
  const std::string secret(3000, 's');
  for (const std::string& text :
       {"\"" + secret, "{\"" + secret + "\":1,\"" + secret + "\":2}", "[" + secret + "]",
        "[1" + std::string(400, '0') + "e9" + std::string(300, '9') + "]",
        "\"" + secret + "\x01\""}) {
    const std::string message = ErrorOf(text);
    EXPECT_LE(message.size(), 260u) << message;
    EXPECT_FALSE(Mentions(message, std::string(41, 's'))) << message;
    EXPECT_FALSE(Mentions(message, std::string(41, '9'))) << message;
  }
}

TEST(Json, ErrorsAreOneLineOfPlainText) {
  const std::string message = ErrorOf("[1,\n\x1B[31m");
  for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
}

TEST(Json, LargeFlatObjectsStayFast) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::string("token") + std::to_string(i) +
            "\":" + std::to_string(i);
  }
  text += "}";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(MustParse(text).as_object().size(), 300'000u);
  // Comparing every key with every other would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST(Json, SetAppendsAndReplaces) {
  Json json;
  json.Set("a", 1);
  json.Set("b", "x");
  json.Set("a", JsonArray{1, 2});
  EXPECT_EQ(DumpJson(json, JsonStyle::kCompact), R"({"a":[1,2],"b":"x"})");
}

TEST(Json, CopiesAreIndependent) {
  Json first = MustParse(R"({"a":[1]})");
  Json second = first;
  second.as_object()[0].second = 5;
  EXPECT_EQ(DumpJson(first, JsonStyle::kCompact), R"({"a":[1]})");
  first = second;
  EXPECT_EQ(DumpJson(first, JsonStyle::kCompact), R"({"a":5})");
  const Json moved = std::move(second);
  EXPECT_EQ(moved.Find("a")->as_int(), 5);
}

TEST(Json, TypedMembersNameKeyExpectedAndFound) {
  const Json json =
      MustParse(R"({"i":1,"d":0.5,"s":"x","n":null,"big":18446744073709551615,"l":[],"o":{}})");
  EXPECT_EQ(*JsonInt(json, "i", "file"), 1);
  EXPECT_EQ(*JsonDouble(json, "i", "file"), 1.0);
  EXPECT_EQ(*JsonDouble(json, "d", "file"), 0.5);
  EXPECT_EQ(*JsonString(json, "s", "file"), "x");
  EXPECT_TRUE((*JsonList(json, "l", "file"))->empty());
  EXPECT_TRUE((*JsonMembers(json, "o", "file"))->empty());
  EXPECT_EQ(JsonInt(json, "gone", "file").error().message,
            "file: the required key \"gone\" is missing");
  EXPECT_EQ(JsonInt(json, "s", "file").error().message,
            "file: \"s\" must be an integer, but it is of type string");
  EXPECT_EQ(JsonInt(json, "d", "file").error().message,
            "file: \"d\" must be an integer, but it is of type number");
  EXPECT_TRUE(Mentions(JsonInt(json, "big", "file").error().message, "18446744073709551615"));
  EXPECT_FALSE(JsonBool(json, "i", "file").has_value());
  EXPECT_FALSE(JsonString(json, "n", "file").has_value());
  EXPECT_FALSE(JsonDouble(json, "l", "file").has_value());
  EXPECT_FALSE(JsonList(json, "o", "file").has_value());
  EXPECT_FALSE(JsonMembers(json, "l", "file").has_value());
  EXPECT_FALSE(JsonMembers(Json(1), "l", "file").has_value());
}

}  // namespace
}  // namespace minke
