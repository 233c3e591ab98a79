#include "recall/filler.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "recall/words.h"

namespace minke {

namespace {

constexpr size_t kSentenceBytesMax = 600;  // longer ones are cut at a blank

bool IsLower(char c) {
  return c >= 'a' && c <= 'z';
}

// The end of the sentence that begins at `from`: behind a full stop that a blank and no small
// letter follow, or the end of the paragraph.
size_t SentenceEnd(std::string_view paragraph, size_t from) {
  for (size_t i = from; i < paragraph.size(); ++i) {
    const char c = paragraph[i];
    if (i - from >= kSentenceBytesMax && c == ' ') return i;
    if (c != '.' && c != '!' && c != '?') continue;
    if (i + 2 < paragraph.size() && paragraph[i + 1] == ' ' && !IsLower(paragraph[i + 2])) {
      return i + 1;
    }
  }
  return paragraph.size();
}

void AddSentences(std::string_view text, size_t begin, size_t end, bool begins_document,
                  std::vector<FillerSentence>* sentences) {
  const std::string_view paragraph = text.substr(begin, end - begin);
  bool first = true;
  for (size_t at = 0; at < paragraph.size();) {
    if (paragraph[at] == ' ' || paragraph[at] == '\n') {
      ++at;
      continue;
    }
    const size_t stop = SentenceEnd(paragraph, at);
    sentences->push_back({static_cast<uint32_t>(begin + at), static_cast<uint32_t>(stop - at),
                          first, first && begins_document});
    first = false;
    at = stop;
  }
}

}  // namespace

Result<Filler> Filler::Create(std::string text, std::string_view what) {
  if (text.size() > kFillerBytesMax) {
    return Fail(ErrorCode::kLimit, fmt::format("{} has {} bytes; at most {} are supported.", what,
                                               text.size(), kFillerBytesMax));
  }
  Filler filler(std::move(text));
  const std::string_view view = filler.text_;
  bool begins_document = true;
  for (size_t at = 0; at < view.size();) {
    size_t end = view.find("\n\n", at);
    if (end == std::string_view::npos) end = view.size();
    const std::string_view paragraph = view.substr(at, end - at);
    if (paragraph.find_first_not_of(" \n\f") == std::string_view::npos) {
      begins_document = begins_document || paragraph.find('\f') != std::string_view::npos;
    } else {
      AddSentences(view, at, end, begins_document, &filler.sentences_);
      begins_document = false;
    }
    at = end + 2;
  }
  if (filler.sentences_.empty()) {
    return Fail(fmt::format("{} has no text in it; name a file of plain text.", what));
  }
  return filler;
}

Filler Filler::Neutral(uint64_t seed) {
  constexpr std::string_view kSubjects[] = {"The old path",   "A light wind",    "The narrow road",
                                            "A small bird",   "The quiet water", "A grey cloud",
                                            "The tall grass", "A slow boat",     "The warm air"};
  constexpr std::string_view kVerbs[] = {"runs", "turns", "moves", "rests", "waits", "stays"};
  constexpr std::string_view kWhere[] = {"along the hills",    "under the trees",
                                         "near the shore",     "behind the fields",
                                         "between the stones", "beyond the houses"};
  constexpr std::string_view kWhen[] = {"in the rain",   "at noon",        "before dark",
                                        "after a while", "for many hours", "as it always did"};
  constexpr int64_t kSentences = 4096;
  constexpr int64_t kSentencesPerParagraph = 6;
  Random random({kEvaluationDomain, seed});
  std::string text;
  for (int64_t i = 0; i < kSentences; ++i) {
    text += fmt::format("{} {} {} {}.", random.Pick(kSubjects), random.Pick(kVerbs),
                        random.Pick(kWhere), random.Pick(kWhen));
    text += (i + 1) % kSentencesPerParagraph == 0 ? "\n\n" : " ";
  }
  Result<Filler> filler = Create(std::move(text), "the neutral text");
  CHECK(filler.has_value());
  return std::move(*filler);
}

std::vector<std::string> Filler::CommonWords() const {
  constexpr size_t kLettersMin = 4;
  constexpr size_t kLettersMax = 10;
  constexpr int64_t kOccurrencesMin = 20;
  std::map<std::string, int64_t, std::less<>> counts;
  for (size_t at = 0; at < text_.size();) {
    size_t end = at;
    while (end < text_.size() && IsLower(text_[end])) ++end;
    const size_t size = end - at;
    const bool starts = at == 0 || text_[at - 1] == ' ' || text_[at - 1] == '\n';
    const bool ends = end == text_.size() || text_[end] == ' ' || text_[end] == '.' ||
                      text_[end] == ',' || text_[end] == '\n';
    if (size >= kLettersMin && size <= kLettersMax && starts && ends) {
      const std::string_view word = std::string_view(text_).substr(at, size);
      const auto found = counts.find(word);
      if (found != counts.end()) {
        ++found->second;
      } else {
        counts.emplace(word, 1);
      }
    }
    at = end + 1;
  }
  std::vector<std::string> words;
  for (const auto& [word, count] : counts) {
    if (count >= kOccurrencesMin && !IsHeldOutWord(word)) words.push_back(word);
  }
  return words;
}

}  // namespace minke
