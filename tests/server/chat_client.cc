#include "tests/server/chat_client.h"

#include <gtest/gtest.h>

#include "tests/server/openai_support.h"

namespace minke::testing {

namespace {

void AddText(const Json& object, std::string_view key, std::string* text) {
  const Json* value = object.Find(key);
  if (value != nullptr && !value->is_null()) *text += value->as_string();
}

void AddCall(const Json& entry, ChatAnswer* answer) {
  const auto index = static_cast<size_t>(entry.Find("index")->as_int());
  const Json& function = *entry.Find("function");
  if (entry.Find("id") != nullptr) {
    ASSERT_EQ(index, answer->calls.size());
    EXPECT_EQ(entry.Find("type")->as_string(), "function");
    answer->calls.push_back(entry.Find("id")->as_string() + " " +
                            function.Find("name")->as_string() + " ");
  } else {
    ASSERT_LT(index, answer->calls.size());
    EXPECT_EQ(function.Find("name"), nullptr);
  }
  AddText(function, "arguments", &answer->calls[index]);
}

}  // namespace

bool ChatAnswer::operator==(const ChatAnswer& other) const {
  return reasoning == other.reasoning && content == other.content && calls == other.calls &&
         finish_reason == other.finish_reason && CanonicalJson(usage) == CanonicalJson(other.usage);
}

ChatAnswer ReadChatStream(const std::vector<std::string>& events) {
  ChatAnswer answer;
  EXPECT_GE(events.size(), 3U);
  EXPECT_EQ(events.back(), "[DONE]");
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = MustParseJson(events[i]);
    EXPECT_EQ(chunk.Find("choices")->as_array().size(), 1U);
    const Json& choice = chunk.Find("choices")->as_array()[0];
    const Json& delta = *choice.Find("delta");
    const bool last = i + 2 == events.size();
    EXPECT_EQ(delta.Find("role") != nullptr, i == 0);
    EXPECT_EQ(choice.Find("finish_reason")->is_null(), !last);
    const Json* usage = chunk.Find("usage");
    EXPECT_EQ(usage != nullptr && !usage->is_null(), last);
    AddText(choice, "finish_reason", &answer.finish_reason);
    AddText(delta, "content", &answer.content);
    AddText(delta, "reasoning_content", &answer.reasoning);
    if (const Json* calls = delta.Find("tool_calls")) {
      for (const Json& call : calls->as_array()) AddCall(call, &answer);
    }
    if (last && usage != nullptr) answer.usage = *usage;
  }
  return answer;
}

ChatAnswer ReadChatBody(const std::string& body) {
  const Json value = MustParseJson(body);
  const Json& choice = value.Find("choices")->as_array()[0];
  const Json& message = *choice.Find("message");
  ChatAnswer answer;
  AddText(choice, "finish_reason", &answer.finish_reason);
  AddText(message, "content", &answer.content);
  AddText(message, "reasoning_content", &answer.reasoning);
  if (const Json* calls = message.Find("tool_calls")) {
    for (const Json& call : calls->as_array()) AddCall(call, &answer);
  }
  answer.usage = *value.Find("usage");
  return answer;
}

}  // namespace minke::testing
