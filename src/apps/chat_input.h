// Lines of standard input for `minke chat`, with Ctrl-C as one of the answers.
#pragma once

#include <string>

#include "apps/interrupts.h"
#include "core/result.h"

namespace minke {

inline constexpr size_t kChatLineBytesMax = size_t{16} << 20;

class ChatInput {
 public:
  // `interrupts` outlives it. `prompt` is shown only where stdin and stdout are a terminal.
  explicit ChatInput(Interrupts& interrupts);

  enum class Kind { kText, kEnd, kInterrupt };
  struct Line {
    Kind kind = Kind::kEnd;
    std::string text;  // without the newline
  };
  // One question: a line, or several where a line ends in a backslash.
  Result<Line> Read();
  bool interactive() const { return interactive_; }

 private:
  Result<Line> ReadLine(const char* prompt);
  // False at the end of the input.
  Result<bool> Fill();

  Interrupts& interrupts_;
  bool interactive_ = false;
  std::string buffer_;  // read, not yet returned
};

}  // namespace minke
