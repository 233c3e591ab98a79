// The words of facts and questions. Keys are "place thing" pairs; those marked held out are never
// part of a key in training, so that an evaluation can tell looking up from remembering.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recall/random.h"

namespace minke {

enum class WordSplit {
  kTraining,  // what the trainer uses, and what an evaluation uses by default
  kHeldOut,   // what only an evaluation uses
};

std::span<const std::string_view> PlaceWords(WordSplit split);
std::span<const std::string_view> ThingWords(WordSplit split);
// The answer restates them: "The {attribute} of the {key} is ...".
std::span<const std::string_view> AttributeWords();
std::span<const std::string_view> ValueWords();

// With {k} (the key and its article), {a} (attribute) and {v} (value); {K} begins a sentence.
std::span<const std::string_view> FactTemplates(WordSplit split);
std::span<const std::string_view> QuestionTemplates(WordSplit split);
// Questions after another one. With {a} the attribute is named, else it is that of the last answer.
std::span<const std::string_view> FollowUpTemplates();
// Short formats for lists of repeated facts, each with a blank or a line break at one end; {n} is
// the key without its article. The value's mention follows the key.
std::span<const std::string_view> ListTemplates();
std::span<const std::string_view> SystemMessages();

// A capitalised word of two or three syllables that no list has, e.g. "Kelvaro".
std::string InventedName(Random& random);
// Whether the word, in lower case, is part of a held-out key.
bool IsHeldOutWord(std::string_view word);

}  // namespace minke
