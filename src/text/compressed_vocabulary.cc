#include "text/compressed_vocabulary.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>

#include "text/utf8.h"

namespace minke {

namespace {

constexpr uint32_t kProtectedBlank = 0xE000;  // private use: stands for a lone blank during Strip

using CodePoints = std::vector<utf8proc_int32_t>;

// Decomposed code points of valid UTF-8, in canonical order.
CodePoints Decompose(std::string_view text, int options) {
  const auto bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  const auto all = static_cast<utf8proc_option_t>(options);
  CodePoints points;
  utf8proc_ssize_t needed = utf8proc_decompose(bytes, size, nullptr, 0, all);
  CHECK(needed >= 0, utf8proc_errmsg(needed));
  points.resize(static_cast<size_t>(needed));
  needed = utf8proc_decompose(bytes, size, points.data(), needed, all);
  CHECK(needed == static_cast<utf8proc_ssize_t>(points.size()));
  return points;
}

std::string ToUtf8(const CodePoints& points) {
  std::string text;
  for (const utf8proc_int32_t point : points) AppendUtf8(static_cast<uint32_t>(point), &text);
  return text;
}

// NFKC, then NFD: composing in between matters where a composition is not undone alike.
CodePoints NormalForm(std::string_view text) {
  CodePoints points = Decompose(text, UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  CHECK(composed >= 0, utf8proc_errmsg(composed));
  points.resize(static_cast<size_t>(composed));
  return Decompose(ToUtf8(points), UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
}

bool IsMark(utf8proc_int32_t point) {
  const utf8proc_category_t category = utf8proc_category(point);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

// White_Space of the Unicode standard. (utf8proc has no such property.)
bool IsWhiteSpace(utf8proc_int32_t point) {
  if ((point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85) return true;
  const utf8proc_category_t category = utf8proc_category(point);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

CodePoints JoinBlanks(const CodePoints& points) {
  CodePoints joined;
  for (const utf8proc_int32_t point : points) {
    const bool blank = point == ' ' || point == '\t' || point == '\r' || point == '\n';
    if (!blank) {
      joined.push_back(point);
    } else if (joined.empty() || joined.back() != ' ') {
      joined.push_back(' ');
    }
  }
  return joined;
}

}  // namespace

std::string CompressedVocabularyKey(std::string_view text) {
  CodePoints points = NormalForm(text);
  points.erase(std::remove_if(points.begin(), points.end(), IsMark), points.end());
  for (utf8proc_int32_t& point : points) point = utf8proc_tolower(point);
  points = JoinBlanks(points);
  if (points.size() == 1 && points[0] == ' ') points[0] = kProtectedBlank;
  const auto kept = [](utf8proc_int32_t point) { return !IsWhiteSpace(point); };
  const auto first = std::find_if(points.begin(), points.end(), kept);
  points.erase(points.begin(), first);
  const auto last = std::find_if(points.rbegin(), points.rend(), kept);
  points.erase(last.base(), points.end());
  std::replace(points.begin(), points.end(), static_cast<utf8proc_int32_t>(kProtectedBlank),
               static_cast<utf8proc_int32_t>(' '));
  return points.empty() ? std::string(text) : ToUtf8(points);
}

std::vector<int32_t> CompressVocabulary(const Tokenizer& tokenizer) {
  std::vector<int32_t> compressed;
  std::unordered_map<std::string, int32_t> class_of_key;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = LossyUtf8(tokenizer.TokenBytes(id));
    // A token that holds part of a character has no text to compare: its spelling tells it apart.
    const bool partial = text.find(kReplacementCharacter) != std::string::npos;
    std::string key =
        partial ? std::string(tokenizer.TokenSpelling(id)) : CompressedVocabularyKey(text);
    const auto next = static_cast<int32_t>(class_of_key.size());
    compressed.push_back(class_of_key.emplace(std::move(key), next).first->second);
  }
  return compressed;
}

Result<std::vector<int32_t>> BuildCompressedVocabulary(const Tokenizer& tokenizer,
                                                       int64_t vocab_size, int64_t expected_size) {
  if (tokenizer.vocab_size() != vocab_size) {
    return Fail(
        fmt::format("The tokenizer has {} tokens, but the model's vocab_size is {}: "
                    "tokenizer.json and config.json do not belong together.",
                    tokenizer.vocab_size(), vocab_size));
  }
  std::vector<int32_t> compressed = CompressVocabulary(tokenizer);
  const auto largest = std::max_element(compressed.begin(), compressed.end());
  const int64_t classes = largest == compressed.end() ? 0 : *largest + 1;
  if (classes != expected_size) {
    return Fail(
        fmt::format("The tokenizer's {} tokens make {} classes for Engram, but the model "
                    "was trained with {}: every row it looks up would be wrong. Use the "
                    "tokenizer.json that belongs to the model.",
                    vocab_size, classes, expected_size));
  }
  return compressed;
}

}  // namespace minke
