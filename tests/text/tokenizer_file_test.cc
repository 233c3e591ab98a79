#include "text/tokenizer_file.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/support/golden.h"
#include "tests/text/text_support.h"
#include "text/tokenizer.h"

namespace minke {
namespace {

Json MiniFile() {
  return testing::GoldenJson("tiny_swa/tokenizer.json");
}

// The value at a path of keys.
Json& At(Json& root, const std::vector<std::string>& path) {
  Json* value = &root;
  for (const std::string& key : path) {
    for (JsonMember& member : value->as_object()) {
      if (member.first != key) continue;
      value = &member.second;
      break;
    }
  }
  return *value;
}

std::string FileError(const Json& file) {
  const auto tokenizer = Tokenizer::Parse(DumpJson(file, JsonStyle::kCompact), "a.json");
  return tokenizer.has_value() ? "no error" : tokenizer.error().message;
}

void ExpectRefused(const Json& file, const std::string& field) {
  const std::string error = FileError(file);
  EXPECT_NE(error.find("a.json"), std::string::npos) << error;
  EXPECT_NE(error.find(field), std::string::npos) << error;
}

TEST(TokenizerFile, TheMiniFileIsRead) {
  EXPECT_EQ(FileError(MiniFile()), "no error");
}

TEST(TokenizerFile, MergesMayBePairs) {
  Json file = MiniFile();
  Json& merges = At(file, {"model", "merges"});
  for (Json& merge : merges.as_array()) {
    const std::string text = merge.as_string();
    const size_t blank = text.find(' ');
    merge = Json(JsonArray{Json(text.substr(0, blank)), Json(text.substr(blank + 1))});
  }
  const auto tokenizer = Tokenizer::Parse(DumpJson(file, JsonStyle::kCompact), "a.json");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const std::string text = "the quick brown fox 你好";
  EXPECT_EQ(tokenizer->EncodePlain(text), testing::MiniTokenizer().EncodePlain(text));
}

TEST(TokenizerFile, RefusesWhatIsNotImplementedByName) {
  const std::vector<std::pair<std::vector<std::string>, Json>> changes = {
      {{"truncation"}, testing::MustParse(R"({"max_length": 5})")},
      {{"padding"}, Json(true)},
      {{"normalizer"}, testing::MustParse(R"({"type": "NFC"})")},
      {{"normalizer", "normalizers"}, testing::MustParse(R"([{"type": "NFC"}])")},
      {{"decoder"}, testing::MustParse(R"({"type": "Metaspace"})")},
      {{"post_processor"}, testing::MustParse(R"({"type": "TemplateProcessing"})")},
      {{"pre_tokenizer"}, testing::MustParse(R"({"type": "ByteLevel"})")},
      {{"pre_tokenizer", "pretokenizers"}, Json(JsonArray())},
      {{"model", "type"}, Json("Unigram")},
      {{"model", "dropout"}, Json(0.1)},
      {{"model", "unk_token"}, Json("<unk>")},
      {{"model", "byte_fallback"}, Json(true)},
      {{"model", "continuing_subword_prefix"}, Json("##")},
      {{"model", "end_of_word_suffix"}, Json("</w>")},
      {{"model", "merges"}, Json("a b")},
      {{"model", "vocab"}, Json(JsonArray())},
      {{"model"}, Json(3)},
      {{"added_tokens"}, Json(3)}};
  for (const auto& [path, value] : changes) {
    Json file = MiniFile();
    At(file, path) = value;
    ExpectRefused(file, path.back() == "model" ? "model" : path.back().substr(0, 8));
  }
}

TEST(TokenizerFile, RefusesOtherPreTokenizers) {
  const auto change = [](size_t step, const std::string& key, Json value) {
    Json file = MiniFile();
    At(file, {"pre_tokenizer", "pretokenizers"}).as_array()[step].Set(key, std::move(value));
    return file;
  };
  ExpectRefused(change(0, "type", Json("Digits")), "pretokenizers[0].type");
  ExpectRefused(change(0, "behavior", Json("Removed")), "pretokenizers[0].behavior");
  ExpectRefused(change(1, "invert", Json(true)), "pretokenizers[1].invert");
  ExpectRefused(change(1, "pattern", Json(JsonObject{{"String", " "}})),
                "pretokenizers[1].pattern");
  ExpectRefused(change(3, "use_regex", Json(true)), "pretokenizers[3].use_regex");
  ExpectRefused(change(3, "add_prefix_space", Json(true)), "pretokenizers[3].add_prefix_space");
  ExpectRefused(change(3, "use_regex", Json()), "pretokenizers[3].use_regex");
}

TEST(TokenizerFile, RefusesBrokenVocabularies) {
  Json file = MiniFile();
  At(file, {"model", "vocab"}).Set("!", Json(-1));
  ExpectRefused(file, "id below");
  file = MiniFile();
  At(file, {"model", "vocab"}).Set("!", Json(uint64_t{1} << 63));
  ExpectRefused(file, "id below");
  file = MiniFile();
  At(file, {"model", "vocab"}).Set("new", Json(static_cast<int64_t>(kVocabularyEntriesMax)));
  ExpectRefused(file, "id below");
  file = MiniFile();
  At(file, {"model", "vocab"}).Set("new", Json("x"));
  ExpectRefused(file, "integer id");
  file = MiniFile();
  At(file, {"model", "vocab"}).Set("new", Json(5));
  ExpectRefused(file, "id 5");
  file = MiniFile();
  JsonObject& vocabulary = At(file, {"model", "vocab"}).as_object();
  std::erase_if(vocabulary, [](const JsonMember& member) { return member.first == "!"; });
  ExpectRefused(file, "byte 0x21");
}

TEST(TokenizerFile, RefusesBrokenMerges) {
  const auto with_merge = [](Json merge) {
    Json file = MiniFile();
    At(file, {"model", "merges"}).as_array().push_back(std::move(merge));
    return file;
  };
  const size_t count =
      At(*std::make_unique<Json>(MiniFile()), {"model", "merges"}).as_array().size();
  const std::string last = "model.merges[" + std::to_string(count) + "]";
  ExpectRefused(with_merge(Json("ab")), last);
  ExpectRefused(with_merge(Json("a b c")), last);
  ExpectRefused(with_merge(Json(3)), last);
  ExpectRefused(with_merge(Json("q z")), last);
  ExpectRefused(with_merge(Json("h e")), "repetition of model.merges[0]");
}

// Otherwise a text could spell it.
TEST(TokenizerFile, RefusesMergesThatMakeAControlToken) {
  Json file = MiniFile();
  At(file, {"added_tokens"})
      .as_array()
      .push_back(testing::MustParse(
          R"({"id": 512, "content": "qz", "single_word": false, "lstrip": false})"));
  EXPECT_EQ(FileError(file), "no error");
  At(file, {"model", "merges"}).as_array().push_back(Json("q z"));
  ExpectRefused(file, "control token");
}

TEST(TokenizerFile, RefusesAddedTokensWithUnknownRules) {
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    Json file = MiniFile();
    At(file, {"added_tokens"}).as_array()[3].Set(flag, Json(true));
    ExpectRefused(file, std::string("added_tokens[3].") + flag);
  }
}

TEST(TokenizerFile, LimitsTheLengthOfTokens) {
  const auto with_token = [](size_t bytes) {
    Json file = MiniFile();
    At(file, {"model", "vocab"}).Set(std::string(bytes, 'x'), Json(512));
    return FileError(file);
  };
  EXPECT_EQ(with_token(kTokenBytesMax), "no error");
  EXPECT_NE(with_token(kTokenBytesMax + 1).find("4096"), std::string::npos);
}

TEST(TokenizerFile, NotJsonOrNoFileIsAnError) {
  EXPECT_FALSE(Tokenizer::Parse("{", "a.json").has_value());
  EXPECT_FALSE(Tokenizer::Parse("[]", "a.json").has_value());
  EXPECT_FALSE(Tokenizer::Parse("", "a.json").has_value());
  const auto missing = Tokenizer::Load("/nonexistent/tokenizer.json");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message.find("/nonexistent/tokenizer.json"), std::string::npos);
}

TEST(SpelledBytes, ReadsTheByteAlphabet) {
  EXPECT_EQ(SpelledBytes("abc"), "abc");
  EXPECT_EQ(SpelledBytes("Ġt"), " t");
  EXPECT_EQ(SpelledBytes("Ċ"), "\n");
  EXPECT_EQ(SpelledBytes("ä½ł"), "\xE4\xBD\xA0");
  EXPECT_EQ(SpelledBytes("Ā"), std::string(1, '\0'));
  // A spelling with a character outside the alphabet stands for itself.
  EXPECT_EQ(SpelledBytes("<｜User｜>"), "<｜User｜>");
  EXPECT_EQ(SpelledBytes("a b"), "a b");
}

}  // namespace
}  // namespace minke
