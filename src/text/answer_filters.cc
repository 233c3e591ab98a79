#include "text/answer_filters.h"

#include <algorithm>
#include <utility>

namespace minke {

namespace {

constexpr int kFenceTicks = 3;

// One blank for each character: the bytes that go on with a character leave none.
void AppendBlank(char c, std::string* shown) {
  if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) *shown += ' ';
}

}  // namespace

void JsonWindow::Push(std::string_view bytes, std::string* shown) {
  for (const char c : bytes) Byte(c, shown);
}

void JsonWindow::Flush(std::string* shown) {
  if (state_ == State::kScalar) shown->append(static_cast<size_t>(ticks_), '`');
  ticks_ = 0;
}

void JsonWindow::Byte(char c, std::string* shown) {
  switch (state_) {
    case State::kBefore:
      ticks_ = c == '`' ? ticks_ + 1 : 0;
      BeginOrBlank(c, shown);
      if (ticks_ == kFenceTicks) state_ = State::kFenceName;
      break;
    case State::kFenceName:
      ticks_ = 0;
      if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z')) {
        state_ = State::kFenced;
        return Byte(c, shown);
      }
      AppendBlank(c, shown);
      break;
    case State::kFenced:
      if (c == '{' || c == '[' || c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        BeginOrBlank(c, shown);
        break;
      }
      state_ = State::kScalar;
      [[fallthrough]];
    case State::kScalar:
      if (c == '`') {
        if (++ticks_ < kFenceTicks) break;
        shown->append(kFenceTicks, ' ');
        state_ = State::kAfter;
        break;
      }
      Flush(shown);
      *shown += c;
      break;
    case State::kValue:
      InValue(c, shown);
      break;
    case State::kAfter:
      AppendBlank(c, shown);
      break;
  }
}

void JsonWindow::BeginOrBlank(char c, std::string* shown) {
  if (c == '{' || c == '[') {
    state_ = State::kValue;
    InValue(c, shown);
    return;
  }
  AppendBlank(c, shown);
}

void JsonWindow::InValue(char c, std::string* shown) {
  // Outside a string no JSON has this character: the value was torn and its fence closes.
  if (c == '`' && !in_string_) {
    state_ = State::kAfter;
    AppendBlank(c, shown);
    return;
  }
  *shown += c;
  if (in_string_) {
    if (c == '"' && !escaped_) in_string_ = false;
    escaped_ = c == '\\' && !escaped_;
    return;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && --depth_ == 0) state_ = State::kAfter;
}

StopFilter::StopFilter(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    Pattern pattern;
    pattern.borders.assign(stop.size() + 1, 0);
    size_t border = 0;
    for (size_t i = 1; i < stop.size(); ++i) {
      while (border > 0 && stop[i] != stop[border]) border = pattern.borders[border];
      if (stop[i] == stop[border]) ++border;
      pattern.borders[i + 1] = border;
    }
    pattern.text = std::move(stop);
    patterns_.push_back(std::move(pattern));
  }
}

bool StopFilter::Push(std::string_view bytes, std::string* shown) {
  if (patterns_.empty()) {
    *shown += bytes;
    return false;
  }
  if (!matched_.empty()) return true;
  for (size_t at = 0; at < bytes.size(); ++at) {
    const char c = bytes[at];
    for (Pattern& pattern : patterns_) {
      size_t length = pattern.length;
      while (length > 0 && pattern.text[length] != c) length = pattern.borders[length];
      pattern.length = pattern.text[length] == c ? length + 1 : 0;
      if (pattern.length == pattern.text.size() && pattern.text.size() > matched_.size()) {
        matched_ = pattern.text;
      }
    }
    if (matched_.empty()) continue;
    waiting_ += bytes.substr(0, at + 1);
    *shown += waiting_.substr(0, waiting_.size() - matched_.size());
    waiting_.clear();
    return true;
  }
  waiting_ += bytes;
  size_t kept = 0;
  for (const Pattern& pattern : patterns_) kept = std::max(kept, pattern.length);
  shown->append(waiting_, 0, waiting_.size() - kept);
  waiting_.erase(0, waiting_.size() - kept);
  return false;
}

void StopFilter::Flush(std::string* shown) {
  *shown += waiting_;
  waiting_.clear();
  for (Pattern& pattern : patterns_) pattern.length = 0;
}

}  // namespace minke
