// The free text that a custom tool of the Responses API is called with. The model writes a call of
// the function {"input": "..."}; this takes the text out while the JSON is still coming.
#pragma once

#include <string>
#include <string_view>

namespace minke {

class CustomInput {
 public:
  // More of the JSON text, cut anywhere. Gives what text is now known to follow.
  std::string Push(std::string_view json);
  // The end of the JSON text. Where its first member was no text named "input", all of the input
  // comes now: the member "input", or else the only text in it, or else the JSON itself.
  std::string Finish();

 private:
  enum class State { kOpening, kText, kEscape, kUnicode, kDone, kOther };
  // One byte of the text as JSON writes it.
  void PushText(char c, std::string* text);
  void PushUnicode(char c, std::string* text);

  State state_ = State::kOpening;
  std::string json_;          // all of it, until the text begins
  size_t opening_bytes_ = 0;  // matched of what comes before the text
  int digits_ = 0;            // of an escape \uXXXX
  unsigned unit_ = 0;         // its value so far
  unsigned high_half_ = 0;    // of a pair of escapes for one character; 0: none
};

}  // namespace minke
