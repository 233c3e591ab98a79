// Failures that users of other servers reported, as far as they concern the agents' families
// (serving.md 4.1, 4.2, 6.A, 6.B, 6.F). Each test is named after its report. Report 86 has a file
// of its own, responses_conformance_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/server/agent_support.h"
#include "tests/text/text_support.h"

namespace minke {
namespace {

using testing::At;
using testing::GoldenIdsOfAnswer;
using testing::MiniTokenizer;
using testing::MustParseJson;
using testing::PromptTextOf;
using testing::StreamEvents;
using testing::TextAt;
using testing::TypeOf;

constexpr std::string_view kAskResponses = R"("input": "q")";
constexpr std::string_view kAskMessages = R"("messages": [{"role": "user", "content": "q"}])";

// A family by what tests need of it.
struct AgentFamily {
  testing::ReadFunction read;
  testing::WriterFunction write;
  std::string_view ask;    // the members of a body that ask something
  std::string_view tools;  // and those that declare the tool f
};
const std::vector<AgentFamily>& Families() {
  static const std::vector<AgentFamily> families = {
      {ReadResponsesRequest, NewResponsesWriter, kAskResponses,
       R"("tools": [{"type": "function", "name": "f"}])"},
      {ReadMessagesRequest, NewMessagesWriter, kAskMessages, R"("tools": [{"name": "f"}])"},
  };
  return families;
}

Json AgentBody(std::string_view members, std::string_view more = "") {
  std::string text = R"({"model": "deepseek-flash", )";
  text += members;
  text += more.empty() ? "" : ", ";
  text += more;
  return MustParseJson(text + "}");
}

std::vector<int32_t> AgentIds(const ApiRequest& request) {
  const Result<Prompt> prompt = EncodeChat(request.chat);
  CHECK(prompt.has_value(), prompt.error().message);
  Result<std::vector<int32_t>> ids = PromptIds(*prompt, MiniTokenizer());
  CHECK(ids.has_value(), ids.error().message);
  return std::move(*ids);
}

// The prompt's text, or the error that the client would get.
std::string AgentPromptOrError(testing::ReadFunction read, const Json& body, bool strict) {
  ApiReadOptions options;
  options.strict_reasoning = strict;
  const ApiResult<ApiRequest> request = read(body, options);
  if (!request.has_value()) return request.error().message;
  const Result<Prompt> prompt = EncodeChat(request->chat);
  return prompt.has_value() ? prompt->Text() : prompt.error().message;
}

// A conversation with a call, with and without reasoning.
std::string TurnsWithCall(bool messages, bool reasoning) {
  if (messages) {
    return std::string(R"("messages": [{"role": "user", "content": "q"},
        {"role": "assistant", "content": [)") +
           (reasoning ? R"({"type": "thinking", "thinking": "why", "signature": "s"},)" : "") +
           R"({"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [
          {"type": "tool_result", "tool_use_id": "c", "content": "r"}]}])";
  }
  return std::string(R"("input": [{"role": "user", "content": "q"},)") +
         (reasoning ? R"({"type": "reasoning",
              "content": [{"type": "reasoning_text", "text": "why"}]},)"
                    : "") +
         R"({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"}])";
}

// 23, also 28 to 32 and 34: turns after tool calls failed without their reasoning.
TEST(AgentReports, Opencode24569ReasoningNeedNotBePassedBack) {
  const std::string refused =
      "The reasoning_content in the thinking mode must be passed back to the API.";
  for (size_t i = 0; i < Families().size(); ++i) {
    const AgentFamily& family = Families()[i];
    const Json without = AgentBody(TurnsWithCall(i == 1, false), family.tools);
    const Json with = AgentBody(TurnsWithCall(i == 1, true), family.tools);
    EXPECT_NE(AgentPromptOrError(family.read, without, false).find("<think></think>"),
              std::string::npos);
    EXPECT_EQ(AgentPromptOrError(family.read, without, true), refused);
    EXPECT_NE(AgentPromptOrError(family.read, with, true).find("<think>why</think>"),
              std::string::npos);
  }
}

// 27: reasoning that the server made up was replayed to the model.
TEST(AgentReports, LingtaiKernel9NoReasoningIsMadeUp) {
  for (size_t i = 0; i < Families().size(); ++i) {
    const testing::ReadFunction read = Families()[i].read;
    std::string with = AgentPromptOrError(read, AgentBody(TurnsWithCall(i == 1, true)), false);
    with.erase(with.find("why"), 3);
    EXPECT_EQ(AgentPromptOrError(read, AgentBody(TurnsWithCall(i == 1, false)), false), with);
  }
}

// 24: text that spells the image placeholder made every later turn fail. 25: control tokens typed
// by users became control tokens.
TEST(AgentReports, Sglang39274DeepseekRecipe5TypedControlTokensAreText) {
  for (const std::string mark : {"<｜deepseek_image｜>", "<｜User｜>", "</think>", "｜DSML｜"}) {
    const std::string responses =
        R"("instructions": "M", "input": [{"role": "user", "content": "M"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "M"}]},
        {"role": "assistant", "content": "M"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"M\": \"M\"}"},
        {"type": "function_call_output", "call_id": "c", "output": "M"}],
        "tools": [{"type": "function", "name": "f", "description": "M"}])";
    const std::string messages = R"("system": "M", "messages": [{"role": "user", "content": "M"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "M"},
          {"type": "text", "text": "M"},
          {"type": "tool_use", "id": "c", "name": "f", "input": {"M": "M"}}]},
        {"role": "user", "content": [
          {"type": "tool_result", "tool_use_id": "c", "content": "M"}]}],
        "tools": [{"name": "f", "description": "M"}])";
    const int32_t id = MiniTokenizer().ControlToken(mark).value();
    for (size_t i = 0; i < Families().size(); ++i) {
      const auto count = [&](const std::string& typed) {
        std::string body = i == 0 ? responses : messages;
        for (size_t at = 0; (at = body.find('M', at)) != std::string::npos; at += typed.size()) {
          body.replace(at, 1, typed);
        }
        const std::vector<int32_t> ids =
            AgentIds(testing::MustRead(Families()[i].read, AgentBody(body)));
        return std::count(ids.begin(), ids.end(), id);
      };
      EXPECT_EQ(count(mark), count("x")) << mark;
    }
  }
}

// 5: tool_choice none left the tools in the prompt.
TEST(AgentReports, Sglang35736NoneShowsNoTools) {
  const std::vector<std::string> none = {R"("tool_choice": "none")",
                                         R"("tool_choice": {"type": "none"})"};
  for (size_t i = 0; i < Families().size(); ++i) {
    const AgentFamily& family = Families()[i];
    const std::string tools(family.tools);
    const ApiRequest request =
        testing::MustRead(family.read, AgentBody(family.ask, tools + ", " + none[i]));
    EXPECT_EQ(AgentIds(request), AgentIds(testing::MustRead(family.read, AgentBody(family.ask))));
    EXPECT_NE(AgentIds(request),
              AgentIds(testing::MustRead(family.read, AgentBody(family.ask, tools))));
    EXPECT_FALSE(request.tools);
    EXPECT_TRUE(request.tool_names.empty());
  }
}

// 32: a conversation that another model began was refused.
TEST(AgentReports, Pawwork250HistoryOfAnotherModelIsTaken) {
  const Json responses = AgentBody(R"("input": [{"role": "user", "content": "q"},
      {"type": "reasoning", "id": "rs_x", "summary": [{"type": "summary_text", "text": "s"}],
       "encrypted_content": "gAAAA"},
      {"type": "function_call", "id": "fc_x", "call_id": "call_x1", "name": "no_tool_of_ours",
       "arguments": "not JSON"},
      {"type": "function_call_output", "call_id": "call_x1", "output": "r"}])");
  EXPECT_NE(
      PromptTextOf(testing::MustRead(ReadResponsesRequest, responses)).find("no_tool_of_ours"),
      std::string::npos);
  const Json messages = AgentBody(R"("messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "toolu_01X", "name": "no_tool_of_ours", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_01X", "content": "r"}]}])");
  EXPECT_NE(PromptTextOf(testing::MustRead(ReadMessagesRequest, messages)).find("no_tool_of_ours"),
            std::string::npos);
}

// 83, 88, 90: clients gave up because nothing was sent while the prompt was read.
TEST(AgentReports, Ds4Pr151AWaitingClientHasBytes) {
  for (const AgentFamily& family : Families()) {
    for (const char* stream : {R"("stream": true)", R"("stream": false)"}) {
      const auto writer = family.write(
          testing::MustRead(family.read, AgentBody(family.ask, stream)), GoldenIdsOfAnswer());
      EXPECT_NE(writer->KeepAlive(true), "");  // in the queue
      writer->Start(testing::GoldenUsage());
      EXPECT_NE(writer->KeepAlive(true), "");
      EXPECT_NE(writer->KeepAlive(false), "");
    }
  }
}

// 84: a stream stopped in its middle and never ended.
TEST(AgentReports, Deepseek1608AStalledStreamEndsWithAnError) {
  const std::vector<std::string> last = {"response.failed", "error"};
  for (size_t i = 0; i < Families().size(); ++i) {
    const AgentFamily& family = Families()[i];
    const auto writer =
        family.write(testing::MustRead(family.read, AgentBody(family.ask, R"("stream": true)")),
                     GoldenIdsOfAnswer());
    std::string bytes = writer->Start(testing::GoldenUsage());
    bytes += writer->Piece(testing::TextPiece(AnswerPiece::Kind::kReasoning, "half a th"));
    bytes += writer->Error(testing::GoldenStreamError("The answer made no progress."));
    EXPECT_EQ(TypeOf(StreamEvents(bytes).back()), last[i]);
    EXPECT_NE(bytes.find("The answer made no progress."), std::string::npos);
  }
}

// 93: a client took bare comments for an error.
TEST(AgentReports, MistralVibe776CommentsCanBeSwitchedOff) {
  for (const AgentFamily& family : Families()) {
    const auto writer =
        family.write(testing::MustRead(family.read, AgentBody(family.ask, R"("stream": true)")),
                     GoldenIdsOfAnswer());
    testing::SseReader reader;
    reader.Push(writer->KeepAlive(false));
    reader.Push(writer->Start(testing::GoldenUsage()));
    reader.Push(writer->KeepAlive(false));
    EXPECT_TRUE(reader.comments().empty());
    EXPECT_TRUE(reader.at_border());
  }
}

// 96, 97: counts of cached tokens were null.
TEST(AgentReports, Omlx919Litellm16009CountsAreIntegers) {
  const std::vector<std::vector<std::string>> counts = {
      {"input_tokens", "input_tokens_details.cached_tokens", "output_tokens",
       "output_tokens_details.reasoning_tokens", "total_tokens"},
      {"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"}};
  for (size_t i = 0; i < Families().size(); ++i) {
    const AgentFamily& family = Families()[i];
    for (const bool filled : {true, false}) {
      const auto writer =
          family.write(testing::MustRead(family.read, AgentBody(family.ask)), GoldenIdsOfAnswer());
      AnswerEnd end;
      if (filled) end.usage = testing::GoldenUsage();
      writer->Start(end.usage);
      const Json body = MustParseJson(writer->End(end));
      for (const std::string& count : counts[i]) {
        EXPECT_TRUE(At(body, "usage." + count).is_integer()) << count;
      }
    }
  }
}

// 101: agents did not recognise the text of an overflow and never shortened their history.
TEST(AgentReports, Opencode8089ClaudeCode476OverflowIsRecognised) {
  const ApiRequest messages =
      testing::MustRead(ReadMessagesRequest, AgentBody(kAskMessages, R"("max_tokens": 32000)"));
  const ApiResult<int64_t> claude = ResolveMaxTokens(messages, 120'000, 131'072);
  ASSERT_FALSE(claude.has_value());
  EXPECT_NE(claude.error().message.find("input length and `max_tokens` exceed context limit: "
                                        "120000 + 32000 > 131072"),
            std::string::npos);
  const ApiRequest responses = testing::MustRead(
      ReadResponsesRequest, AgentBody(kAskResponses, R"("max_output_tokens": 32000)"));
  const ApiResult<int64_t> codex = ResolveMaxTokens(responses, 120'000, 131'072);
  ASSERT_FALSE(codex.has_value());
  EXPECT_EQ(codex.error().code, "context_length_exceeded");
}

// A client of Messages failed where the first event had no input_tokens (serving.md 4.2).
TEST(AgentReports, CcSwitch1945MessageStartHasUsage) {
  const auto writer = NewMessagesWriter(
      testing::MustRead(ReadMessagesRequest, AgentBody(kAskMessages, R"("stream": true)")),
      GoldenIdsOfAnswer());
  const Json start = StreamEvents(writer->Start(Usage())).at(0);
  EXPECT_TRUE(At(start, "message.usage.input_tokens").is_integer());
  EXPECT_EQ(At(start, "message.usage.output_tokens").as_int(), 0);
}

// Codex gave up five times over "stream closed before response.completed" (serving.md 4.1).
TEST(AgentReports, Codex41340CompletedIsTheLastEvent) {
  for (const AnswerFinish finish :
       {AnswerFinish::kStop, AnswerFinish::kStopString, AnswerFinish::kToolCalls}) {
    const auto writer = NewResponsesWriter(
        testing::MustRead(ReadResponsesRequest, AgentBody(kAskResponses, R"("stream": true)")),
        GoldenIdsOfAnswer());
    const std::string bytes = testing::WriteAnswer(
        writer.get(), {testing::TextPiece(AnswerPiece::Kind::kContent, "a")}, finish);
    EXPECT_EQ(TypeOf(StreamEvents(bytes).back()), "response.completed");
  }
}

}  // namespace
}  // namespace minke
