// Documents with facts, cut to a number of tokens and put into the released chat format.
#include "recall/recall_case.h"

#include <gtest/gtest.h>

#include <string>

#include "recall/scoring.h"

namespace minke {
namespace {

const Tokenizer& MiniTokenizer() {
  static const Tokenizer kTokenizer =
      Tokenizer::Load(std::string(MINKE_SOURCE_DIR) + "/models/mini/tokenizer.json").value();
  return kTokenizer;
}

size_t Occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

CaseOptions Options(int64_t tokens) {
  CaseOptions options;
  options.tokens = tokens;
  options.facts.facts = 4;
  options.facts.questions = 3;
  return options;
}

RecallCase Make(const CaseOptions& options, uint64_t seed) {
  Random random({kTrainingDomain, seed});
  return MakeRecallCase(options, Filler::Neutral(1), MiniTokenizer(), random).value();
}

// Every layout that a client may send.
std::vector<CaseOptions> Layouts(int64_t tokens) {
  std::vector<CaseOptions> layouts;
  for (const DocumentPlace place :
       {DocumentPlace::kUser, DocumentPlace::kSystem, DocumentPlace::kPartOfUser}) {
    for (const ThinkingMode mode : {ThinkingMode::kChat, ThinkingMode::kThinking}) {
      for (const char* system : {"", "Be brief."}) {
        CaseOptions options = Options(tokens);
        options.place = place;
        options.thinking_mode = mode;
        options.system = system;
        layouts.push_back(options);
      }
    }
  }
  return layouts;
}

TEST(RecallCase, HasEveryFactOnceBeforeAnyQuestion) {
  for (const CaseOptions& options : Layouts(900)) {
    const RecallCase recall = Make(options, 1);
    const std::string prompt = EncodeChat(recall.request).value().Text();
    const size_t question = prompt.find(recall.facts.questions[0].text);
    ASSERT_NE(question, std::string::npos);
    for (const Fact& fact : recall.facts.facts) {
      EXPECT_EQ(Occurrences(recall.document, fact.sentence), 1U);
      EXPECT_LT(prompt.find(fact.sentence), question);
    }
    EXPECT_EQ(prompt.find(recall.facts.questions.back().answer), std::string::npos);
  }
}

TEST(RecallCase, IsAsLongAsAskedFor) {
  constexpr int64_t kWordTokensMax = 16;  // of the mini tokenizer, which knows few words
  for (const int64_t tokens : {700, 1000, 3000}) {
    for (const CaseOptions& options : Layouts(tokens)) {
      const auto size = static_cast<int64_t>(Make(options, 2).ids.size());
      EXPECT_LE(size, tokens);
      EXPECT_GT(size, tokens - kWordTokensMax);
    }
  }
}

TEST(RecallCase, SaysWhereTheValuesAre) {
  for (const CaseOptions& options : Layouts(900)) {
    const RecallCase recall = Make(options, 3);
    ASSERT_EQ(recall.value_positions.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      const std::string& value = recall.facts.facts[recall.facts.questions[i].fact].value;
      const auto end = static_cast<size_t>(recall.value_positions[i]) + 1;
      const std::string before = MiniTokenizer().DecodeBytes(std::span(recall.ids).subspan(0, end));
      ASSERT_GE(before.size(), value.size());
      EXPECT_EQ(before.substr(before.size() - value.size()), value);
    }
  }
}

TEST(RecallCase, SeparateQuestionsShareTheDocumentAndFit) {
  CaseOptions options = Options(800);
  options.separate_questions = true;
  const RecallCase recall = Make(options, 4);
  for (size_t i = 0; i < recall.facts.questions.size(); ++i) {
    const Prompt prompt = EncodeChat(AskedAbout(recall, options, i)).value();
    const std::string text = prompt.Text();
    EXPECT_NE(text.find(recall.document), std::string::npos);
    EXPECT_EQ(Occurrences(text, "<｜User｜>"), 1U);
    EXPECT_LE(PromptIds(prompt, MiniTokenizer()).value().size(), 800U);
  }
}

TEST(RecallCase, TrainingRowsAnswerEveryQuestion) {
  CaseOptions options = Options(800);
  options.answer_last = true;
  options.thinking_mode = ThinkingMode::kThinking;
  const RecallCase recall = Make(options, 5);
  const std::string prompt = EncodeChat(recall.request).value().Text();
  for (const Question& question : recall.facts.questions) {
    EXPECT_NE(prompt.find("<think></think>" + question.answer + "<｜end▁of▁sentence｜>"),
              std::string::npos);
  }
}

TEST(RecallCase, DependsOnItsSeedAlone) {
  EXPECT_EQ(Make(Options(800), 6).ids, Make(Options(800), 6).ids);
  EXPECT_NE(Make(Options(800), 6).ids, Make(Options(800), 7).ids);
}

TEST(RecallCase, TooShortAPromptIsRefusedWithBothNumbers) {
  Random random({kTrainingDomain, 1});
  const Result<RecallCase> recall =
      MakeRecallCase(Options(100), Filler::Neutral(1), MiniTokenizer(), random);
  ASSERT_FALSE(recall.has_value());
  EXPECT_EQ(recall.error().code, ErrorCode::kLimit);
  EXPECT_NE(recall.error().message.find("the 100 asked for"), std::string::npos);
}

}  // namespace
}  // namespace minke
