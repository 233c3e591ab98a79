// What a person sees: text of a model made harmless, an answer with its thinking set apart, and
// one line of progress.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace minke {

// Control characters other than newline and tab, and characters that reorder text, as \x1b or
// \u{202e}: what a model writes may not move a cursor or recolour a terminal. Invalid UTF-8 is
// escaped byte by byte.
std::string EscapeForTerminal(std::string_view text);

// Colours only for a terminal, and never where NO_COLOR is set.
bool UseColour(int file_descriptor);

// A line on stderr that is overwritten and finally removed; nothing where stderr is no terminal.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void Show(const std::string& text);
  // Reading a prompt: shown once it has taken a second.
  void ShowPrefill(int64_t done, int64_t total);
  void Clear();

 private:
  bool enabled_ = false;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_;
};

// Writes an answer to stdout as it comes: thinking first, under its own heading and dim.
class AnswerPrinter {
 public:
  AnswerPrinter();
  void Print(const TokenEvent& event);
  // Ends the answer with a newline, whatever state it is in.
  void Finish();

 private:
  void Write(std::string_view text);
  void BeginThinking();
  void EndThinking();

  bool colour_ = false;
  bool thinking_ = false;
  bool at_line_start_ = true;
};

}  // namespace minke
