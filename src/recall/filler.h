// The text between the facts: sentences of a file, or neutral ones made up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "recall/random.h"

namespace minke {

inline constexpr std::string_view kDocumentBorder = "\f";  // a line of its own between documents
inline constexpr size_t kFillerBytesMax = size_t{1} << 31;

struct FillerSentence {
  uint32_t begin = 0;  // in the text, bytes
  uint32_t size = 0;
  bool begins_paragraph = false;
  bool begins_document = false;
};

// Immutable. Paragraphs are separated by empty lines, documents by kDocumentBorder.
class Filler {
 public:
  // `what` names the text in errors: one without a single sentence, or above kFillerBytesMax.
  static Result<Filler> Create(std::string text, std::string_view what);
  // Sentences without numbers, about nothing that a fact could be about.
  static Filler Neutral(uint64_t seed);

  const std::string& text() const { return text_; }
  const std::vector<FillerSentence>& sentences() const { return sentences_; }
  std::string_view Sentence(size_t index) const {
    return std::string_view(text_).substr(sentences_[index].begin, sentences_[index].size);
  }
  // Words of lower-case letters that occur often enough to be words, sorted; none that a held-out
  // key has.
  std::vector<std::string> CommonWords() const;

 private:
  explicit Filler(std::string text) : text_(std::move(text)) {}

  std::string text_;
  std::vector<FillerSentence> sentences_;
};

}  // namespace minke
