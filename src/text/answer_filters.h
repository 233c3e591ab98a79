// What the visible answer passes on its way out: JSON mode and stop strings (serving.md 1.4, 2.7).
// Both take bytes in parts and give the same result for every split.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace minke {

// JSON mode: everything around the JSON value becomes blanks, one a character, so that the answer
// is what a client can parse. The value begins at the first brace or bracket, or after a fence; it
// ends where its brackets close, or at the closing fence.
class JsonWindow {
 public:
  void Push(std::string_view bytes, std::string* shown);
  // What waits as the possible beginning of a fence.
  void Flush(std::string* shown);

 private:
  enum class State { kBefore, kFenceName, kFenced, kScalar, kValue, kAfter };

  void Byte(char c, std::string* shown);
  void BeginOrBlank(char c, std::string* shown);
  void InValue(char c, std::string* shown);

  State state_ = State::kBefore;
  int ticks_ = 0;  // of a fence that has begun
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

// Cuts a text before the first stop string in it: the one that ends first, and of those the
// longest.
class StopFilter {
 public:
  // Empty strings never match.
  explicit StopFilter(std::vector<std::string> stops);

  // Appends what no stop string can claim any more. True if one matched; then nothing follows.
  bool Push(std::string_view bytes, std::string* shown);
  void Flush(std::string* shown);

  const std::string& matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> borders;  // of each beginning: its longest proper border (Knuth et al.)
    size_t length = 0;            // bytes of the pattern that end the text so far
  };

  std::vector<Pattern> patterns_;
  std::string waiting_;  // not more than the longest beginning of a pattern, after each Push()
  std::string matched_;
};

}  // namespace minke
