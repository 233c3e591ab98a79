#include "train/text_cleaning.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "train/ascii_text.h"

namespace minke::train {

namespace {

constexpr size_t kParagraphBytesMin = 60;
constexpr size_t kParagraphBytesMax = 4000;
constexpr size_t kWordsMin = 10;
constexpr double kLettersMin = 0.85;      // letters and blanks of all bytes
constexpr double kCommonWordsMin = 0.18;  // of all words; English prose has twice that
constexpr std::string_view kCodeBytes = "{}<>|\\^~`=#@_";
constexpr size_t kCodeBytesMax = 1;

constexpr std::string_view kCommonWords[] = {
    "the",   "of",   "and", "to",   "a",    "in",  "is",    "that",  "it",   "for",  "on",
    "with",  "as",   "be",  "this", "are",  "or",  "by",    "an",    "not",  "from", "at",
    "you",   "if",   "can", "have", "was",  "has", "but",   "all",   "will", "your", "his",
    "we",    "i",    "he",  "my",   "they", "no",  "their", "there", "one",  "do",   "when",
    "which", "what", "so",  "our",  "me",   "who", "more",  "any",   "may",  "into",
};

// Typographic characters as the keyboard's; blanks joined. Other characters stay as they are.
std::string PlainCharacters(std::string_view paragraph) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kPlain = {{
      {"\xE2\x80\x98", "'"},
      {"\xE2\x80\x99", "'"},
      {"\xE2\x80\x9C", "\""},
      {"\xE2\x80\x9D", "\""},
      {"\xE2\x80\x93", "-"},
      {"\xE2\x80\x94", "-"},
      {"\xE2\x80\xA6", "..."},
      {"\xC2\xA0", " "},
      {"``", "\""},
      {"''", "\""},
  }};
  std::string text(paragraph);
  for (const auto& [from, to] : kPlain) ReplaceAll(&text, from, to);
  std::string joined;
  for (const char c : text) {
    if (!IsBlank(c)) {
      joined += c;
    } else if (!joined.empty() && joined.back() != ' ') {
      joined += ' ';
    }
  }
  while (!joined.empty() && joined.back() == ' ') joined.pop_back();
  return joined;
}

bool IsWholeSentence(std::string_view text) {
  const std::string_view start = text.substr(text.find_first_not_of("\"'("));
  const bool begins = start[0] >= 'A' && start[0] <= 'Z';
  const std::string_view end = text.substr(0, text.find_last_not_of("\"')") + 1);
  return begins && !end.empty() && (end.back() == '.' || end.back() == '!' || end.back() == '?');
}

// Whether the bytes and words are those of English prose.
bool IsProse(std::string_view text) {
  size_t letters = 0;
  size_t code = 0;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) return false;
    letters += IsLetter(c) || c == ' ' ? 1 : 0;
    code += kCodeBytes.find(c) != std::string_view::npos ? 1 : 0;
  }
  if (code > kCodeBytesMax) return false;
  if (static_cast<double>(letters) < kLettersMin * static_cast<double>(text.size())) return false;
  size_t words = 0;
  size_t common = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsLetter(text[end])) ++end;
    if (end > at) {
      const std::string word = LowerText(text.substr(at, end - at));
      ++words;
      common += std::find(std::begin(kCommonWords), std::end(kCommonWords), word) !=
                std::end(kCommonWords);
    }
    at = end + 1;
  }
  return words >= kWordsMin &&
         static_cast<double>(common) >= kCommonWordsMin * static_cast<double>(words);
}

}  // namespace

std::optional<std::string> CleanParagraph(std::string_view paragraph) {
  if (paragraph.size() > 2 * kParagraphBytesMax) return std::nullopt;
  std::string text = PlainCharacters(paragraph);
  if (text.size() < kParagraphBytesMin || text.size() > kParagraphBytesMax) return std::nullopt;
  if (text.find_first_not_of("\"'(") == std::string::npos || !IsWholeSentence(text)) {
    return std::nullopt;
  }
  if (!IsProse(text)) return std::nullopt;
  return text;
}

}  // namespace minke::train
