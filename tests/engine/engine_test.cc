#include "engine/engine.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model_loader.h"
#include "tests/engine/engine_support.h"

namespace minke::testing {
namespace {

TEST(Engine, InfoIsComputedFromTheModel) {
  const std::unique_ptr<Engine> engine = Open();
  EXPECT_EQ(engine->info().layer_count, 4);
  EXPECT_EQ(engine->info().vocab_size, 512);
  EXPECT_EQ(engine->info().kv_bytes_per_token, 105.0);
  EXPECT_EQ(engine->info().window_state_bytes, 4 * 32 * 66);
  EXPECT_EQ(engine->info().parameter_count, 1567976);
  EXPECT_GT(engine->info().checkpoint_bytes, 1669370u);
  EXPECT_EQ(engine->info().context_tokens_max, 1048576);
  EXPECT_EQ(engine->info().threads, 1);
  EXPECT_NE(engine->info().kernels, "reference");
  EXPECT_FALSE(engine->info().random_weights);
  EXPECT_TRUE(engine->info().warnings.empty());
  EngineOptions reference = Options();
  reference.kernels = KernelChoice::kReference;
  EXPECT_EQ(Open(reference)->info().kernels, "reference");
  reference = Options();
  reference.numerics = NumericMode::kF32;
  EXPECT_EQ(Open(reference)->info().kernels, "reference");
}

TEST(Engine, TheMiniModelSaysThatItsWeightsAreRandom) {
  EXPECT_TRUE(Open(Options(kMini))->info().random_weights);
}

TEST(Engine, WhatCannotBeOpenedIsNamed) {
  EXPECT_NE(OpenError(Options("/nonexistent")).find("/nonexistent/config.json"), std::string::npos);
  EngineOptions options = Options();
  options.context_tokens_max = 1048577;
  EXPECT_NE(OpenError(options).find("1048577"), std::string::npos);
  EXPECT_NE(OpenError(options).find("1048576"), std::string::npos);
  options = Options();
  options.threads = 1025;
  EXPECT_NE(OpenError(options).find("1025"), std::string::npos);
  for (int64_t chunk : {int64_t{0}, kPrefillChunkTokensMax + 1}) {
    options = Options();
    options.prefill_chunk_tokens = chunk;
    EXPECT_NE(OpenError(options).find("chunk"), std::string::npos);
  }
}

TEST(Engine, ACheckpointLargerThanMemoryIsWarnedOf) {
  EXPECT_EQ(MemoryWarning(100, 100), "");
  EXPECT_EQ(MemoryWarning(100, 0), "");
  const std::string warning = MemoryWarning(510'286'023'000, 16'000'000'000);
  EXPECT_NE(warning.find("510.3 GB"), std::string::npos) << warning;
  EXPECT_NE(warning.find("16.0 GB"), std::string::npos) << warning;
}

TEST(Engine, NumericModesHaveNames) {
  for (NumericMode mode :
       {NumericMode::kOfficial, NumericMode::kF32, NumericMode::kF32CacheQuant}) {
    EXPECT_EQ(ParseNumericMode(NumericModeName(mode)).value(), mode);
  }
  EXPECT_FALSE(ParseNumericMode("fp32").has_value());
}

TEST(Engine, TextGoesToIdsAndBack) {
  const std::unique_ptr<Engine> engine = Open();
  const std::string text = "Hello, wörld! <think> 你好";
  const std::vector<int32_t> ids = engine->Tokenize(text).value();
  EXPECT_EQ(engine->Detokenize(ids).value(), text);
  EXPECT_EQ(engine->TextPrompt(text).value(), Concat({0}, ids));
  EXPECT_FALSE(engine->Detokenize(std::vector<int32_t>{512}).has_value());
  EXPECT_FALSE(engine->Detokenize(std::vector<int32_t>{-1}).has_value());
  EXPECT_EQ(engine->ControlToken("</think>"), 484);
  EXPECT_EQ(engine->ControlToken("nothing"), std::nullopt);
  EXPECT_EQ(engine->eos_token(), 1);
}

TEST(Engine, ChatOptionsOverrideTheRequest) {
  const std::unique_ptr<Engine> engine = Open();
  const std::string messages = R"([{"role": "user", "content": "Hi"}])";
  const auto text = [&](const ChatOptions& options, const std::string& json) {
    Result<ChatPrompt> prompt = engine->EncodeChat(json, "test", options);
    return prompt.has_value() ? prompt->text : "error: " + prompt.error().message;
  };
  EXPECT_TRUE(text({.thinking = true}, messages).ends_with("<｜Assistant｜><think>"));
  EXPECT_EQ(text({.thinking = false}, messages),
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>");
  EXPECT_NE(text({.effort = "50"}, messages).find("Reasoning Effort: 50 "), std::string::npos);
  EXPECT_NE(text({.effort = "max"}, messages).find("Reasoning Effort: 100 "), std::string::npos);
  EXPECT_TRUE(text({.effort = "101"}, messages).starts_with("error: "));
  EXPECT_TRUE(text({}, "3").starts_with("error: test"));
  EXPECT_TRUE(text({}, "[").starts_with("error: "));
  EXPECT_TRUE(text({.context_messages = 2}, messages).starts_with("error: "));
}

TEST(Engine, ATurnContinuesTheTextOfTheTurnsBefore) {
  const std::unique_ptr<Engine> engine = Open();
  const std::string first = R"({"role": "user", "content": "One"})";
  const std::string rest =
      R"({"role": "assistant", "content": "c", "reasoning_content": "r"},
         {"role": "user", "content": "Two"})";
  for (const char* system : {"", R"({"role": "system", "content": "S"},)"}) {
    const int64_t before = system[0] == '\0' ? 2 : 3;
    const auto text = [&](const std::string& json, int64_t context) {
      return engine->EncodeChat("[" + (system + json) + "]", "test", {.context_messages = context})
          ->text;
    };
    const std::string whole = text(first + "," + rest, 0);
    EXPECT_EQ(whole, text(first, 0) + "r</think>c<｜end▁of▁sentence｜>" +
                         text(first + "," + rest, before));
  }
}

TEST(Session, ReusesAPrefixAndStartsOverOtherwise) {
  const std::unique_ptr<Engine> engine = Open();
  const std::vector<int32_t> prompt = Prompt(50);
  const std::unique_ptr<Session> session = engine->NewSession();
  const GenerationResult first = Generate(*engine, *session, prompt, Greedy(10));
  EXPECT_EQ(first.cache.cached_tokens, 0);
  EXPECT_EQ(first.prompt_tokens, 50);
  ASSERT_EQ(first.ids.size(), 10u);
  EXPECT_EQ(session->tokens().size(), 59u);  // the last drawn token has not been read

  const std::vector<int32_t> longer = Concat(Concat(prompt, first.ids), {100, 101});
  const GenerationResult second = Generate(*engine, *session, longer, Greedy(10));
  EXPECT_EQ(second.cache.cached_tokens, 59);
  EXPECT_EQ(second.ids, FreshIds(*engine, longer, Greedy(10)));

  std::vector<int32_t> other = longer;
  other[20] = 200;
  const GenerationResult third = Generate(*engine, *session, other, Greedy(10));
  EXPECT_EQ(third.cache.cached_tokens, 0);
  EXPECT_EQ(third.ids, FreshIds(*engine, other, Greedy(10)));
  EXPECT_NE(third.ids, second.ids);

  session->Reset();
  EXPECT_EQ(session->tokens().size(), 0u);
  EXPECT_EQ(Generate(*engine, *session, prompt, Greedy(10)).ids, first.ids);
}

TEST(Session, APromptAlreadyReadNeedsNoForward) {
  const std::unique_ptr<Engine> engine = Open();
  const std::vector<int32_t> prompt = Prompt(40);
  const std::unique_ptr<Session> session = engine->NewSession();
  EXPECT_TRUE(Generate(*engine, *session, prompt, Greedy(0)).ids.empty());
  EXPECT_EQ(session->tokens().size(), 40u);
  const GenerationResult result = Generate(*engine, *session, prompt, Greedy(5));
  EXPECT_EQ(result.cache.cached_tokens, 40);
  EXPECT_EQ(result.ids, FreshIds(*engine, prompt, Greedy(5)));
}

TEST(Session, CountsItsBytes) {
  const std::unique_ptr<Engine> engine = Open(Options(kFullMini));
  const std::unique_ptr<Session> session = engine->NewSession();
  std::vector<int32_t> prompt = Prompt(1000);
  Generate(*engine, *session, prompt, Greedy(0));
  const SessionMemory memory = session->memory();
  const double per_token = engine->info().kv_bytes_per_token;
  EXPECT_EQ(static_cast<double>(memory.used_bytes), per_token * 1000);
  EXPECT_LE(static_cast<double>(memory.capacity_bytes - memory.used_bytes), per_token * 128);
  EXPECT_GT(memory.constant_bytes, engine->info().window_state_bytes);
}

}  // namespace
}  // namespace minke::testing
