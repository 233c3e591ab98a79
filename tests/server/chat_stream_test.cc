// From the text that a model writes to what a client has: the parser and the writer together, with
// the text cut at every byte (serving.md 2.7, 1.5).
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/server/chat_client.h"
#include "tests/server/openai_support.h"
#include "text/answer_parser.h"

namespace minke {
namespace {

using testing::ChatAnswer;

constexpr std::string_view kThinksAndCalls =
    "\nÞað er kalt — 👍🏽.\n</think>\n\nOne moment, «please».\n\n<｜DSML｜ calls>\n"
    "<｜DSML｜ invoke name=\"get_weather\">\n"
    "<｜DSML｜ parameter name=\"city\" string=\"true\">Reykjavík \"101\"\n</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"days\" string=\"false\">[1, 2]</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"now\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
constexpr std::string_view kDoubledBarsInReasoning =
    "Let me look.\n\n<｜｜DSML｜｜tool_calls>\n<｜｜DSML｜｜invoke name=\"now\">\n"
    "</｜｜DSML｜｜invoke>\n</｜｜DSML｜｜tool_calls> and more";
constexpr std::string_view kStops = "why</think>def f():\n    return 1\nSTOP and more";

ApiRequest StreamRequest(bool stream, bool tools) {
  std::string body = R"({"model": "deepseek-flash", "stop": ["STOP"],
                         "messages": [{"role": "user", "content": "q"}])";
  if (stream) body += R"(, "stream": true)";
  if (tools) {
    body += R"(, "tools": [
        {"type": "function", "function": {"name": "get_weather", "parameters": {}}},
        {"type": "function", "function": {"name": "now", "parameters": {}}}])";
  }
  return testing::MustRead(ReadChatRequest, testing::MustParseJson(body + "}"));
}

// What a client has of an answer whose bytes come cut at these places.
ChatAnswer Serve(const ApiRequest& request, std::string_view text,
                 const std::vector<size_t>& cuts) {
  AnswerParserOptions options;
  options.thinking = request.opens_reasoning();
  options.tools = request.tools;
  options.tool_names = request.tool_names;
  options.stop_strings = request.stop_strings;
  AnswerParser parser(options);
  std::vector<AnswerPiece> pieces;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parser.Push(text.substr(begin, cut - begin), /*is_control=*/false, &pieces);
    begin = cut;
  }
  parser.Push(text.substr(begin), /*is_control=*/false, &pieces);
  parser.Finish(&pieces);
  const AnswerFinish finish = parser.tool_calls() > 0         ? AnswerFinish::kToolCalls
                              : !parser.stop_string().empty() ? AnswerFinish::kStopString
                                                              : AnswerFinish::kStop;
  const std::string bytes = testing::WriteAnswer(
      NewChatWriter(request, testing::GoldenIdsOfAnswer()).get(), pieces, finish);
  if (!request.stream) return testing::ReadChatBody(bytes);
  testing::SseReader reader;
  reader.Push(bytes);
  return testing::ReadChatStream(reader.events());
}

void ExpectSameFromEveryCut(std::string_view text, bool tools, const ChatAnswer& expected) {
  const ApiRequest stream = StreamRequest(true, tools);
  EXPECT_TRUE(Serve(StreamRequest(false, tools), text, {}) == expected);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    ASSERT_TRUE(Serve(stream, text, {cut}) == expected) << "cut at byte " << cut;
  }
  std::vector<size_t> every_byte;
  for (size_t cut = 1; cut < text.size(); ++cut) every_byte.push_back(cut);
  EXPECT_TRUE(Serve(stream, text, every_byte) == expected);
}

TEST(ChatStream, ThinksAndCalls) {
  const ApiRequest request = StreamRequest(true, true);
  const ChatAnswer whole = Serve(request, kThinksAndCalls, {});
  EXPECT_EQ(whole.reasoning, "Það er kalt — 👍🏽.");
  EXPECT_EQ(whole.content, "One moment, «please».");
  ASSERT_EQ(whole.calls.size(), 2U);
  const std::string call = "call_0123456789abcdef0123456789abcdef_0 get_weather ";
  ASSERT_EQ(whole.calls[0].substr(0, call.size()), call);
  const Json arguments = testing::MustParseJson(whole.calls[0].substr(call.size()));
  EXPECT_EQ(testing::CanonicalJson(arguments), R"({"city":"Reykjavík \"101\"\n","days":[1,2]})");
  EXPECT_EQ(whole.calls[1], "call_0123456789abcdef0123456789abcdef_1 now {}");
  EXPECT_EQ(whole.finish_reason, "tool_calls");
  ExpectSameFromEveryCut(kThinksAndCalls, true, whole);
}

TEST(ChatStream, BlockInsideReasoning) {
  const ChatAnswer whole = Serve(StreamRequest(true, true), kDoubledBarsInReasoning, {});
  EXPECT_EQ(whole.reasoning, "Let me look.");
  EXPECT_EQ(whole.content, "");
  ASSERT_EQ(whole.calls.size(), 1U);
  EXPECT_EQ(whole.finish_reason, "tool_calls");
  ExpectSameFromEveryCut(kDoubledBarsInReasoning, true, whole);
}

TEST(ChatStream, StopString) {
  const ChatAnswer whole = Serve(StreamRequest(true, false), kStops, {});
  EXPECT_EQ(whole.reasoning, "why");
  EXPECT_EQ(whole.content, "def f():\n    return 1\n");
  EXPECT_EQ(whole.finish_reason, "stop");
  ExpectSameFromEveryCut(kStops, false, whole);
}

// Without tools markup is text, as the model wrote it (6.A 13).
TEST(ChatStream, MarkupWithoutToolsIsText) {
  const ChatAnswer whole = Serve(StreamRequest(true, false), kThinksAndCalls, {});
  EXPECT_TRUE(whole.calls.empty());
  EXPECT_NE(whole.content.find("<｜DSML｜ invoke name=\"now\">"), std::string::npos);
  EXPECT_EQ(whole.finish_reason, "stop");
  ExpectSameFromEveryCut(kThinksAndCalls, false, whole);
}

}  // namespace
}  // namespace minke
