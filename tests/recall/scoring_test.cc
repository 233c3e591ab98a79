// What counts as a right answer.
#include "recall/scoring.h"

#include <gtest/gtest.h>

#include <string>

namespace minke {
namespace {

FactSet OneFact(const std::string& value) {
  FactSet set;
  Fact fact;
  fact.key = "the harbour gate";
  fact.attribute = "pin";
  fact.value = value;
  set.facts.push_back(fact);
  set.questions.push_back({"What is the pin of the harbour gate?", 0,
                           "The pin of the harbour gate is",
                           "The pin of the harbour gate is " + value + "."});
  return set;
}

AnswerScore Score(const std::string& value, const std::string& answer) {
  const FactSet set = OneFact(value);
  return ScoreAnswer(set, set.questions[0], answer);
}

TEST(Scoring, TellsTheWholeAnswerFromTheDigits) {
  EXPECT_TRUE(Score("4812", "The pin of the harbour gate is 4812.").answer_exact);
  EXPECT_TRUE(Score("4812", " The pin of the harbour gate is 4812.\n").answer_exact);
  const AnswerScore other_key = Score("4812", "The pin of the old boiler is 4812.");
  EXPECT_TRUE(other_key.digits_exact);
  EXPECT_FALSE(other_key.answer_exact);
}

TEST(Scoring, TakesNoPartAndNoSecondNumber) {
  for (const char* answer :
       {"It is 48.", "It is 48123.", "It is 1 or 4812.", "It is 14812.", "", "None.", "4 8 1 2"}) {
    EXPECT_FALSE(Score("4812", answer).digits_exact) << answer;
  }
  EXPECT_TRUE(Score("0", "0").digits_exact);
}

TEST(Scoring, WordsAreTheLastWord) {
  EXPECT_TRUE(Score("amber", "The pin of the harbour gate is amber.").digits_exact);
  EXPECT_FALSE(Score("amber", "The amber pin is violet.").digits_exact);
  EXPECT_FALSE(Score("amber", "clamber").digits_exact);
}

TEST(Scoring, IntervalsHoldTheirShare) {
  const ShareInterval none = IntervalOf(0, 0);
  EXPECT_EQ(none.low, 0);
  EXPECT_EQ(none.high, 1);
  const ShareInterval all = IntervalOf(400, 400);
  EXPECT_NEAR(all.low, 0.9905, 1e-4);
  EXPECT_EQ(all.high, 1);
  const ShareInterval half = IntervalOf(50, 100);
  EXPECT_NEAR(half.low, 0.4038, 1e-4);
  EXPECT_NEAR(half.high, 0.5962, 1e-4);
}

}  // namespace
}  // namespace minke
