// Chat Completions: what is read, what is refused, and the shapes of answers (serving.md 1.4, 1.5).
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/chat_client.h"
#include "tests/server/openai_support.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::CanonicalJson;
using testing::ChatAnswer;
using testing::GoldenIdsOfAnswer;
using testing::MustParseJson;
using testing::ReadChatBody;
using testing::ReadChatStream;
using testing::SseReader;

constexpr std::string_view kUserHi = R"({"role": "user", "content": "hi"})";

Json ChatBody(std::string_view members, std::string_view messages = kUserHi) {
  std::string text = R"({"model": "deepseek-flash", "messages": [)";
  text += messages;
  text += "]";
  if (!members.empty()) text += ", ";
  text += members;
  text += "}";
  return MustParseJson(text);
}

ApiRequest ReadChat(std::string_view members, std::string_view messages = kUserHi) {
  return testing::MustRead(ReadChatRequest, ChatBody(members, messages));
}

std::string ChatError(std::string_view members, std::string_view messages = kUserHi) {
  const auto request = ReadChatRequest(ChatBody(members, messages), ApiReadOptions());
  return request.has_value() ? "no error" : request.error().message;
}

std::string PromptText(const ApiRequest& request) {
  const Result<Prompt> prompt = EncodeChat(request.chat);
  CHECK(prompt.has_value(), prompt.error().message);
  return prompt->Text();
}

std::vector<AnswerPiece> LongAnswer() {
  using Kind = AnswerPiece::Kind;
  const auto piece = [](Kind kind, int index, std::string text) {
    AnswerPiece made;
    made.kind = kind;
    made.tool_index = index;
    made.text = std::move(text);
    if (kind == Kind::kToolCall) made.name = "get_weather";
    return made;
  };
  return {piece(Kind::kReasoning, 0, "Ég hugsa — «þess vegna»\n\nline two 👍🏽"),
          piece(Kind::kContent, 0, "data: [DONE]\n\n: not a comment\r\n{\"error\": 1}"),
          piece(Kind::kToolCall, 0, ""),
          piece(Kind::kToolArguments, 0, R"({"city": "Reykjavík \"101\"", "n": [1, 2]})"),
          piece(Kind::kToolCallEnd, 0, ""),
          piece(Kind::kToolCall, 1, ""),
          piece(Kind::kToolArguments, 1, "{}"),
          piece(Kind::kToolCallEnd, 1, "")};
}

TEST(ChatApi, GoldenAnswers) {
  const Json file = testing::GoldenJson("api/chat/answers.json");
  for (const Json& golden : file.as_array()) {
    testing::ExpectGoldenAnswer(golden, ReadChatRequest, NewChatWriter);
  }
}

TEST(ChatApi, GoldenErrors) {
  testing::ExpectGoldenErrors("api/chat/errors.json", ReadChatRequest);
}

TEST(ChatApi, Defaults) {
  const ApiRequest request = ReadChat("");
  EXPECT_EQ(request.family, ApiFamily::kChat);
  EXPECT_EQ(request.model, "deepseek-flash");
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.include_usage);
  EXPECT_TRUE(request.thinking());
  EXPECT_TRUE(request.opens_reasoning());
  EXPECT_EQ(request.chat.options.reasoning_effort, 75);
  EXPECT_FALSE(request.chat.options.drop_thinking);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.sampling.logprobs, -1);
  EXPECT_FALSE(request.has_seed);
  EXPECT_EQ(request.max_tokens, -1);
  EXPECT_EQ(request.max_tokens_or_default(), 65'536);
  EXPECT_EQ(ReadChat(R"("thinking": {"type": "disabled"})").max_tokens_or_default(), 8'192);
  EXPECT_FALSE(request.tools);
  EXPECT_FALSE(request.json_mode);
  EXPECT_EQ(request.user_id, "");
}

TEST(ChatApi, ThinkingWinsOverEffort) {
  struct Case {
    const char* members;
    bool thinking;
    int effort;
  };
  const Case kCases[] = {
      {R"("thinking": {"type": "enabled"}, "reasoning_effort": "none")", true, 75},
      {R"("thinking": {"type": "disabled"}, "reasoning_effort": "max")", false, 100},
      {R"("thinking": {"type": "adaptive"})", true, 75},
      {R"("thinking": null, "reasoning_effort": null)", true, 75},
      {R"("reasoning_effort": "none")", false, 75},
      {R"("reasoning_effort": "minimal")", true, 50},
      {R"("reasoning_effort": "low")", true, 50},
      {R"("reasoning_effort": "medium")", true, 75},
      {R"("reasoning_effort": "high")", true, 75},
      {R"("reasoning_effort": "xhigh")", true, 75},
      {R"("reasoning_effort": "max")", true, 100},
      {R"("reasoning_effort": "ultra")", true, 100},
      {R"("reasoning_effort": 1)", true, 1},
      {R"("reasoning_effort": 100)", true, 100},
      {R"("reasoning_effort": "33")", true, 33},
  };
  for (const Case& expected : kCases) {
    const ApiRequest request = ReadChat(expected.members);
    EXPECT_EQ(request.thinking(), expected.thinking) << expected.members;
    EXPECT_EQ(request.chat.options.reasoning_effort, expected.effort) << expected.members;
  }
}

TEST(ChatApi, ThinkingIgnoresTemperatureAndPenalties) {
  const std::string members = R"("temperature": 0, "presence_penalty": 1, "frequency_penalty": -1,
                                 "top_p": 0.5, "seed": 7)";
  const ApiRequest thinking = ReadChat(members);
  EXPECT_EQ(thinking.sampling.temperature, 1);
  EXPECT_EQ(thinking.sampling.presence_penalty, 0);
  EXPECT_EQ(thinking.sampling.frequency_penalty, 0);
  EXPECT_EQ(thinking.sampling.top_p, 0.5);
  EXPECT_EQ(thinking.sampling.seed, 7U);
  EXPECT_TRUE(thinking.has_seed);
  const ApiRequest plain = ReadChat(members + R"(, "thinking": {"type": "disabled"})");
  EXPECT_EQ(plain.sampling.temperature, 0);
  EXPECT_EQ(plain.sampling.presence_penalty, 1);
  EXPECT_EQ(plain.sampling.frequency_penalty, -1);
  EXPECT_EQ(plain.sampling.top_p, 0.5);
}

TEST(ChatApi, LimitsThemselvesAreAccepted) {
  const std::string user(512, 'u');
  std::string stops = "\"s\"";
  for (int i = 1; i < 16; ++i) stops += ", \"s\"";
  const ApiRequest request = ReadChat(
      R"("max_tokens": 393216, "temperature": 2, "top_p": 1, "presence_penalty": -2,
         "frequency_penalty": 2, "seed": 9223372036854775807, "n": 1, "logprobs": true,
         "top_logprobs": 20, "user_id": ")" +
      user + R"(", "stop": [)" + stops + "]");
  EXPECT_EQ(request.max_tokens, 393'216);
  EXPECT_EQ(request.sampling.logprobs, 20);
  EXPECT_EQ(request.user_id, user);
  EXPECT_EQ(request.stop_strings.size(), 16U);
  EXPECT_EQ(ReadChat(R"("stop": ")" + std::string(512, 's') + "\"").stop_strings.size(), 1U);
  EXPECT_EQ(ReadChat(R"("stop": ["", "a"])").stop_strings, std::vector<std::string>{"a"});
}

TEST(ChatApi, LimitOfTools) {
  const auto tools = [](int count) {
    std::string list;
    for (int i = 0; i < count; ++i) {
      if (i > 0) list += ", ";
      list += R"({"type": "function", "function": {"name": "f)" + std::to_string(i) + "\"}}";
    }
    return "\"tools\": [" + list + "]";
  };
  EXPECT_EQ(ReadChat(tools(1024)).tool_names.size(), 1024U);
  EXPECT_NE(ChatError(tools(1025)).find("at most 1024"), std::string::npos);
}

// What real clients send although the hosted schema lacks it (1.4), and what is known and means
// nothing here.
TEST(ChatApi, UnknownMembersChangeNothing) {
  const std::string plain = PromptText(ReadChat(""));
  for (const char* members :
       {R"("store": false)",
        R"("metadata": {"a": "b"})",
        R"("prompt_cache_key": "k")",
        R"("parallel_tool_calls": false)",
        R"("service_tier": "auto")",
        R"("logit_bias": null)",
        R"("client_metadata": [1])",
        R"("context": [{"role": "user", "content": "x"}])",
        R"("add_default_bos_token": false)",
        R"("thinking_mode": "chat")",
        R"("tools": [])",
        R"("tools": null)",
        R"("tool_choice": "auto")",
        R"("stop": null)",
        R"("stream_options": null)",
        R"("response_format": {"type": "text"})",
        R"("response_format": {"type": "json_schema", "json_schema": {"name": "n"}})",
        R"("n": null)",
        R"("max_tokens": null)",
        R"("logprobs": false)"}) {
    const ApiRequest request = ReadChat(members);
    EXPECT_EQ(PromptText(request), plain) << members;
    EXPECT_FALSE(request.tools) << members;
    EXPECT_FALSE(request.json_mode) << members;
  }
}

TEST(ChatApi, NewerNamesOfMembers) {
  EXPECT_EQ(ReadChat(R"("max_completion_tokens": 32000)").max_tokens, 32'000);
  EXPECT_EQ(ReadChat(R"("max_completion_tokens": 5, "max_tokens": 6)").max_tokens, 5);
  EXPECT_EQ(ReadChat(R"("user": "a")").user_id, "a");
  EXPECT_EQ(ReadChat(R"("user": "a", "user_id": "b")").user_id, "b");
  // A JSON text is an id like others.
  EXPECT_EQ(ReadChat(R"("user_id": "{\"device\": 1}")").user_id, R"({"device": 1})");
  const std::string developer = R"({"role": "developer", "content": "Be brief."}, )";
  const std::string system = R"({"role": "system", "content": "Be brief."}, )";
  EXPECT_EQ(PromptText(ReadChat("", developer + std::string(kUserHi))),
            PromptText(ReadChat("", system + std::string(kUserHi))));
}

TEST(ChatApi, PrefixCompletionContinuesTheMessage) {
  const std::string messages =
      std::string(kUserHi) + R"(, {"role": "assistant", "content": "```py\n", "prefix": true})";
  const ApiRequest request = ReadChat(R"("stop": "```")", messages);
  EXPECT_TRUE(request.thinking());
  EXPECT_FALSE(request.opens_reasoning());
  const std::string text = PromptText(request);
  EXPECT_EQ(text.substr(text.size() - 14), "</think>```py\n");
}

TEST(ChatApi, ToolChoice) {
  const std::string tools = R"("thinking": {"type": "disabled"}, "tools": [
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object"},
                                        "strict": true}},
      {"type": "function", "function": {"name": "g"}}])";
  const std::vector<std::string> both = {"f", "g"};
  const ApiRequest automatic = ReadChat(tools);
  EXPECT_TRUE(automatic.tools);
  EXPECT_FALSE(automatic.in_calls());
  EXPECT_EQ(automatic.tool_names, both);
  const ApiRequest required = ReadChat(tools + R"(, "tool_choice": "required")");
  EXPECT_TRUE(required.in_calls());
  EXPECT_EQ(required.tool_names, both);
  const std::string opening = "<｜DSML｜ calls>\n";
  const std::string prompt = PromptText(required);
  EXPECT_EQ(prompt.substr(prompt.size() - opening.size()), opening);
  const ApiRequest named =
      ReadChat(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})");
  EXPECT_TRUE(named.in_calls());
  EXPECT_EQ(named.tool_names, std::vector<std::string>{"g"});
  EXPECT_EQ(PromptText(named).find("\"f\""), std::string::npos);
  EXPECT_FALSE(ReadChat(tools + R"(, "tool_choice": "none")").tools);
}

TEST(ChatApi, JsonObjectNeedsTheWordInAMessage) {
  const std::string format = R"("response_format": {"type": "json_object"})";
  EXPECT_TRUE(ReadChat(format, R"({"role": "user", "content": "As jSoN, please."})").json_mode);
  EXPECT_TRUE(
      ReadChat(format, R"({"role": "system", "content": "JSON only"}, )" + std::string(kUserHi))
          .json_mode);
  const std::string blocks = R"({"role": "user", "content": [{"type": "text", "text": "a"},
                                 {"type": "text", "text": "json"}]})";
  EXPECT_TRUE(ReadChat(format, blocks).json_mode);
  const ApiRequest request = ReadChat(format, R"({"role": "user", "content": "json"})");
  EXPECT_NE(PromptText(request).find(R"({"type": "json_object"})"), std::string::npos);
}

TEST(ChatApi, ToolHistoryOfOtherModelsIsAccepted) {
  // Foreign ids, arguments as an object, results in another order, no reasoning (6.B 32).
  const std::string messages = std::string(kUserHi) +
                               R"(, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
        {"id": "fc-2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "fc-2", "content": [{"type": "text", "text": "two"}]},
      {"role": "tool", "tool_call_id": "toolu_1", "content": "one"})";
  const std::string text = PromptText(ReadChat("", messages));
  EXPECT_LT(text.find("one"), text.find("two"));
}

TEST(ChatApi, AnySplitOfAnAnswerJoinsToTheSame) {
  const std::vector<AnswerPiece> pieces = LongAnswer();
  const ApiRequest whole = ReadChat("");
  const ApiRequest stream = ReadChat(R"("stream": true)");
  const ChatAnswer expected = ReadChatBody(testing::WriteAnswer(
      NewChatWriter(whole, GoldenIdsOfAnswer()).get(), pieces, AnswerFinish::kToolCalls));
  EXPECT_EQ(expected.calls.size(), 2U);
  EXPECT_EQ(expected.content, pieces[1].text);
  EXPECT_EQ(expected.finish_reason, "tool_calls");
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::vector<AnswerPiece> split = testing::SplitPieces(pieces, seed);
    SseReader reader;
    reader.Push(testing::WriteAnswer(NewChatWriter(stream, GoldenIdsOfAnswer()).get(), split,
                                     AnswerFinish::kToolCalls));
    EXPECT_TRUE(ReadChatStream(reader.events()) == expected) << seed;
    EXPECT_TRUE(ReadChatBody(testing::WriteAnswer(NewChatWriter(whole, GoldenIdsOfAnswer()).get(),
                                                  split, AnswerFinish::kToolCalls)) == expected)
        << seed;
  }
}

TEST(ChatApi, AStreamReadsTheSameFromEveryByteSplit) {
  const ApiRequest stream = ReadChat(R"("stream": true)");
  const std::string bytes = testing::WriteAnswer(NewChatWriter(stream, GoldenIdsOfAnswer()).get(),
                                                 LongAnswer(), AnswerFinish::kToolCalls);
  SseReader whole;
  whole.Push(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    SseReader reader;
    reader.Push(std::string_view(bytes).substr(0, cut));
    reader.Push(std::string_view(bytes).substr(cut));
    ASSERT_EQ(reader.events(), whole.events()) << cut;
  }
}

// Keep-alives may come before the start and between any two pieces, and say nothing.
TEST(ChatApi, KeepAlivesChangeNothing) {
  const ApiRequest stream = ReadChat(R"("stream": true)");
  for (const bool comments : {true, false}) {
    const auto writer = NewChatWriter(stream, GoldenIdsOfAnswer());
    std::string bytes = writer->Start(testing::GoldenUsage());
    for (const AnswerPiece& piece : LongAnswer()) {
      bytes += writer->KeepAlive(comments);
      bytes += writer->Piece(piece);
    }
    AnswerEnd end;
    end.usage = testing::GoldenUsage();
    bytes += writer->KeepAlive(comments) + writer->End(end);
    SseReader reader;
    reader.Push(bytes);
    EXPECT_EQ(reader.comments().size(), comments ? LongAnswer().size() + 1 : 0);
    const ChatAnswer answer = ReadChatStream(reader.events());
    EXPECT_EQ(answer.content, LongAnswer()[1].text);
    EXPECT_EQ(answer.finish_reason, "tool_calls");
  }
  const ApiRequest whole = ReadChat("");
  const auto writer = NewChatWriter(whole, GoldenIdsOfAnswer());
  EXPECT_EQ(writer->KeepAlive(true), "\n");
  EXPECT_EQ(writer->KeepAlive(false), "\n");
}

TEST(ChatApi, LogprobsThatAreNotAskedForAreNotShown) {
  const auto writer = NewChatWriter(ReadChat(""), GoldenIdsOfAnswer());
  writer->Logprob({.bytes = "x", .logprob = -1, .alternatives = {}}, false);
  AnswerPiece piece;
  piece.text = "x";
  const Json body = MustParseJson(testing::WriteAnswer(writer.get(), {piece}, AnswerFinish::kStop));
  EXPECT_TRUE(body.Find("choices")->as_array()[0].Find("logprobs")->is_null());
}

TEST(ChatApi, LogprobsOfImpossibleTokensAndHalfCharactersAreJson) {
  const auto writer = NewChatWriter(ReadChat(R"("logprobs": true, "reasoning_effort": "none")"),
                                    GoldenIdsOfAnswer());
  ApiLogprob logprob;
  logprob.bytes = "\xF0\x9F";
  logprob.logprob = -std::numeric_limits<double>::infinity();
  writer->Logprob(logprob, false);
  const Json body = MustParseJson(testing::WriteAnswer(writer.get(), {}, AnswerFinish::kStop));
  const Json& choice = body.Find("choices")->as_array()[0];
  const Json& token = choice.Find("logprobs")->Find("content")->as_array()[0];
  EXPECT_EQ(token.Find("token")->as_string(), "\xEF\xBF\xBD");
  EXPECT_EQ(token.Find("logprob")->as_double(), -9999);
  EXPECT_EQ(CanonicalJson(*token.Find("bytes")), "[240,159]");
}

}  // namespace
}  // namespace minke
