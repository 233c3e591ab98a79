#include "apps/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include <fmt/format.h>

#include "text/utf8.h"

namespace minke {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";
constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr double kProgressAfterSeconds = 1.0;

bool IsHarmful(uint32_t code_point) {
  if (code_point == '\n' || code_point == '\t') return false;
  if (code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0)) return true;
  // Marks and overrides that reorder what is shown around them.
  return code_point == 0x200e || code_point == 0x200f || code_point == 0x061c ||
         (code_point >= 0x2028 && code_point <= 0x202e) ||
         (code_point >= 0x2066 && code_point <= 0x2069);
}

}  // namespace

std::string EscapeForTerminal(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = ReadUtf8(text);
    size_t bytes = static_cast<size_t>(step.bytes);
    if (step.kind != Utf8Step::Kind::kCharacter) {
      bytes = 1;
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (!IsHarmful(step.code_point)) {
      shown += text.substr(0, bytes);
    } else if (step.code_point < 0x80) {
      shown += fmt::format("\\x{:02x}", step.code_point);
    } else {
      shown += fmt::format("\\u{{{:x}}}", step.code_point);
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

bool UseColour(int file_descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(file_descriptor) == 1 && (no_colour == nullptr || no_colour[0] == '\0');
}

StatusLine::StatusLine()
    : enabled_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()) {}

StatusLine::~StatusLine() {
  Clear();
}

void StatusLine::Show(const std::string& text) {
  if (!enabled_) return;
  std::cerr << kEraseLine << text << std::flush;
  shown_ = true;
}

void StatusLine::ShowPrefill(int64_t done, int64_t total) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (seconds < kProgressAfterSeconds || done == total) return;
  Show(fmt::format("Reading the prompt: {} of {} tokens, {:.1f} tokens/s", done, total,
                   static_cast<double>(done) / seconds));
}

void StatusLine::Clear() {
  if (!shown_) return;
  std::cerr << kEraseLine << std::flush;
  shown_ = false;
}

AnswerPrinter::AnswerPrinter() : colour_(UseColour(STDOUT_FILENO)) {}

void AnswerPrinter::Write(std::string_view text) {
  if (text.empty()) return;
  std::cout << text << std::flush;
  at_line_start_ = text.back() == '\n';
}

void AnswerPrinter::BeginThinking() {
  thinking_ = true;
  if (colour_) std::cout << kDim;
  Write("Thinking:\n");
}

void AnswerPrinter::EndThinking() {
  thinking_ = false;
  if (!at_line_start_) Write("\n");
  if (colour_) std::cout << kPlain;
  Write("\n");
}

void AnswerPrinter::Print(const TokenEvent& event) {
  if (event.in_reasoning && !thinking_) BeginThinking();
  if (!event.in_reasoning && thinking_) EndThinking();
  // The token that ends the thinking is shown by the layout, not by its name.
  if (event.in_reasoning && event.is_control && event.text == "</think>") return;
  Write(EscapeForTerminal(event.text));
}

void AnswerPrinter::Finish() {
  if (!at_line_start_) Write("\n");
  if (colour_ && thinking_) std::cout << kPlain << std::flush;
  thinking_ = false;
  std::cout << std::flush;
}

}  // namespace minke
