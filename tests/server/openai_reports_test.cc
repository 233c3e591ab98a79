// Failures that users of other servers reported, as far as they concern Chat Completions
// (serving.md 6.A, 6.B, 6.F). Each test is named after its report.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/server/openai_support.h"
#include "tests/text/text_support.h"
#include "text/chat_encoding.h"

namespace minke {
namespace {

using testing::MiniTokenizer;
using testing::MustParseJson;

constexpr std::string_view kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";

Json ReportBody(std::string_view messages, std::string_view members = "") {
  std::string text = R"({"model": "deepseek-flash", "messages": [)";
  text += messages;
  text += members.empty() ? "]" : "], ";
  text += members;
  text += "}";
  return MustParseJson(text);
}

// The prompt's text, or the error that the client would get.
std::string PromptOrError(const Json& body, bool strict_reasoning = false) {
  ApiReadOptions options;
  options.strict_reasoning = strict_reasoning;
  const ApiResult<ApiRequest> request = ReadChatRequest(body, options);
  if (!request.has_value()) return request.error().message;
  const Result<Prompt> prompt = EncodeChat(request->chat);
  return prompt.has_value() ? prompt->Text() : BadRequest(prompt.error()).message;
}

std::vector<int32_t> ReportIds(const Json& body) {
  const ApiRequest request = testing::MustRead(ReadChatRequest, body);
  const Result<Prompt> prompt = EncodeChat(request.chat);
  CHECK(prompt.has_value(), prompt.error().message);
  Result<std::vector<int32_t>> ids = PromptIds(*prompt, MiniTokenizer());
  CHECK(ids.has_value(), ids.error().message);
  return std::move(*ids);
}

int64_t CountIds(const std::vector<int32_t>& ids, std::string_view control) {
  const int32_t id = MiniTokenizer().ControlToken(control).value();
  return std::count(ids.begin(), ids.end(), id);
}

std::string ToolTurns(std::string_view reasoning_member) {
  std::string text = R"({"role": "user", "content": "q"}, {"role": "assistant", )";
  text += reasoning_member;
  text += R"("tool_calls": [{"id": "c", "type": "function", "function":
      {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "r"})";
  return text;
}

// 23, also 28 to 31 and 34: turns after tool calls failed without reasoning_content.
TEST(Reports, Opencode24569ReasoningNeedNotBePassedBack) {
  const std::string refused =
      "The reasoning_content in the thinking mode must be passed back to the API.";
  for (const char* missing : {"", R"("reasoning_content": null, )"}) {
    const Json body = ReportBody(ToolTurns(missing), kTools);
    EXPECT_NE(PromptOrError(body).find("<｜Assistant｜><think></think>"), std::string::npos);
    EXPECT_EQ(PromptOrError(body, /*strict_reasoning=*/true), refused);
  }
  for (const char* there : {R"("reasoning_content": "", )", R"("reasoning_content": "r", )"}) {
    const Json body = ReportBody(ToolTurns(there), kTools);
    EXPECT_EQ(PromptOrError(body), PromptOrError(body, /*strict_reasoning=*/true));
    EXPECT_NE(PromptOrError(body), refused);
  }
}

// 22: the turn after a failed tool call was refused for want of reasoning.
TEST(Reports, Fastclaw58SecondTurnAfterAFailedCall) {
  const std::string turns = ToolTurns("");
  EXPECT_NE(PromptOrError(ReportBody(turns, kTools)).find("<tool_result>r</tool_result>"),
            std::string::npos);
}

// 27: reasoning that the server made up was replayed to the model.
TEST(Reports, LingtaiKernel9NoReasoningIsMadeUp) {
  const std::string with = PromptOrError(ReportBody(ToolTurns(R"("reasoning_content": "why", )")));
  const std::string without = PromptOrError(ReportBody(ToolTurns("")));
  std::string expected = with;
  expected.erase(expected.find("why"), 3);
  EXPECT_EQ(without, expected);
}

// 24: text that spells the image placeholder made every later turn fail.
TEST(Reports, Sglang39274TypedImagePlaceholderIsText) {
  const std::string mark = "<｜deepseek_image｜>";
  const std::string messages =
      R"({"role": "system", "content": "s )" + mark + R"("}, {"role": "user", "content": ")" +
      mark + R"("}, {"role": "assistant", "content": "a )" + mark + R"(", "reasoning_content": ")" +
      mark +
      R"(", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f",
         "arguments": "{\"a\": \")" +
      mark + R"(\"}"}}]}, {"role": "tool", "tool_call_id": "c", "content": ")" + mark + "\"}";
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "description": ")" + mark +
      R"("}}])";
  const std::vector<int32_t> ids = ReportIds(ReportBody(messages, tools));
  EXPECT_EQ(CountIds(ids, mark), 0);
  // The session goes on.
  const std::string later =
      messages + R"(, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"})";
  EXPECT_EQ(CountIds(ReportIds(ReportBody(later, tools)), mark), 0);
}

// 25: control tokens typed by users became control tokens.
TEST(Reports, DeepseekRecipe5TypedControlTokensAreText) {
  const std::vector<int32_t> plain = ReportIds(ReportBody(R"({"role": "user", "content": "x"})"));
  for (const std::string_view mark : {"<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
                                      "<｜System｜>", "<｜end▁of▁sentence｜>", "｜DSML｜"}) {
    const std::vector<int32_t> ids =
        ReportIds(ReportBody(R"({"role": "user", "content": ")" + std::string(mark) + "\"}"));
    EXPECT_EQ(CountIds(ids, mark), CountIds(plain, mark)) << mark;
    EXPECT_GT(ids.size(), plain.size()) << mark;
  }
}

// 5: tool_choice none left the tools in the prompt.
TEST(Reports, Sglang35736NoneShowsNoTools) {
  const std::string user = R"({"role": "user", "content": "q"})";
  const std::string none = std::string(kTools) + R"(, "tool_choice": "none")";
  EXPECT_EQ(ReportIds(ReportBody(user, none)), ReportIds(ReportBody(user)));
  EXPECT_NE(ReportIds(ReportBody(user, kTools)), ReportIds(ReportBody(user)));
  const ApiRequest request = testing::MustRead(ReadChatRequest, ReportBody(user, none));
  EXPECT_FALSE(request.tools);
  EXPECT_TRUE(request.tool_names.empty());
}

// 26: names of efforts stood for the numbers of an older revision.
TEST(Reports, Sglang39909NumbersOfEffortNames) {
  const std::pair<const char*, const char*> kEfforts[] = {
      {"\"minimal\"", "50"}, {"\"low\"", "50"},  {"\"medium\"", "75"}, {"\"high\"", "75"},
      {"\"xhigh\"", "75"},   {"\"max\"", "100"}, {"\"ultra\"", "100"}, {"1", "1"},
      {"50", "50"},          {"100", "100"}};
  for (const auto& [effort, number] : kEfforts) {
    const std::string prompt = PromptOrError(ReportBody(
        R"({"role": "user", "content": "q"})", "\"reasoning_effort\": " + std::string(effort)));
    EXPECT_NE(prompt.find("Reasoning Effort: " + std::string(number) + " (range"),
              std::string::npos)
        << effort;
  }
  const std::string none = PromptOrError(
      ReportBody(R"({"role": "user", "content": "q"})", R"("reasoning_effort": "none")"));
  EXPECT_EQ(none.find("Reasoning Effort"), std::string::npos);
}

// 33: a client took the model for one that does not think.
TEST(Reports, DeepseekCopilot2ThinkingIsTheDefault) {
  const std::string prompt = PromptOrError(ReportBody(R"({"role": "user", "content": "q"})"));
  EXPECT_EQ(prompt.substr(prompt.size() - 7), "<think>");
}

// 83, 88, 90: clients gave up because nothing was sent while the prompt was read.
TEST(Reports, Ds4Pr151AWaitingClientHasBytes) {
  for (const char* stream : {"true", "false"}) {
    const ApiRequest request = testing::MustRead(
        ReadChatRequest,
        ReportBody(R"({"role": "user", "content": "q"})", "\"stream\": " + std::string(stream)));
    // Before the start, in the queue, as well as after it.
    const auto writer = NewChatWriter(request, testing::GoldenIdsOfAnswer());
    EXPECT_NE(writer->KeepAlive(true), "");
    writer->Start(testing::GoldenUsage());
    EXPECT_NE(writer->KeepAlive(true), "");
  }
}

// 84: a stream stopped in its middle and never ended.
TEST(Reports, Deepseek1608AStalledStreamEndsWithAnError) {
  const ApiRequest request = testing::MustRead(
      ReadChatRequest, ReportBody(R"({"role": "user", "content": "q"})", R"("stream": true)"));
  const auto writer = NewChatWriter(request, testing::GoldenIdsOfAnswer());
  std::string bytes = writer->Start(testing::GoldenUsage());
  AnswerPiece piece;
  piece.kind = AnswerPiece::Kind::kReasoning;
  piece.text = "half a th";
  bytes += writer->Piece(piece);
  bytes += writer->Error(testing::GoldenStreamError("The answer made no progress."));
  testing::SseReader reader;
  reader.Push(bytes);
  EXPECT_TRUE(reader.at_border());
  ASSERT_EQ(reader.events().size(), 4U);
  EXPECT_NE(MustParseJson(reader.events()[2]).Find("error"), nullptr);
  EXPECT_EQ(reader.events()[3], "[DONE]");
}

// 93: a client took bare comments for an error.
TEST(Reports, MistralVibe776CommentsCanBeSwitchedOff) {
  const ApiRequest request = testing::MustRead(
      ReadChatRequest, ReportBody(R"({"role": "user", "content": "q"})", R"("stream": true)"));
  const auto writer = NewChatWriter(request, testing::GoldenIdsOfAnswer());
  EXPECT_EQ(writer->KeepAlive(true), ": keep-alive\n\n");
  testing::SseReader reader;
  reader.Push(writer->KeepAlive(false));
  EXPECT_TRUE(reader.comments().empty());
  ASSERT_EQ(reader.events().size(), 1U);
  const Json chunk = MustParseJson(reader.events()[0]);
  EXPECT_TRUE(chunk.Find("choices")->as_array()[0].Find("delta")->as_object().empty());
}

void ExpectIntegerCounts(const Json& usage) {
  for (const char* key : {"prompt_tokens", "completion_tokens", "total_tokens",
                          "prompt_cache_hit_tokens", "prompt_cache_miss_tokens"}) {
    ASSERT_NE(usage.Find(key), nullptr) << key;
    EXPECT_TRUE(usage.Find(key)->is_integer()) << key;
  }
  EXPECT_TRUE(usage.Find("prompt_tokens_details")->Find("cached_tokens")->is_integer());
  EXPECT_TRUE(usage.Find("completion_tokens_details")->Find("reasoning_tokens")->is_integer());
  EXPECT_EQ(usage.Find("prompt_tokens")->as_int(),
            usage.Find("prompt_cache_hit_tokens")->as_int() +
                usage.Find("prompt_cache_miss_tokens")->as_int());
}

// 96, 97: counts of cached tokens were null or in one spelling only.
TEST(Reports, Omlx919Litellm16009CountsAreIntegersInBothSpellings) {
  for (const bool streams : {true, false}) {
    for (const bool filled : {true, false}) {
      const ApiRequest request = testing::MustRead(
          ReadChatRequest,
          ReportBody(R"({"role": "user", "content": "q"})",
                     streams ? R"("stream": true)" : R"("thinking": {"type": "disabled"})"));
      const auto writer = NewChatWriter(request, testing::GoldenIdsOfAnswer());
      AnswerEnd end;
      if (filled) end.usage = testing::GoldenUsage();
      const std::string start = writer->Start(end.usage);
      std::string bytes = writer->End(end);
      if (streams) {
        testing::SseReader reader;
        reader.Push(start + bytes);
        bytes = reader.events().at(reader.events().size() - 2);
      }
      ExpectIntegerCounts(*MustParseJson(bytes).Find("usage"));
    }
  }
}

// 101: agents did not recognise the text of an overflow and never shortened their history.
TEST(Reports, Opencode8089OverflowIsRecognised) {
  ApiRequest request = testing::MustRead(
      ReadChatRequest, ReportBody(R"({"role": "user", "content": "q"})", R"("max_tokens": 32000)"));
  const ApiResult<int64_t> tokens = ResolveMaxTokens(request, 120'000, 131'072);
  ASSERT_FALSE(tokens.has_value());
  EXPECT_EQ(tokens.error().status, 400);
  EXPECT_EQ(tokens.error().code, "context_length_exceeded");
  EXPECT_NE(tokens.error().message.find("maximum context length is 131072 tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace minke
