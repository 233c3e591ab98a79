// Rows: exact lengths, what is supervised and as what, and nothing but the name decides.
#include "train/row_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "train/tokenizer_trainer.h"

namespace minke::train {
namespace {

// Text in which no number stands, so that every number of a row is a planted one.
const RowGenerator& Generator() {
  static const std::unique_ptr<RowGenerator> kGenerator = [] {
    TokenizerTrainingOptions options;
    options.vocab_size = 1024;
    options.required_pieces = RecallPieces();
    const std::string text = Filler::Neutral(1).text();
    const std::string lines = RecallLines(100, 1);
    return RowGenerator::Create(
               Tokenizer::Parse(TrainTokenizer({text, lines}, options).value(), "t").value(), text,
               "the text")
        .value();
  }();
  return *kGenerator;
}

enum class Kind { kList, kDocument, kPlain };
Row Make(Kind kind, const RowName& name, const RowRules& rules) {
  if (kind == Kind::kList) return Generator().ListRow(name, rules);
  if (kind == Kind::kDocument) return Generator().DocumentRow(name, rules);
  return Generator().PlainRow(name, rules);
}
constexpr Kind kKinds[] = {Kind::kList, Kind::kDocument, Kind::kPlain};

bool Same(const Row& a, const Row& b) {
  return a.ids == b.ids && a.weights == b.weights && a.targets == b.targets;
}

// The text of the supervised stretches that begin with `first` and go on with `more`.
std::vector<std::string> Stretches(const Row& row, TargetKind first, TargetKind more) {
  std::vector<std::string> stretches;
  for (size_t i = 0; i + 1 < row.ids.size(); ++i) {
    const std::string bytes(Generator().tokenizer().TokenBytes(row.ids[i + 1]));
    if (row.targets[i] == first) stretches.push_back(bytes);
    if (row.targets[i] == more && !stretches.empty()) stretches.back() += bytes;
  }
  return stretches;
}

TEST(RowGenerator, MakesRowsOfExactlyTheLength) {
  for (const int64_t tokens : {128, 129, 256, 1000, 2048}) {
    RowRules rules;
    rules.tokens = tokens;
    for (const Kind kind : kKinds) {
      for (int64_t index = 0; index < 5; ++index) {
        const Row row = Make(kind, {1, 2, index}, rules);
        ASSERT_EQ(row.ids.size(), static_cast<size_t>(tokens));
        ASSERT_EQ(row.weights.size(), row.ids.size());
        ASSERT_EQ(row.targets.size(), row.ids.size());
        EXPECT_EQ(row.targets.back(), TargetKind::kOther);
        EXPECT_EQ(row.weights.back(), 0);
        EXPECT_EQ(row.ids[0], 0);
        for (const int32_t id : row.ids) {
          EXPECT_TRUE(id >= 0 && id < Generator().tokenizer().vocab_size());
        }
      }
    }
  }
}

TEST(RowGenerator, DependsOnTheNameAlone) {
  const RowRules rules;
  for (const Kind kind : kKinds) {
    const Row row = Make(kind, {1, 2, 3}, rules);
    Make(kind, {9, 9, 9}, rules);
    EXPECT_TRUE(Same(row, Make(kind, {1, 2, 3}, rules)));
    EXPECT_FALSE(Same(row, Make(kind, {2, 2, 3}, rules)));
    EXPECT_FALSE(Same(row, Make(kind, {1, 3, 3}, rules)));
    EXPECT_FALSE(Same(row, Make(kind, {1, 2, 4}, rules)));
  }
}

TEST(RowGenerator, SupervisesAValueOnlyWhereItStoodBefore) {
  RowRules rules;
  rules.tokens = 512;
  for (const Kind kind : {Kind::kList, Kind::kDocument}) {
    int64_t values = 0;
    for (int64_t index = 0; index < 50; ++index) {
      const Row row = Make(kind, {1, 1, index}, rules);
      const std::string text = Generator().tokenizer().DecodeBytes(row.ids);
      const auto stretches = Stretches(row, TargetKind::kFirst, TargetKind::kValue);
      for (size_t i = 0; i < stretches.size(); ++i) {
        const std::string& value = stretches[i];
        // The last one may be cut by the end of the row.
        const bool cut = i + 1 == stretches.size();
        EXPECT_LT(text.find(value), text.rfind(value)) << value;
        EXPECT_TRUE(cut || value.size() >= 1);
        ++values;
      }
    }
    EXPECT_GT(values, 100);
  }
}

TEST(RowGenerator, SupervisesWholeAnswers) {
  RowRules rules;
  rules.tokens = 512;
  for (int64_t index = 0; index < 50; ++index) {
    const Row row = Generator().DocumentRow({1, 1, index}, rules);
    std::string answers;
    for (size_t i = 0; i + 1 < row.ids.size(); ++i) {
      const bool answer = row.targets[i] == TargetKind::kRestated ||
                          row.targets[i] == TargetKind::kFirst ||
                          row.targets[i] == TargetKind::kValue;
      if (answer) answers += Generator().tokenizer().TokenBytes(row.ids[i + 1]);
    }
    size_t count = 0;
    for (size_t at = 0; at < answers.size(); ++count) {
      const bool thinking = answers.substr(at, 8) == "</think>";
      if (thinking) at += 8;
      EXPECT_EQ(answers.substr(at, 4), "The ") << answers;
      const size_t end = answers.find(".<｜end▁of▁sentence｜>", at);
      ASSERT_NE(end, std::string::npos) << answers;
      const std::string value =
          answers.substr(answers.rfind(' ', end) + 1, end - answers.rfind(' ', end) - 1);
      EXPECT_NE(Generator().tokenizer().DecodeBytes(row.ids).find(value), std::string::npos);
      at = end + std::string(".<｜end▁of▁sentence｜>").size();
    }
    EXPECT_GE(count, 3U);
    EXPECT_LE(count, 5U);
  }
}

TEST(RowGenerator, GivesEachTargetItsWeight) {
  RowRules rules;
  rules.first = 3;
  rules.value = 2;
  rules.restated = 0.5;
  rules.text_share = 0.25;
  int64_t text = 0;
  int64_t other = 0;
  for (int64_t index = 0; index < 50; ++index) {
    const Row row = Generator().DocumentRow({1, 1, index}, rules);
    for (size_t i = 0; i < row.ids.size(); ++i) {
      switch (row.targets[i]) {
        case TargetKind::kFirst:
          EXPECT_EQ(row.weights[i], 3);
          break;
        case TargetKind::kValue:
          EXPECT_EQ(row.weights[i], 2);
          break;
        case TargetKind::kRestated:
          EXPECT_EQ(row.weights[i], 0.5);
          break;
        case TargetKind::kText:
          EXPECT_EQ(row.weights[i], 1);
          ++text;
          break;
        case TargetKind::kOther:
          EXPECT_EQ(row.weights[i], 0);
          ++other;
          break;
      }
    }
  }
  const double share = static_cast<double>(text) / static_cast<double>(text + other);
  EXPECT_GT(share, 0.15);
  EXPECT_LT(share, 0.3);
}

TEST(RowGenerator, SupervisesAllOfAPlainRow) {
  const Row row = Generator().PlainRow({1, 1, 1}, {});
  const auto text = std::count(row.targets.begin(), row.targets.end(), TargetKind::kText);
  EXPECT_GE(text, 253);
}

TEST(RowGenerator, UsesNoHeldOutKeyAndNoHeldOutPhrase) {
  RowRules rules;
  rules.tokens = 512;
  for (int64_t index = 0; index < 200; ++index) {
    for (const Kind kind : {Kind::kList, Kind::kDocument}) {
      const std::string text =
          Generator().tokenizer().DecodeBytes(Make(kind, {1, 1, index}, rules).ids);
      for (const std::string_view word : PlaceWords(WordSplit::kHeldOut)) {
        EXPECT_EQ(text.find(" " + std::string(word) + " "), std::string::npos) << word;
      }
      EXPECT_EQ(text.find("Could you give me"), std::string::npos);
      EXPECT_EQ(text.find("In the register"), std::string::npos);
    }
  }
}

TEST(RowGenerator, FitsFewerFactsIntoShortRows) {
  RowRules rules;
  rules.tokens = kGeneratedRowTokensMin;
  rules.facts_min = 16;
  rules.facts_max = 16;
  rules.questions_min = 6;
  rules.questions_max = 6;
  for (int64_t index = 0; index < 50; ++index) {
    const Row row = Generator().DocumentRow({1, 1, index}, rules);
    EXPECT_EQ(row.ids.size(), static_cast<size_t>(rules.tokens));
    EXPECT_GE(Stretches(row, TargetKind::kFirst, TargetKind::kValue).size(), 1U);
  }
}

}  // namespace
}  // namespace minke::train
