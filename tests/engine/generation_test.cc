#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/engine/engine_support.h"

namespace minke::testing {
namespace {

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
  EXPECT_EQ(rest.cache.cached_tokens, 33);
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
  EXPECT_EQ(again.cache.cached_tokens, 48);
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

}  // namespace
}  // namespace minke::testing
