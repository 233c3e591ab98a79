#include <gtest/gtest.h>

#include "tests/text/text_support.h"
#include "text/chat_encoding.h"

namespace minke {
namespace {

using testing::MustParse;

std::string RequestError(std::string_view json, RequestRules rules = RequestRules::kServer) {
  const auto request = ParseChatRequest(MustParse(json), "body", rules);
  return request.has_value() ? "no error" : request.error().message;
}

ChatRequest MustRead(std::string_view json) {
  auto request = ParseChatRequest(MustParse(json), "body");
  CHECK(request.has_value(), request.error().message);
  return std::move(*request);
}

TEST(ChatRequest, WrongFieldsAreNamedByTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(3)", "the request"},
      {R"({})", "messages"},
      {R"({"messages": {}})", "messages"},
      {R"([3])", "messages[0]"},
      {R"([{"content": "x"}])", "messages[0].role"},
      {R"([{"role": 5, "content": "x"}])", "messages[0].role"},
      {R"([{"role": "user", "content": "x"}, {"role": "narrator", "content": "x"}])",
       "messages[1].role"},
      {R"([{"role": "user"}])", "messages[0].content"},
      {R"([{"role": "user", "content": null}])", "messages[0].content"},
      {R"([{"role": "user", "content": 7}])", "messages[0].content"},
      {R"([{"role": "assistant"}])", "messages[0].content"},
      {R"([{"role": "tool", "tool_call_id": "x"}])", "messages[0].content"},
      {R"([{"role": "user", "content": ["x"]}])", "messages[0].content[0]"},
      {R"([{"role": "user", "content": [{"text": "x"}]}])", "messages[0].content[0].type"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text"},
      {R"([{"role": "user", "content": [{"type": "text", "text": 3}]}])",
       "messages[0].content[0].text"},
      {R"([{"role": "user", "content": [{"type": "image_url", "image_url": 3}]}])",
       "messages[0].content[0].image_url"},
      {R"([{"role": "user", "content": [{"type": "image"}]}])", "messages[0].content[0]"},
      {R"([{"role": "system", "content": [{"type": "image", "url": "x"}]}])",
       "messages[0].content[0]"},
      {R"([{"role": "assistant", "content": "x", "reasoning_content": 3}])",
       "messages[0].reasoning_content"},
      {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls"},
      {R"([{"role": "assistant", "tool_calls": [3]}])", "messages[0].tool_calls[0]"},
      {R"([{"role": "assistant", "tool_calls": [{"type": "custom"}]}])",
       "messages[0].tool_calls[0].type"},
      {R"([{"role": "assistant", "tool_calls": [{}]}])", "messages[0].tool_calls[0].function"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])",
       "messages[0].tool_calls[0].function.name"},
      {R"([{"role": "user", "content": "x", "tool_calls": []}])", "messages[0].tool_calls"},
      {R"([{"role": "tool", "content": "x", "tool_call_id": 3}])", "messages[0].tool_call_id"},
      {R"([{"role": "user", "content": "x", "task": "nope"}])", "messages[0].task"},
      {R"([{"role": "assistant", "content": "x", "wo_eos": 1}])", "messages[0].wo_eos"},
      {R"([{"role": "user", "content": "x", "tools": []}])", "messages[0].tools"},
      {R"([{"role": "system", "content": "x", "tools": {}}])", "messages[0].tools"},
      {R"({"messages": [], "context": 3})", "context"},
      {R"({"messages": [], "context": [{}]})", "context[0].role"},
      {R"({"messages": [], "thinking_mode": "loud"})", "thinking_mode"},
      {R"({"messages": [], "thinking": {"type": "x"}})", "thinking.type"},
      {R"({"messages": [], "drop_thinking": "yes"})", "drop_thinking"},
      {R"({"messages": [], "tool_choice": "maybe"})", "tool_choice"},
      {R"({"messages": [], "tool_choice": {}})", "tool_choice.function"},
      {R"({"messages": [], "tools": [{"function": {"name": "a b"}}]})", "tools[0].function.name"},
      {R"({"messages": [], "response_format": {"type": "regex"}})", "response_format.type"}};
  for (const auto& [json, place] : cases) {
    const std::string error = RequestError(json);
    EXPECT_EQ(error.rfind("body: " + place + " ", 0), 0U) << json << "\n" << error;
  }
}

TEST(ChatRequest, ReadsAListOrAnObject) {
  EXPECT_EQ(MustRead(R"([{"role": "user", "content": "x"}])").messages.size(), 1U);
  EXPECT_EQ(MustRead(R"({"messages": [{"role": "user", "content": "x"}]})").messages.size(), 1U);
  EXPECT_EQ(RequestError(R"({"messages": [], "model": "m", "temperature": 2})"), "no error");
}

TEST(ChatRequest, ThinkingIsOnUnlessSwitchedOff) {
  const auto mode = [](const std::string& fields) {
    return MustRead("{\"messages\": []" + fields + "}").options.thinking_mode;
  };
  EXPECT_EQ(mode(""), ThinkingMode::kThinking);
  EXPECT_EQ(mode(R"(, "thinking_mode": "chat")"), ThinkingMode::kChat);
  EXPECT_EQ(mode(R"(, "thinking": {"type": "disabled"})"), ThinkingMode::kChat);
  EXPECT_EQ(mode(R"(, "thinking": {"type": "adaptive"})"), ThinkingMode::kThinking);
  EXPECT_EQ(mode(R"(, "reasoning_effort": "none")"), ThinkingMode::kChat);
  EXPECT_EQ(mode(R"(, "thinking": {"type": "enabled"}, "reasoning_effort": "none")"),
            ThinkingMode::kThinking);
}

TEST(ChatRequest, TopLevelToolsJoinTheFirstSystemMessage) {
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}]})";
  const ChatRequest with = MustRead(R"({"messages": [{"role": "system", "content": "s"}])" + tools);
  ASSERT_EQ(with.messages.size(), 1U);
  EXPECT_EQ(with.messages[0].tools.size(), 1U);
  const ChatRequest without =
      MustRead(R"({"messages": [{"role": "user", "content": "s"}])" + tools);
  ASSERT_EQ(without.messages.size(), 2U);
  EXPECT_EQ(without.messages[0].role, Role::kSystem);
  EXPECT_EQ(without.messages[0].tools.size(), 1U);
}

TEST(ChatRequest, ToolNamesAreLimitedAndUnique) {
  const auto with_names = [](const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) {
      list += (list.empty() ? "" : ",") + (R"({"function": {"name": ")" + name + "\"}}");
    }
    return RequestError("{\"messages\": [], \"tools\": [" + list + "]}");
  };
  EXPECT_EQ(with_names({std::string(128, 'a'), "B-9_", "ns::f"}), "no error");
  EXPECT_NE(with_names({std::string(129, 'a')}), "no error");
  EXPECT_NE(with_names({"same", "same"}), "no error");
  EXPECT_NE(with_names({"a\\\"b"}), "no error");
  EXPECT_NE(with_names({"::f"}), "no error");
  EXPECT_NE(with_names({"a::"}), "no error");
}

TEST(ChatRequest, PrefixContinuesTheLastAssistantMessage) {
  const ChatRequest request = MustRead(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "The", "prefix": true}])");
  EXPECT_TRUE(request.messages[1].wo_eos);
  EXPECT_NE(RequestError(R"([{"role": "user", "content": "q", "prefix": true}])")
                .find("messages[0].prefix"),
            std::string::npos);
  EXPECT_NE(RequestError(R"([{"role": "assistant", "content": "q", "prefix": true},
                        {"role": "user", "content": "q"}])")
                .find("messages[0].prefix"),
            std::string::npos);
}

TEST(ChatRequest, DeveloperIsTheSystemForClientsOnly) {
  const std::string json = R"([{"role": "developer", "content": "d"}])";
  EXPECT_EQ(MustRead(json).messages[0].role, Role::kSystem);
  EXPECT_NE(RequestError(json, RequestRules::kOfficialEncoder), "no error");
}

TEST(ChatRequest, UnknownBlocksAreShownByTypeOutsideToolResults) {
  const ChatRequest request = MustRead(R"({"thinking_mode": "chat", "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "audio"}]}]})");
  const auto prompt = EncodeChat(request);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_NE(prompt->Text().find("a\n\n[Unsupported audio]"), std::string::npos);
}

TEST(ChatRequest, MessagesHaveALimit) {
  const auto with_messages = [](size_t count) {
    const JsonArray list(count, Json(JsonObject{{"role", "user"}, {"content", ""}}));
    const auto request = ParseChatRequest(Json(list), "body");
    return request.has_value() ? ErrorCode::kNotFound : request.error().code;
  };
  EXPECT_EQ(with_messages(kMessagesMax), ErrorCode::kNotFound);
  EXPECT_EQ(with_messages(kMessagesMax + 1), ErrorCode::kLimit);
}

TEST(ChatRequest, ErrorsDoNotRepeatLongTexts) {
  const std::string secret(500, 's');
  const std::string error = RequestError(R"([{"role": ")" + secret + R"(", "content": "x"}])");
  EXPECT_EQ(error.find(secret), std::string::npos);
  EXPECT_LT(error.size(), 200U);
}

}  // namespace
}  // namespace minke
