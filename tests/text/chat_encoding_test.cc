#include "text/chat_encoding.h"

#include <gtest/gtest.h>

#include "tests/support/golden.h"
#include "tests/text/text_support.h"

namespace minke {
namespace {

using testing::GoldenIds;
using testing::GoldenJson;
using testing::MiniTokenizer;
using testing::MustEncode;
using testing::MustParse;
using testing::MustParseOfficial;

constexpr size_t kGoldenCases = 144;

// The one pair of golden prompts whose user types control strings: the official pipeline makes
// tokens of them, this program does not (serving.md 2.8).
bool UserTypesControlTokens(const std::string& name) {
  return name.rfind("special_text", 0) == 0;
}

TEST(ChatEncoding, EveryGoldenCase) {
  const Json file = GoldenJson("encoding/encode_cases.json");
  const JsonArray& cases = file.Find("cases")->as_array();
  ASSERT_EQ(cases.size(), kGoldenCases);
  size_t refused = 0;
  size_t exact_ids = 0;
  for (const Json& golden : cases) {
    const std::string name = golden.Find("name")->as_string();
    SCOPED_TRACE(name);
    const auto request = ParseChatRequest(golden, name, RequestRules::kOfficialEncoder);
    if (golden.Find("expected_error") != nullptr) {
      EXPECT_TRUE(!request.has_value() || !EncodeChat(*request).has_value());
      ++refused;
      continue;
    }
    ASSERT_TRUE(request.has_value()) << request.error().message;
    const auto prompt = EncodeChat(*request);
    ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
    const std::string& expected = golden.Find("expected_prompt")->as_string();
    EXPECT_EQ(prompt->Text(), expected);
    const Json* images = golden.Find("expected_images");
    EXPECT_EQ(DumpJson(Json(prompt->images), JsonStyle::kCompact),
              images == nullptr ? "[]" : DumpJson(*images, JsonStyle::kCompact));
    const std::vector<int32_t> expected_ids = GoldenIds(*golden.Find("ids_mini_tokenizer"));
    EXPECT_EQ(testing::RecognisingIds(expected, MiniTokenizer()), expected_ids);
    const auto ids = PromptIds(*prompt, MiniTokenizer());
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    if (UserTypesControlTokens(name)) {
      EXPECT_NE(*ids, expected_ids);
      EXPECT_EQ(MiniTokenizer().DecodeBytes(*ids), expected);
      continue;
    }
    EXPECT_EQ(*ids, expected_ids);
    ++exact_ids;
  }
  EXPECT_EQ(refused, 18U);
  EXPECT_EQ(exact_ids, kGoldenCases - refused - 2);
}

TEST(ChatEncoding, EveryChatModelCase) {
  const Json file = GoldenJson("chat/case.json");
  const JsonArray& cases = file.Find("cases")->as_array();
  ASSERT_EQ(cases.size(), 32U);
  for (const Json& golden : cases) {
    SCOPED_TRACE(golden.Find("prompt")->as_string());
    const auto prompt = EncodeChat(MustParseOfficial(golden));
    ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
    EXPECT_EQ(prompt->Text(), golden.Find("prompt")->as_string());
    const auto ids = PromptIds(*prompt, MiniTokenizer());
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(*ids, GoldenIds(*golden.Find("prompt_ids")));
  }
}

TEST(ChatEncoding, EveryTaggedText) {
  const Json file = GoldenJson("encoding/tagged_text_cases.json");
  ASSERT_EQ(file.as_array().size(), 6U);
  for (const Json& golden : file.as_array()) {
    const std::string& text = golden.Find("text")->as_string();
    SCOPED_TRACE(text);
    const auto content = ParseTaggedText(text);
    if (const Json* expected = golden.Find("expected_error")) {
      ASSERT_FALSE(content.has_value());
      EXPECT_NE(content.error().message.find(expected->as_string()), std::string::npos);
      continue;
    }
    ASSERT_TRUE(content.has_value()) << content.error().message;
    EXPECT_EQ(DumpJson(*content, JsonStyle::kCompact),
              DumpJson(*golden.Find("expected_content"), JsonStyle::kCompact));
  }
}

std::string EncodeError(std::string_view json) {
  const auto request = ParseChatRequest(MustParse(json), "test");
  if (!request.has_value()) return request.error().message;
  const auto prompt = EncodeChat(*request);
  return prompt.has_value() ? "no error" : prompt.error().message;
}

TEST(ChatEncoding, ReasoningIsKeptUnlessAskedOtherwise) {
  const std::string messages = R"("messages": [{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "r1"},
      {"role": "user", "content": "q2"}])";
  const std::string kept = MustEncode("{" + messages + "}").Text();
  EXPECT_NE(kept.find("<｜Assistant｜><think>r1</think>a1"), std::string::npos) << kept;
  const std::string dropped = MustEncode("{\"drop_thinking\": true, " + messages + "}").Text();
  EXPECT_NE(dropped.find("<｜Assistant｜></think>a1"), std::string::npos) << dropped;
}

// What a prefix cache lives on: the prompt of a turn begins the prompt of the next.
TEST(ChatEncoding, ConversationsAreAppendOnly) {
  for (const char* mode : {"chat", "thinking"}) {
    const std::string head = std::string(R"({"thinking_mode": ")") + mode + R"(", "messages": [)";
    const std::string turn1 =
        R"({"role": "system", "content": "s"}, {"role": "user", "content": "q"})";
    const std::string turn2 = turn1 + R"(, {"role": "assistant", "reasoning_content": "r",
        "content": "a", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "x"})";
    const std::string turn3 = turn2 + R"(, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "again"})";
    const std::string first = MustEncode(head + turn1 + "]}").Text();
    const std::string second = MustEncode(head + turn2 + "]}").Text();
    const std::string third = MustEncode(head + turn3 + "]}").Text();
    EXPECT_EQ(second.substr(0, first.size()), first);
    EXPECT_EQ(third.substr(0, second.size()), second);
    EXPECT_GT(third.size(), second.size());
  }
}

TEST(ChatEncoding, EncodingTheContextFirstMakesTheSamePrompt) {
  const std::string context = R"([{"role": "system", "content": "s"},
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])";
  const std::string messages = R"([{"role": "user", "content": "next"}])";
  const std::string all = context.substr(0, context.size() - 1) + "," + messages.substr(1);
  EXPECT_EQ(MustEncode("{\"messages\": " + context + "}").Text() +
                MustEncode("{\"context\": " + context + ", \"messages\": " + messages + "}").Text(),
            MustEncode("{\"messages\": " + all + "}").Text());
}

TEST(ChatEncoding, SmallestPromptIsFourTokens) {
  const Prompt prompt =
      MustEncode(R"({"thinking_mode": "chat", "messages": [{"role": "user", "content": ""}]})");
  const auto ids = PromptIds(prompt, MiniTokenizer());
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(*ids, (std::vector<int32_t>{0, 480, 481, 484}));
}

TEST(ChatEncoding, TextsOfOneStretchAreEncodedTogether) {
  // "word" and the template's blank line meet in one BPE input, as in the official string.
  const Prompt prompt = MustEncode(R"({"thinking_mode": "chat", "messages": [
      {"role": "user", "content": "a "}, {"role": "user", "content": " b"}]})");
  const auto ids = PromptIds(prompt, MiniTokenizer());
  ASSERT_TRUE(ids.has_value());
  std::vector<int32_t> expected = {0, 480};
  for (const int32_t id : MiniTokenizer().EncodePlain("a \n\n b")) expected.push_back(id);
  expected.push_back(481);
  expected.push_back(484);
  EXPECT_EQ(*ids, expected);
}

TEST(ChatEncoding, RequiredToolChoiceOpensTheBlock) {
  const std::string request = R"({"thinking_mode": "chat", "tool_choice": "required",
      "messages": [{"role": "user", "content": "q"}],
      "tools": [{"type": "function", "function": {"name": "f"}}]})";
  const std::string text = MustEncode(request).Text();
  const std::string tail = "<｜Assistant｜></think>\n\n<｜DSML｜ calls>\n";
  EXPECT_TRUE(text.ends_with(tail)) << text;
  const Prompt prompt = MustEncode(request);
  const auto ids = PromptIds(prompt, MiniTokenizer());
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ(*ids, testing::RecognisingIds(text, MiniTokenizer()));
}

TEST(ChatEncoding, NamedToolChoiceKeepsThatTool) {
  const std::string tail = R"(, "thinking_mode": "chat",
      "messages": [{"role": "user", "content": "q"}],
      "tools": [{"type": "function", "function": {"name": "one"}},
                {"type": "function", "function": {"name": "two"}}]})";
  const std::string choice = R"({"tool_choice": {"type": "function", "function": {"name": )";
  const std::string text = MustEncode(choice + "\"two\"}}" + tail).Text();
  EXPECT_EQ(text.find("\"one\""), std::string::npos);
  EXPECT_NE(text.find("\"two\""), std::string::npos);
  EXPECT_NE(EncodeError(choice + "\"three\"}}" + tail).find("\"three\""), std::string::npos);
}

TEST(ChatEncoding, RequiredToolChoiceNeedsChatModeToolsAndAQuestion) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  const std::string ask = R"("messages": [{"role": "user", "content": "q"}])";
  const std::string required = R"("tool_choice": "required")";
  const std::string chat = R"("thinking_mode": "chat")";
  EXPECT_EQ(EncodeError("{" + required + "," + ask + "," + tools + "}"),
            "Thinking mode does not support this tool_choice.");
  EXPECT_NE(EncodeError("{" + chat + "," + required + "," + ask + "}").find("at least one tool"),
            std::string::npos);
  const std::string answered = R"("messages": [{"role": "assistant", "content": "a"}])";
  EXPECT_NE(EncodeError("{" + chat + "," + required + "," + answered + "," + tools + "}")
                .find("at the end of messages"),
            std::string::npos);
}

TEST(ChatEncoding, GroundingMarksOfTheAssistantAreTokensWhereTheVocabularyHasThem) {
  const Prompt prompt = MustEncode(R"({"messages": [
      {"role": "user", "content": "where? <｜ref｜>"},
      {"role": "assistant", "content": "<｜ref｜>cat<｜/ref｜><think>", "reasoning_content": "<｜box｜>"},
      {"role": "user", "content": "ok"}]})");
  std::vector<std::string> marks;
  for (const PromptPiece& piece : prompt.pieces) {
    if (piece.kind == PromptPiece::Kind::kGrounding) marks.push_back(piece.text);
  }
  EXPECT_EQ(marks, (std::vector<std::string>{"<｜box｜>", "<｜ref｜>", "<｜/ref｜>"}));
  const auto ids = PromptIds(prompt, MiniTokenizer());
  ASSERT_TRUE(ids.has_value()) << "The mini vocabulary lacks the marks; they are text there.";
  EXPECT_EQ(MiniTokenizer().DecodeBytes(*ids), prompt.Text());
}

TEST(ChatEncoding, MissingControlTokensAreNamed) {
  Prompt prompt;
  prompt.pieces.push_back({PromptPiece::Kind::kControl, "<｜task｜>"});
  const auto ids = PromptIds(prompt, MiniTokenizer());
  ASSERT_FALSE(ids.has_value());
  EXPECT_NE(ids.error().message.find("<｜task｜>"), std::string::npos);
}

TEST(ChatEncoding, PromptsHaveALimit) {
  ChatRequest request;
  request.options.thinking_mode = ThinkingMode::kChat;
  request.messages.resize(1);
  request.messages[0].content.push_back({.text = std::string(kPromptBytesMax, 'x')});
  const auto refused = EncodeChat(request);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  const size_t frame =
      std::string("<｜begin▁of▁sentence｜><｜User｜><｜Assistant｜></think>").size();
  request.messages[0].content[0].text.resize(kPromptBytesMax - frame);
  EXPECT_TRUE(EncodeChat(request).has_value());
}

TEST(ChatEncoding, EffortOutsideTheRangeIsRefused) {
  ChatRequest request;
  request.messages.resize(1);
  for (const int effort : {0, 101, -5}) {
    request.options.reasoning_effort = effort;
    EXPECT_FALSE(EncodeChat(request).has_value()) << effort;
  }
  request.options.reasoning_effort = 100;
  EXPECT_TRUE(EncodeChat(request).has_value());
}

}  // namespace
}  // namespace minke
