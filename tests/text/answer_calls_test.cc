#include <gtest/gtest.h>

#include "tests/support/golden.h"
#include "tests/text/answer_support.h"
#include "text/answer_parser.h"

// Calls as models write them: spellings, bodies, values, limits (serving.md 2.7).
namespace minke {
namespace {

using testing::Answer;
using testing::AnswerCall;
using testing::Block;
using testing::ChatOptionsOf;
using testing::ExpectSplitsAgree;
using testing::Invoke;
using testing::kClose;
using testing::Parameter;
using testing::ReadAnswer;
using testing::ReplaceAll;
using testing::ShowsMarkup;

void ExpectOneCall(std::string_view text, std::string_view name, std::string_view arguments,
                   AnswerParserOptions options = ChatOptionsOf(true)) {
  const Answer read = ReadAnswer(text, options);
  EXPECT_EQ(read.content, "") << text;
  EXPECT_EQ(read.calls, (std::vector<AnswerCall>{{std::string(name), std::string(arguments)}}))
      << text;
  ExpectSplitsAgree(text, options);
}

TEST(AnswerParser, EverySpellingOfTheTagsIsRead) {
  const std::string parameters = Parameter("a", true, "b") + Parameter("n", false, "2");
  const std::string v41 = Block(Invoke("f", parameters));
  const std::string call = R"({"a": "b", "n": 2})";
  ExpectOneCall(v41, "f", call);
  const std::string v4 =
      ReplaceAll(ReplaceAll(v41, "｜DSML｜ calls", "｜DSML｜tool_calls"), "DSML｜ ", "DSML｜");
  ExpectOneCall(v4, "f", call);
  ExpectOneCall(ReplaceAll(v41, " calls", " tool_calls"), "f", call);
  ExpectOneCall(ReplaceAll(v4, "｜DSML｜", "｜｜DSML｜｜"), "f", call);
  ExpectOneCall(ReplaceAll(v4, "｜DSML｜", "|DSML|"), "f", call);
  ExpectOneCall(ReplaceAll(v41, " calls>", " calls"), "f", call);
  ExpectOneCall(ReplaceAll(v41, " calls>", " function_block>"), "f", call);
  ExpectOneCall(Invoke("f", parameters), "f", call);
  ExpectOneCall(ReplaceAll(v41, "｜DSML｜ ", ""), "f", call);
  ExpectOneCall(ReplaceAll(v41, "<｜DSML｜ calls", "< calls"), "f", call);
  ExpectOneCall(ReplaceAll(v41, "<｜DSML｜ calls", "｜DSML｜ calls"), "f", call);
  ExpectOneCall(ReplaceAll(v41, "name=\"f\">", "name=\"f\""), "f", call);
  ExpectOneCall(ReplaceAll(v41, "\n", ""), "f", call);
  ExpectOneCall(ReplaceAll(v41, " invoke name", " name"), "f", call);
}

TEST(AnswerParser, JsonBodiesAreRead) {
  const std::string call = R"({"a": "b", "n": 2})";
  ExpectOneCall(Block("<｜DSML｜ invoke name=\"f\">\n" + call + "\n</｜DSML｜ invoke>"), "f", call);
  const std::string whole = R"({"name": "f", "arguments": {"a": "b", "n": 2}})";
  ExpectOneCall("<｜DSML｜toolcall>" + whole + "</｜DSML｜toolcall>", "f", call);
  ExpectOneCall("<｜DSML｜toolcall" + whole + "</｜DSML｜toolcall>", "f", call);
  ExpectOneCall(Block(whole), "f", call);
  ExpectOneCall(Block("[" + whole + "]"), "f", call);
  ExpectOneCall(Block(R"({"function": {"name": "f", "arguments": "{\"a\": \"b\", \"n\": 2}"}})"),
                "f", call);
  ExpectOneCall(Block(R"({"name": "f", "arguments": "no object"})"), "f",
                R"({"arguments": "no object"})");
  // The form in which models repeat themselves.
  std::string repeated;
  for (int i = 0; i < 5; ++i) repeated += "<｜DSML｜toolcall>" + whole + "</｜DSML｜toolcall>\n";
  ExpectOneCall(repeated, "f", call);
  EXPECT_EQ(ReadAnswer(repeated, ChatOptionsOf(true)).recoveries.dropped, 4);
}

TEST(AnswerParser, ParametersMayBeNestedInOneObject) {
  const std::string object = R"({"a": "b", "n": [1, 2]})";
  for (const bool is_string : {true, false}) {
    ExpectOneCall(Block(Invoke("f", Parameter("arguments", is_string, object))), "f", object);
  }
  ExpectOneCall(Block(Invoke("f", Parameter("arguments", true, "text"))), "f",
                R"({"arguments": "text"})");
  ExpectOneCall(
      Block(Invoke("f", Parameter("arguments", false, "{\"x\": 1}") + Parameter("n", false, "1"))),
      "f", R"({"arguments": {"x": 1}, "n": 1})");
  AnswerParserOptions declared = ChatOptionsOf(true);
  declared.tool_parameters[0] = {{"arguments", false, true}};
  ExpectOneCall(Block(Invoke("f", Parameter("arguments", false, object))), "f",
                "{\"arguments\": " + object + "}", declared);
}

TEST(AnswerParser, ValuesBecomeJsonWhateverCame) {
  const auto value = [](bool is_string, const std::string& text) {
    return ReadAnswer(Block(Invoke("f", Parameter("x", is_string, text))), ChatOptionsOf(true))
        .calls[0]
        .arguments;
  };
  EXPECT_EQ(value(false, "{oops"), R"({"x": "{oops"})");
  EXPECT_EQ(value(false, ""), R"({"x": ""})");
  EXPECT_EQ(value(false, "1, \"y\": 2"), R"({"x": "1, \"y\": 2"})");
  EXPECT_EQ(value(false, std::string(70, '[') + std::string(70, ']')),
            "{\"x\": \"" + std::string(70, '[') + std::string(70, ']') + "\"}");
  EXPECT_EQ(value(true, "\x1F\x7F\b\f\r\t"), "{\"x\": \"\\u001f\x7F\\b\\f\\r\\t\"}");
  // Without the attribute: what the schema says, or what it looks like.
  const auto untyped = [](const std::string& name, const std::string& text) {
    return ReadAnswer("<invoke name=\"f\">\n<parameter name=\"" + name + "\">" + text +
                          "</parameter>\n</invoke>",
                      ChatOptionsOf(true))
        .calls[0]
        .arguments;
  };
  EXPECT_EQ(untyped("a", "5"), R"({"a": "5"})");
  EXPECT_EQ(untyped("n", "5"), R"({"n": 5})");
  EXPECT_EQ(untyped("n", "five"), R"({"n": "five"})");
}

TEST(AnswerParser, TheFirstOfTwoParametersOfOneNameStays) {
  const std::string text = Block(Invoke(
      "f", Parameter("a", true, "1") + Parameter("a", true, "2") + Parameter("n", false, "3")));
  ExpectOneCall(text, "f", R"({"a": "1", "n": 3})");
  EXPECT_EQ(ReadAnswer(text, ChatOptionsOf(true)).recoveries.dropped, 1);
}

TEST(AnswerParser, NamesOfTools) {
  const auto called = [](const std::string& name) {
    const Answer read = ReadAnswer(Block(Invoke(name, "")), ChatOptionsOf(true));
    return read.calls.empty() ? "none" : read.calls[0].name;
  };
  EXPECT_EQ(called("f"), "f");
  EXPECT_EQ(called("ns::g"), "ns::g");
  EXPECT_EQ(called("g"), "ns::g") << "the namespace is left out";
  EXPECT_EQ(called("unknown-tool.v2"), "unknown-tool.v2") << "its client answers that";
  EXPECT_EQ(called("$TOOL_NAME"), "none");
  EXPECT_EQ(called("a::b::c"), "none");
  EXPECT_EQ(called("::c"), "none");
  EXPECT_EQ(called(""), "none");
  EXPECT_EQ(called(std::string(kCalledNameBytesMax, 'x')), std::string(kCalledNameBytesMax, 'x'));
  EXPECT_EQ(called(std::string(kCalledNameBytesMax + 1, 'x')), "none");
}

TEST(AnswerParser, CallsUpToTheirLimit) {
  for (const int count : {kToolCallsMax, kToolCallsMax + 1}) {
    std::string calls;
    for (int i = 0; i < count; ++i) calls += Invoke("f", "") + "\n";
    const Answer read = ReadAnswer(Block(calls), ChatOptionsOf(true));
    EXPECT_EQ(read.calls.size(), static_cast<size_t>(kToolCallsMax));
    EXPECT_EQ(read.broken, "");
  }
}

TEST(AnswerParser, OpenCallsAreClosedAtTheEnd) {
  const std::string text =
      Block(Invoke("f", Parameter("a", true, "b</x>") + Parameter("n", false, "{\"k\": 1}")));
  for (size_t size = 0; size < text.size(); ++size) {
    const Answer read = ReadAnswer(std::string_view(text).substr(0, size), ChatOptionsOf(true));
    EXPECT_EQ(read.broken, "") << text.substr(0, size);
    EXPECT_FALSE(testing::ShowsMarkup(read.content)) << text.substr(0, size);
  }
  const size_t in_value = text.find("b</x>") + 1;
  EXPECT_EQ(ReadAnswer(text.substr(0, in_value), ChatOptionsOf(true)).calls,
            (std::vector<AnswerCall>{{"f", R"({"a": "b"})"}}));
}

TEST(AnswerParser, BlocksThatThePromptOpened) {
  AnswerParserOptions options = ChatOptionsOf(true);
  options.in_calls = true;
  ExpectOneCall(Invoke("f", Parameter("n", false, "1")) + std::string(kClose), "f", R"({"n": 1})",
                options);
  EXPECT_EQ(ReadAnswer(Invoke("f", "") + std::string(kClose), options).recoveries.total(), 0);
}

TEST(AnswerParser, ValuesMayHoldOpeningTags) {
  const std::string value = "see <｜DSML｜ calls> and <parameter name=\"x\"> and </parameter>";
  ExpectOneCall(Block(Invoke("f", Parameter("a", true, value))), "f",
                "{\"a\": \"" + ReplaceAll(value, "\"", "\\\"") + "\"}");
}

}  // namespace
}  // namespace minke
