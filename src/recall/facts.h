// Facts and questions about them, as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recall/random.h"
#include "recall/words.h"

namespace minke {

inline constexpr int64_t kFactsMax = 256;     // of one document
inline constexpr int64_t kQuestionsMax = 64;  // of one conversation

struct FactOptions {
  int64_t facts = 8;      // 1..kFactsMax
  int64_t questions = 1;  // 1..kQuestionsMax; no fact is asked twice while others are left
  WordSplit keys = WordSplit::kTraining;
  WordSplit phrasing = WordSplit::kTraining;
  // Of the keys; the rest are pairs of nouns.
  double invented_key_share = 0;  // invented names, alone or before a noun
  double corpus_key_share = 0;    // words of `corpus_words`; 0 where there are none
  double corpus_attribute_share = 0;
  std::vector<std::string> corpus_words;
  // Of the keys of nouns: they share a word with another key of the document.
  double distractor_share = 0.5;
  bool follow_ups = true;  // some questions refer to the one before
  // Of the facts: a second attribute of a key that has one already.
  double second_attribute_share = 0.1;
  std::vector<int64_t> value_digits = {4};  // drawn from, so repetitions are weights
  double word_value_share = 0;
};

// What an evaluation asks in prompts of so many tokens: four facts more with each doubling (8 at
// 512 tokens, 12 at 1,024, 16 at 2,048), at least three, and values mostly of four digits.
FactOptions EvaluationFacts(int64_t tokens);

// A value as the document gives it, and what an answer has to restate.
struct Fact {
  std::string key;        // with its article: "the harbour gate"
  std::string attribute;  // "access code"
  std::string value;      // "4812", or a word
  bool word_value = false;
  std::string sentence;     // "For the harbour gate, the access code is 4812."
  size_t value_offset = 0;  // of the value in the sentence, in bytes
};

struct Question {
  std::string text;
  size_t fact = 0;           // index of the fact that answers it
  std::string answer_start;  // "The access code of the harbour gate is"
  std::string answer;        // answer_start + " 4812."
};

struct FactSet {
  std::vector<Fact> facts;
  std::vector<Question> questions;  // from the second on partly follow-ups of the one before
};

// REQUIRES options within their limits and, with a share of corpus words, such words. Each pair of
// key and attribute occurs once, each value once.
FactSet MakeFacts(const FactOptions& options, Random& random);

// A key that no member of `taken` equals, with its article.
std::string MakeKey(const FactOptions& options, const std::vector<std::string>& taken,
                    Random& random);
std::string MakeValue(const FactOptions& options, Random& random, bool* is_word);
// `text` with {k}, {K}, {n}, {a} and {v} replaced; `value_offset`, if wanted: where {v} went.
std::string FillTemplate(std::string_view text, const Fact& fact, size_t* value_offset = nullptr);

}  // namespace minke
