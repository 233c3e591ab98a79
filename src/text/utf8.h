// UTF-8 as this program reads it: strict (no surrogates, no overlong forms, at most U+10FFFF).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace minke {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What the first bytes of a text are.
struct Utf8Step {
  enum class Kind {
    kCharacter,   // `bytes` bytes make one character, `code_point`
    kInvalid,     // `bytes` bytes can never be part of a character: one U+FFFD stands for them
    kIncomplete,  // the text ends inside a character that could still become valid
  };
  Kind kind = Kind::kInvalid;
  int bytes = 0;  // 1..4
  uint32_t code_point = 0;
};

// REQUIRES that text is not empty. Invalid sequences are cut at their longest valid beginning, as
// the Unicode standard recommends and the Hugging Face decoders do.
Utf8Step ReadUtf8(std::string_view text);

// The length of the longest beginning of `text` that is whole valid characters.
size_t ValidUtf8Prefix(std::string_view text);

void AppendUtf8(uint32_t code_point, std::string* text);

// `bytes` with every invalid or incomplete sequence replaced by U+FFFD.
std::string LossyUtf8(std::string_view bytes);

// LossyUtf8() of bytes that come in parts: what could still become a character waits.
class Utf8Stream {
 public:
  // Appends what is decided.
  void Push(std::string_view bytes, std::string* text);
  // Appends U+FFFD for what was waiting, as LossyUtf8() would; afterwards the object is as new.
  void Flush(std::string* text);

 private:
  std::string waiting_;  // at most 3 bytes, the beginning of a character
};

}  // namespace minke
