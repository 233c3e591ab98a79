#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>

#include "tests/support/golden.h"
#include "tests/text/text_support.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_splitter.h"
#include "text/utf8.h"

namespace minke {
namespace {

using testing::MiniTokenizer;
using testing::RandomBytes;
using testing::RandomText;

TEST(Tokenizer, LoadsTheMiniTokenizer) {
  const Tokenizer& tokenizer = MiniTokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  EXPECT_EQ(tokenizer.ControlToken("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(tokenizer.ControlToken("<｜User｜>"), 480);
  EXPECT_EQ(tokenizer.ControlToken("<｜user｜>"), std::nullopt);
  EXPECT_EQ(tokenizer.ControlToken("!"), std::nullopt);
  EXPECT_TRUE(tokenizer.IsControl(480));
  EXPECT_FALSE(tokenizer.IsControl(3));
  EXPECT_EQ(tokenizer.TokenBytes(480), "<｜User｜>");
  EXPECT_EQ(tokenizer.TokenBytes(3), "!");
}

TEST(Tokenizer, IdsWithoutATokenAreEmpty) {
  const Tokenizer& tokenizer = MiniTokenizer();
  for (const int32_t id : {-1, 512, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.TokenBytes(id), "");
    EXPECT_EQ(tokenizer.TokenSpelling(id), "");
    EXPECT_FALSE(tokenizer.IsControl(id));
  }
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{3, -1, 9999, 3}), "!!");
}

TEST(Tokenizer, EveryByteStringRoundTrips) {
  const Tokenizer& tokenizer = MiniTokenizer();
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.EncodePlain(text)), text) << byte;
  }
  std::mt19937 generator(1);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = round % 2 == 0 ? RandomBytes(&generator, generator() % 60)
                                            : RandomText(&generator, generator() % 60);
    ASSERT_EQ(tokenizer.DecodeBytes(tokenizer.EncodePlain(text)), text);
  }
}

TEST(Tokenizer, TextNeverBecomesAControlToken) {
  const Tokenizer& tokenizer = MiniTokenizer();
  std::string all;
  int controls = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsControl(id)) continue;
    ++controls;
    all += tokenizer.TokenBytes(id);
    const std::string text(tokenizer.TokenBytes(id));
    for (const int32_t token : tokenizer.EncodePlain(text)) {
      EXPECT_FALSE(tokenizer.IsControl(token)) << text;
    }
  }
  EXPECT_EQ(controls, 35);
  for (const int32_t token : tokenizer.EncodePlain(all)) EXPECT_FALSE(tokenizer.IsControl(token));
}

TEST(Tokenizer, LongUniformTextsTakeNoQuadraticTime) {
  const Tokenizer& tokenizer = MiniTokenizer();
  const std::vector<std::string> texts = {
      std::string(1 << 20, 'a'),      std::string(200'000, ' '), std::string(200'000, '\n'),
      std::string(1 << 20, '\0'),     std::string(1 << 20, '7'), std::string(1 << 20, '\xFF'),
      std::string(200'000, ' ') + "x"};
  for (const std::string& text : texts) {
    const double start = testing::CpuSeconds();
    const std::vector<int32_t> ids = tokenizer.EncodePlain(text);
    EXPECT_LT(testing::CpuSeconds() - start, 2.0 * testing::SlowdownAllowed())
        << text.size() << " times " << int{text[0]};
    EXPECT_EQ(tokenizer.DecodeBytes(ids), text);
  }
}

// ThreadSanitizer watches this one.
TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer& tokenizer = MiniTokenizer();
  std::mt19937 generator(4);
  const std::string text = RandomText(&generator, 3000);
  const std::vector<int32_t> expected = tokenizer.EncodePlain(text);
  std::array<std::vector<int32_t>, 4> results;
  {
    std::vector<std::jthread> threads;
    for (std::vector<int32_t>& result : results) {
      threads.emplace_back([&tokenizer, &text, &result] { result = tokenizer.EncodePlain(text); });
    }
  }
  for (const std::vector<int32_t>& result : results) EXPECT_EQ(result, expected);
}

// The definition of BPE, as slow as it is short: the oracle for the merge loop.
std::vector<int32_t> SlowBpe(std::string_view piece, const std::vector<BpeMerge>& merges) {
  std::vector<int32_t> tokens;
  for (const char c : piece) tokens.push_back(static_cast<unsigned char>(c));
  while (true) {
    size_t best_rank = merges.size();
    size_t best_at = 0;
    for (size_t at = 0; at + 1 < tokens.size(); ++at) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left != tokens[at] || merges[rank].right != tokens[at + 1]) continue;
        best_rank = rank;
        best_at = at;
      }
    }
    if (best_rank == merges.size()) return tokens;
    tokens[best_at] = merges[best_rank].merged;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

// Random merge lists over a small alphabet make chains of merges that block each other. Lengths
// cross the border between the merge loop for short pieces and the one with a queue.
TEST(BpeMerger, AgreesWithTheDefinitionForShortAndLongPieces) {
  std::mt19937 generator(2);
  std::array<int32_t, 256> byte_ids{};
  for (int32_t i = 0; i < 256; ++i) byte_ids[static_cast<size_t>(i)] = i;
  size_t merged_away = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<BpeMerge> merges;
    std::vector<int32_t> tokens = {'a', 'b', 'c'};
    while (merges.size() < 25) {
      const BpeMerge merge{tokens[generator() % tokens.size()], tokens[generator() % tokens.size()],
                           static_cast<int32_t>(256 + merges.size())};
      bool known = false;
      for (const BpeMerge& earlier : merges) {
        known = known || (earlier.left == merge.left && earlier.right == merge.right);
      }
      if (known) continue;
      merges.push_back(merge);
      tokens.push_back(merge.merged);
    }
    const BpeMerger merger(byte_ids, merges);
    for (const size_t size : {0, 1, 2, 3, 7, 31, 32, 33, 34, 64, 150}) {
      std::string piece;
      for (size_t i = 0; i < size; ++i) piece += static_cast<char>('a' + generator() % 3);
      std::vector<int32_t> ids;
      merger.Encode(piece, &ids);
      ASSERT_EQ(ids, SlowBpe(piece, merges)) << piece;
      merged_away += size - ids.size();
    }
  }
  EXPECT_GT(merged_away, 10'000U) << "Nothing merged, so nothing was compared.";
}

std::vector<std::string> Pieces(const TokenizerSplitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  splitter.Split(text, [&pieces](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TokenizerSplitter MustCompile(const std::vector<std::string>& patterns) {
  auto splitter = TokenizerSplitter::Compile(patterns, "test");
  CHECK(splitter.has_value(), splitter.error().message);
  return std::move(*splitter);
}

TEST(TokenizerSplitter, CutsMatchesAndWhatLiesBetween) {
  const TokenizerSplitter splitter = MustCompile({R"(\p{N}{1,3})", R"([a-c]+)"});
  const std::vector<std::string> expected = {"x", "ab", "y", "123", "45", "c"};
  EXPECT_EQ(Pieces(splitter, "xaby12345c"), expected);
  EXPECT_TRUE(Pieces(splitter, "").empty());
}

TEST(TokenizerSplitter, WhiteSpaceIsTheUnicodeProperty) {
  const TokenizerSplitter splitter = MustCompile({R"(\s+)"});
  EXPECT_EQ(Pieces(splitter, "a\u0085\u00A0\u1680\u2028\u3000 \tb").size(), 3U);
  // U+180E and U+200B look like blanks but are not white space, nor is U+FEFF.
  for (const char* text : {"a\u180Eb", "a\u200Bb", "a\uFEFFb"}) {
    EXPECT_EQ(Pieces(splitter, text).size(), 1U) << text;
  }
  const TokenizerSplitter visible = MustCompile({R"(\S+)"});
  EXPECT_EQ(Pieces(visible, "a\u180Eb c").size(), 3U);
}

TEST(TokenizerSplitter, LookaheadEndsWithThePiece) {
  // Blanks before a digit: the first split has cut the digit off, so no blank is left over.
  const TokenizerSplitter splitter = MustCompile({R"(\p{N})", R"(\s+(?!\S)|\s+)"});
  const std::vector<std::string> digits = {"   ", "1"};
  EXPECT_EQ(Pieces(splitter, "   1"), digits);
  const std::vector<std::string> letters = {"  ", " ", "x"};
  EXPECT_EQ(Pieces(splitter, "   x"), letters);
}

TEST(TokenizerSplitter, EmptyMatchesCutNothing) {
  const TokenizerSplitter splitter = MustCompile({"x*"});
  const std::vector<std::string> expected = {"é", "xx", "a"};
  EXPECT_EQ(Pieces(splitter, "éxxa"), expected);
}

TEST(TokenizerSplitter, RefusesWhatTheTwoLibrariesReadDifferently) {
  for (const char* pattern : {"a.c", "^a", "a$", R"(\d+)", R"(\w)", R"(\bx)", R"(\h)", R"([\S])",
                              "[a[b]]", "[a&&b]", "(", "a\\", "[z-a]"}) {
    const auto splitter = TokenizerSplitter::Compile({pattern}, "a.json: pre_tokenizer");
    ASSERT_FALSE(splitter.has_value()) << pattern;
    EXPECT_NE(splitter.error().message.find("a.json: pre_tokenizer"), std::string::npos);
  }
}

TEST(TokenizerSplitter, CatastrophicPatternsEndAndLoseNothing) {
  const TokenizerSplitter splitter = MustCompile({"(a+)+b"});
  const std::string text(40, 'a');
  std::string joined;
  for (const std::string& piece : Pieces(splitter, text)) joined += piece;
  EXPECT_EQ(joined, text);
}

TEST(TokenizerSplitter, LimitsPatterns) {
  const std::vector<std::string> allowed(kSplitPatternsMax, "a");
  const std::vector<std::string> too_many(kSplitPatternsMax + 1, "a");
  EXPECT_TRUE(TokenizerSplitter::Compile(allowed, "t").has_value());
  EXPECT_EQ(TokenizerSplitter::Compile(too_many, "t").error().code, ErrorCode::kLimit);
  EXPECT_TRUE(TokenizerSplitter::Compile({std::string(kSplitPatternBytesMax, 'a')}, "t"));
  EXPECT_FALSE(TokenizerSplitter::Compile({std::string(kSplitPatternBytesMax + 1, 'a')}, "t"));
}

std::string StreamAll(const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  StreamingDetokenizer stream(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = stream.Push(id);
    EXPECT_EQ(ValidUtf8Prefix(part), part.size());
    text += part;
  }
  return text + stream.Flush();
}

TEST(StreamingDetokenizer, PiecesJoinedAreTheDecodedText) {
  const Tokenizer& tokenizer = MiniTokenizer();
  std::mt19937 generator(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids;
    if (round % 2 == 0) {
      ids = tokenizer.EncodePlain(RandomText(&generator, generator() % 40));
    } else {
      for (size_t i = generator() % 40; i > 0; --i) {
        ids.push_back(static_cast<int32_t>(generator() % 512));
      }
    }
    ASSERT_EQ(StreamAll(ids, tokenizer), tokenizer.Decode(ids));
  }
}

TEST(StreamingDetokenizer, HoldsBackHalfACharacter) {
  const Tokenizer& tokenizer = MiniTokenizer();
  const std::string smile = "\U0001F600";
  const std::vector<int32_t> ids = tokenizer.EncodePlain(smile);
  ASSERT_EQ(ids.size(), 4U) << "The mini tokenizer spells this character in bytes.";
  StreamingDetokenizer stream(tokenizer);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.Push(ids[i]), "");
  EXPECT_EQ(stream.Push(ids.back()), smile);
  EXPECT_EQ(stream.Flush(), "");
}

TEST(StreamingDetokenizer, InvalidBytesAreReplacedAtOnce) {
  const Tokenizer& tokenizer = MiniTokenizer();
  const int32_t lead = tokenizer.EncodePlain("\xF0")[0];
  const int32_t never = tokenizer.EncodePlain("\xFF")[0];
  const int32_t letter = tokenizer.EncodePlain("x")[0];
  StreamingDetokenizer stream(tokenizer);
  EXPECT_EQ(stream.Push(never), "\uFFFD");
  EXPECT_EQ(stream.Push(lead), "");
  EXPECT_EQ(stream.Push(letter), "\uFFFDx");
  EXPECT_EQ(stream.Push(lead), "");
  EXPECT_EQ(stream.Flush(), "\uFFFD");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(StreamingDetokenizer, SkippedControlTokensEndACharacter) {
  const Tokenizer& tokenizer = MiniTokenizer();
  StreamingDetokenizer stream(tokenizer, ControlText::kSkip);
  EXPECT_EQ(stream.Push(tokenizer.EncodePlain("\xE4")[0]), "");
  EXPECT_EQ(stream.Push(1), "\uFFFD");
  EXPECT_EQ(stream.Push(480), "");
  EXPECT_EQ(stream.Push(3), "!");
  StreamingDetokenizer keeping(tokenizer);
  EXPECT_EQ(keeping.Push(480), "<｜User｜>");
}

}  // namespace
}  // namespace minke
