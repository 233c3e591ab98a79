#include "text/answer_parser.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <random>

#include "tests/support/golden.h"
#include "tests/text/answer_support.h"
#include "tests/text/text_support.h"
#include "text/chat_encoding.h"
#include "text/output_parser.h"

namespace minke {
namespace {

using testing::Answer;
using testing::AnswerCall;
using testing::Block;
using testing::ChatOptionsOf;
using testing::ExpectSplitsAgree;
using testing::Invoke;
using testing::kOpen;
using testing::Parameter;
using testing::ReadAnswer;
using testing::ReadAnswerByBytes;
using testing::ToolOptions;

void Strip(std::string* text, bool front, bool back) {
  if (front) text->erase(0, text->find_first_not_of('\n'));
  while (back && text->ends_with('\n')) text->pop_back();
}

// What the tolerant reading must make of what the strict one accepts: the same but for newlines at
// the borders.
Answer Expected(ParsedCompletion parsed) {
  Answer answer;
  Strip(&parsed.reasoning_content, true, true);
  Strip(&parsed.content, true, !parsed.tool_calls.empty());
  answer.reasoning = parsed.reasoning_content;
  answer.content = parsed.content;
  for (const ParsedToolCall& call : parsed.tool_calls) {
    answer.calls.push_back(
        {call.tool_namespace + (call.tool_namespace.empty() ? "" : "::") + call.name,
         call.arguments});
  }
  return answer;
}

// What the two readings of a well-formed completion differ in; empty if in nothing.
std::string DifferenceFromStrict(std::string_view completion, bool thinking) {
  const auto parsed =
      ParseCompletion(completion, thinking ? ThinkingMode::kThinking : ThinkingMode::kChat);
  if (!parsed.has_value()) return parsed.error().message;
  AnswerParserOptions options;
  options.tools = true;
  options.thinking = thinking;
  completion.remove_suffix(kEosToken.size());
  Answer expected = Expected(*parsed);
  for (Answer read : {ReadAnswer(completion, options), ReadAnswerByBytes(completion, options)}) {
    expected.recoveries.undeclared = static_cast<int64_t>(expected.calls.size());
    if (read.Text() != expected.Text()) return read.Text() + "\ninstead of\n" + expected.Text();
  }
  return "";
}

TEST(AnswerParser, EveryGoldenCompletionReadsLikeTheStrictParser) {
  const Json file = testing::GoldenJson("encoding/parse_cases.json");
  size_t compared = 0;
  for (const Json& golden : file.Find("cases")->as_array()) {
    const std::string& name = golden.Find("name")->as_string();
    if (golden.Find("error_text") != nullptr || name == "invalid_json_value_kept") continue;
    SCOPED_TRACE(name);
    EXPECT_EQ(DifferenceFromStrict(golden.Find("completion")->as_string(),
                                   golden.Find("thinking_mode")->as_string() == "thinking"),
              "");
    ++compared;
  }
  EXPECT_EQ(compared, 16U);
}

TEST(AnswerParser, ReadsBackWhatTheEncoderWrites) {
  const Json file = testing::GoldenJson("encoding/encode_cases.json");
  size_t compared = 0;
  for (const Json& golden : file.Find("cases")->as_array()) {
    if (golden.Find("expected_error") != nullptr) continue;
    ChatRequest request = testing::MustParseOfficial(golden);
    const ChatMessage last = request.messages.back();
    if (last.role != Role::kAssistant || last.wo_eos || !last.task.empty()) continue;
    // One object parameter called "arguments" is taken for all of them.
    if (golden.Find("name")->as_string().find("arguments") != std::string::npos) continue;
    SCOPED_TRACE(golden.Find("name")->as_string());
    const std::string whole = EncodeChat(request)->Text();
    request.messages.pop_back();
    if (!request.messages.back().task.empty()) continue;
    const std::string header = EncodeChat(request)->Text();
    EXPECT_EQ(DifferenceFromStrict(std::string_view(whole).substr(header.size()),
                                   request.options.thinking_mode == ThinkingMode::kThinking),
              "");
    ++compared;
  }
  EXPECT_GT(compared, 10U);
}

// ---- properties ----

const std::vector<std::string>& Fragments() {
  static const std::vector<std::string> kFragments = {
      "a",    " ",   "\n",   "\n\n",     "<",     "</",  "<b>",    "&lt;",    "\"",   "\\", "\t",
      "\x01", "é",   "世界", "👍🏽", "｜",    "，",  "|",      "<|",      "</b>", "{",  "}",
      "null", "```", "DSM",  "<invoke",  "calls", "<th", "</thin", "name=\"", "42"};
  return kFragments;
}

rc::Gen<std::string> TextGen() {
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(Fragments())),
                      [](const std::vector<std::string>& parts) {
                        std::string text;
                        for (const std::string& part : parts) text += part;
                        return text;
                      });
}

std::string RandomCalls() {
  std::string calls;
  const int count = *rc::gen::inRange(1, 4);
  for (int i = 0; i < count; ++i) {
    std::string parameters;
    const int values = *rc::gen::inRange(0, 4);
    for (int k = 0; k < values; ++k) {
      const bool is_string = *rc::gen::arbitrary<bool>();
      const std::string json = *rc::gen::element<std::string>(
          "1", "-2.50", "[1, {\"k\": null}]", "{\"x\":\"</b>\\n\"}", "true", " null\n", "\"s\"");
      parameters += Parameter("p" + std::to_string(k), is_string, is_string ? *TextGen() : json);
    }
    if (values == 0 && *rc::gen::arbitrary<bool>()) parameters = "\n";
    calls += Invoke(*rc::gen::element<std::string>("f", "ns::g", "unknown"), parameters);
    if (i + 1 < count) calls += '\n';
  }
  return Block(calls);
}

TEST(AnswerParser, WellFormedAnswersReadLikeTheStrictParser) {
  EXPECT_TRUE(rc::check("like ParseCompletion()", [] {
    const bool thinking = *rc::gen::arbitrary<bool>();
    std::string text = thinking ? *TextGen() + "</think>" : "";
    // The last byte decides what was held back: an answer that ends in `</｜` is torn markup.
    text += *TextGen() + *rc::gen::element<std::string>(".", "\n", "é");
    if (*rc::gen::arbitrary<bool>()) text += RandomCalls();
    RC_ASSERT(DifferenceFromStrict(text + std::string(kEosToken), thinking) == "");
  }));
}

// Anything at all, from the parts that markup is made of.
TEST(AnswerParser, EverySplitGivesTheSameResult) {
  EXPECT_TRUE(rc::check("splits agree", [] {
    const std::vector<std::string> markup = {"<｜DSML｜ calls>",
                                             "</｜DSML｜ calls>",
                                             "<｜DSML｜ invoke name=\"f\">",
                                             "</｜DSML｜ invoke>",
                                             "<｜DSML｜ parameter name=\"a\" string=\"true\">",
                                             "</｜DSML｜ parameter>",
                                             "</think>",
                                             "<｜｜DSML｜｜tool_calls>",
                                             "<invoke name=\"lookup\">",
                                             "</invoke>",
                                             "<tool_calls>",
                                             "<parameter name=\"query\">",
                                             "</parameter>",
                                             "< calls>",
                                             "{\"n\": 1}",
                                             "\xE4\xBD",
                                             "\xFF",
                                             "<｜DSML｜toolcall>",
                                             "{\"name\": \"f\", \"arguments\": {}}",
                                             "｜DSML｜",
                                             "STOP",
                                             "ST"};
    std::string text;
    const int parts = *rc::gen::inRange(0, 14);
    for (int i = 0; i < parts; ++i) {
      const bool is_markup = *rc::gen::inRange(0, 3) != 0;
      text += is_markup ? *rc::gen::elementOf(markup) : *rc::gen::elementOf(Fragments());
    }
    text.erase(0, *rc::gen::inRange<size_t>(0, 3));
    text.resize(text.size() - *rc::gen::inRange<size_t>(0, std::min<size_t>(text.size(), 5) + 1));
    AnswerParserOptions options = ToolOptions();
    options.thinking = *rc::gen::arbitrary<bool>();
    options.tools = *rc::gen::inRange(0, 4) != 0;
    options.json_mode = *rc::gen::inRange(0, 4) == 0;
    if (*rc::gen::arbitrary<bool>()) options.stop_strings = {"STOP", "\n\na", "a"};
    const Answer whole = ReadAnswer(text, options);
    RC_ASSERT(whole.broken == "");
    RC_ASSERT(ReadAnswerByBytes(text, options) == whole);
    std::vector<size_t> cuts =
        *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, text.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    RC_ASSERT(ReadAnswer(text, options, cuts) == whole);
  }));
}

TEST(AnswerParser, EveryByteOfAnAnswerMayBeTheBorder) {
  const std::string text =
      "wé\n</think>\n世界 <b>\n" +
      Block(Invoke("f", Parameter("a", true, "x\n\"é\"\\ <i>") + Parameter("n", false, "[1]")) +
            "\n" + Invoke("ns::g", ""));
  const Answer whole = ReadAnswer(text, ToolOptions());
  EXPECT_EQ(whole.reasoning, "wé");
  EXPECT_EQ(whole.content, "世界 <b>");
  EXPECT_EQ(whole.calls, (std::vector<AnswerCall>{{"f", R"({"a": "x\n\"é\"\\ <i>", "n": [1]})"},
                                                  {"ns::g", "{}"}}));
  EXPECT_EQ(whole.recoveries.total(), 0);
  ExpectSplitsAgree(text, ToolOptions());
}

// ---- the text around calls ----

TEST(AnswerParser, NewlinesAtTheBordersAreNoText) {
  const Answer read =
      ReadAnswer("\n\n r \n\n</think>\n\n\n t\n\nu\n\n\n" + Block(Invoke("f", "")), ToolOptions());
  EXPECT_EQ(read.reasoning, " r ");
  EXPECT_EQ(read.content, " t\n\nu");
  EXPECT_EQ(ReadAnswer("\n\nx\n", ChatOptionsOf(false)).content, "x\n");
  AnswerParserOptions continued = ChatOptionsOf(false);
  continued.continues_text = true;
  EXPECT_EQ(ReadAnswer("\n\nx\n", continued).content, "\n\nx\n");
}

TEST(AnswerParser, StrayEndsOfThinkingAreNoText) {
  EXPECT_EQ(ReadAnswer("a</think>b</think>c", ToolOptions()).content, "bc");
  EXPECT_EQ(ReadAnswer("a</think>b", ChatOptionsOf(false)).content, "ab");
  // Nor do the texts around it become the format's token.
  EXPECT_EQ(ReadAnswer("r</think>a<｜</think>DSML｜b", ToolOptions()).content, "a<｜ DSML｜b");
  EXPECT_EQ(ReadAnswer("r</think><｜DSM</think>L｜ b", ToolOptions()).content, "<｜DSM L｜ b");
  EXPECT_EQ(ReadAnswer("r</think>a｜</think>\n</think>DSML｜b", ToolOptions()).content,
            "a｜ \nDSML｜b");
}

TEST(AnswerParser, ControlTokensLeaveNothingButTheMarksOfTheFormat) {
  AnswerParser parser(ChatOptionsOf(false));
  std::vector<AnswerPiece> pieces;
  for (const std::string_view token : {kBosToken, kUserToken, kThinkStartToken, kEosToken,
                                       kImageToken, std::string_view("<｜action｜>")}) {
    parser.Push(token, true, &pieces);
  }
  EXPECT_TRUE(pieces.empty());
  parser.Push("a", false, &pieces);
  parser.Push(kGroundingTokens[0], true, &pieces);
  parser.Push(kThinkEndToken, true, &pieces);
  parser.Push("b", false, &pieces);
  parser.Finish(&pieces);
  std::string content;
  for (const AnswerPiece& piece : pieces) content += piece.text;
  EXPECT_EQ(content, "a" + std::string(kGroundingTokens[0]) + "b");
}

TEST(AnswerParser, WhatIsHeldBackAtTheEndIsTextUnlessItIsTornMarkup) {
  for (const char* end :
       {"<", "</", "</think", "<invoke name=\"look", "a < ", "\n\n", "<tool_calls>\n", "｜"}) {
    EXPECT_EQ(ReadAnswer("x" + std::string(end), ChatOptionsOf(true)).content,
              "x" + std::string(end));
  }
  for (const char* end : {"<｜", "</｜D", "<｜｜DSM", "\n\n<｜DSML", "<|DSM"}) {
    EXPECT_EQ(ReadAnswer("x" + std::string(end), ChatOptionsOf(true)).content, "x") << end;
  }
}

TEST(AnswerParser, HalfCharactersWaitInTextAndInArguments) {
  const std::string text = "r</think>" + Block(Invoke("f", Parameter("a", true, "世\xE4\xBD")));
  EXPECT_EQ(ReadAnswerByBytes(text, ToolOptions()).calls[0].arguments,
            "{\"a\": \"世\xEF\xBF\xBD\"}");
  AnswerParser parser(ChatOptionsOf(true));
  std::vector<AnswerPiece> pieces;
  parser.Push("\xE4\xB8", false, &pieces);
  EXPECT_TRUE(pieces.empty());
  parser.Push("\x96\xFF", false, &pieces);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].text, "世\xEF\xBF\xBD");
}

TEST(AnswerParser, ArgumentsGrowWhileTheyAreWritten) {
  AnswerParser parser(ChatOptionsOf(true));
  std::vector<AnswerPiece> pieces;
  parser.Push(std::string(kOpen) + "<｜DSML｜ invoke name=\"f\">\n", false, &pieces);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].name, "f");
  pieces.clear();
  parser.Push("<｜DSML｜ parameter name=\"a\" string=\"true\">one ", false, &pieces);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].text, "{\"a\": \"one ");
  pieces.clear();
  parser.Push("two", false, &pieces);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].text, "two");
}

TEST(AnswerParser, NothingAfterTheBlockShows) {
  const std::string block = Block(Invoke("f", ""));
  AnswerParser parser(ToolOptions());
  std::vector<AnswerPiece> pieces;
  parser.Push("r</think>t" + block, false, &pieces);
  EXPECT_TRUE(parser.finished());
  EXPECT_EQ(ReadAnswer("r</think>t" + block + "tail" + block, ToolOptions()).Text(),
            ReadAnswer("r</think>t" + block, ToolOptions()).Text());
}

TEST(AnswerParser, WithoutToolsMarkupIsText) {
  const std::string text = "a\n\n" + Block(Invoke("f", Parameter("a", true, "b"))).substr(2) + "c";
  EXPECT_EQ(ReadAnswer(text, ChatOptionsOf(false)).content, text);
  AnswerParserOptions thinking = ToolOptions();
  thinking.tools = false;
  EXPECT_EQ(ReadAnswer(text, thinking).reasoning, text);
}

// ---- calls in other spellings ----

TEST(AnswerParser, MarkupThatReasoningOnlySpeaksOf) {
  const Answer read = ReadAnswer(
      "The form is <｜DSML｜ calls>, I think.</think>\n\nNo tool is needed.", ToolOptions());
  EXPECT_EQ(read.reasoning, "The form is ");
  EXPECT_EQ(read.content, "No tool is needed.");
  EXPECT_EQ(read.recoveries.in_reasoning, 1);
}

// ---- JSON mode and stop strings ----

TEST(AnswerParser, JsonModeBlanksWhatIsAroundTheValue) {
  AnswerParserOptions options;
  options.json_mode = true;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"Here é: {\"a\": \"`}\\\"\"} done", "        {\"a\": \"`}\\\"\"}     "},
      {"```json\n{\"a\": [1]}\n```\nbye", "        {\"a\": [1]}        "},
      {"```\n[1, 2]```", "    [1, 2]   "},
      {"```json\n42\n``` x", "        42\n     "},
      {"{\"torn\": ```",
       "{\"torn\": "
       "   "},
      {"plain", "     "},
  };
  for (const auto& [text, shown] : cases) {
    EXPECT_EQ(ReadAnswer(text, options).content, shown);
    ExpectSplitsAgree(text, options);
  }
}

TEST(AnswerParser, StopStringsMatchAcrossBordersInTheAnswerOnly) {
  AnswerParserOptions options = ToolOptions();
  options.stop_strings = {"STOP", "S", "", "never"};
  Answer read = ReadAnswer("a STOP</think>b STOP c", options);
  EXPECT_EQ(read.reasoning, "a STOP");
  EXPECT_EQ(read.content, "b ");
  EXPECT_EQ(read.stop_string, "S") << "the match that ends first";
  options.stop_strings = {"aab", "世界", "\n\n#"};
  read = ReadAnswer("</think>aaaab", options);
  EXPECT_EQ(read.content, "aa");
  EXPECT_EQ(read.stop_string, "aab");
  ExpectSplitsAgree("</think>aaaaab", options);
  ExpectSplitsAgree("</think>x世界 ", options);
  EXPECT_EQ(ReadAnswer("</think>x\n\n#y", options).content, "x");
  // What could have become a match is text when a call or the end comes.
  EXPECT_EQ(ReadAnswer("</think>xaa" + Block(Invoke("f", "")), options).content, "xaa");
  EXPECT_EQ(ReadAnswer("</think>xaa", options).content, "xaa");
  // Arguments are not searched.
  read = ReadAnswer("</think>" + Block(Invoke("f", Parameter("a", true, "aab"))), options);
  EXPECT_EQ(read.calls[0].arguments, "{\"a\": \"aab\"}");
}

// ---- cost ----

TEST(AnswerParser, HostileInputTakesLinearTime) {
  constexpr size_t kBytes = 1 << 20;
  std::string names =
      "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"true\">";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "<"},
      {"", "\n"},
      {"", "｜"},
      {"", "</"},
      {"", "<｜"},
      {"", "|"},
      {"", "<invoke name=\""},
      {"", "<tool_calls>\n"},
      {"", "<｜DSML｜"},
      {"", "<｜DSML｜ parameter name=\""},
      {"", "STO"},
      {names, "<"},
      {names, "\n"},
      {names, "</｜"},
      {names, "<｜DSML｜"},
      {names, "\""},
      {"", "\xE4"},
      {"<｜DSML｜ calls>", "<invoke "},
      {"<｜DSML｜ calls>", "["},
      {"", "`"},
      {"", "世界，"}};
  for (const bool thinking : {false, true}) {
    for (const auto& [head, part] : cases) {
      std::string text = head;
      while (text.size() < kBytes) text += part;
      AnswerParserOptions options = ToolOptions();
      options.thinking = thinking;
      options.stop_strings = {"STOP", "<<<<<<<|", "\n\n\n#"};
      const double begin = testing::CpuSeconds();
      std::vector<size_t> cuts;
      for (size_t at = 4; at < text.size(); at += 4) cuts.push_back(at);
      EXPECT_EQ(ReadAnswer(text, options, cuts).broken, "");
      EXPECT_LT(testing::CpuSeconds() - begin, 2 * testing::SlowdownAllowed()) << head << part;
      if (thinking) break;
    }
  }
}

}  // namespace
}  // namespace minke
