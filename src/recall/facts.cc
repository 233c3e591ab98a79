#include "recall/facts.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace minke {

namespace {

constexpr std::string_view kArticle = "the ";
constexpr int kAttemptsMax = 64;  // draws before something is taken as it is, to end in any case

std::string Capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text;
}

std::string WithoutArticle(const std::string& key) {
  const bool has = key.compare(0, kArticle.size(), kArticle) == 0;
  return has ? key.substr(kArticle.size()) : key;
}

bool Contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// A pair of nouns; a distractor keeps one word of a pair that is taken already.
std::string NounPair(const FactOptions& options, const std::vector<std::string>& taken,
                     Random& random) {
  std::string place(random.Pick(PlaceWords(options.keys)));
  std::string thing(random.Pick(ThingWords(options.keys)));
  if (!taken.empty() && random.Chance(options.distractor_share)) {
    const std::string other = WithoutArticle(random.Pick(taken));
    const size_t blank = other.find(' ');
    if (blank != std::string::npos) {
      if (random.Chance(0.5)) {
        place = other.substr(0, blank);
      } else {
        thing = other.substr(blank + 1);
      }
    }
  }
  return std::string(kArticle) + place + " " + thing;
}

std::string InventedKey(const FactOptions& options, Random& random) {
  constexpr double kAlone = 0.4;
  constexpr double kTwoNames = 0.2;
  const double kind = random.Uniform();
  std::string name = InventedName(random);
  if (kind < kAlone) return name;
  if (kind < kAlone + kTwoNames) return name + " " + InventedName(random);
  return std::string(kArticle) + name + " " + std::string(random.Pick(ThingWords(options.keys)));
}

std::string CorpusKey(const FactOptions& options, Random& random) {
  const std::string& first = random.Pick(options.corpus_words);
  const std::string& second = random.Pick(options.corpus_words);
  if (random.Chance(0.3)) return std::string(kArticle) + first;
  return std::string(kArticle) + first + " " + second;
}

std::string DrawKey(const FactOptions& options, const std::vector<std::string>& taken,
                    Random& random) {
  const double kind = random.Uniform();
  if (kind < options.invented_key_share) return InventedKey(options, random);
  if (kind < options.invented_key_share + options.corpus_key_share &&
      !options.corpus_words.empty()) {
    return CorpusKey(options, random);
  }
  return NounPair(options, taken, random);
}

std::string DrawAttribute(const FactOptions& options, Random& random) {
  if (!options.corpus_words.empty() && random.Chance(options.corpus_attribute_share)) {
    return random.Pick(options.corpus_words);
  }
  return std::string(random.Pick(AttributeWords()));
}

// How many facts are about this key.
int64_t FactsAbout(const std::vector<Fact>& facts, const std::string& key) {
  return std::count_if(facts.begin(), facts.end(),
                       [&key](const Fact& fact) { return fact.key == key; });
}

bool Stated(const std::vector<Fact>& facts, const Fact& fact) {
  return std::any_of(facts.begin(), facts.end(), [&fact](const Fact& other) {
    return other.value == fact.value ||
           (other.key == fact.key && other.attribute == fact.attribute);
  });
}

Question MakeQuestion(const FactOptions& options, const FactSet& set, size_t index,
                      Random& random) {
  constexpr double kFollowUpShare = 0.3;
  const Fact& fact = set.facts[index];
  Question question;
  question.fact = index;
  question.answer_start = FillTemplate("The {a} of {k} is", fact);
  question.answer = question.answer_start + " " + fact.value + ".";
  question.text = FillTemplate(random.Pick(QuestionTemplates(options.phrasing)), fact);
  if (options.follow_ups && !set.questions.empty() && random.Chance(kFollowUpShare)) {
    const std::string_view text = random.Pick(FollowUpTemplates());
    // Without an attribute the question is clear only where the key has one fact.
    const bool names_attribute = text.find("{a}") != std::string_view::npos;
    if (names_attribute || FactsAbout(set.facts, fact.key) == 1) {
      question.text = FillTemplate(text, fact);
    }
  }
  return question;
}

}  // namespace

FactOptions EvaluationFacts(int64_t tokens) {
  constexpr int64_t kShortest = 128;
  constexpr int64_t kFactsPerDoubling = 4;
  constexpr int64_t kFactsLeast = 3;
  const auto doublings =
      static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(tokens / kShortest))) - 1;
  FactOptions options;
  options.facts = std::max(kFactsLeast, kFactsPerDoubling * doublings);
  options.value_digits = {4, 4, 4, 4, 4, 4, 2, 3, 5, 6};
  return options;
}

std::string FillTemplate(std::string_view text, const Fact& fact, size_t* value_offset) {
  std::string filled;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{' || i + 2 >= text.size() || text[i + 2] != '}') {
      filled += text[i];
      continue;
    }
    switch (text[i + 1]) {
      case 'k':
        filled += fact.key;
        break;
      case 'K':
        filled += Capitalised(fact.key);
        break;
      case 'n':
        filled += WithoutArticle(fact.key);
        break;
      case 'a':
        filled += fact.attribute;
        break;
      case 'v':
        if (value_offset != nullptr) *value_offset = filled.size();
        filled += fact.value;
        break;
      default:
        CHECK(false, text);
    }
    i += 2;
  }
  return filled;
}

std::string MakeKey(const FactOptions& options, const std::vector<std::string>& taken,
                    Random& random) {
  std::string key;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    key = DrawKey(options, taken, random);
    if (!Contains(taken, key)) break;
  }
  return key;
}

std::string MakeValue(const FactOptions& options, Random& random, bool* is_word) {
  *is_word = random.Chance(options.word_value_share);
  if (*is_word) return std::string(random.Pick(ValueWords()));
  std::string digits;
  const int64_t count = random.Pick(options.value_digits);
  for (int64_t i = 0; i < count; ++i) digits += static_cast<char>('0' + random.Below(10));
  return digits;
}

FactSet MakeFacts(const FactOptions& options, Random& random) {
  CHECK(options.facts >= 1 && options.facts <= kFactsMax);
  CHECK(options.questions >= 1 && options.questions <= kQuestionsMax);
  FactSet set;
  std::vector<std::string> keys;
  for (int64_t i = 0; i < options.facts; ++i) {
    Fact fact;
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      const bool again = !keys.empty() && random.Chance(options.second_attribute_share);
      fact.key = again ? random.Pick(keys) : MakeKey(options, keys, random);
      fact.attribute = DrawAttribute(options, random);
      fact.value = MakeValue(options, random, &fact.word_value);
      if (!Stated(set.facts, fact)) break;
    }
    fact.sentence =
        FillTemplate(random.Pick(FactTemplates(options.phrasing)), fact, &fact.value_offset);
    if (!Contains(keys, fact.key)) keys.push_back(fact.key);
    set.facts.push_back(std::move(fact));
  }
  std::vector<size_t> order;
  for (int64_t i = 0; i < options.questions; ++i) {
    if (order.empty()) {
      for (size_t fact = 0; fact < set.facts.size(); ++fact) order.push_back(fact);
    }
    const auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(order.size())));
    const size_t fact = order[at];
    order.erase(order.begin() + static_cast<int64_t>(at));
    set.questions.push_back(MakeQuestion(options, set, fact, random));
  }
  return set;
}

}  // namespace minke
