#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/golden.h"
#include "tests/text/text_support.h"
#include "text/chat_encoding.h"

namespace minke {
namespace {

constexpr std::string_view kGoodBlock =
    "r</think>text\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name=\"a\" string=\"true\">b</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"n\" string=\"false\">[1, 2]</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls><｜end▁of▁sentence｜>";

// The golden form of a message, for one comparison of everything.
std::string Show(const ParsedCompletion& parsed) {
  Json message;
  message.Set("role", "assistant");
  message.Set("content", parsed.content);
  message.Set("reasoning_content", parsed.reasoning_content);
  JsonArray calls;
  for (const ParsedToolCall& call : parsed.tool_calls) {
    Json shown;
    shown.Set("type", "function");
    shown.Set("function", Json(JsonObject{{"name", call.name}, {"arguments", call.arguments}}));
    if (!call.tool_namespace.empty()) shown.Set("namespace", call.tool_namespace);
    calls.push_back(std::move(shown));
  }
  message.Set("tool_calls", std::move(calls));
  return DumpJson(message, JsonStyle::kCompact);
}

TEST(OutputParser, EveryGoldenCase) {
  const Json file = testing::GoldenJson("encoding/parse_cases.json");
  const JsonArray& cases = file.Find("cases")->as_array();
  ASSERT_EQ(cases.size(), 25U);
  size_t errors = 0;
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden.Find("name")->as_string());
    const bool thinking = golden.Find("thinking_mode")->as_string() == "thinking";
    const auto parsed = ParseCompletion(golden.Find("completion")->as_string(),
                                        thinking ? ThinkingMode::kThinking : ThinkingMode::kChat);
    if (const Json* expected = golden.Find("error_text")) {
      ASSERT_FALSE(parsed.has_value()) << Show(*parsed);
      // The reference quotes the text of a bad parameter; what went wrong comes before the colon.
      std::string reason = expected->as_string();
      if (reason.rfind("Parameter format error", 0) == 0) reason = reason.substr(0, 22);
      EXPECT_NE(parsed.error().message.find(reason), std::string::npos) << parsed.error().message;
      ++errors;
      continue;
    }
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_EQ(Show(*parsed), DumpJson(*golden.Find("expected_message"), JsonStyle::kCompact));
  }
  EXPECT_EQ(errors, 8U);
}

TEST(OutputParser, ReadsBackWhatTheEncoderWrites) {
  const Json file = testing::GoldenJson("encoding/encode_cases.json");
  size_t compared = 0;
  for (const Json& golden : file.Find("cases")->as_array()) {
    if (golden.Find("expected_error") != nullptr) continue;
    ChatRequest request = testing::MustParseOfficial(golden);
    if (request.messages.back().role != Role::kAssistant || request.messages.back().wo_eos ||
        !request.messages.back().task.empty()) {
      continue;
    }
    SCOPED_TRACE(golden.Find("name")->as_string());
    const std::string whole = EncodeChat(request)->Text();
    const ChatMessage last = request.messages.back();
    request.messages.pop_back();
    if (!request.messages.back().task.empty()) continue;
    const std::string header = EncodeChat(request)->Text();
    ASSERT_EQ(whole.substr(0, header.size()), header);
    const auto parsed = ParseCompletion(std::string_view(whole).substr(header.size()),
                                        request.options.thinking_mode);
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_EQ(parsed->content, last.content.empty() ? "" : last.content[0].text);
    ASSERT_EQ(parsed->tool_calls.size(), last.tool_calls.size());
    for (size_t i = 0; i < last.tool_calls.size(); ++i) {
      const ParsedToolCall& call = parsed->tool_calls[i];
      const std::string name =
          call.tool_namespace.empty() ? call.name : call.tool_namespace + "::" + call.name;
      EXPECT_EQ(name, last.tool_calls[i].name);
      const Json& sent = last.tool_calls[i].arguments;
      if (sent.is_object()) {
        EXPECT_EQ(call.arguments, DumpJson(sent, JsonStyle::kPython));
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 10U);
}

TEST(OutputParser, EveryPrefixIsIncomplete) {
  ASSERT_TRUE(ParseCompletion(kGoodBlock, ThinkingMode::kThinking).has_value());
  for (size_t size = 0; size < kGoodBlock.size(); ++size) {
    EXPECT_FALSE(ParseCompletion(kGoodBlock.substr(0, size), ThinkingMode::kThinking).has_value());
  }
}

TEST(OutputParser, NestedNamespacesAndEmptyNamesAreErrors) {
  const auto parse_name = [](const std::string& name) {
    return ParseCompletion("\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"" + name +
                               "\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls><｜end▁of▁sentence｜>",
                           ThinkingMode::kChat)
        .has_value();
  };
  EXPECT_TRUE(parse_name("f"));
  EXPECT_TRUE(parse_name("a::f"));
  EXPECT_FALSE(parse_name("a::b::f"));
  EXPECT_FALSE(parse_name("::f"));
  EXPECT_FALSE(parse_name("a::"));
}

TEST(OutputParser, ManyParametersTakeNoQuadraticTime) {
  std::string text = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n";
  for (int i = 0; i < 20'000; ++i) {
    text += "<｜DSML｜ parameter name=\"p" + std::to_string(i) +
            "\" string=\"true\">v</｜DSML｜ parameter>\n";
  }
  text += "</｜DSML｜ invoke>\n";
  for (int i = 0; i < 20'000; ++i) text += "<｜DSML｜ invoke name=\"g\">\n</｜DSML｜ invoke>\n";
  text += "</｜DSML｜ calls><｜end▁of▁sentence｜>";
  const auto parsed = ParseCompletion(text, ThinkingMode::kChat);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->tool_calls.size(), 20'001U);
}

TEST(OutputParser, ErrorsShowAGlimpseOfTheText) {
  const std::string secret(5000, 's');
  const auto parsed = ParseCompletion("\n\n<｜DSML｜ calls" + secret, ThinkingMode::kChat);
  ASSERT_FALSE(parsed.has_value());
  EXPECT_LT(parsed.error().message.size(), 300U);
}

}  // namespace
}  // namespace minke
