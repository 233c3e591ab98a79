// Every way to an answer of the shipped model gives the same bits: chunks, threads, a cache in
// memory, a cache on disk after a restart.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/nano/nano_support.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr int64_t kEquivalenceTokens = 24;
constexpr size_t kParagraphs = 7;  // about 950 tokens

struct Answer {
  GenerationResult result;
  std::vector<float> logits;  // of all drawn tokens, one after another
};

Answer Ask(const Engine& engine, Session& session, const std::vector<int32_t>& prompt) {
  Answer answer;
  GenerationOptions options;
  options.max_tokens = kEquivalenceTokens;
  options.on_token = [&answer](const TokenEvent& event) {
    answer.logits.insert(answer.logits.end(), event.logits.begin(), event.logits.end());
  };
  Result<GenerationResult> result = engine.Generate(session, prompt, options);
  CHECK(result.has_value(), result.has_value() ? "" : result.error().message);
  answer.result = std::move(result).value();
  return answer;
}

class NanoEquivalence : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::unique_ptr<Engine> engine = OpenNano();
    const Answer cold = Ask(*engine, *engine->NewSession(), Prompt(*engine));
    ASSERT_GT(cold.result.prompt_tokens, 600);
    ASSERT_EQ(cold.result.answer, "The pin of the library safe is 6150.");
    ASSERT_EQ(cold.result.cache.cached_tokens, 0);
    ids_ = cold.result.ids;
    logits_ = cold.logits;
  }
  static std::vector<int32_t> Prompt(const Engine& engine) {
    return PromptAbout(engine, Document(kParagraphs), "Tell me the pin of the library safe.");
  }
  static void ExpectTheSame(const Answer& answer) {
    EXPECT_EQ(answer.result.ids, ids_);
    EXPECT_TRUE(answer.logits == logits_) << "the ids are the same, the logits are not";
  }

  static std::vector<int32_t> ids_;  // of the cold answer
  static std::vector<float> logits_;
};
std::vector<int32_t> NanoEquivalence::ids_;
std::vector<float> NanoEquivalence::logits_;

TEST_F(NanoEquivalence, AnyChunks) {
  for (const int64_t chunk : {1, 7, 100, 4096}) {
    SCOPED_TRACE(chunk);
    EngineOptions options = NanoOptions();
    options.prefill_chunk_tokens = chunk;
    const std::unique_ptr<Engine> engine = OpenNano(options);
    ExpectTheSame(Ask(*engine, *engine->NewSession(), Prompt(*engine)));
  }
}

TEST_F(NanoEquivalence, AnyThreads) {
  for (const int threads : {1, 3}) {
    SCOPED_TRACE(threads);
    EngineOptions options = NanoOptions();
    options.threads = threads;
    const std::unique_ptr<Engine> engine = OpenNano(options);
    ExpectTheSame(Ask(*engine, *engine->NewSession(), Prompt(*engine)));
  }
}

TEST_F(NanoEquivalence, WarmIsCold) {
  const std::unique_ptr<Engine> engine = OpenNano();
  const std::vector<int32_t> prompt = Prompt(*engine);
  Ask(*engine, *engine->NewSession(), prompt);
  const Answer warm = Ask(*engine, *engine->NewSession(), prompt);
  EXPECT_GT(warm.result.cache.ram_tokens, warm.result.prompt_tokens / 2);
  ExpectTheSame(warm);
}

TEST_F(NanoEquivalence, ARestartFromDiskIsCold) {
  const TempDirectory directory;
  EngineOptions options = NanoOptions();
  options.cache.disk_dir = directory.Path("kv");
  {
    const std::unique_ptr<Engine> engine = OpenNano(options);
    Ask(*engine, *engine->NewSession(), Prompt(*engine));
    engine->FlushCache();
  }
  const std::unique_ptr<Engine> engine = OpenNano(options);
  const Answer warm = Ask(*engine, *engine->NewSession(), Prompt(*engine));
  EXPECT_GT(warm.result.cache.disk_tokens, warm.result.prompt_tokens / 2);
  EXPECT_EQ(warm.result.cache.tier, "disk");
  ExpectTheSame(warm);
}

// Not the same bits, by design; the same answer to a question that it knows.
TEST_F(NanoEquivalence, AReplayPrefillGivesTheSameAnswer) {
  EngineOptions options = NanoOptions();
  options.prefill = PrefillMode::kReplay;
  const std::unique_ptr<Engine> engine = OpenNano(options);
  EXPECT_EQ(Ask(*engine, *engine->NewSession(), Prompt(*engine)).result.ids, ids_);
}

}  // namespace
}  // namespace minke::testing
