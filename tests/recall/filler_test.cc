// Sentences of a text, its documents, and the text that is made up where there is none.
#include "recall/filler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace minke {
namespace {

TEST(Filler, FindsSentencesParagraphsAndDocuments) {
  const Filler filler =
      Filler::Create(
          "First one. Second, e.g. this. Third?\n\nNew paragraph.\n\n\f\n\nOther document. End",
          "the text")
          .value();
  ASSERT_EQ(filler.sentences().size(), 6U);
  EXPECT_EQ(filler.Sentence(0), "First one.");
  EXPECT_EQ(filler.Sentence(1), "Second, e.g. this.");
  EXPECT_EQ(filler.Sentence(2), "Third?");
  EXPECT_EQ(filler.Sentence(3), "New paragraph.");
  EXPECT_EQ(filler.Sentence(4), "Other document.");
  EXPECT_EQ(filler.Sentence(5), "End");
  EXPECT_TRUE(filler.sentences()[0].begins_document);
  EXPECT_FALSE(filler.sentences()[3].begins_document);
  EXPECT_TRUE(filler.sentences()[3].begins_paragraph);
  EXPECT_TRUE(filler.sentences()[4].begins_document);
  EXPECT_FALSE(filler.sentences()[5].begins_paragraph);
}

TEST(Filler, RefusesATextWithoutASentence) {
  for (const char* text : {"", "  \n\n ", "\f\n\n\f"}) {
    const Result<Filler> filler = Filler::Create(text, "book.txt");
    ASSERT_FALSE(filler.has_value());
    EXPECT_NE(filler.error().message.find("book.txt"), std::string::npos);
  }
}

TEST(Filler, CutsATextWithoutFullStops) {
  const Filler filler =
      Filler::Create(std::string(10'000, 'x') + " " + std::string(5'000, 'y'), "the text").value();
  EXPECT_EQ(filler.sentences().size(), 2U);
}

TEST(Filler, MadeUpTextHasNoNumbersAndIsTheSameForASeed) {
  const Filler filler = Filler::Neutral(1);
  EXPECT_GT(filler.sentences().size(), 1000U);
  EXPECT_TRUE(std::none_of(filler.text().begin(), filler.text().end(),
                           [](char c) { return c >= '0' && c <= '9'; }));
  EXPECT_EQ(filler.text(), Filler::Neutral(1).text());
  EXPECT_NE(filler.text(), Filler::Neutral(2).text());
}

TEST(Filler, CommonWordsAreWholeFrequentAndNotHeldOut) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "The marina was quiet, and underwater things moved. ";
  text += "Once.";
  const std::vector<std::string> words = Filler::Create(text, "the text").value().CommonWords();
  EXPECT_EQ(words, (std::vector<std::string>{"moved", "quiet", "things", "underwater"}));
}

}  // namespace
}  // namespace minke
