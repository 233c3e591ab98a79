// The trained tokenizer: what the loader accepts, that every byte survives, and that the same text
// gives the same file.
#include "train/tokenizer_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "core/file.h"
#include "recall/facts.h"
#include "tests/support/temp_directory.h"
#include "text/chat_encoding.h"
#include "text/compressed_vocabulary.h"

namespace minke::train {
namespace {

const std::string& TrainingText() {
  static const std::string kText = RecallLines(200, 1);
  return kText;
}

Result<std::string> Train(int64_t vocab_size, std::vector<std::string> required = {}) {
  TokenizerTrainingOptions options;
  options.vocab_size = vocab_size;
  options.required_pieces = std::move(required);
  return TrainTokenizer({TrainingText()}, options);
}

const Tokenizer& Small() {
  static const Tokenizer kTokenizer =
      Tokenizer::Parse(Train(1024, RecallPieces()).value(), "tokenizer").value();
  return kTokenizer;
}

TEST(TokenizerTrainer, MakesAFileThatTheLoaderTakes) {
  EXPECT_EQ(Small().vocab_size(), 1024);
  EXPECT_EQ(Small().ControlToken("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(Small().ControlToken("<｜end▁of▁sentence｜>"), 1);
  EXPECT_EQ(Small().ControlToken("<｜▁pad▁｜>"), 2);
  for (const std::string& token : ReleasedControlTokens()) {
    EXPECT_TRUE(Small().ControlToken(token).has_value()) << token;
  }
  for (int32_t id = 0; id < 1024; ++id) EXPECT_FALSE(Small().TokenBytes(id).empty()) << id;
}

TEST(TokenizerTrainer, KeepsEveryByte) {
  std::mt19937 generator(1);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    const size_t size = generator() % 200;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>(generator() % 256);
    EXPECT_EQ(Small().DecodeBytes(Small().EncodePlain(text)), text);
  }
  const std::string spelled = "<｜User｜> 12 d'être\n\n\t\"x\" 世界 </think>";
  EXPECT_EQ(Small().DecodeBytes(Small().EncodePlain(spelled)), spelled);
}

TEST(TokenizerTrainer, GivesEachDigitAToken) {
  for (const char* text : {"4812", "00000000", "1a2b"}) {
    EXPECT_EQ(Small().EncodePlain(text).size(), std::string(text).size());
  }
  EXPECT_EQ(Small().EncodePlain(" 4812").size(), 5U);
}

TEST(TokenizerTrainer, MakesRequiredPiecesOneToken) {
  for (const std::string& piece : RecallPieces()) {
    EXPECT_EQ(Small().EncodePlain(piece).size(), 1U) << piece;
  }
  EXPECT_EQ(Small().EncodePlain(" harbour gate").size(), 2U);
}

TEST(TokenizerTrainer, GivesTheSameFileForTheSameText) {
  EXPECT_EQ(Train(600).value(), Train(600).value());
}

TEST(TokenizerTrainer, TakesWhatIsFrequent) {
  TokenizerTrainingOptions options;
  options.vocab_size = 256 + 25 + 2;
  const std::string json = TrainTokenizer({"abab\nabab\nabab\nabcd"}, options).value();
  const Tokenizer tokenizer = Tokenizer::Parse(json, "tokenizer").value();
  EXPECT_EQ(tokenizer.TokenBytes(259), "ab");
  EXPECT_EQ(tokenizer.TokenBytes(260), "abab");
}

TEST(TokenizerTrainer, RefusesSizesThatCannotBe) {
  const Result<std::string> small = Train(256 + 24);
  ASSERT_FALSE(small.has_value());
  EXPECT_NE(small.error().message.find("281"), std::string::npos) << small.error().message;
  EXPECT_TRUE(Train(256 + 25).has_value());
  EXPECT_FALSE(Train(kTrainedVocabularyMax + 1).has_value());
  const Result<std::string> long_text = Train(60'000);
  ASSERT_FALSE(long_text.has_value());
  EXPECT_NE(long_text.error().message.find("too short"), std::string::npos);
  EXPECT_FALSE(Train(300, RecallPieces()).has_value());
}

TEST(TokenizerTrainer, ACorpusWithoutTextIsRefused) {
  for (const char* empty : {"train.txt", "heldout.txt"}) {
    const testing::TempDirectory directory;
    directory.Write("train.txt", "The old path leads to the sea.");
    directory.Write("heldout.txt", "A light wind comes from the hills.");
    directory.Write(empty, " \n\n\f\n");
    const auto report = MakeTokenizer(directory.path(), directory.path(), kNanoVocabulary);
    ASSERT_FALSE(report.has_value());
    EXPECT_NE(report.error().message.find(directory.Path(empty) + " has no text"),
              std::string::npos)
        << report.error().message;
    EXPECT_FALSE(FileExists(directory.Path("tokenizer.json")));
  }
}

TEST(TokenizerTrainer, ServesTheReleasedChatFormatAndEngram) {
  const Json messages =
      ParseJson(R"([{"role":"user","content":"What is the pin of the harbour gate?"}])", "test")
          .value();
  const ChatRequest request = ParseChatRequest(messages, "test").value();
  EXPECT_TRUE(PromptIds(EncodeChat(request).value(), Small()).has_value());
  const std::vector<int32_t> classes = CompressVocabulary(Small());
  const int64_t count = *std::max_element(classes.begin(), classes.end()) + 1;
  EXPECT_LT(count, 1024);
  EXPECT_EQ(BuildCompressedVocabulary(Small(), 1024, count).value(), classes);
}

}  // namespace
}  // namespace minke::train
