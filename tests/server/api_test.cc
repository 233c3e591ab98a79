// What the API families share: envelopes of errors, room for an answer, usage (serving.md 1.6).
#include "server/api.h"

#include <gtest/gtest.h>

#include <string>

#include "server/openai_shapes.h"
#include "tests/server/openai_support.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::CanonicalJson;
using testing::MustParseJson;

ApiFamily FamilyOf(const std::string& name) {
  if (name == "chat") return ApiFamily::kChat;
  if (name == "completions") return ApiFamily::kCompletions;
  if (name == "responses") return ApiFamily::kResponses;
  CHECK(name == "messages");
  return ApiFamily::kMessages;
}

ApiRequest RequestOf(ApiFamily family, int64_t max_tokens) {
  ApiRequest request;
  request.family = family;
  request.max_tokens = max_tokens;
  return request;
}

std::string OverflowOf(ApiFamily family) {
  const ApiResult<int64_t> tokens = ResolveMaxTokens(RequestOf(family, 300), 800, 1000);
  return tokens.has_value() ? "no error" : tokens.error().message;
}

TEST(Api, GoldenErrorEnvelopes) {
  const Json file = testing::GoldenJson("api/errors/envelopes.json");
  for (const Json& golden : file.as_array()) {
    ApiError error;
    error.status = static_cast<int>(golden.Find("status")->as_int());
    error.message = golden.Find("message")->as_string();
    error.type = golden.Find("type")->as_string();
    error.code = golden.Find("code")->as_string();
    error.param = golden.Find("param")->as_string();
    const std::string body =
        ErrorBody(FamilyOf(golden.Find("family")->as_string()), error, "req_1");
    EXPECT_EQ(CanonicalJson(MustParseJson(body)), CanonicalJson(*golden.Find("envelope")));
  }
}

TEST(Api, MessagesAreEscaped) {
  ApiError error;
  error.message = "a \"quoted\"\nline é";
  for (const ApiFamily family : {ApiFamily::kChat, ApiFamily::kMessages}) {
    const Json body = MustParseJson(ErrorBody(family, error, ""));
    EXPECT_EQ(body.Find("error")->Find("message")->as_string(), error.message);
  }
}

TEST(Api, BadRequestFindsThePlace) {
  const auto param = [](const char* message) {
    return BadRequest(Error{ErrorCode::kInvalidInput, message}).param;
  };
  EXPECT_EQ(param("messages[3].content must be a string, but it is missing."),
            "messages[3].content");
  EXPECT_EQ(param("tool_choice \"required\" needs tools."), "tool_choice");
  EXPECT_EQ(param("The prompt is longer than 5 bytes."), "");
  EXPECT_EQ(param("messages"), "messages");
  EXPECT_EQ(param("thinkingly it must be"), "");
}

TEST(Api, RoomForAnAnswer) {
  const auto resolve = [](int64_t asked, int64_t prompt, int64_t context) {
    const auto tokens = ResolveMaxTokens(RequestOf(ApiFamily::kChat, asked), prompt, context);
    return tokens.has_value() ? *tokens : -1;
  };
  EXPECT_EQ(resolve(200, 800, 1000), 200);
  EXPECT_EQ(resolve(201, 800, 1000), -1);
  EXPECT_EQ(resolve(1, 999, 1000), 1);
  // The default is a wish, not a demand.
  EXPECT_EQ(resolve(-1, 800, 1000), 200);
  EXPECT_EQ(resolve(-1, 999, 1000), 1);
  EXPECT_EQ(resolve(-1, 1000, 1000), -1);
  EXPECT_EQ(resolve(-1, 2000, 1000), -1);
  EXPECT_EQ(resolve(-1, 800, 1'000'000), 65'536);
}

TEST(Api, OverflowIsWordedAsAgentsKnowIt) {
  const std::string chat =
      "This model's maximum context length is 1000 tokens. However, you requested 1100 tokens (800 "
      "in the messages, 300 in the completion). Please reduce the length of the messages or "
      "completion.";
  EXPECT_EQ(OverflowOf(ApiFamily::kChat), chat);
  EXPECT_EQ(OverflowOf(ApiFamily::kCompletions), chat);
  EXPECT_EQ(OverflowOf(ApiFamily::kResponses), chat);
  EXPECT_EQ(OverflowOf(ApiFamily::kMessages),
            "input length and `max_tokens` exceed context limit: 800 + 300 > 1000");
}

TEST(Api, FinishReasons) {
  EXPECT_EQ(OpenAiFinishReason(AnswerFinish::kStop, false), "stop");
  EXPECT_EQ(OpenAiFinishReason(AnswerFinish::kStopString, false), "stop");
  EXPECT_EQ(OpenAiFinishReason(AnswerFinish::kStop, true), "tool_calls");
  EXPECT_EQ(OpenAiFinishReason(AnswerFinish::kToolCalls, false), "tool_calls");
  // A call that was cut off is no call to be run.
  EXPECT_EQ(OpenAiFinishReason(AnswerFinish::kLength, true), "length");
  EXPECT_EQ(OpenAiFinishReason(AnswerFinish::kOverloaded, true), "insufficient_system_resource");
}

}  // namespace
}  // namespace minke
