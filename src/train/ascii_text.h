// Bytes of text that is mostly ASCII, whatever the locale says.
#pragma once

#include <string>
#include <string_view>

namespace minke::train {

inline bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
inline bool IsBlank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
inline char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
inline bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
inline bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::string LowerText(std::string_view text);
// Every occurrence of `from`, which is not empty, becomes `to`.
void ReplaceAll(std::string* text, std::string_view from, std::string_view to);

}  // namespace minke::train
