#include "server/custom_input.h"

#include "core/json.h"
#include "text/utf8.h"

namespace minke {

namespace {

constexpr std::string_view kInputOpening = "{\"input\":\"";
constexpr std::string_view kInputMember = "input";
constexpr uint32_t kReplacement = 0xFFFD;

bool IsJsonBlank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

unsigned EscapeDigit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return 0;
}

char Unescaped(char c) {
  switch (c) {
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return c;  // a quote, a slash, a backslash
  }
}

}  // namespace

std::string CustomInput::Push(std::string_view json) {
  std::string text;
  for (const char c : json) {
    if (state_ == State::kOther) {
      json_ += c;
    } else if (state_ == State::kOpening) {
      json_ += c;
      if (IsJsonBlank(c)) continue;
      if (kInputOpening[opening_bytes_] != c) {
        state_ = State::kOther;
      } else if (++opening_bytes_ == kInputOpening.size()) {
        state_ = State::kText;
      }
    } else if (state_ != State::kDone) {
      PushText(c, &text);
    }
  }
  return text;
}

void CustomInput::PushText(char c, std::string* text) {
  if (state_ == State::kUnicode) {
    PushUnicode(c, text);
    return;
  }
  if (state_ == State::kEscape && c == 'u') {
    state_ = State::kUnicode;
    digits_ = 0;
    unit_ = 0;
    return;
  }
  if (state_ == State::kText && c == '\\') {
    state_ = State::kEscape;
    return;
  }
  if (high_half_ != 0) {
    AppendUtf8(kReplacement, text);
    high_half_ = 0;
  }
  if (state_ == State::kText && c == '"') {
    state_ = State::kDone;
    return;
  }
  *text += state_ == State::kEscape ? Unescaped(c) : c;
  state_ = State::kText;
}

void CustomInput::PushUnicode(char c, std::string* text) {
  constexpr int kDigits = 4;
  unit_ = unit_ * 16 + EscapeDigit(c);
  if (++digits_ < kDigits) return;
  state_ = State::kText;
  const bool low = unit_ >= 0xDC00 && unit_ <= 0xDFFF;
  const bool high = unit_ >= 0xD800 && unit_ <= 0xDBFF;
  if (low && high_half_ != 0) {
    AppendUtf8(0x10000 + ((high_half_ - 0xD800) << 10) + (unit_ - 0xDC00), text);
    high_half_ = 0;
    return;
  }
  if (high_half_ != 0) AppendUtf8(kReplacement, text);
  high_half_ = high ? unit_ : 0;
  if (!high) AppendUtf8(low ? kReplacement : unit_, text);
}

std::string CustomInput::Finish() {
  if (state_ != State::kOpening && state_ != State::kOther) return {};
  state_ = State::kDone;
  const Result<Json> parsed =
      ParseJson(json_, "arguments", JsonParseOptions{.reject_duplicate_keys = false});
  if (!parsed || !parsed->is_object()) return json_;
  const Json* input = parsed->Find(kInputMember);
  const JsonObject& members = parsed->as_object();
  if (input == nullptr && members.size() == 1 && members[0].second.is_string()) {
    input = &members[0].second;
  }
  if (input == nullptr) return members.empty() ? std::string() : json_;
  return input->is_string() ? input->as_string() : DumpJson(*input, JsonStyle::kCompact);
}

}  // namespace minke
