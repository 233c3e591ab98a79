// Messages: what is read, what is refused, and the shapes of answers (serving.md 1.4 to 1.7, 4.2).
#include "server/messages_api.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/server/agent_support.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::At;
using testing::CanonicalJson;
using testing::GoldenIdsOfAnswer;
using testing::MustParseJson;
using testing::PromptTextOf;
using testing::StreamEvents;
using testing::TextAt;
using testing::TypeOf;

constexpr std::string_view kUserTurn = R"({"role": "user", "content": "u"})";

Json MessagesBody(std::string_view messages, std::string_view members = "") {
  std::string text = R"({"model": "deepseek-flash", "max_tokens": 32000, "messages": [)";
  text += messages;
  text += members.empty() ? "]" : "], ";
  text += members;
  return MustParseJson(text + "}");
}

ApiRequest ReadMessages(std::string_view messages, std::string_view members = "") {
  return testing::MustRead(ReadMessagesRequest, MessagesBody(messages, members));
}

std::string TurnsOf(std::string_view messages, std::string_view members = "") {
  std::string text = PromptTextOf(ReadMessages(messages, members));
  const size_t line = text.find("Reasoning Effort: ");
  if (line != std::string::npos) text.erase(line, text.find("\n\n", line) + 2 - line);
  return text;
}

TEST(MessagesRequest, GoldenErrors) {
  testing::ExpectGoldenErrors("api/messages/errors.json", ReadMessagesRequest);
}

TEST(MessagesAnswer, GoldenShapes) {
  const Json cases = testing::GoldenJson("api/messages/answers.json");
  for (const Json& golden : cases.as_array()) {
    testing::ExpectGoldenAnswer(golden, ReadMessagesRequest, NewMessagesWriter);
  }
}

TEST(MessagesRequest, FieldsAreRead) {
  const ApiRequest request = ReadMessages(kUserTurn, R"(
      "stream": true, "thinking": {"type": "disabled"}, "temperature": 0.5, "top_p": 0.25,
      "top_k": 40, "stop_sequences": ["a", "b"], "metadata": {"user_id": "u-1"})");
  EXPECT_EQ(request.family, ApiFamily::kMessages);
  EXPECT_EQ(request.model, "deepseek-flash");
  EXPECT_TRUE(request.stream);
  EXPECT_FALSE(request.thinking());
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.25);
  EXPECT_EQ(request.sampling.top_k, 0);  // ignored (serving.md 1.5)
  EXPECT_EQ(request.stop_strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.max_tokens, 32'000);
  EXPECT_EQ(request.user_id, "u-1");
  EXPECT_EQ(ReadMessages(kUserTurn, R"("temperature": 0.5)").sampling.temperature, 1);
}

TEST(MessagesRequest, OtherFieldsAreIgnored) {
  const ApiRequest request = ReadMessages(kUserTurn, R"(
      "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
      "cache_control": {"type": "ephemeral"}, "service_tier": "auto", "container": null,
      "mcp_servers": [], "betas": ["x"], "inference_geo": "eu", "something_new": [1],
      "thinking": {"type": "enabled", "budget_tokens": "many", "display": "omitted"})");
  EXPECT_TRUE(request.thinking());
}

TEST(MessagesRequest, ThinkingAndEffort) {
  const auto options = [](std::string_view members) {
    return ReadMessages(kUserTurn, members).chat.options;
  };
  using Mode = ThinkingMode;
  EXPECT_EQ(options("").thinking_mode, Mode::kThinking);
  EXPECT_EQ(options("").reasoning_effort, 75);
  EXPECT_EQ(options(R"("thinking": {"type": "adaptive"})").thinking_mode, Mode::kThinking);
  EXPECT_EQ(options(R"("thinking": {"type": "disabled"})").thinking_mode, Mode::kChat);
  EXPECT_EQ(options(R"("output_config": {"effort": "none"})").thinking_mode, Mode::kChat);
  // The mode that was said in so many words goes before.
  EXPECT_EQ(options(R"("thinking": {"type": "enabled"}, "output_config": {"effort": "none"})")
                .thinking_mode,
            Mode::kThinking);
  const std::vector<std::pair<std::string, int>> efforts = {
      {R"("low")", 50},  {R"("medium")", 75}, {R"("high")", 75}, {R"("xhigh")", 75},
      {R"("max")", 100}, {R"("ultra")", 100}, {"7", 7},          {R"("99")", 99}};
  for (const auto& [effort, number] : efforts) {
    EXPECT_EQ(options(R"("output_config": {"effort": )" + effort + "}").reasoning_effort, number);
  }
}

TEST(MessagesRequest, UsersAreNotTheirSessions) {
  const auto user = [](std::string_view id) {
    Json body = MessagesBody(kUserTurn);
    body.Set("metadata", Json(JsonObject{{"user_id", std::string(id)}}));
    return testing::MustRead(ReadMessagesRequest, body).user_id;
  };
  EXPECT_EQ(user(R"({"device_id": "d", "account_uuid": "", "session_id": "s1"})"),
            R"({"device_id":"d","account_uuid":""})");
  EXPECT_EQ(user(R"({"device_id": "d", "account_uuid": "", "session_id": "s1"})"),
            user(R"({"device_id": "d", "account_uuid": "", "session_id": "s2"})"));
  EXPECT_NE(user(R"({"device_id": "d", "session_id": "s"})"),
            user(R"({"device_id": "e", "session_id": "s"})"));
  EXPECT_EQ(user("user_ab_account__session_cd"), "user_ab_account_");
  // What has nothing besides a session, or is no object, stays.
  EXPECT_EQ(user(R"({"session_id": "s"})"), R"({"session_id": "s"})");
  EXPECT_EQ(user("_session_x"), "_session_x");
  EXPECT_EQ(user("[1, 2"), "[1, 2");
  EXPECT_EQ(user(std::string(512, 'u')).size(), 512U);
}

// ---- messages --------------------------------------------------------------------------------

TEST(MessagesInput, SystemIsATextOrBlocks) {
  const std::string expected =
      "<｜begin▁of▁sentence｜><｜System｜>a\n\nb<｜User｜>u<｜Assistant｜><think>";
  EXPECT_EQ(TurnsOf(kUserTurn, R"("system": "a\n\nb")"), expected);
  EXPECT_EQ(TurnsOf(kUserTurn, R"("system": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}])"),
            expected);
  EXPECT_EQ(TurnsOf(R"({"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "u"})"),
            expected);
  EXPECT_EQ(TurnsOf(kUserTurn, R"("system": "")"), TurnsOf(kUserTurn));
}

// A line that differs in each request would keep every prompt from the cache.
TEST(MessagesInput, TheAccountsLineOfClaudeCodeIsNoPrompt) {
  EXPECT_EQ(TurnsOf(kUserTurn, R"("system": [
      {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1a2b;"},
      {"type": "text", "text": "a"}])"),
            TurnsOf(kUserTurn, R"("system": "a")"));
}

TEST(MessagesInput, SystemInTheMiddleIsAReminder) {
  EXPECT_EQ(TurnsOf(R"({"role": "user", "content": "u"},
                       {"role": "system", "content": [{"type": "text", "text": "r1"},
                                                      {"type": "text", "text": "r2"}]},
                       {"role": "assistant", "content": "a"},
                       {"role": "system", "content": "r3"})",
                    R"("system": "s")"),
            "<｜begin▁of▁sentence｜><｜System｜>s<｜User｜>u\n\n<system-reminder>\nr1\n\nr2\n"
            "</system-reminder><｜Assistant｜><think></think>a<｜end▁of▁sentence｜><｜User｜>"
            "<system-reminder>\nr3\n</system-reminder><｜Assistant｜><think>");
}

TEST(MessagesInput, BlocksAreRead) {
  EXPECT_EQ(
      TurnsOf(R"({"role": "user", "content": [
          {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}},
          {"type": "document", "source": {"type": "base64", "data": "x"}},
          {"type": "image", "source": {"type": "base64", "data": "x"}},
          {"type": "search_result", "content": []}]},
        {"role": "assistant", "content": [
          {"type": "thinking", "thinking": "th1", "signature": "anything"},
          {"type": "redacted_thinking", "data": "x"},
          {"type": "thinking", "thinking": "th2"},
          {"type": "text", "text": "a"},
          {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
          {"type": "web_search_tool_result", "content": {"type": "error"}},
          {"type": "tool_use", "id": "t1", "name": "f", "input": {"p": "x", "n": [1, 2]}},
          {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
          {"type": "tool_use", "id": "t3", "name": "h"}]},
        {"role": "system", "content": "r"},
        {"role": "user", "content": [
          {"type": "tool_result", "tool_use_id": "t3", "is_error": true},
          {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": "no file"},
          {"type": "tool_result", "tool_use_id": "t1", "content": [
            {"type": "text", "text": "o1"}, {"type": "image", "source": {}},
            {"type": "tool_reference", "tool_name": "x"}], "cache_control": {"type": "ephemeral"}},
          {"type": "text", "text": "go on"}]})"),
      "<｜begin▁of▁sentence｜><｜System｜><｜User｜>t\n\n[Unsupported Document]\n\n[Unsupported "
      "Image]"
      "\n\n[Unsupported search_result]<｜Assistant｜><think>th1\nth2</think>a\n\n<｜DSML｜ calls>\n"
      "<｜DSML｜ invoke name=\"f\">\n"
      "<｜DSML｜ parameter name=\"p\" string=\"true\">x</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"n\" string=\"false\">[1, 2]</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"g\">\n\n</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"h\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ "
      "calls><｜end▁of▁sentence｜><｜User｜>"
      "<system-reminder>\nr\n</system-reminder>\n\n<tool_result>o1\n\n[Unsupported Image]\n\n"
      "[Unsupported tool_reference]</tool_result>\n\n<tool_result>no file</tool_result>\n\n"
      "<tool_result>Error</tool_result>\n\ngo on<｜Assistant｜><think>");
}

TEST(MessagesInput, AssistantMessagesInARowAreOneTurn) {
  EXPECT_EQ(
      TurnsOf(R"({"role": "user", "content": "u"}, {"role": "assistant", "content": "a"},
                       {"role": "assistant", "content": [
                         {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                       {"role": "user", "content": [
                         {"type": "tool_result", "tool_use_id": "t", "content": "o"}]})"),
      "<｜begin▁of▁sentence｜><｜System｜><｜User｜>u<｜Assistant｜><think></think>a\n\n"
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"
      "<｜end▁of▁sentence｜><｜User｜><tool_result>o</tool_result><｜Assistant｜><think>");
}

TEST(MessagesInput, AnAssistantMessageAtTheEndGoesOn) {
  const std::string messages =
      R"({"role": "user", "content": "u"}, {"role": "assistant", "content": "One, "})";
  const ApiRequest chat = ReadMessages(messages, R"("thinking": {"type": "disabled"})");
  EXPECT_EQ(PromptTextOf(chat), "<｜begin▁of▁sentence｜><｜User｜>u<｜Assistant｜></think>One, ");
  const ApiRequest thinking = ReadMessages(messages);
  EXPECT_FALSE(thinking.opens_reasoning());
  // No block of thinking opens in such an answer.
  auto streaming = thinking;
  streaming.stream = true;
  const auto writer = NewMessagesWriter(streaming, GoldenIdsOfAnswer());
  EXPECT_EQ(StreamEvents(writer->Start(testing::GoldenUsage())).size(), 1U);
}

TEST(MessagesInput, EmptyMessagesAreTaken) {
  EXPECT_EQ(TurnsOf(R"({"role": "user", "content": []})"),
            TurnsOf(R"({"role": "user", "content": ""})"));
}

// ---- tools -----------------------------------------------------------------------------------

constexpr std::string_view kMessagesTools = R"("tools": [
    {"name": "f", "description": "Does f.", "input_schema": {"$schema": "x", "type": "object"},
     "cache_control": {"type": "ephemeral"}},
    {"type": "custom", "name": "g", "input_schema": {}},
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    {"name": "h"}])";

TEST(MessagesTools, ToolsAreShownAndServersToolsLeftOut) {
  const ApiRequest request = ReadMessages(kUserTurn, kMessagesTools);
  EXPECT_TRUE(request.tools);
  EXPECT_EQ(request.tool_names, (std::vector<std::string>{"f", "g", "h"}));
  const std::string prompt = PromptTextOf(request);
  EXPECT_NE(prompt.find("{\"name\": \"f\", \"description\": \"Does f.\", \"parameters\": "
                        "{\"$schema\": \"x\", \"type\": \"object\"}}\n"
                        "{\"name\": \"g\", \"description\": \"\", \"parameters\": {}}\n"
                        "{\"name\": \"h\", \"description\": \"\", \"parameters\": {}}\n"),
            std::string::npos)
      << prompt;
  EXPECT_EQ(prompt.find("web_search"), std::string::npos);
}

TEST(MessagesTools, ChoiceIsFollowed) {
  const auto choose = [](std::string_view choice, std::string_view thinking) {
    std::string members = std::string(kMessagesTools) + R"(, "tool_choice": )";
    members += choice;
    members += R"(, "thinking": {"type": ")";
    members += thinking;
    return ReadMessages(kUserTurn, members + "\"}");
  };
  for (const char* thinking : {"enabled", "disabled"}) {
    EXPECT_FALSE(choose(R"({"type": "auto"})", thinking).in_calls());
    // any is taken as auto.
    EXPECT_FALSE(
        choose(R"({"type": "any", "disable_parallel_tool_use": true})", thinking).in_calls());
    EXPECT_EQ(choose(R"({"type": "any"})", thinking).tool_names.size(), 3U);
    EXPECT_FALSE(choose(R"({"type": "none"})", thinking).tools);
  }
  EXPECT_EQ(PromptTextOf(choose(R"({"type": "none"})", "enabled")),
            PromptTextOf(ReadMessages(kUserTurn)));
  const ApiRequest named = choose(R"({"type": "tool", "name": "g"})", "disabled");
  EXPECT_TRUE(named.in_calls());
  EXPECT_EQ(named.tool_names, std::vector<std::string>{"g"});
}

// ---- answers ---------------------------------------------------------------------------------

Json WholeMessage(bool stream, const std::vector<AnswerPiece>& pieces) {
  std::string members(kMessagesTools);
  members += stream ? R"(, "stream": true)" : "";
  const auto writer = NewMessagesWriter(ReadMessages(kUserTurn, members), GoldenIdsOfAnswer());
  const std::string bytes = testing::WriteAnswer(writer.get(), pieces, AnswerFinish::kToolCalls);
  if (!stream) return MustParseJson(bytes);
  // What a client puts together.
  Json message;
  JsonArray content;
  std::string input;
  for (const Json& event : StreamEvents(bytes)) {
    const std::string type = TypeOf(event);
    if (type == "message_start") message = At(event, "message");
    if (type == "content_block_start") {
      EXPECT_EQ(At(event, "index").as_int(), static_cast<int64_t>(content.size()));
      content.push_back(At(event, "content_block"));
      input.clear();
    }
    if (type == "content_block_delta") {
      EXPECT_EQ(At(event, "index").as_int(), static_cast<int64_t>(content.size()) - 1);
      Json& block = content.back();
      for (const char* key : {"thinking", "text", "signature"}) {
        const Json& delta = At(event, "delta");
        if (delta.Find(key) != nullptr) block.Set(key, TextAt(block, key) + TextAt(delta, key));
      }
      const Json* part = At(event, "delta").Find("partial_json");
      if (part != nullptr) input += part->as_string();
    }
    if (type == "content_block_stop" && TextAt(content.back(), "type") == "tool_use") {
      content.back().Set("input", MustParseJson(input));
    }
    if (type == "message_delta") {
      for (const JsonMember& member : At(event, "delta").as_object()) {
        message.Set(member.first, member.second);
      }
      message.Set("usage", At(event, "usage"));
    }
  }
  message.Set("content", Json(std::move(content)));
  return message;
}

TEST(MessagesAnswer, AnyCutGivesTheSameMessage) {
  const std::string whole = CanonicalJson(WholeMessage(false, testing::PiecesOfAllKinds()));
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::vector<AnswerPiece> pieces = testing::SplitPieces(testing::PiecesOfAllKinds(), seed);
    ASSERT_EQ(CanonicalJson(WholeMessage(true, pieces)), whole);
    ASSERT_EQ(CanonicalJson(WholeMessage(false, pieces)), whole);
  }
}

TEST(MessagesAnswer, AnswersMayBeSentBack) {
  const std::vector<AnswerPiece> pieces = {
      testing::TextPiece(AnswerPiece::Kind::kReasoning, "r\n“ä”"),
      testing::TextPiece(AnswerPiece::Kind::kContent, "a 🎈"),
  };
  const Json answer = WholeMessage(true, pieces);
  Json body = MessagesBody(kUserTurn, kMessagesTools);
  JsonArray messages = At(body, "messages").as_array();
  messages.push_back(Json(JsonObject{{"role", "assistant"}, {"content", At(answer, "content")}}));
  messages.push_back(MustParseJson(R"({"role": "user", "content": "v"})"));
  body.Set("messages", Json(std::move(messages)));
  const std::string first = PromptTextOf(ReadMessages(kUserTurn, kMessagesTools));
  const std::string second = PromptTextOf(testing::MustRead(ReadMessagesRequest, body));
  EXPECT_EQ(second,
            first + "r\n“ä”</think>a 🎈<｜end▁of▁sentence｜><｜User｜>v<｜Assistant｜><think>");
}

TEST(MessagesAnswer, InputThatIsNoObjectIsStillAnObject) {
  std::vector<AnswerPiece> pieces = testing::CallPieces(0, "", "f", "[1]");
  EXPECT_EQ(TextAt(WholeMessage(false, pieces), "content.1.input.arguments"), "[1]");
}

TEST(MessagesAnswer, KeepAlivesAreEvents) {
  const auto stream =
      NewMessagesWriter(ReadMessages(kUserTurn, R"("stream": true)"), GoldenIdsOfAnswer());
  const std::string ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  EXPECT_EQ(stream->KeepAlive(true), ping);
  EXPECT_EQ(stream->KeepAlive(false), ping);
  const auto plain = NewMessagesWriter(ReadMessages(kUserTurn), GoldenIdsOfAnswer());
  EXPECT_EQ(plain->KeepAlive(true), "\n");
  EXPECT_EQ(plain->Start(testing::GoldenUsage()), "");
}

TEST(CountTokens, RequestNeedsNoMaxTokens) {
  const Json body =
      MustParseJson(R"({"model": "m", "messages": [{"role": "user", "content": "u"}]})");
  EXPECT_EQ(PromptTextOf(testing::MustRead(ReadMessagesRequest, body)),
            PromptTextOf(ReadMessages(kUserTurn)));
  EXPECT_EQ(CountTokensBody(14), R"({"input_tokens":14})");
}

}  // namespace
}  // namespace minke
