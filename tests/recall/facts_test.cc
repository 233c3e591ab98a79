// The generator of facts and questions: the same for a seed, values where they are said to be, and
// words that training never uses.
#include "recall/facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

namespace minke {
namespace {

FactOptions Unusual() {
  FactOptions options;
  options.facts = 12;
  options.questions = 6;
  options.invented_key_share = 0.2;
  options.corpus_key_share = 0.2;
  options.corpus_attribute_share = 0.2;
  options.corpus_words = {"cloud", "engineer", "table", "window"};
  options.value_digits = {2, 4, 6};
  options.word_value_share = 0.2;
  return options;
}

FactSet Facts(const FactOptions& options, uint64_t seed) {
  Random random({kTrainingDomain, seed});
  return MakeFacts(options, random);
}

std::set<std::string> WordsOf(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : std::string(text) + " ") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(word);
      word.clear();
    }
  }
  return words;
}

TEST(Facts, StandWhereTheyAreSaidToBeAndAreStatedOnce) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const FactSet set = Facts(Unusual(), seed);
    ASSERT_EQ(set.facts.size(), 12U);
    std::set<std::string> values;
    std::set<std::pair<std::string, std::string>> names;
    for (const Fact& fact : set.facts) {
      EXPECT_EQ(fact.sentence.substr(fact.value_offset, fact.value.size()), fact.value);
      EXPECT_NE(fact.sentence.find(fact.attribute), std::string::npos);
      EXPECT_EQ(fact.word_value, std::isdigit(static_cast<unsigned char>(fact.value[0])) == 0);
      EXPECT_TRUE(values.insert(fact.value).second) << fact.sentence;
      EXPECT_TRUE(names.emplace(fact.key, fact.attribute).second) << fact.sentence;
      EXPECT_EQ(fact.sentence.find('{'), std::string::npos);
    }
  }
}

TEST(Facts, QuestionsAreAnsweredByTheirFactAndNoneIsAskedTwice) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const FactSet set = Facts(Unusual(), seed);
    ASSERT_EQ(set.questions.size(), 6U);
    std::set<size_t> asked;
    for (const Question& question : set.questions) {
      const Fact& fact = set.facts[question.fact];
      EXPECT_TRUE(asked.insert(question.fact).second);
      EXPECT_EQ(question.answer,
                "The " + fact.attribute + " of " + fact.key + " is " + fact.value + ".");
      EXPECT_EQ(question.answer.find(question.answer_start), 0U);
      EXPECT_EQ(question.text.find(fact.value), std::string::npos) << question.text;
    }
  }
}

TEST(Facts, DependOnTheSeedAlone) {
  const auto text = [](uint64_t seed) {
    std::string all;
    for (const Fact& fact : Facts(Unusual(), seed).facts) all += fact.sentence;
    for (const Question& question : Facts(Unusual(), seed).questions) all += question.text;
    return all;
  };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
}

// Fixed, so that a change of the generator, which changes every training run, is seen.
TEST(Facts, AreDrawnFromTheNumbersOfEveryMachine) {
  Random random({1, 2, 3});
  EXPECT_EQ(random.Next(), 8479092776832149286U);
  EXPECT_NE(Random({1, 2, 3}).Next(), Random({1, 2, 4}).Next());
  EXPECT_NE(Random({1, 2, 3}).Next(), Random({1, 3, 2}).Next());
}

TEST(Facts, HeldOutWordsAreInNoTrainingKeyAndTheOtherWayRound) {
  std::set<std::string> held_out;
  for (const WordSplit split : {WordSplit::kTraining, WordSplit::kHeldOut}) {
    for (const std::string_view word : PlaceWords(split)) {
      EXPECT_EQ(IsHeldOutWord(word), split == WordSplit::kHeldOut) << word;
    }
    for (const std::string_view word : ThingWords(split)) {
      EXPECT_EQ(IsHeldOutWord(word), split == WordSplit::kHeldOut) << word;
    }
  }
  FactOptions unseen;
  unseen.keys = WordSplit::kHeldOut;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const Fact& fact : Facts(Unusual(), seed).facts) {
      for (const std::string& word : WordsOf(fact.key)) EXPECT_FALSE(IsHeldOutWord(word)) << word;
    }
    for (const Fact& fact : Facts(unseen, seed).facts) {
      std::set<std::string> words = WordsOf(fact.key);
      words.erase("the");
      for (const std::string& word : words) EXPECT_TRUE(IsHeldOutWord(word)) << word;
    }
  }
}

TEST(Facts, HeldOutPhrasesAreNoTrainingPhrases) {
  for (const std::string_view text : FactTemplates(WordSplit::kHeldOut)) {
    const auto training = FactTemplates(WordSplit::kTraining);
    EXPECT_EQ(std::find(training.begin(), training.end(), text), training.end());
  }
  for (const std::string_view text : QuestionTemplates(WordSplit::kHeldOut)) {
    const auto training = QuestionTemplates(WordSplit::kTraining);
    EXPECT_EQ(std::find(training.begin(), training.end(), text), training.end());
  }
}

TEST(Facts, HalfOfTheKeysShareAWordWithAnother) {
  FactOptions options;
  options.facts = 8;
  options.second_attribute_share = 0;
  int64_t sharing = 0;
  int64_t keys = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const FactSet set = Facts(options, seed);
    for (const Fact& fact : set.facts) {
      ++keys;
      const bool shares =
          std::any_of(set.facts.begin(), set.facts.end(), [&fact](const Fact& other) {
            if (other.key == fact.key) return false;
            const size_t blank = fact.key.rfind(' ');
            return other.key.substr(0, blank) == fact.key.substr(0, blank) ||
                   other.key.substr(other.key.rfind(' ')) == fact.key.substr(blank);
          });
      sharing += shares ? 1 : 0;
    }
  }
  EXPECT_GT(sharing, keys / 2);
  EXPECT_LT(sharing, keys * 95 / 100);
}

}  // namespace
}  // namespace minke
