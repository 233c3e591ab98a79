// Completions and filling in (serving.md 1.2, 1.4, 1.5).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/openai_support.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::MustParseJson;

ApiRequest ReadCompletion(std::string_view json) {
  return testing::MustRead(ReadCompletionsRequest, MustParseJson(json));
}

std::vector<std::string> PieceTexts(const Prompt& prompt) {
  std::vector<std::string> texts;
  for (const PromptPiece& piece : prompt.pieces) {
    texts.push_back((piece.kind == PromptPiece::Kind::kControl ? "control " : "plain ") +
                    piece.text);
  }
  return texts;
}

TEST(CompletionsApi, GoldenAnswers) {
  const Json file = testing::GoldenJson("api/completions/answers.json");
  for (const Json& golden : file.as_array()) {
    testing::ExpectGoldenAnswer(golden, ReadCompletionsRequest, NewCompletionsWriter);
  }
}

TEST(CompletionsApi, GoldenErrors) {
  testing::ExpectGoldenErrors("api/completions/errors.json", ReadCompletionsRequest);
}

TEST(CompletionsApi, Defaults) {
  const ApiRequest request = ReadCompletion(R"({"model": "m", "prompt": ["a"]})");
  EXPECT_EQ(request.family, ApiFamily::kCompletions);
  EXPECT_EQ(request.prompt, "a");
  EXPECT_FALSE(request.suffix.has_value());
  EXPECT_FALSE(request.thinking());
  EXPECT_FALSE(request.opens_reasoning());
  EXPECT_EQ(request.max_tokens_or_default(), 8'192);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.logprobs, -1);
  EXPECT_FALSE(request.echo);
}

TEST(CompletionsApi, SamplingIsUsed) {
  const ApiRequest request = ReadCompletion(
      R"({"model": "m", "prompt": "", "temperature": 0, "frequency_penalty": 1, "logprobs": 0,
          "stop": ["a", "b"], "seed": 3, "user": "u", "best_of": 1, "n": 1})");
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.frequency_penalty, 1);
  EXPECT_EQ(request.sampling.logprobs, 0);
  EXPECT_EQ(request.stop_strings.size(), 2U);
  EXPECT_EQ(request.user_id, "u");
}

// Marks that a user typed are text.
TEST(CompletionsApi, Prompts) {
  const ApiRequest text = ReadCompletion(R"({"model": "m", "prompt": "<｜fim▁hole｜>"})");
  EXPECT_EQ(PieceTexts(CompletionPrompt(text)),
            (std::vector<std::string>{"control <｜begin▁of▁sentence｜>", "plain <｜fim▁hole｜>"}));
  const ApiRequest gap = ReadCompletion(R"({"model": "m", "prompt": "a", "suffix": "b"})");
  EXPECT_EQ(PieceTexts(CompletionPrompt(gap)),
            (std::vector<std::string>{"control <｜begin▁of▁sentence｜>", "control <｜fim▁begin｜>",
                                      "plain a", "control <｜fim▁hole｜>", "plain b",
                                      "control <｜fim▁end｜>"}));
  const ApiRequest end = ReadCompletion(R"({"model": "m", "prompt": "", "suffix": ""})");
  EXPECT_EQ(CompletionPrompt(end).pieces.size(), 4U);
}

TEST(CompletionsApi, AnySplitOfAnAnswerJoinsToTheSame) {
  AnswerPiece piece;
  piece.text = "naïve\n\n  café 👍🏽 data: [DONE]\n\n";
  const ApiRequest stream =
      ReadCompletion(R"({"model": "m", "prompt": "p", "stream": true, "echo": true})");
  for (unsigned seed = 0; seed < 50; ++seed) {
    testing::SseReader reader;
    reader.Push(
        testing::WriteAnswer(NewCompletionsWriter(stream, testing::GoldenIdsOfAnswer()).get(),
                             testing::SplitPieces({piece}, seed), AnswerFinish::kStop));
    std::string joined;
    ASSERT_EQ(reader.events().back(), "[DONE]");
    for (size_t i = 0; i + 1 < reader.events().size(); ++i) {
      const Json chunk = MustParseJson(reader.events()[i]);
      const Json& choice = chunk.Find("choices")->as_array()[0];
      joined += choice.Find("text")->as_string();
      const bool last = i + 2 == reader.events().size();
      EXPECT_EQ(choice.Find("finish_reason")->is_null(), !last);
      EXPECT_EQ(chunk.Find("usage") != nullptr, last);
    }
    EXPECT_EQ(joined, "p" + piece.text);
  }
}

TEST(CompletionsApi, KeepAlives) {
  const ApiRequest stream = ReadCompletion(R"({"model": "m", "prompt": "p", "stream": true})");
  const auto writer = NewCompletionsWriter(stream, testing::GoldenIdsOfAnswer());
  EXPECT_EQ(writer->KeepAlive(true), ": keep-alive\n\n");
  EXPECT_EQ(writer->KeepAlive(false).substr(0, 6), "data: ");
  const ApiRequest whole = ReadCompletion(R"({"model": "m", "prompt": "p"})");
  EXPECT_EQ(NewCompletionsWriter(whole, testing::GoldenIdsOfAnswer())->KeepAlive(true), "\n");
}

}  // namespace
}  // namespace minke
