// Failures that users of other servers reported, as far as they concern the reading of answers
// (serving.md 6.A). Each test is named after its report.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/text/answer_support.h"
#include "tests/text/text_support.h"
#include "text/answer_parser.h"
#include "text/chat_encoding.h"

namespace minke {
namespace {

using testing::Answer;
using testing::AnswerCall;
using testing::MiniTokenizer;
using testing::MustEncode;
using testing::ReadAnswer;
using testing::ReadAnswerByBytes;
using testing::ToolOptions;

// A block as tokens: markup breaks between tokens, never inside the format's own.
const std::vector<std::string>& BlockTokens() {
  static const std::vector<std::string> kTokens = {
      "think",    "</think>",   "text",    "\n\n",  "<",        "｜DSML｜",   " calls",     ">\n",
      "<",        "｜DSML｜",   " invoke", " name", "=\"",      "f",          "\">\n",      "<",
      "｜DSML｜", " parameter", " name",   "=\"",   "a",        "\" ",        "string",     "=\"",
      "true",     "\">",        "b",       "</",    "｜DSML｜", " parameter", ">\n",        "<",
      "｜DSML｜", " parameter", " name",   "=\"",   "n",        "\" ",        "string",     "=\"",
      "false",    "\">",        "[1",      ", 2]",  "</",       "｜DSML｜",   " parameter", ">\n",
      "</",       "｜DSML｜",   " invoke", ">\n",   "</",       "｜DSML｜",   " calls",     ">"};
  return kTokens;
}

std::string Join(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

void Mutate(std::mt19937* generator, std::vector<std::string>* tokens) {
  const std::vector<std::string> others = {
      "<",      "</",         "｜DSML｜", " calls",     "tool_calls", " invoke", ">",    "\n",
      "invoke", " parameter", " name=\"", "\n</think>", "\"",         "{",       "calls"};
  for (size_t edits = 1 + (*generator)() % 4; edits > 0 && !tokens->empty(); --edits) {
    const size_t at = (*generator)() % tokens->size();
    const auto place = tokens->begin() + static_cast<ptrdiff_t>(at);
    switch ((*generator)() % 5) {
      case 0:
        tokens->erase(place);
        break;
      case 1:
        tokens->insert(place, others[(*generator)() % others.size()]);
        break;
      case 2:
        *place = others[(*generator)() % others.size()];
        break;
      case 3:
        std::swap(*place, (*tokens)[(*generator)() % tokens->size()]);
        break;
      default:
        // A byte of any other token: a torn word.
        if (*place != "｜DSML｜" && !place->empty()) {
          (*place)[(*generator)() % place->size()] = static_cast<char>('a' + (*generator)() % 26);
        }
    }
  }
}

TEST(Reports, Vllm40801MalformedDsmlNeverLeaks) {
  std::mt19937 generator(40801);
  size_t with_calls = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::vector<std::string> tokens = BlockTokens();
    Mutate(&generator, &tokens);
    const std::string text = Join(tokens);
    std::vector<size_t> cuts;
    for (size_t cut = generator() % 9; cut < text.size(); cut += 1 + generator() % 9) {
      cuts.push_back(cut);
    }
    AnswerParserOptions options = ToolOptions();
    options.thinking = generator() % 4 != 0;
    const Answer read = ReadAnswer(text, options, cuts);
    ASSERT_EQ(read.broken, "") << text;
    ASSERT_FALSE(testing::ShowsMarkup(read.content)) << text << "\n-> " << read.Text();
    ASSERT_FALSE(testing::ShowsMarkup(read.reasoning)) << text << "\n-> " << read.Text();
    ASSERT_EQ(ReadAnswer(text, options).Text(), read.Text()) << text;
    with_calls += read.calls.empty() ? 0 : 1;
  }
  // Most breaks are mended, and not everything is taken for a call.
  EXPECT_GT(with_calls, 8'000U);
  EXPECT_LT(with_calls, 10'000U);
}

constexpr std::string_view kInvoke =
    "<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name=\"a\" string=\"true\">b</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"n\" string=\"false\">1</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>";
const std::vector<AnswerCall> kCall = {{"f", R"({"a": "b", "n": 1})"}};

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string BlockOf(std::string_view invoke) {
  return "\n\n<｜DSML｜ calls>\n" + std::string(invoke) + "\n</｜DSML｜ calls>";
}

void ExpectCallAtEverySplit(const std::string& text, std::string_view reasoning,
                            std::string_view content) {
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const Answer read = ReadAnswer(text, ToolOptions(), {cut});
    ASSERT_EQ(read.reasoning, reasoning) << text << " at " << cut;
    ASSERT_EQ(read.content, content) << text << " at " << cut;
    ASSERT_EQ(read.calls, kCall) << text << " at " << cut;
    ASSERT_EQ(read.broken, "");
  }
}

TEST(Reports, Vllm48931CallWithoutItsBlock) {
  ExpectCallAtEverySplit("r</think>t\n\n" + std::string(kInvoke), "r", "t");
  ExpectCallAtEverySplit("r</think>t\n\n" + std::string(kInvoke) + "\n</｜DSML｜ calls>", "r", "t");
  const std::string bare = Replaced(std::string(kInvoke), "｜DSML｜ ", "");
  ExpectCallAtEverySplit("r</think>t\n" + bare, "r", "t");
  ExpectCallAtEverySplit("r</think>t\n<tool_calls>\n" + bare + "\n</tool_calls>", "r", "t");
  // Of a tool that is not declared it is text, as long as the format's token is not there.
  const std::string undeclared = "t <invoke name=\"other\">\n</invoke>";
  EXPECT_EQ(ReadAnswer("r</think>" + undeclared, ToolOptions()).content, undeclared);
  EXPECT_EQ(
      ReadAnswer("r</think>t" + std::string(kInvoke), ToolOptions()).recoveries.missing_wrappers,
      1);
}

TEST(Reports, Smg2525SpacedTagsAndBlocksInsideReasoning) {
  const std::string v41 = BlockOf(kInvoke);
  const std::string v4 =
      Replaced(Replaced(v41, "｜DSML｜ calls", "｜DSML｜tool_calls"), "｜DSML｜ ", "｜DSML｜");
  for (const std::string& block : {v41, v4}) {
    ExpectCallAtEverySplit("r</think>t" + block, "r", "t");
    ExpectCallAtEverySplit("r" + block, "r", "");
    ExpectCallAtEverySplit("r" + block + "\n</think>late", "r", "");
  }
  // A marker's beginning that was held back: shown where it can be text, never as markup.
  EXPECT_EQ(ReadAnswer("r</think>a <", ToolOptions()).content, "a <");
  EXPECT_EQ(ReadAnswer("r</think>a\n\n<｜DS", ToolOptions()).content, "a");
  EXPECT_EQ(ReadAnswer("r\n\n<｜", ToolOptions()).reasoning, "r");
}

TEST(Reports, Sglang35736ToolChoiceNoneLeaksDsml) {
  const std::string body = R"("messages": [{"role": "user", "content": "q"}])";
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  const Prompt none = MustEncode("{\"tool_choice\": \"none\", " + body + ", " + tools + "}");
  const Prompt plain = MustEncode("{" + body + "}");
  EXPECT_EQ(*PromptIds(none, MiniTokenizer()), *PromptIds(plain, MiniTokenizer()));
  EXPECT_EQ(none.Text().find("DSML"), std::string::npos) << "nothing teaches the model the markup";
}

TEST(Reports, Vllm51914CloserWithoutOpener) {
  const std::string torn = Replaced(BlockOf(kInvoke), "<｜DSML｜ invoke name=\"f\">\n", "");
  ExpectCallAtEverySplit("r</think>t" + torn, "r", "t");
  // Parameters that no declared tool has tell nothing.
  const std::string unknown = Replaced(torn, "name=\"a\"", "name=\"z\"");
  const Answer read = ReadAnswer("r</think>t" + unknown, ToolOptions());
  EXPECT_EQ(read.content, "t");
  EXPECT_TRUE(read.calls.empty());
  EXPECT_GT(read.recoveries.dropped, 0);
  // Closers alone.
  EXPECT_EQ(ReadAnswer("r</think>t\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", ToolOptions()).content,
            "t");
}

TEST(Reports, Vllm54686MarkupQuotedInProse) {
  const std::string quoted = "Write it so:\n```\n" + std::string(kInvoke) + "\n```\nThat is all.";
  AnswerParserOptions without_tools = ToolOptions();
  without_tools.tools = false;
  EXPECT_EQ(ReadAnswer("r</think>" + quoted, without_tools).content, quoted);
  // With tools a fence makes no difference: markup never shows, and a declared tool is called
  // (docs/decisions/010).
  const Answer read = ReadAnswer("r</think>" + quoted, ToolOptions());
  EXPECT_EQ(read.content, "Write it so:\n```");
  EXPECT_EQ(read.calls, kCall);
  // The format's own description calls nothing.
  const std::string described = Replaced(quoted, "name=\"f\"", "name=\"$TOOL_NAME\"");
  EXPECT_TRUE(ReadAnswer("r</think>" + described, ToolOptions()).calls.empty());
}

TEST(Reports, Vllm52645MalformedWrappers) {
  for (const char* wrapper :
       {" call", " tools", "function_calls", " calls calls", "", "｜ calls"}) {
    const std::string block = "\n\n<｜DSML｜" + std::string(wrapper) + ">\n" +
                              std::string(kInvoke) + "\n</｜DSML｜" + wrapper + ">";
    ExpectCallAtEverySplit("r</think>t" + block, "r", "t");
  }
}

TEST(Reports, CommandCode909DoubledBars) {
  const std::string doubled = Replaced(BlockOf(kInvoke), "｜DSML｜", "｜｜DSML｜｜");
  ExpectCallAtEverySplit("r</think>t" + doubled, "r", "t");
}

TEST(Reports, Openclaw128858DoubledBarsAfterAFailedCall) {
  const std::string doubled =
      Replaced(Replaced(BlockOf(kInvoke), "｜DSML｜ calls", "｜DSML｜tool_calls"), "｜DSML｜",
               "｜｜DSML｜｜");
  ExpectCallAtEverySplit("The tool failed.</think>" + doubled, "The tool failed.", "");
}

TEST(Reports, Openseek443DsmlOnlyAnswerWithoutTools) {
  AnswerParserOptions options = ToolOptions();
  options.thinking = false;
  options.tools = false;
  const std::string text = BlockOf(kInvoke).substr(2);
  const Answer read = ReadAnswer(text, options);
  EXPECT_EQ(read.content, text) << "the raw text is intact";
  EXPECT_TRUE(read.calls.empty()) << "so the finish reason is stop";
}

TEST(Reports, VllmAscend13794ToolcallWithAJsonBody) {
  const std::string call =
      "<｜DSML｜toolcall>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\", \"n\": "
      "1}}\n</｜DSML｜toolcall>\n";
  ExpectCallAtEverySplit("r</think>t" + call, "r", "t");
  const Answer repeated = ReadAnswer("r</think>t" + call + call + call, ToolOptions());
  EXPECT_EQ(repeated.calls, kCall);
  EXPECT_EQ(repeated.recoveries.dropped, 2) << "repetitions are counted";
}

TEST(Reports, VllmAscend9767SequenceMarkersInTheAnswer) {
  AnswerParser parser(ToolOptions());
  std::vector<AnswerPiece> pieces;
  for (int32_t id = 0; id < MiniTokenizer().vocab_size(); ++id) {
    const std::string_view name = MiniTokenizer().TokenBytes(id);
    if (!MiniTokenizer().IsControl(id) || name == kThinkEndToken || name == kDsmlToken) continue;
    const bool is_grounding =
        std::find(kGroundingTokens.begin(), kGroundingTokens.end(), name) != kGroundingTokens.end();
    if (!is_grounding) parser.Push(name, true, &pieces);
  }
  parser.Finish(&pieces);
  EXPECT_TRUE(pieces.empty());
}

}  // namespace
}  // namespace minke
