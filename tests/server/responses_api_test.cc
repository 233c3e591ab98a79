// Responses: what is read, what is refused, and the shapes of answers (serving.md 1.4 to 1.7, 4.1).
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/server/agent_support.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::At;
using testing::GoldenIdsOfAnswer;
using testing::MustParseJson;
using testing::PromptTextOf;
using testing::StreamEvents;
using testing::TextAt;
using testing::TypeOf;

Json ResponsesBody(std::string_view input, std::string_view members = "") {
  std::string text = R"({"model": "deepseek-flash", "input": )";
  text += input;
  text += members.empty() ? "" : ", ";
  text += members;
  return MustParseJson(text + "}");
}

ApiRequest ReadResponses(std::string_view input, std::string_view members = "") {
  return testing::MustRead(ReadResponsesRequest, ResponsesBody(input, members));
}

// The prompt without the line of the effort, which has a test of its own.
std::string ConversationOf(std::string_view input, std::string_view members = "") {
  std::string text = PromptTextOf(ReadResponses(input, members));
  const size_t line = text.find("Reasoning Effort: ");
  if (line != std::string::npos) text.erase(line, text.find("\n\n", line) + 2 - line);
  return text;
}

constexpr std::string_view kTools = R"("tools": [
    {"type": "function", "name": "read_file", "description": "Reads.", "strict": true,
     "parameters": {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema"}},
    {"type": "web_search", "external_web_access": false},
    {"type": "namespace", "name": "team", "description": "Others.", "tools": [
      {"type": "function", "name": "ask", "description": "Asks."},
      {"type": "function", "name": "tell"},
      {"type": "image_generation"}]},
    {"type": "custom", "name": "apply_patch", "description": "Edits.",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
    {"type": "something_new", "name": 7}])";

TEST(ResponsesRequest, GoldenErrors) {
  testing::ExpectGoldenErrors("api/responses/errors.json", ReadResponsesRequest);
}

TEST(ResponsesAnswer, GoldenShapes) {
  const Json cases = testing::GoldenJson("api/responses/answers.json");
  for (const Json& golden : cases.as_array()) {
    testing::ExpectGoldenAnswer(golden, ReadResponsesRequest, NewResponsesWriter);
  }
}

TEST(ResponsesRequest, DefaultsAreThoseOfTheService) {
  const ApiRequest request = ReadResponses(R"("Hi")");
  EXPECT_EQ(request.family, ApiFamily::kResponses);
  EXPECT_EQ(request.model, "deepseek-flash");
  EXPECT_FALSE(request.stream);
  EXPECT_TRUE(request.thinking());
  EXPECT_EQ(request.chat.options.reasoning_effort, 75);
  EXPECT_EQ(request.max_tokens, -1);
  EXPECT_EQ(request.max_tokens_or_default(), kApiMaxTokensThinkingDefault);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_FALSE(request.tools);
  EXPECT_FALSE(request.json_mode);
  EXPECT_EQ(request.user_id, "");
}

TEST(ResponsesRequest, FieldsAreRead) {
  const ApiRequest request = ReadResponses(R"("Hi")", R"(
      "stream": true, "reasoning": {"effort": "none"}, "temperature": 0.5, "top_p": 0.25,
      "max_output_tokens": 393216, "user": "u-1")");
  EXPECT_TRUE(request.stream);
  EXPECT_FALSE(request.thinking());
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.25);
  EXPECT_EQ(request.max_tokens, 393'216);
  EXPECT_EQ(request.user_id, "u-1");
  // In thinking mode the temperature is not the client's to say.
  EXPECT_EQ(ReadResponses(R"("Hi")", R"("temperature": 0.5)").sampling.temperature, 1);
}

// What Codex and others send besides must not be in the way.
TEST(ResponsesRequest, OtherFieldsAreIgnored) {
  const ApiRequest request = ReadResponses(R"("Hi")", R"(
      "store": true, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
      "client_metadata": {"a": 1}, "service_tier": "flex", "truncation": "auto",
      "parallel_tool_calls": true, "metadata": {"a": "b"}, "previous_response_id": null,
      "instructions": null, "top_logprobs": 3, "max_tool_calls": 2, "safety_identifier": "s",
      "stream_options": {"include_obfuscation": false}, "text": {"verbosity": "low"},
      "reasoning": {"summary": "auto"}, "something_new": [1])");
  EXPECT_TRUE(request.thinking());
  EXPECT_FALSE(request.json_mode);
}

TEST(ResponsesRequest, UserIdsMayHave512Bytes) {
  const std::string user(512, 'u');
  EXPECT_EQ(ReadResponses(R"("Hi")", R"("user": ")" + user + "\"").user_id, user);
}

TEST(ResponsesRequest, EffortsAreNamesOrNumbers) {
  const std::vector<std::pair<std::string, int>> efforts = {
      {R"("minimal")", 50}, {R"("low")", 50},  {R"("medium")", 75}, {R"("high")", 75},
      {R"("xhigh")", 75},   {R"("max")", 100}, {R"("ultra")", 100}, {"1", 1},
      {"100", 100},         {R"("42")", 42}};
  for (const auto& [effort, number] : efforts) {
    const ApiRequest request =
        ReadResponses(R"("Hi")", R"("reasoning": {"effort": )" + effort + "}");
    EXPECT_TRUE(request.thinking());
    EXPECT_EQ(request.chat.options.reasoning_effort, number) << effort;
  }
}

// ---- input -----------------------------------------------------------------------------------

TEST(ResponsesInput, TextIsTheUsers) {
  EXPECT_EQ(ConversationOf(R"("Hi")"),
            "<｜begin▁of▁sentence｜><｜System｜><｜User｜>Hi<｜Assistant｜><think>");
}

TEST(ResponsesInput, RolesAreThoseOfTheService) {
  const std::string prompt = ConversationOf(R"([
      {"type": "message", "role": "developer", "id": "msg_1",
       "content": [{"type": "input_text", "text": "d1"}, {"type": "input_text", "text": "d2"}]},
      {"role": "user", "content": "u1"},
      {"role": "assistant", "content": [{"type": "output_text", "text": "a1", "annotations": []}]},
      {"type": "message", "role": "system", "content": "s1"},
      {"role": "user", "content": [{"type": "text", "text": "u2"}]}])",
                                            R"("instructions": "i")");
  EXPECT_EQ(
      prompt,
      "<｜begin▁of▁sentence｜><｜System｜>i<｜User｜>d1\n\nd2\n\nu1<｜Assistant｜><think></think>"
      "a1<｜end▁of▁sentence｜><｜System｜>s1<｜User｜>u2<｜Assistant｜><think>");
}

TEST(ResponsesInput, ALeadingSystemMessageIsTheSystemPrompt) {
  EXPECT_EQ(
      ConversationOf(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])"),
      "<｜begin▁of▁sentence｜><｜System｜>s<｜User｜>u<｜Assistant｜><think>");
  EXPECT_EQ(
      ConversationOf(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])",
                     R"("instructions": "i")"),
      "<｜begin▁of▁sentence｜><｜System｜>i<｜System｜>s<｜User｜>u<｜Assistant｜><think>");
}

TEST(ResponsesInput, ItemsOfTheAssistantMakeOneTurn) {
  const std::string prompt = ConversationOf(R"([
      {"role": "user", "content": "u"},
      {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null,
       "content": [{"type": "reasoning_text", "text": "r1"}]},
      {"type": "reasoning", "id": "rs_2", "summary": [],
       "content": [{"type": "reasoning_text", "text": "r2"}]},
      {"role": "assistant", "content": "t1"},
      {"type": "message", "role": "assistant", "phase": "commentary",
       "content": [{"type": "output_text", "text": "t2"}]},
      {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\": \"x\"}"},
      {"type": "function_call", "call_id": "c2", "name": "ask", "namespace": "team",
       "arguments": "{}"},
      {"type": "custom_tool_call", "call_id": "c3", "name": "p", "input": "*** x\ny"},
      {"type": "function_call_output", "call_id": "c2", "output": "o2"},
      {"type": "custom_tool_call_output", "call_id": "c3", "output": "o3"},
      {"type": "function_call_output", "call_id": "c1", "output": [
        {"type": "input_text", "text": "o1"}, {"type": "input_image", "image_url": "data:x"},
        {"type": "input_file", "file_id": "f"}]}])");
  EXPECT_EQ(
      prompt,
      "<｜begin▁of▁sentence｜><｜System｜><｜User｜>u<｜Assistant｜><think>r1\nr2</think>t1\n\nt2"
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
      "<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"team::ask\">\n\n</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"p\">\n<｜DSML｜ parameter name=\"input\" string=\"true\">*** x\ny"
      "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls><｜end▁of▁sentence｜>"
      "<｜User｜><tool_result>o1\n\n[Unsupported Image]\n\n[Unsupported Document]</tool_result>\n\n"
      "<tool_result>o2</tool_result>\n\n<tool_result>o3</tool_result><｜Assistant｜><think>");
}

TEST(ResponsesInput, UnknownItemsAreLeftOut) {
  EXPECT_EQ(ConversationOf(R"([
      {"type": "compaction", "content": 7}, {"role": "user", "content": "u"},
      {"type": "web_search_call", "id": "ws_1", "status": "completed"},
      {"type": "computer_call_output", "output": {"type": "computer_screenshot"}}])"),
            ConversationOf(R"("u")"));
}

TEST(ResponsesInput, UnknownPartsAreNamed) {
  const std::string prompt = ConversationOf(R"([{"role": "user", "content": [
      {"type": "input_audio", "data": "x"}, {"type": "input_file", "filename": "a.pdf"},
      {"type": "refusal", "refusal": "no"}]}])");
  EXPECT_NE(prompt.find("[Unsupported input_audio]\n\n[Unsupported Document]\n\nno"),
            std::string::npos);
}

// Reasoning that was broken off, and another service's, which only that service can read.
TEST(ResponsesInput, ReasoningWithoutAnswerIsLeftOut) {
  const std::string plain = ConversationOf(R"([{"role": "user", "content": "u"},
                                               {"role": "user", "content": "v"}])");
  EXPECT_EQ(ConversationOf(R"([{"role": "user", "content": "u"},
      {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "r"}]},
      {"role": "user", "content": "v"},
      {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "r"}]}])"),
            plain);
  const ApiRequest foreign = ReadResponses(R"([{"role": "user", "content": "u"},
      {"type": "reasoning", "encrypted_content": "gAAA", "content": null,
       "summary": [{"type": "summary_text", "text": "s"}]},
      {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}])");
  EXPECT_FALSE(foreign.chat.messages.at(1).reasoning_content.has_value());
}

TEST(ResponsesInput, AnAssistantsTextAtTheEndGoesOn) {
  const ApiRequest request = ReadResponses(
      R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "One, "}])");
  EXPECT_FALSE(request.opens_reasoning());
  const std::string prompt = PromptTextOf(request);
  EXPECT_EQ(prompt.substr(prompt.size() - 13), "</think>One, ");
}

TEST(ResponsesInput, CallsOfTheLocalShellAreRead) {
  const std::string prompt = ConversationOf(R"([{"role": "user", "content": "u"},
      {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
      {"type": "function_call_output", "call_id": "c", "output": "o"}])");
  EXPECT_NE(prompt.find("invoke name=\"local_shell\""), std::string::npos);
}

// ---- tools -----------------------------------------------------------------------------------

TEST(ResponsesTools, KindsOfToolsAreShownAsFunctions) {
  const ApiRequest request = ReadResponses(R"("Hi")", kTools);
  EXPECT_TRUE(request.tools);
  EXPECT_EQ(request.tool_names,
            (std::vector<std::string>{"read_file", "team::ask", "team::tell", "apply_patch"}));
  EXPECT_EQ(request.custom_tools, (std::vector<std::string>{"apply_patch"}));
  const std::string prompt = PromptTextOf(request);
  EXPECT_NE(prompt.find("{\"name\": \"read_file\", \"description\": \"Reads.\", \"parameters\": "
                        "{\"type\": \"object\", \"$schema\": "
                        "\"https://json-schema.org/draft/2020-12/schema\"}}\n"),
            std::string::npos)
      << prompt;
  EXPECT_NE(prompt.find("{\"name\": \"team::ask\", \"description\": \"Others.\\nAsks.\", "
                        "\"parameters\": {}}\n"
                        "{\"name\": \"team::tell\", \"description\": \"Others.\", "
                        "\"parameters\": {}}\n"),
            std::string::npos);
  EXPECT_NE(prompt.find("{\"name\": \"apply_patch\", \"description\": \"Edits.\", \"parameters\": "
                        "{\"type\": \"object\", \"properties\": {\"input\": {\"type\": \"string\", "
                        "\"description\": \"The input of the tool as plain text, in this lark "
                        "grammar:\\nstart: /.+/\"}}, \"required\": [\"input\"]}}"),
            std::string::npos);
  EXPECT_EQ(prompt.find("web_search"), std::string::npos);
}

TEST(ResponsesTools, OnlyToolsOfOthersIsNoTools) {
  const ApiRequest request = ReadResponses(R"("Hi")", R"("tools": [{"type": "web_search"}])");
  EXPECT_FALSE(request.tools);
  EXPECT_EQ(PromptTextOf(request), PromptTextOf(ReadResponses(R"("Hi")")));
}

TEST(ResponsesTools, ChoiceIsFollowed) {
  const std::string tools =
      R"("reasoning": {"effort": "none"}, "tools": [
        {"type": "function", "name": "f"}, {"type": "custom", "name": "p"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]}],
        "tool_choice": )";
  const auto choose = [&tools](std::string_view choice) {
    return ReadResponses(R"("Hi")", tools + std::string(choice));
  };
  EXPECT_EQ(choose(R"("auto")").tool_names.size(), 3U);
  EXPECT_FALSE(choose(R"("auto")").in_calls());
  EXPECT_FALSE(choose(R"("none")").tools);
  EXPECT_EQ(PromptTextOf(choose(R"("none")")).find("## Tools"), std::string::npos);
  EXPECT_TRUE(choose(R"("required")").in_calls());
  const ApiRequest named = choose(R"({"type": "function", "name": "f"})");
  EXPECT_EQ(named.tool_names, std::vector<std::string>{"f"});
  EXPECT_TRUE(named.custom_tools.empty());
  const std::string prompt = PromptTextOf(named);
  EXPECT_EQ(prompt.substr(prompt.size() - std::string("\n\n<｜DSML｜ calls>\n").size()),
            "\n\n<｜DSML｜ calls>\n");
  const ApiRequest custom = choose(R"({"type": "custom", "name": "p"})");
  EXPECT_EQ(custom.custom_tools, std::vector<std::string>{"p"});
  EXPECT_EQ(choose(R"({"type": "function", "name": "g", "namespace": "n"})").tool_names,
            std::vector<std::string>{"n::g"});
  // Of a tool that the server does not bring there is nothing to choose.
  EXPECT_EQ(choose(R"({"type": "web_search"})").tool_names.size(), 3U);
  const ApiRequest allowed = choose(R"({"type": "allowed_tools", "mode": "required", "tools": [
      {"type": "custom", "name": "p"}, {"type": "function", "name": "n::g"}]})");
  EXPECT_EQ(allowed.tool_names, (std::vector<std::string>{"p", "n::g"}));
  EXPECT_TRUE(allowed.in_calls());
}

TEST(ResponsesTools, NamesMayBeAsLongAsTheParserTakes) {
  const std::string space(126, 'n');
  const std::string name(128, 'f');
  const ApiRequest request = ReadResponses(
      R"("Hi")", R"("tools": [{"type": "namespace", "name": ")" + space +
                     R"(", "tools": [{"type": "function", "name": ")" + name + "\"}]}]");
  EXPECT_EQ(request.tool_names.at(0).size(), 256U);
}

TEST(ResponsesTools, ThereMayBe1024) {
  std::string tools;
  for (int i = 0; i < 1024; ++i) {
    tools += R"({"type": "function", "name": "f)" + std::to_string(i) + "\"},";
  }
  tools.pop_back();
  EXPECT_EQ(ReadResponses(R"("Hi")", "\"tools\": [" + tools + "]").tool_names.size(), 1024U);
  tools += R"(,{"type": "function", "name": "one_more"})";
  const auto refused = ReadResponsesRequest(ResponsesBody(R"("Hi")", "\"tools\": [" + tools + "]"),
                                            ApiReadOptions());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("more than 1024"), std::string::npos);
}

TEST(ResponsesFormat, JsonNeedsItsWord) {
  const std::string format = R"("text": {"format": {"type": "json_object"}})";
  const ApiRequest request = ReadResponses(R"("Answer in JSON.")", format);
  EXPECT_TRUE(request.json_mode);
  EXPECT_NE(PromptTextOf(request).find("## Response Format:"), std::string::npos);
  EXPECT_TRUE(ReadResponses(R"("q")", R"("instructions": "json", )" + format).json_mode);
  // A schema is not enforced.
  EXPECT_FALSE(
      ReadResponses(R"("q")", R"("text": {"format": {"type": "json_schema", "schema": {}}})")
          .json_mode);
}

// ---- answers ---------------------------------------------------------------------------------

TEST(ResponsesAnswer, AnswersMayBeSentBack) {
  const ApiRequest first =
      testing::MustRead(ReadResponsesRequest, testing::RequestWithAllTools(false));
  const auto writer = NewResponsesWriter(first, GoldenIdsOfAnswer());
  const Json answer = MustParseJson(
      testing::WriteAnswer(writer.get(), testing::PiecesOfAllKinds(), AnswerFinish::kToolCalls));
  JsonArray input = {MustParseJson(R"({"role": "user", "content": "Go."})")};
  for (const Json& item : At(answer, "output").as_array()) input.push_back(item);
  for (const Json& item : At(answer, "output").as_array()) {
    if (item.Find("call_id") == nullptr) continue;
    Json output;
    output.Set("type", TextAt(item, "type") + "_output");
    output.Set("call_id", TextAt(item, "call_id"));
    output.Set("output", "ok");
    input.push_back(std::move(output));
  }
  Json body = testing::RequestWithAllTools(false);
  body.Set("input", Json(std::move(input)));
  const std::string second = PromptTextOf(testing::MustRead(ReadResponsesRequest, body));
  const std::string prompt = PromptTextOf(first);
  EXPECT_EQ(second.substr(0, prompt.size()), prompt);
  EXPECT_EQ(
      second.substr(prompt.size()),
      "First “ä” 🎈, then\nb.</think>Löok 🎈 there.\n\n<｜DSML｜ calls>\n"
      "<｜DSML｜ invoke name=\"read_file\">\n"
      "<｜DSML｜ parameter name=\"path\" string=\"true\">ä/\"🎈\"</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"lines\" string=\"false\">[1, 2]</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"team::ask\">\n\n</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"apply_patch\">\n"
      "<｜DSML｜ parameter name=\"input\" string=\"true\">*** \"ä\"\n\\🎈\t🎈"
      "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls><｜end▁of▁sentence｜><｜User｜>"
      "<tool_result>ok</tool_result>\n\n<tool_result>ok</tool_result>\n\n"
      "<tool_result>ok</tool_result><｜Assistant｜><think>");
}

TEST(ResponsesAnswer, KeepAlivesAreCommentsOrTellTheState) {
  const auto stream =
      NewResponsesWriter(ReadResponses(R"("q")", R"("stream": true)"), GoldenIdsOfAnswer());
  EXPECT_EQ(stream->KeepAlive(true), ": keep-alive\n\n");
  std::string bytes = stream->KeepAlive(false);  // in the queue
  bytes += stream->Start(testing::GoldenUsage());
  bytes += stream->KeepAlive(false);
  AnswerEnd end;
  bytes += stream->End(end);
  std::vector<std::string> types;
  int64_t number = 0;
  for (const Json& event : StreamEvents(bytes)) {
    types.push_back(TypeOf(event));
    EXPECT_EQ(At(event, "sequence_number").as_int(), number++);
  }
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.in_progress",
                                             "response.in_progress", "response.completed"}));
  const auto plain = NewResponsesWriter(ReadResponses(R"("q")"), GoldenIdsOfAnswer());
  EXPECT_EQ(plain->KeepAlive(true), "\n");
  EXPECT_EQ(plain->KeepAlive(false), "\n");
  EXPECT_EQ(plain->Start(testing::GoldenUsage()), "");
}

TEST(ResponsesAnswer, AnErrorBeforeTheStartIsAWholeStream) {
  const auto stream =
      NewResponsesWriter(ReadResponses(R"("q")", R"("stream": true)"), GoldenIdsOfAnswer());
  ApiError error;
  error.code = "context_length_exceeded";
  error.message = "too long";
  const std::vector<Json> events = StreamEvents(stream->Error(error));
  EXPECT_EQ(TypeOf(events.at(0)), "response.created");
  EXPECT_EQ(TypeOf(events.at(events.size() - 2)), "error");
  EXPECT_EQ(TypeOf(events.back()), "response.failed");
  EXPECT_EQ(TextAt(events.back(), "response.error.code"), "context_length_exceeded");
  EXPECT_EQ(TextAt(events.back(), "response.error.message"), "too long");
}

TEST(ResponsesAnswer, FailuresHaveTheCodesOfTheApi) {
  const std::vector<std::pair<int, std::string>> codes = {{429, "rate_limit_exceeded"},
                                                          {503, "server_is_overloaded"},
                                                          {500, "server_error"},
                                                          {400, "invalid_prompt"}};
  for (const auto& [status, code] : codes) {
    const auto stream =
        NewResponsesWriter(ReadResponses(R"("q")", R"("stream": true)"), GoldenIdsOfAnswer());
    ApiError error;
    error.status = status;
    EXPECT_EQ(TextAt(StreamEvents(stream->Error(error)).back(), "response.error.code"), code);
  }
  const auto plain = NewResponsesWriter(ReadResponses(R"("q")"), GoldenIdsOfAnswer());
  ApiError error;
  error.message = "m";
  EXPECT_EQ(TextAt(MustParseJson(plain->Error(error)), "error.message"), "m");
}

}  // namespace
}  // namespace minke
