#include "tests/text/answer_support.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/json.h"
#include "text/utf8.h"

namespace minke::testing {

namespace {

class Collector {
 public:
  void Take(const std::vector<AnswerPiece>& pieces) {
    for (const AnswerPiece& piece : pieces) Take(piece);
  }
  void TakeEnd() {
    Require(!open_, "a call is not closed");
    answer_.broken = broken_;
  }
  Answer& answer() { return answer_; }

 private:
  void Require(bool holds, std::string_view what) {
    if (!holds && broken_.empty()) broken_ = what;
  }

  void Take(const AnswerPiece& piece) {
    Require(ValidUtf8Prefix(piece.text) == piece.text.size(), "a piece is not UTF-8");
    const int last = static_cast<int>(answer_.calls.size()) - 1;
    switch (piece.kind) {
      case AnswerPiece::Kind::kReasoning:
        Require(answer_.content.empty() && last < 0, "reasoning comes late");
        answer_.reasoning += piece.text;
        break;
      case AnswerPiece::Kind::kContent:
        Require(last < 0, "text comes after a call");
        answer_.content += piece.text;
        break;
      case AnswerPiece::Kind::kToolCall:
        Require(!open_ && piece.tool_index == last + 1, "a call begins out of order");
        Require(!piece.name.empty() && piece.name.size() <= kCalledNameBytesMax, "a bad name");
        open_ = true;
        answer_.calls.push_back(
            {piece.tool_namespace + (piece.tool_namespace.empty() ? "" : "::") + piece.name, ""});
        break;
      case AnswerPiece::Kind::kToolArguments:
        Require(open_ && piece.tool_index == last, "arguments of no call");
        if (last >= 0) answer_.calls.back().arguments += piece.text;
        break;
      case AnswerPiece::Kind::kToolCallEnd:
        Require(open_ && piece.tool_index == last, "the end of no call");
        open_ = false;
        if (last >= 0) RequireObject(answer_.calls.back().arguments);
        break;
    }
  }

  void RequireObject(const std::string& arguments) {
    const auto parsed =
        ParseJson(arguments, "arguments", JsonParseOptions{.reject_duplicate_keys = false});
    Require(parsed.has_value() && parsed->is_object(), "arguments are no JSON object");
  }

  Answer answer_;
  std::string broken_;
  bool open_ = false;
};

}  // namespace

std::string Answer::Text() const {
  std::string text = "reasoning: " + reasoning + "\ncontent: " + content;
  for (const AnswerCall& call : calls) text += "\ncall: " + call.name + " " + call.arguments;
  text += "\nstop: " + stop_string;
  for (const int64_t count : {recoveries.other_spellings, recoveries.missing_wrappers,
                              recoveries.in_reasoning, recoveries.dropped, recoveries.undeclared}) {
    text += " " + std::to_string(count);
  }
  return text + "\nbroken: " + broken;
}

Answer ReadAnswer(std::string_view text, const AnswerParserOptions& options,
                  const std::vector<size_t>& cuts) {
  AnswerParser parser(options);
  Collector collector;
  size_t from = 0;
  const auto push = [&](size_t to) {
    std::vector<AnswerPiece> pieces;
    parser.Push(text.substr(from, to - from), false, &pieces);
    collector.Take(pieces);
    from = to;
  };
  for (const size_t cut : cuts) push(cut);
  push(text.size());
  std::vector<AnswerPiece> pieces;
  parser.Finish(&pieces);
  collector.Take(pieces);
  collector.TakeEnd();
  Answer& answer = collector.answer();
  answer.stop_string = parser.stop_string();
  answer.recoveries = parser.recoveries();
  if (parser.tool_calls() != static_cast<int>(answer.calls.size())) answer.broken = "call count";
  if (!parser.finished()) answer.broken = "not finished";
  return std::move(answer);
}

Answer ReadAnswerByBytes(std::string_view text, const AnswerParserOptions& options) {
  std::vector<size_t> cuts;
  for (size_t at = 1; at < text.size(); ++at) cuts.push_back(at);
  return ReadAnswer(text, options, cuts);
}

AnswerParserOptions ToolOptions() {
  AnswerParserOptions options;
  options.thinking = true;
  options.tools = true;
  options.tool_names = {"f", "lookup", "ns::g"};
  options.tool_parameters = {
      {{"a", true, false}, {"n", false, true}}, {{"query", true, true}}, {{"flag", false, false}}};
  return options;
}

bool ShowsMarkup(std::string_view text) {
  for (const std::string_view mark :
       {"DSML", "<｜", "</｜", "< calls>", "</ calls>", "< invoke name=", "</ invoke>",
        "< parameter name=", "</ parameter>"}) {
    if (text.find(mark) != std::string_view::npos) return true;
  }
  return false;
}

std::string Parameter(std::string_view name, bool is_string, std::string_view value) {
  return "<｜DSML｜ parameter name=\"" + std::string(name) + "\" string=\"" +
         (is_string ? "true" : "false") + "\">" + std::string(value) + "</｜DSML｜ parameter>\n";
}

std::string Invoke(std::string_view name, std::string_view parameters) {
  return "<｜DSML｜ invoke name=\"" + std::string(name) + "\">\n" + std::string(parameters) +
         "</｜DSML｜ invoke>";
}

std::string Block(std::string_view invokes) {
  return std::string(kOpen) + std::string(invokes) + std::string(kClose);
}

std::string ReplaceAll(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

AnswerParserOptions ChatOptionsOf(bool tools) {
  AnswerParserOptions options = ToolOptions();
  options.thinking = false;
  options.tools = tools;
  return options;
}

void ExpectSplitsAgree(std::string_view text, const AnswerParserOptions& options) {
  const Answer whole = ReadAnswer(text, options);
  ASSERT_EQ(whole.broken, "") << text;
  ASSERT_EQ(ReadAnswerByBytes(text, options).Text(), whole.Text()) << text;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    ASSERT_EQ(ReadAnswer(text, options, {cut}).Text(), whole.Text()) << text << " at " << cut;
  }
}

}  // namespace minke::testing
