// Reads whole answers with AnswerParser, split in any way, and checks what must hold for every
// answer: pieces are whole characters, calls come in order, and closed arguments are JSON objects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_parser.h"

namespace minke::testing {

struct AnswerCall {
  std::string name;  // with its namespace
  std::string arguments;

  bool operator==(const AnswerCall&) const = default;
};

struct Answer {
  std::string reasoning;
  std::string content;
  std::vector<AnswerCall> calls;
  std::string stop_string;
  AnswerRecoveries recoveries;
  std::string broken;  // what did not hold, or empty

  std::string Text() const;  // all of it, for comparing and for messages
  bool operator==(const Answer& other) const { return Text() == other.Text(); }
};

// `cuts`: where a new Push() begins, ascending; none: one Push() of everything.
Answer ReadAnswer(std::string_view text, const AnswerParserOptions& options,
                  const std::vector<size_t>& cuts = {});
// One Push() a byte.
Answer ReadAnswerByBytes(std::string_view text, const AnswerParserOptions& options);

// Thinking is on; the tools are "f" (a: string, n: required), "lookup" (query: string) and "ns::g"
// (flag).
AnswerParserOptions ToolOptions();

// Whether markup shows: the format's token, its bar after a bracket, or a tag in its spelling.
bool ShowsMarkup(std::string_view text);

// The format's block of calls and its parts.
inline constexpr std::string_view kOpen = "\n\n<｜DSML｜ calls>\n";
inline constexpr std::string_view kClose = "\n</｜DSML｜ calls>";
std::string Parameter(std::string_view name, bool is_string, std::string_view value);
std::string Invoke(std::string_view name, std::string_view parameters);
std::string Block(std::string_view invokes);
std::string ReplaceAll(std::string text, std::string_view from, std::string_view to);
// ToolOptions() without thinking, with or without its tools.
AnswerParserOptions ChatOptionsOf(bool tools);

// Every split in two, every byte alone, and random splits give one result.
void ExpectSplitsAgree(std::string_view text, const AnswerParserOptions& options);

}  // namespace minke::testing
