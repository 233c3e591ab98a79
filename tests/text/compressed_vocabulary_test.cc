#include "text/compressed_vocabulary.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/golden.h"
#include "tests/text/text_support.h"

namespace minke {
namespace {

using testing::MiniTokenizer;

TEST(CompressedVocabulary, EqualsTheGoldenMapOfEverySet) {
  for (const char* set : {"full_mini", "wide", "chat"}) {
    SCOPED_TRACE(set);
    const testing::Golden golden(std::string(set) + "/expected.json");
    const auto map = BuildCompressedVocabulary(MiniTokenizer(), 512, 437);
    ASSERT_TRUE(map.has_value()) << map.error().message;
    const std::vector<int64_t> expected = golden["engram_token_map"].Ints();
    ASSERT_EQ(expected.size(), 512U);
    EXPECT_EQ(std::set<int64_t>(expected.begin(), expected.end()).size(), 437U);
    EXPECT_EQ(std::vector<int64_t>(map->begin(), map->end()), expected);
  }
}

TEST(CompressedVocabulary, AnotherSizeIsRefusedWithBothNumbers) {
  const auto map = BuildCompressedVocabulary(MiniTokenizer(), 512, 438);
  ASSERT_FALSE(map.has_value());
  EXPECT_NE(map.error().message.find("437"), std::string::npos) << map.error().message;
  EXPECT_NE(map.error().message.find("438"), std::string::npos) << map.error().message;
  const auto other = BuildCompressedVocabulary(MiniTokenizer(), 129'280, 437);
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("512"), std::string::npos) << other.error().message;
  EXPECT_NE(other.error().message.find("129280"), std::string::npos) << other.error().message;
}

TEST(CompressedVocabulary, KeysForgetCaseAccentsAndSpacing) {
  EXPECT_EQ(CompressedVocabularyKey("The"), "the");
  EXPECT_EQ(CompressedVocabularyKey(" THE"), "the");
  EXPECT_EQ(CompressedVocabularyKey("É"), "e");
  EXPECT_EQ(CompressedVocabularyKey("e\u0301\u0300"), "e");
  EXPECT_EQ(CompressedVocabularyKey("ﬁ"), "fi");
  EXPECT_EQ(CompressedVocabularyKey("Å"), "a");
  EXPECT_EQ(CompressedVocabularyKey("İ"), "i");
  EXPECT_EQ(CompressedVocabularyKey("a \t\r\n b"), "a b");
  EXPECT_EQ(CompressedVocabularyKey("\u3000x\u2028"), "x");
  EXPECT_EQ(CompressedVocabularyKey("\vx"), "x");
  // Spacing marks (Mc) and enclosing marks (Me) go as well as the others (Mn).
  EXPECT_EQ(CompressedVocabularyKey("क\u093E"), "क");
  EXPECT_EQ(CompressedVocabularyKey("1\u20DD"), "1");
}

TEST(CompressedVocabulary, BlanksKeepAKey) {
  for (const char* blank : {" ", "\t", "\n", "\r\n", "  ", "\u00A0", " \t\n"}) {
    EXPECT_EQ(CompressedVocabularyKey(blank), " ") << blank;
  }
  // Nothing is left of these, so they stand for themselves.
  EXPECT_EQ(CompressedVocabularyKey("\v"), "\v");
  EXPECT_EQ(CompressedVocabularyKey("\u0301"), "\u0301");
  EXPECT_EQ(CompressedVocabularyKey(""), "");
}

}  // namespace
}  // namespace minke
