#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace minke {
namespace {

using Kind = Utf8Step::Kind;

TEST(Utf8, EveryCodePointRoundTrips) {
  size_t count = 0;
  for (uint32_t point = 0; point <= 0x10FFFF; ++point) {
    if (point >= 0xD800 && point <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(point, &text);
    const Utf8Step step = ReadUtf8(text);
    ASSERT_EQ(step.kind, Kind::kCharacter) << point;
    ASSERT_EQ(step.code_point, point);
    ASSERT_EQ(static_cast<size_t>(step.bytes), text.size());
    for (size_t size = 1; size < text.size(); ++size) {
      ASSERT_EQ(ReadUtf8(text.substr(0, size)).kind, Kind::kIncomplete) << point;
    }
    ++count;
  }
  EXPECT_EQ(count, 0x110000U - 0x800U);
}

// The three-byte sequences decide everything longer forms can get wrong; all of them are tried.
TEST(Utf8, OnlyEncodedCodePointsAreValid) {
  size_t valid = 0;
  for (uint32_t bytes = 0xC00000; bytes <= 0xFFFFFF; ++bytes) {
    const std::string text = {static_cast<char>(bytes >> 16), static_cast<char>(bytes >> 8),
                              static_cast<char>(bytes)};
    const Utf8Step step = ReadUtf8(text);
    ASSERT_GE(step.bytes, 1);
    ASSERT_LE(step.bytes, 3);
    if (step.kind != Kind::kCharacter || step.bytes != 3) continue;
    std::string again;
    AppendUtf8(step.code_point, &again);
    ASSERT_EQ(again, text);
    ++valid;
  }
  EXPECT_EQ(valid, 0x10000U - 0x800U - 0x800U);
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndLargeValues) {
  for (const char* text : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
                           "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF",
                           "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFE", "\xFF", "\x80"}) {
    EXPECT_EQ(ReadUtf8(text).kind, Kind::kInvalid) << text;
    EXPECT_EQ(ReadUtf8(text).bytes, 1) << text;
  }
}

TEST(Utf8, LossyTextReplacesTheLongestValidBeginning) {
  EXPECT_EQ(LossyUtf8("a\xE4\xBD\xA0z"), "a\xE4\xBD\xA0z");
  // The example of the Unicode standard, section 3.9: each subpart becomes one U+FFFD.
  EXPECT_EQ(LossyUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(LossyUtf8("x\xF0\x9F\x98"), "x\uFFFD");
  EXPECT_EQ(LossyUtf8(""), "");
}

TEST(Utf8, ValidPrefixStopsBeforeTheFirstBadByte) {
  EXPECT_EQ(ValidUtf8Prefix(""), 0U);
  EXPECT_EQ(ValidUtf8Prefix("abc"), 3U);
  EXPECT_EQ(ValidUtf8Prefix("\xC3\xA9\xC3"), 2U);
  EXPECT_EQ(ValidUtf8Prefix("\xFF"), 0U);
}

}  // namespace
}  // namespace minke
