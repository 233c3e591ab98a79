// The text of a custom tool's call, taken out of JSON that comes in parts.
#include "server/custom_input.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace minke {
namespace {

std::string TakenAtOnce(std::string_view json) {
  CustomInput input;
  std::string text = input.Push(json);
  return text += input.Finish();
}

// Every cut into three gives what no cut gives.
void ExpectInput(std::string_view json, std::string_view expected) {
  EXPECT_EQ(TakenAtOnce(json), expected) << json;
  for (size_t first = 0; first <= json.size(); ++first) {
    for (size_t second = first; second <= json.size(); ++second) {
      CustomInput input;
      std::string text = input.Push(json.substr(0, first));
      text += input.Push(json.substr(first, second - first));
      text += input.Push(json.substr(second));
      text += input.Finish();
      ASSERT_EQ(text, expected) << json << " cut at " << first << " and " << second;
    }
  }
}

TEST(CustomInput, TheMemberInputIsTakenAsItComes) {
  ExpectInput(R"({"input": "a b"})", "a b");
  ExpectInput(R"( {"input":"","more": 1})", "");
  ExpectInput("{\n \"input\" : \"x\\n\\\"y\\\"\\\\\\/\\b\\f\\r\\t\" }", "x\n\"y\"\\/\b\f\r\t");
  ExpectInput(R"({"input": "first", "input": "second"})", "first");
  CustomInput input;
  EXPECT_EQ(input.Push(R"({"input": "as soon)"), "as soon");
}

TEST(CustomInput, EscapedCharactersComeWhole) {
  ExpectInput(R"({"input": "\u00e4\u20ac\u0001"})", "ä€\x01");
  ExpectInput(R"({"input": "a\ud83c\udf88b"})", "a🎈b");
  ExpectInput(R"({"input": "\ud83c!\udf88\ud83c\ud83c\udf88"})", "\uFFFD!\uFFFD\uFFFD🎈");
  ExpectInput(R"({"input": "\ud83c\n"})", "\uFFFD\n");
  ExpectInput(R"({"input": "\ud83c"})", "\uFFFD");
}

TEST(CustomInput, OtherJsonIsTakenAtItsEnd) {
  ExpectInput("{}", "");
  ExpectInput(R"({"patch": "p"})", "p");
  ExpectInput(R"({"why": "w", "input": "i"})", "i");
  ExpectInput(R"({"input": {"a": 1}})", R"({"a":1})");
  ExpectInput(R"({"a": "x", "b": "y"})", R"({"a": "x", "b": "y"})");
  ExpectInput(R"({"n": 1})", R"({"n": 1})");
  ExpectInput("no JSON", "no JSON");
  ExpectInput("", "");
}

}  // namespace
}  // namespace minke
