// The released tokenizer: exact ids and Engram classes. The file comes from MINKE_V41_TOKENIZER or
// from fetch_v41_tokenizer.sh, which runs before this program under ctest.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "core/file.h"
#include "tests/support/golden.h"
#include "tests/text/text_support.h"
#include "text/chat_encoding.h"
#include "text/compressed_vocabulary.h"
#include "text/tokenizer.h"

namespace minke {
namespace {

using testing::GoldenIds;
using testing::GoldenJson;

constexpr int64_t kVocabSize = 129'280;
constexpr int64_t kCompressedVocabSize = 99'092;
constexpr int32_t kFirstControlId = 128'000;

std::string TokenizerPath() {
  const char* given = std::getenv("MINKE_V41_TOKENIZER");
  return given != nullptr ? given : std::string(MINKE_BINARY_DIR) + "/v41/tokenizer.json";
}

const Tokenizer& V41() {
  static const Tokenizer kTokenizer = [] {
    auto loaded = Tokenizer::Load(TokenizerPath());
    CHECK(loaded.has_value(), loaded.error().message);
    return std::move(*loaded);
  }();
  return kTokenizer;
}

class V41Tokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FileExists(TokenizerPath())) return;
    ASSERT_EQ(std::getenv("MINKE_V41_TOKENIZER"), nullptr) << "No file " << TokenizerPath();
    GTEST_SKIP() << "No " << TokenizerPath() << "; tests/text/fetch_v41_tokenizer.sh makes it.";
  }
};

TEST_F(V41Tokenizer, HasTheReleasedControlTokens) {
  const std::vector<std::pair<std::string_view, int32_t>> tokens = {{kBosToken, 0},
                                                                    {kEosToken, 1},
                                                                    {kPadToken, 2},
                                                                    {kSystemToken, 128'799},
                                                                    {kUserToken, 128'803},
                                                                    {kAssistantToken, 128'804},
                                                                    {kThinkStartToken, 128'821},
                                                                    {kThinkEndToken, 128'822},
                                                                    {kDsmlToken, 128'825},
                                                                    {kLatestReminderToken, 128'828},
                                                                    {"<｜action｜>", 128'829},
                                                                    {"<｜query｜>", 128'830},
                                                                    {"<｜authority｜>", 128'831},
                                                                    {"<｜domain｜>", 128'832},
                                                                    {"<｜title｜>", 128'836},
                                                                    {"<｜read_url｜>", 128'845},
                                                                    {kImageToken, 129'264},
                                                                    {"<｜ref｜>", 129'278}};
  EXPECT_EQ(V41().vocab_size(), kVocabSize);
  for (const auto& [content, id] : tokens) EXPECT_EQ(V41().ControlToken(content), id) << content;
  for (const std::string_view mark : kGroundingTokens) {
    EXPECT_TRUE(V41().ControlToken(mark).has_value()) << mark;
  }
}

// serving.md 3.1 and architecture.md B.5.
TEST_F(V41Tokenizer, EncodesThePublishedTexts) {
  const std::vector<std::pair<std::string, std::vector<int32_t>>> texts = {
      {"<｜User｜>", {30, 28217, 6756, 28217, 32}},
      {"<think>", {30, 37947, 32}},
      {"x", {90}},
      {"Hello!", {19923, 3}},
      {"Hello, world! 12345", {19923, 14, 2058, 3, 223, 6895, 1883}},
      {"  int main(){\n\treturn 0;\n}\n", {223, 688, 1840, 16653, 5562, 223, 18, 510, 1778}},
      {"你好，世界 2026年", {30594, 303, 3427, 223, 939, 24, 695}},
      {"naïve café 👍🏽", {2720, 91223, 57664, 102527, 40965, 124}},
      {"Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the "
       "reasoning)\n\n",
       {77666, 288, 9504, 482, 28,   223, 2402, 343, 16801, 223, 19,    15, 1457,
        14,    270, 4077, 270, 1990, 14,  270,  850, 15146, 270, 22805, 868}},
      {"<tool_result>ok</tool_result>", {30, 72461, 46148, 32, 633, 1718, 72461, 46148, 32}},
      {"\n\n<", {271, 30}},
      {" calls>\n<", {10699, 1018, 30}},
      {"The quick brown fox jumps over the lazy dog.",
       {671, 4787, 13769, 46012, 54994, 1060, 270, 41638, 6397, 16}},
      {"Café THE\n  alpha beta gamma delta",
       {37, 2797, 619, 6367, 201, 223, 21138, 21474, 37149, 32901}}};
  for (const auto& [text, ids] : texts) EXPECT_EQ(V41().EncodePlain(text), ids) << text;
}

TEST_F(V41Tokenizer, MakesExactlyTheReleasedEngramClasses) {
  const auto map = BuildCompressedVocabulary(V41(), kVocabSize, kCompressedVocabSize);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  // The golden table's int32 bytes have the SHA-256 that was published for the release,
  // c60a86322ec17b4142bfef3c57a8d81f...; equality of the tables is equality of the digests.
  const testing::Golden golden("engram_hash/engram_hash.json");
  const std::vector<int64_t> expected = golden["token_map"].Ints();
  ASSERT_EQ(expected.size(), static_cast<size_t>(kVocabSize));
  size_t different = 0;
  for (size_t id = 0; id < expected.size(); ++id) {
    if ((*map)[id] == expected[id]) continue;
    if (++different <= 5) {
      ADD_FAILURE() << "token " << id << " has class " << (*map)[id] << ", not " << expected[id];
    }
  }
  EXPECT_EQ(different, 0U);
}

TEST_F(V41Tokenizer, EncodesTheEngramTexts) {
  const testing::Golden golden("engram_hash/engram_hash.json");
  for (const auto& [name, text] : golden.index().Find("texts")->as_object()) {
    const std::vector<int64_t> expected = golden[name + ".ids"].Ints();
    ASSERT_GT(expected.size(), 10U);
    const std::vector<int32_t> ids = testing::RecognisingIds(text.as_string(), V41());
    EXPECT_EQ(std::vector<int64_t>(ids.begin(), ids.end()), expected) << name;
  }
}

TEST_F(V41Tokenizer, EncodesEveryGoldenPrompt) {
  const Json file = GoldenJson("encoding/encode_cases.json");
  size_t exact = 0;
  for (const Json& golden : file.Find("cases")->as_array()) {
    const Json* expected_json = golden.Find("ids_released_tokenizer");
    if (expected_json == nullptr) continue;
    const std::string name = golden.Find("name")->as_string();
    SCOPED_TRACE(name);
    const std::vector<int32_t> expected = GoldenIds(*expected_json);
    const auto prompt = EncodeChat(testing::MustParseOfficial(golden));
    ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
    EXPECT_EQ(testing::RecognisingIds(prompt->Text(), V41()), expected);
    const auto ids = PromptIds(*prompt, V41());
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    // In these two the user types control strings, which stay text here (serving.md 2.8).
    if (name.rfind("special_text", 0) == 0) {
      EXPECT_NE(*ids, expected);
      EXPECT_EQ(V41().DecodeBytes(*ids), prompt->Text());
      continue;
    }
    EXPECT_EQ(*ids, expected);
    ++exact;
  }
  EXPECT_EQ(exact, 124U);
}

// deepseek-recipe#5 counted 9 and 7 prompt tokens for these messages on the hosted service.
TEST_F(V41Tokenizer, TypedControlStringsCostWhatTheHostedServiceCounts) {
  for (const auto& [text, count] :
       {std::pair<const char*, size_t>{"<｜User｜>", 9}, {"<think>", 7}}) {
    ChatRequest request;
    request.options.thinking_mode = ThinkingMode::kChat;
    request.messages.resize(1);
    request.messages[0].content.push_back({.text = text});
    const auto ids = PromptIds(*EncodeChat(request), V41());
    ASSERT_TRUE(ids.has_value());
    EXPECT_EQ(ids->size(), count) << text;
  }
}

TEST_F(V41Tokenizer, NoAddedTokenIsReachedFromText) {
  size_t controls = 0;
  std::string all;
  for (int32_t id = 0; id < V41().vocab_size(); ++id) {
    if (!V41().IsControl(id)) continue;
    ++controls;
    all += V41().TokenBytes(id);
    for (const int32_t token : V41().EncodePlain(V41().TokenBytes(id))) {
      ASSERT_LT(token, kFirstControlId) << V41().TokenBytes(id);
      ASSERT_FALSE(V41().IsControl(token)) << V41().TokenBytes(id);
    }
  }
  EXPECT_EQ(controls, 1283U);
  for (const int32_t token : V41().EncodePlain(all)) ASSERT_LT(token, kFirstControlId);
}

TEST_F(V41Tokenizer, EveryTokenAndEveryTextRoundTrips) {
  size_t reached = 0;
  for (int32_t id = 0; id < kFirstControlId; ++id) {
    const std::string text(V41().TokenBytes(id));
    const std::vector<int32_t> ids = V41().EncodePlain(text);
    ASSERT_EQ(V41().DecodeBytes(ids), text) << id;
    if (ids.size() == 1 && ids[0] == id) ++reached;
  }
  // The rest are parts of characters, or cross what the splits cut.
  EXPECT_GT(reached, 120'000U);
  std::mt19937 generator(7);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = round % 2 == 0 ? testing::RandomBytes(&generator, generator() % 80)
                                            : testing::RandomText(&generator, generator() % 80);
    ASSERT_EQ(V41().DecodeBytes(V41().EncodePlain(text)), text);
  }
}

// A figure for the log; the limit only catches a collapse, also under sanitizers.
TEST_F(V41Tokenizer, EncodesAtAUsefulRate) {
  std::string text;
  const Json file = GoldenJson("encoding/encode_cases.json");
  const std::string prompts = DumpJson(file, JsonStyle::kCompact);
  while (text.size() < size_t{4} << 20) text += prompts;
  const double start = testing::CpuSeconds();
  const size_t count = V41().EncodePlain(text).size();
  const double seconds = testing::CpuSeconds() - start;
  const double rate = static_cast<double>(text.size()) / 1e6 / seconds;
  RecordProperty("encode_mb_per_second", std::to_string(rate));
  std::printf("%zu bytes, %zu tokens: %.1f MB/s\n", text.size(), count, rate);
  EXPECT_GT(rate * testing::SlowdownAllowed(), 1.0);
}

TEST_F(V41Tokenizer, LongUniformTextsTakeNoQuadraticTime) {
  for (const char letter : {'a', ' '}) {
    const std::string text(1 << 20, letter);
    const double start = testing::CpuSeconds();
    const std::vector<int32_t> ids = V41().EncodePlain(text);
    EXPECT_LT(testing::CpuSeconds() - start, 3.0 * testing::SlowdownAllowed()) << int{letter};
    EXPECT_EQ(V41().DecodeBytes(ids), text);
  }
}

}  // namespace
}  // namespace minke
