#include "apps/terminal.h"

#include <string>

#include <gtest/gtest.h>

#include "apps/common.h"

namespace minke {
namespace {

TEST(EscapeForTerminal, LeavesTextAlone) {
  for (const char* text :
       {"", "plain", "two\nlines\tand a tab", "wörld 你好 👍🏽", "back\\slash"}) {
    EXPECT_EQ(EscapeForTerminal(text), text);
  }
}

TEST(EscapeForTerminal, DisarmsControlCharacters) {
  EXPECT_EQ(EscapeForTerminal("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(EscapeForTerminal("a\rb\x07\x7f"), "a\\x0db\\x07\\x7f");
  EXPECT_EQ(EscapeForTerminal(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(EscapeForTerminal("\xc2\x9b"), "\\u{9b}");  // the one-character CSI
  EXPECT_EQ(EscapeForTerminal("\xe2\x80\xae"
                              "abc"),
            "\\u{202e}abc");  // right-to-left override
  EXPECT_EQ(EscapeForTerminal("\xe2\x81\xa6"), "\\u{2066}");
  EXPECT_EQ(EscapeForTerminal("\xff"
                              "a\xe4\xbd"),
            "\\xffa\\xe4\\xbd");
}

TEST(ParseTokenIds, ReadsBothForms) {
  const std::vector<int32_t> expected = {0, 480, 511};
  for (const char* text : {"[0, 480, 511]", " [0,480,511]\n", "0 480 511", "\n0\t480\r\n511\n"}) {
    EXPECT_EQ(ParseTokenIds(text, "ids", 512).value(), expected) << text;
  }
}

TEST(ParseTokenIds, RefusesWhatIsNoTokenIdByItsIndex) {
  const auto error = [](const std::string& text) {
    Result<std::vector<int32_t>> ids = ParseTokenIds(text, "ids.txt", 512);
    return ids.has_value() ? "accepted" : ids.error().message;
  };
  for (const char* text : {"", "  \n", "[]", "[ ]"}) {
    EXPECT_NE(error(text).find("no token ids"), std::string::npos) << error(text);
  }
  for (const char* bad : {"512", "-1", "99999999999999999999", "18446744073709551615", "1e3", "1.5",
                          "x", "+1", "0x10", "\"1\"", "null"}) {
    const std::string json = std::string("[1, 2, ") + bad + "]";
    EXPECT_NE(error(json), "accepted") << json;
    EXPECT_NE(error(json).find("ids.txt"), std::string::npos) << error(json);
    const std::string words = std::string("1 2 ") + bad;
    EXPECT_NE(error(words).find("entry 2"), std::string::npos) << error(words);
    EXPECT_NE(error(words).find("ids.txt"), std::string::npos) << error(words);
  }
  EXPECT_NE(error("[1, 2, 512]").find("entry 2 is 512"), std::string::npos);
  EXPECT_NE(error("[1, 2, -7]").find("entry 2 is -7"), std::string::npos);
  EXPECT_NE(error("[1, [2]]").find("entry 1"), std::string::npos);
  EXPECT_NE(error("[1, 2"), "accepted");
  EXPECT_NE(error("[1] 2"), "accepted");
  EXPECT_NE(error(std::string(100'000, '[')), "accepted");
}

}  // namespace
}  // namespace minke
