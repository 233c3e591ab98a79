#include "engine/engine.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model_loader.h"

namespace minke {
namespace {

const std::string kChatModel = std::string(MINKE_GOLDEN_DIR) + "/chat";
const std::string kFullMini = std::string(MINKE_GOLDEN_DIR) + "/full_mini";
const std::string kMini = std::string(MINKE_SOURCE_DIR) + "/models/mini";

EngineOptions Options(const std::string& dir = kChatModel) {
  EngineOptions options;
  options.model_dir = dir;
  options.threads = 1;
  return options;
}

std::unique_ptr<Engine> Open(const EngineOptions& options = Options()) {
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return engine.has_value() ? std::move(engine).value() : nullptr;
}

std::string OpenError(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  return engine.has_value() ? std::string() : engine.error().message;
}

std::vector<int32_t> Prompt(size_t count) {
  std::vector<int32_t> ids = {0};
  while (ids.size() < count) ids.push_back(static_cast<int32_t>(3 + (ids.size() * 7919) % 470));
  return ids;
}

GenerationResult Generate(const Engine& engine, Session& session, const std::vector<int32_t>& ids,
                          const GenerationOptions& options) {
  Result<GenerationResult> result = engine.Generate(session, ids, options);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.has_value() ? std::move(result).value() : GenerationResult();
}

GenerationOptions Greedy(int64_t max_tokens) {
  GenerationOptions options;
  options.max_tokens = max_tokens;
  options.ignore_eos = true;
  return options;
}

std::vector<int32_t> Concat(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int32_t> FreshIds(const Engine& engine, const std::vector<int32_t>& prompt,
                              const GenerationOptions& options) {
  return Generate(engine, *engine.NewSession(), prompt, options).ids;
}

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
  EXPECT_EQ(first.reused_tokens, 0);
  EXPECT_EQ(first.prompt_tokens, 50);
  ASSERT_EQ(first.ids.size(), 10u);
  EXPECT_EQ(session->tokens().size(), 59u);  // the last drawn token has not been read

  const std::vector<int32_t> longer = Concat(Concat(prompt, first.ids), {100, 101});
  const GenerationResult second = Generate(*engine, *session, longer, Greedy(10));
  EXPECT_EQ(second.reused_tokens, 59);
  EXPECT_EQ(second.ids, FreshIds(*engine, longer, Greedy(10)));

  std::vector<int32_t> other = longer;
  other[20] = 200;
  const GenerationResult third = Generate(*engine, *session, other, Greedy(10));
  EXPECT_EQ(third.reused_tokens, 0);
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
  EXPECT_EQ(result.reused_tokens, 40);
  EXPECT_EQ(result.ids, FreshIds(*engine, prompt, Greedy(5)));
}

TEST(Generation, ChunksAndThreadsDoNotChangeABit) {
  const std::vector<int32_t> prompt = Prompt(133);
  std::vector<float> expected;
  std::vector<int32_t> expected_ids;
  for (int64_t chunk : {256, 1, 7, 64}) {
    for (int threads : {1, 2, 5}) {
      if (chunk != 256 && threads != 1) continue;
      EngineOptions engine_options = Options();
      engine_options.prefill_chunk_tokens = chunk;
      engine_options.threads = threads;
      const std::unique_ptr<Engine> engine = Open(engine_options);
      GenerationOptions options = Greedy(8);
      std::vector<float> logits;
      options.on_token = [&](const TokenEvent& event) {
        logits.insert(logits.end(), event.logits.begin(), event.logits.end());
      };
      const std::vector<int32_t> ids = FreshIds(*engine, prompt, options);
      ASSERT_EQ(logits.size(), 8u * 512u);
      if (expected.empty()) {
        expected = logits;
        expected_ids = ids;
      }
      EXPECT_EQ(ids, expected_ids);
      EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0)
          << "chunk " << chunk << ", threads " << threads;
    }
  }
}

TEST(Generation, ADrawDependsOnThePositionNotOnTheCallThatMadeIt) {
  const std::unique_ptr<Engine> engine = Open();
  const std::vector<int32_t> prompt = Prompt(30);
  GenerationOptions options = Greedy(24);
  options.sampling.temperature = 1.0;
  options.sampling.top_p = 0.95;
  options.sampling.seed = 5;
  const std::vector<int32_t> whole = FreshIds(*engine, prompt, options);
  options.max_tokens = 12;
  const std::vector<int32_t> first = FreshIds(*engine, prompt, options);
  const std::vector<int32_t> second = FreshIds(*engine, Concat(prompt, first), options);
  EXPECT_EQ(Concat(first, second), whole);
  options.max_tokens = 24;
  options.sampling.seed = 6;
  EXPECT_NE(FreshIds(*engine, prompt, options), whole);
}

TEST(Generation, OtherSessionsChangeNothing) {
  const std::unique_ptr<Engine> engine = Open();
  GenerationOptions options = Greedy(10);
  options.sampling.temperature = 1.0;
  const std::vector<int32_t> alone = FreshIds(*engine, Prompt(30), options);
  const std::unique_ptr<Session> session = engine->NewSession();
  const std::unique_ptr<Session> neighbour = engine->NewSession();
  std::vector<int32_t> prompt = Prompt(30);
  std::vector<int32_t> ids;
  options.max_tokens = 1;
  for (int step = 0; step < 10; ++step) {
    Generate(*engine, *neighbour, Prompt(20 + static_cast<size_t>(step)), options);
    ids.push_back(Generate(*engine, *session, Concat(prompt, ids), options).ids.front());
  }
  EXPECT_EQ(ids, alone);
}

TEST(Generation, TextIsThatOfTheIds) {
  const std::unique_ptr<Engine> engine = Open();
  GenerationOptions options = Greedy(60);
  options.sampling.temperature = 1.0;
  options.sampling.seed = 3;
  std::string streamed;
  std::vector<int32_t> streamed_ids;
  options.on_token = [&](const TokenEvent& event) {
    streamed += event.text;
    if (event.id != kNoToken) streamed_ids.push_back(event.id);
  };
  const GenerationResult result = Generate(*engine, *engine->NewSession(), Prompt(10), options);
  EXPECT_EQ(streamed_ids, result.ids);
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.answer, result.text);
  EXPECT_EQ(result.text, engine->Detokenize(result.ids).value());
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_FALSE(result.context_full);
}

TEST(Generation, StopTokensEndTheAnswerAndLeaveNoText) {
  const std::unique_ptr<Engine> engine = Open();
  const std::vector<int32_t> free = FreshIds(*engine, Prompt(30), Greedy(20));
  GenerationOptions options = Greedy(20);
  options.stop_tokens = {free[5]};
  const size_t first =
      static_cast<size_t>(std::find(free.begin(), free.end(), free[5]) - free.begin());
  const GenerationResult result = Generate(*engine, *engine->NewSession(), Prompt(30), options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.ids,
            std::vector<int32_t>(free.begin(), free.begin() + 1 + static_cast<ptrdiff_t>(first)));
  EXPECT_EQ(result.text,
            engine->Detokenize(std::span(result.ids).first(result.ids.size() - 1)).value());
}

TEST(Generation, TheEndOfSequenceTokenStopsUnlessIgnored) {
  const std::unique_ptr<Engine> engine = Open();
  GenerationOptions options = Greedy(5);
  options.sampling.logit_bias = {{engine->eos_token(), 1000.0}};
  EXPECT_EQ(FreshIds(*engine, Prompt(10), options).size(), 5u);
  options.ignore_eos = false;
  const GenerationResult result = Generate(*engine, *engine->NewSession(), Prompt(10), options);
  EXPECT_EQ(result.ids, std::vector<int32_t>{engine->eos_token()});
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST(Generation, StopStringsCutTheTextAcrossTokens) {
  const std::unique_ptr<Engine> engine = Open();
  // Forces the answer "a" "b" "a" "b" ...: the stop string spans tokens.
  const int32_t a = engine->Tokenize("a").value().front();
  const int32_t b = engine->Tokenize("b").value().front();
  GenerationOptions options = Greedy(20);
  options.sampling.logit_bias = {{a, 1000.0}, {b, 1000.0}};
  options.sampling.frequency_penalty = 2.0;
  options.sampling.presence_penalty = 2.0;
  const GenerationResult free = Generate(*engine, *engine->NewSession(), Prompt(10), options);
  ASSERT_GT(free.text.size(), 6u);
  const std::string stop = free.text.substr(3, 3);
  options.stop_strings = {"zzz", stop};
  std::string streamed;
  options.on_token = [&](const TokenEvent& event) { streamed += event.text; };
  const GenerationResult result = Generate(*engine, *engine->NewSession(), Prompt(10), options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStopString);
  EXPECT_EQ(result.stop_string, stop);
  EXPECT_EQ(result.text, free.text.substr(0, free.text.find(stop)));
  EXPECT_EQ(streamed, result.text);
}

TEST(Generation, StopStringsAreNotLookedForInReasoning) {
  const std::unique_ptr<Engine> engine = Open();
  const int32_t a = engine->Tokenize("a").value().front();
  const int32_t think_start = *engine->ControlToken("<think>");
  const int32_t think_end = *engine->ControlToken("</think>");
  GenerationOptions options = Greedy(6);
  options.sampling.logit_bias = {{a, 1000.0}};
  options.stop_strings = {"aa"};
  std::vector<int32_t> prompt = Prompt(10);
  prompt.push_back(think_start);
  const GenerationResult inside = Generate(*engine, *engine->NewSession(), prompt, options);
  EXPECT_EQ(inside.finish_reason, FinishReason::kLength);
  EXPECT_EQ(inside.reasoning, "aaaaaa");
  EXPECT_EQ(inside.answer, "");
  EXPECT_EQ(inside.reasoning_tokens, 6);
  prompt.push_back(think_end);
  const GenerationResult outside = Generate(*engine, *engine->NewSession(), prompt, options);
  EXPECT_EQ(outside.finish_reason, FinishReason::kStopString);
  EXPECT_EQ(outside.text, "");
  EXPECT_EQ(outside.reasoning_tokens, 0);
}

TEST(Generation, TheEndOfReasoningDividesTheText) {
  const std::unique_ptr<Engine> engine = Open();
  const int32_t think_end = *engine->ControlToken("</think>");
  std::vector<int32_t> prompt = Prompt(10);
  prompt.push_back(*engine->ControlToken("<think>"));
  GenerationOptions options = Greedy(6);
  options.sampling.logit_bias = {{think_end, 1000.0}};
  options.sampling.presence_penalty = 2.0;
  std::vector<bool> in_reasoning;
  options.on_token = [&](const TokenEvent& event) { in_reasoning.push_back(event.in_reasoning); };
  const GenerationResult result = Generate(*engine, *engine->NewSession(), prompt, options);
  EXPECT_EQ(result.reasoning, "");
  EXPECT_EQ(result.reasoning_tokens, 1);
  EXPECT_TRUE(result.text.starts_with("</think>"));
  EXPECT_EQ(result.text, "</think>" + result.answer);
  ASSERT_GE(in_reasoning.size(), 2u);
  EXPECT_TRUE(in_reasoning[0]);
  EXPECT_FALSE(in_reasoning[1]);
}

TEST(Generation, CancellingKeepsWhatWasReadAndDrawn) {
  const std::unique_ptr<Engine> engine = Open();
  const std::vector<int32_t> prompt = Prompt(30);
  const std::vector<int32_t> whole = FreshIds(*engine, prompt, Greedy(12));
  std::atomic<bool> cancel = false;
  int drawn = 0;
  GenerationOptions options = Greedy(100);
  options.cancel = &cancel;
  options.on_token = [&](const TokenEvent&) { cancel = ++drawn == 4; };
  const std::unique_ptr<Session> session = engine->NewSession();
  const GenerationResult result = Generate(*engine, *session, prompt, options);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result.ids, std::vector<int32_t>(whole.begin(), whole.begin() + 4));
  const GenerationResult rest = Generate(*engine, *session, Concat(prompt, result.ids), Greedy(8));
  EXPECT_EQ(rest.reused_tokens, 33);
  EXPECT_EQ(Concat(result.ids, rest.ids), whole);
}

TEST(Generation, CancellingBetweenChunksKeepsTheChunksRead) {
  EngineOptions engine_options = Options();
  engine_options.prefill_chunk_tokens = 16;
  const std::unique_ptr<Engine> engine = Open(engine_options);
  const std::vector<int32_t> prompt = Prompt(100);
  std::atomic<bool> cancel = false;
  std::vector<int64_t> progress;
  GenerationOptions options = Greedy(5);
  options.cancel = &cancel;
  options.prefill_progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 100);
    progress.push_back(done);
    cancel = done >= 48;
  };
  const std::unique_ptr<Session> session = engine->NewSession();
  const GenerationResult result = Generate(*engine, *session, prompt, options);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(result.ids.empty());
  EXPECT_EQ(progress, (std::vector<int64_t>{16, 32, 48}));
  EXPECT_EQ(session->tokens().size(), 48u);
  const GenerationResult again = Generate(*engine, *session, prompt, Greedy(5));
  EXPECT_EQ(again.reused_tokens, 48);
  EXPECT_EQ(again.ids, FreshIds(*engine, prompt, Greedy(5)));
}

TEST(Generation, TheContextIsALimitInWords) {
  EngineOptions engine_options = Options();
  engine_options.context_tokens_max = 20;
  const std::unique_ptr<Engine> engine = Open(engine_options);
  const std::unique_ptr<Session> session = engine->NewSession();
  const Result<GenerationResult> full = engine->Generate(*session, Prompt(20), Greedy(5));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::kLimit);
  EXPECT_NE(full.error().message.find("20 tokens"), std::string::npos);
  EXPECT_FALSE(engine->Generate(*session, Prompt(35), Greedy(5)).has_value());
  EXPECT_EQ(session->tokens().size(), 0u);
  const GenerationResult last = Generate(*engine, *session, Prompt(19), Greedy(5));
  EXPECT_EQ(last.ids.size(), 1u);
  EXPECT_TRUE(last.context_full);
  const GenerationResult some = Generate(*engine, *session, Prompt(17), Greedy(-1));
  EXPECT_EQ(some.ids.size(), 3u);
  EXPECT_EQ(some.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(some.context_full);
}

TEST(Generation, WrongInputIsNamed) {
  const std::unique_ptr<Engine> engine = Open();
  const std::unique_ptr<Session> session = engine->NewSession();
  const auto error = [&](const std::vector<int32_t>& ids, const GenerationOptions& options) {
    Result<GenerationResult> result = engine->Generate(*session, ids, options);
    return result.has_value() ? std::string() : result.error().message;
  };
  EXPECT_NE(error({}, Greedy(1)).find("empty"), std::string::npos);
  EXPECT_NE(error({0, 512}, Greedy(1)).find("Token 1 of the prompt is id 512"), std::string::npos);
  EXPECT_NE(error({0, -1}, Greedy(1)).find("id -1"), std::string::npos);
  EXPECT_NE(error({0}, Greedy(-2)).find("max_tokens"), std::string::npos);
  GenerationOptions options = Greedy(1);
  options.sampling.top_p = 0;
  EXPECT_NE(error({0}, options).find("top_p"), std::string::npos);
  options = Greedy(1);
  options.stop_strings = {""};
  EXPECT_NE(error({0}, options).find("empty"), std::string::npos);
  options.stop_strings = {"\xc3"};
  EXPECT_NE(error({0}, options).find("UTF-8"), std::string::npos);
  options.stop_strings.assign(kStopStringsMax, "x");
  EXPECT_EQ(error({0}, options), "");
  options.stop_strings.assign(kStopStringsMax + 1, "x");
  EXPECT_NE(error({0}, options).find("stop strings"), std::string::npos);
  options.stop_strings = {std::string(kStopStringBytesMax, 'x')};
  EXPECT_EQ(error({0}, options), "");
  options.stop_strings = {std::string(kStopStringBytesMax + 1, 'x')};
  EXPECT_NE(error({0}, options).find("stop string"), std::string::npos);
}

TEST(Generation, LogprobsAreThoseOfTheModel) {
  const std::unique_ptr<Engine> engine = Open();
  GenerationOptions options = Greedy(5);
  options.sampling.logprobs = 512 > kLogprobsMax ? kLogprobsMax : 512;
  int events = 0;
  options.on_token = [&](const TokenEvent& event) {
    if (event.id == kNoToken) return;
    ++events;
    ASSERT_NE(event.logprob, nullptr);
    ASSERT_EQ(event.alternatives.size(), static_cast<size_t>(kLogprobsMax));
    EXPECT_EQ(event.logprob->id, event.id);
    EXPECT_EQ(event.alternatives.front().id, event.id);  // greedy takes the best
    double mass = 0;
    for (float logit : event.logits) mass += std::exp(static_cast<double>(logit));
    const double expected = event.logits[static_cast<size_t>(event.id)] - std::log(mass);
    EXPECT_NEAR(event.logprob->logprob, expected, 1e-9);
  };
  FreshIds(*engine, Prompt(10), options);
  EXPECT_EQ(events, 5);
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
}  // namespace minke
