#include "apps/chat_input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>

#include <fmt/format.h>

namespace minke {

ChatInput::ChatInput(Interrupts& interrupts)
    : interrupts_(interrupts),
      interactive_(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {}

Result<bool> ChatInput::Fill() {
  std::array<char, 4096> block;
  const ssize_t count = read(STDIN_FILENO, block.data(), block.size());
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN) return true;
    return Fail(ErrorCode::kIo,
                fmt::format("Standard input cannot be read: {}.", std::strerror(errno)));
  }
  buffer_.append(block.data(), static_cast<size_t>(count));
  if (buffer_.size() > kChatLineBytesMax) {
    return Fail(ErrorCode::kLimit,
                fmt::format("A line of standard input has more than {} bytes.", kChatLineBytesMax));
  }
  return count > 0;
}

Result<ChatInput::Line> ChatInput::ReadLine(const char* prompt) {
  if (interactive_) std::cout << prompt << std::flush;
  while (true) {
    const size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      Line line{Kind::kText, buffer_.substr(0, newline)};
      buffer_.erase(0, newline + 1);
      return line;
    }
    if (interrupts_.Wait(STDIN_FILENO) == Interrupts::Woken::kInterrupt) {
      buffer_.clear();  // the terminal has dropped what was typed of this line as well
      return Line{Kind::kInterrupt, {}};
    }
    const bool more = TRY(Fill());
    if (more) continue;
    if (buffer_.empty()) return Line{Kind::kEnd, {}};
    Line line{Kind::kText, buffer_};
    buffer_.clear();
    return line;
  }
}

Result<ChatInput::Line> ChatInput::Read() {
  Line line = TRY(ReadLine("> "));
  while (line.kind == Kind::kText && line.text.ends_with('\\')) {
    line.text.back() = '\n';
    const Line next = TRY(ReadLine(". "));
    if (next.kind == Kind::kInterrupt) return next;
    if (next.kind == Kind::kEnd) break;
    line.text += next.text;
  }
  return line;
}

}  // namespace minke
