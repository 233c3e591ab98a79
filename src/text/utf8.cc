#include "text/utf8.h"

#include "core/result.h"

namespace minke {

namespace {

// The allowed range of the second byte, which is where overlong forms, surrogates and values above
// U+10FFFF show (table 3-7 of the Unicode standard).
struct LeadByte {
  int length = 0;  // bytes of the character; 0: no character begins so
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

LeadByte ReadLeadByte(unsigned char byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_min = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_max = 0x9F};
  if (byte < 0xF0) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_min = 0x90};
  if (byte == 0xF4) return {.length = 4, .second_max = 0x8F};
  if (byte < 0xF4) return {.length = 4};
  return {};
}

}  // namespace

Utf8Step ReadUtf8(std::string_view text) {
  CHECK(!text.empty());
  const auto first = static_cast<unsigned char>(text[0]);
  const LeadByte lead = ReadLeadByte(first);
  if (lead.length == 1) return {Utf8Step::Kind::kCharacter, 1, first};
  if (lead.length == 0) return {Utf8Step::Kind::kInvalid, 1, 0};
  uint32_t code_point = first & (0x7FU >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Utf8Step::Kind::kIncomplete, i, 0};
    const auto byte = static_cast<unsigned char>(text[static_cast<size_t>(i)]);
    const bool fits =
        i == 1 ? byte >= lead.second_min && byte <= lead.second_max : byte >= 0x80 && byte <= 0xBF;
    if (!fits) return {Utf8Step::Kind::kInvalid, i, 0};
    code_point = code_point << 6 | (byte & 0x3FU);
  }
  return {Utf8Step::Kind::kCharacter, lead.length, code_point};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = ReadUtf8(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) break;
    at += static_cast<size_t>(step.bytes);
  }
  return at;
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  CHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF));
  if (code_point < 0x80) {
    *text += static_cast<char>(code_point);
    return;
  }
  if (code_point < 0x800) {
    *text += static_cast<char>(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      *text += static_cast<char>(0xE0 | code_point >> 12);
    } else {
      *text += static_cast<char>(0xF0 | code_point >> 18);
      *text += static_cast<char>(0x80 | (code_point >> 12 & 0x3F));
    }
    *text += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
  }
  *text += static_cast<char>(0x80 | (code_point & 0x3F));
}

std::string LossyUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t valid = ValidUtf8Prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += kReplacementCharacter;
    bytes.remove_prefix(static_cast<size_t>(ReadUtf8(bytes).bytes));
  }
  return text;
}

void Utf8Stream::Push(std::string_view bytes, std::string* text) {
  std::string joined;
  if (!waiting_.empty()) {
    joined = waiting_ + std::string(bytes);
    bytes = joined;
  }
  while (!bytes.empty()) {
    const size_t valid = ValidUtf8Prefix(bytes);
    *text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const Utf8Step step = ReadUtf8(bytes);
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    *text += kReplacementCharacter;
    bytes.remove_prefix(static_cast<size_t>(step.bytes));
  }
  waiting_ = std::string(bytes);
}

void Utf8Stream::Flush(std::string* text) {
  *text += LossyUtf8(waiting_);
  waiting_.clear();
}

}  // namespace minke
