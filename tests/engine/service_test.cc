// What the service refuses, how its answers end, and what it does where memory ends.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/sequence.h"
#include "engine/service.h"
#include "tests/engine/service_support.h"

namespace minke::testing {
namespace {

// ---- limits and ends ----

TEST(Service, WhatCannotBeAnsweredIsRefusedAtOnce) {
  EngineOptions engine_options = HashOptions();
  engine_options.context_tokens_max = 5000;
  engine_options.cache.ram_bytes = 20 * 105 * 128;
  const auto service = StartService(engine_options);
  EXPECT_NE(SubmitError(*service, Request({}, 1)).find("empty"), std::string::npos);
  EXPECT_NE(SubmitError(*service, Request({512}, 1)).find("512"), std::string::npos);
  EXPECT_NE(SubmitError(*service, Request(Prompt(5000), 1)).find("5000"), std::string::npos);
  EXPECT_NE(SubmitError(*service, Request(Prompt(20 * 128 + 1), 1)).find("--kv-ram"),
            std::string::npos);
  ServiceRequest request = Request(Prompt(10), 1);
  request.priority = kPriorityMax + 1;
  EXPECT_NE(SubmitError(*service, request).find("priority"), std::string::npos);
  request = Request(Prompt(10), -2);
  EXPECT_NE(SubmitError(*service, request).find("max_tokens"), std::string::npos);
  request = Request(Prompt(10), 1);
  request.sampling.top_p = 0;
  EXPECT_NE(SubmitError(*service, request).find("top_p"), std::string::npos);
  request = Request(Prompt(10), 1);
  request.seconds_max = -1;
  EXPECT_NE(SubmitError(*service, request).find("seconds_max"), std::string::npos);
  request = Request(Prompt(10), 1);
  request.tenant.assign(kTenantBytesMax + 1, 'x');
  EXPECT_NE(SubmitError(*service, request).find("tenant"), std::string::npos);
  request = Request(Prompt(10), 1);
  request.stop_tokens.assign(kServiceStopTokensMax + 1, 1);
  EXPECT_NE(SubmitError(*service, request).find("stop tokens"), std::string::npos);
  for (const int64_t running_max : {int64_t{0}, kRunningMax + 1}) {
    ServiceOptions options;
    options.running_max = running_max;
    EXPECT_FALSE(Service::Start(Open(HashOptions()), options).has_value());
  }
  // One that would fit, but for what a working state needs besides.
  Answer answer;
  Submit(*service, Request(Prompt(20 * 128), 1), answer);
  const Result<ServiceResult> result = answer.Wait();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kLimit);
  EXPECT_TRUE(service->WaitUntilIdle(60));  // an end is counted after it was told
  EXPECT_EQ(service->status().failed, 1);
}

TEST(Service, EndsAreThoseOfGenerate) {
  const auto service = StartService(Options());
  const auto engine = Open();
  const std::vector<int32_t> free = FreshIds(*engine, Prompt(30), Greedy(20));
  {
    Answer answer;
    ServiceRequest request = Request(Prompt(30), 20);
    request.stop_tokens = {free[5]};
    Submit(*service, request, answer);
    EXPECT_EQ(answer.Value().finish_reason, FinishReason::kStop);
    GenerationOptions options = Greedy(20);
    options.stop_tokens = {free[5]};
    EXPECT_EQ(answer.ids(), FreshIds(*engine, Prompt(30), options));
  }
  {
    Answer answer;  // the sink has enough
    answer.on_token = [seen = 0](const ServiceToken&) mutable {
      return ++seen == 4 ? AnswerVerdict::kEnough : AnswerVerdict::kGoOn;
    };
    Submit(*service, Request(Prompt(30), 20), answer);
    EXPECT_EQ(answer.Value().finish_reason, FinishReason::kStop);
    EXPECT_EQ(answer.ids(), std::vector<int32_t>(free.begin(), free.begin() + 4));
  }
  {
    Answer answer;
    Submit(*service, Request(Prompt(30), 0), answer);
    const ServiceResult result = answer.Value();
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
    EXPECT_FALSE(result.context_full);
    EXPECT_TRUE(answer.ids().empty());
  }
  EngineOptions small = Options();
  small.context_tokens_max = 40;
  Answer answer;
  const auto full = StartService(small);
  Submit(*full, Request(Prompt(30), -1), answer);
  const ServiceResult result = answer.Value();
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(result.context_full);
  EXPECT_EQ(answer.ids(), std::vector<int32_t>(free.begin(), free.begin() + 10));
}

TEST(Service, AFollowUpIsCachedToTheEndOfTheAnswer) {
  const auto service = StartService(Options());
  Answer first;
  Submit(*service, Request(Prompt(150), 9), first);
  first.Wait();
  Answer second;
  Submit(*service, Request(Concat(Concat(Prompt(150), first.ids()), Prompt(30)), 3), second);
  EXPECT_EQ(second.Value().cache.computed_tokens, 31);
  EXPECT_EQ(second.use().cached_tokens, 158);
  const ServiceStatus status = [&] {
    EXPECT_TRUE(service->WaitUntilIdle(60));
    return service->status();
  }();
  EXPECT_EQ(status.cached_ram_tokens, 158);
  EXPECT_EQ(status.computed_tokens, 150 + 31);
  EXPECT_EQ(status.answer_tokens, 12);
  EXPECT_EQ(status.prompt_tokens, 150 + 189);
  const auto explained = service->ExplainCache(Prompt(150), "");
  ASSERT_TRUE(explained.has_value());
  EXPECT_EQ(explained->cached_tokens, 149);
}

// What was read of a prompt is counted, and no more.
TEST(Service, APromptCancelledHalfwayIsCountedAsFarAsItWasRead) {
  Gate gate;
  EngineOptions engine_options = Options();
  engine_options.forward = gate.Model();
  ServiceOptions options;
  options.step_rows_max = 64;
  const auto service = StartService(engine_options, options);
  Answer answer;
  const RequestId id = Submit(*service, Request(Prompt(1000), 5), answer);
  for (int i = 0; i < 3; ++i) gate.LetOnePass();
  gate.WaitForStep();
  service->Cancel(id);
  gate.Open();
  EXPECT_FALSE(answer.Wait().has_value());
  EXPECT_TRUE(service->WaitUntilIdle(60));
  const int64_t read = answer.prefilled();
  EXPECT_EQ(read, gate.rows_passed());
  EXPECT_LT(read, 1000);
  const ServiceStatus status = service->status();
  EXPECT_EQ(status.prompt_tokens, read);
  EXPECT_EQ(status.computed_tokens, read);
  // The next one finds that in the cache and is counted whole.
  Answer again;
  Submit(*service, Request(Prompt(1000), 5), again);
  const CacheUse use = again.Value().cache;
  EXPECT_TRUE(service->WaitUntilIdle(60));
  const ServiceStatus after = service->status();
  EXPECT_EQ(after.prompt_tokens - read, 1000);
  EXPECT_EQ(after.cached_ram_tokens, use.cached_tokens);
  EXPECT_EQ(after.computed_tokens - read, use.computed_tokens);
  EXPECT_EQ(after.replayed_tokens, use.replayed_tokens);
}

TEST(Service, AnErrorOfOneRequestIsNotThatOfOthers) {
  EngineOptions options = HashOptions();
  // Whoever has the token 13 in its history breaks every call that it is part of.
  options.forward = [](std::span<const ForwardSequence> sequences) -> Status {
    for (const ForwardSequence& sequence : sequences) {
      const auto& history = sequence.history;
      if (std::find(history.begin(), history.end(), 13) != history.end()) return Fail("thirteen");
    }
    return HashModel(sequences);
  };
  const auto service = StartService(options);
  const auto alone = StartService(HashOptions());
  std::vector<Answer> answers(5);
  for (int i = 0; i < 5; ++i) {
    std::vector<int32_t> prompt(20, 100 + i);
    if (i == 2) prompt[15] = 13;
    Submit(*service, Request(prompt, 2), answers[static_cast<size_t>(i)]);
  }
  for (int i = 0; i < 5; ++i) {
    const Result<ServiceResult> result = answers[static_cast<size_t>(i)].Wait();
    if (i == 2) {
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().message, "thirteen");
      continue;
    }
    Answer expected;
    Submit(*alone, Request(std::vector<int32_t>(20, 100 + i), 2), expected);
    expected.Wait();
    EXPECT_EQ(answers[static_cast<size_t>(i)].ids(), expected.ids());
  }
  ExpectNothingLeft(*service);
}

TEST(Service, TheQueueHasLimits) {
  Gate gate;
  EngineOptions engine_options = HashOptions();
  engine_options.forward = gate.Model();
  ServiceOptions options;
  options.running_max = 1;
  options.queued_max = 2;
  options.queued_tokens_max = 100;
  Answer running;
  std::vector<Answer> waiting(2);
  const auto service = StartService(engine_options, options);
  Submit(*service, Request(Prompt(10), 5), running);
  gate.WaitForStep();
  Submit(*service, Request(Prompt(60), 5), waiting[0]);
  EXPECT_NE(SubmitError(*service, Request(Prompt(41), 5)).find("tokens"), std::string::npos);
  Submit(*service, Request(Prompt(40), 5), waiting[1]);
  EXPECT_NE(SubmitError(*service, Request(Prompt(1), 5)).find("waiting"), std::string::npos);
  EXPECT_EQ(service->status().queued + service->status().prefilling, 3);
  gate.Open();
  for (Answer& answer : waiting) answer.Value();
  service->Drain();
  EXPECT_TRUE(service->draining());
  const Result<RequestId> refused = service->Submit(Request(Prompt(1), 1), running.NewSink());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_TRUE(service->WaitUntilIdle(60));
}

TEST(Service, WaitingAndRunningHaveLimitsOfTime) {
  Gate gate;
  EngineOptions engine_options = HashOptions();
  engine_options.forward = gate.Model();
  ServiceOptions options;
  options.running_max = 1;
  options.queue_seconds_max = 0.5;
  Answer running;
  Answer waiting;
  const auto service = StartService(engine_options, options);
  ServiceRequest request = Request(Prompt(10), 1'000'000);
  request.seconds_max = 4;
  Submit(*service, request, running);
  Submit(*service, Request(Prompt(10), 5), waiting);
  gate.WaitForStep();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  for (int i = 0; i < 2; ++i) {  // the calls of the running step
    gate.WaitForStep();
    gate.LetOnePass();
  }
  const Result<ServiceResult> waited = waiting.Wait();
  ASSERT_FALSE(waited.has_value());
  EXPECT_EQ(waited.error().code, ErrorCode::kLimit);
  EXPECT_NE(waited.error().message.find("waited"), std::string::npos);
  gate.Open();
  const Result<ServiceResult> ran = running.Wait();
  ASSERT_FALSE(ran.has_value());
  EXPECT_NE(ran.error().message.find("4 seconds"), std::string::npos);
  ExpectNothingLeft(*service);
}

TEST(Service, TheEndOfTheServiceEndsWhatRunsAndWaits) {
  Gate gate;
  EngineOptions engine_options = HashOptions();
  engine_options.forward = [model = gate.Model()](std::span<const ForwardSequence> sequences) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // no answer ends by itself
    return model(sequences);
  };
  ServiceOptions options;
  options.running_max = 2;
  std::vector<Answer> answers(6);
  {
    const auto service = StartService(engine_options, options);
    for (Answer& answer : answers) Submit(*service, Request(Prompt(10), 100'000), answer);
    gate.WaitForStep();
    gate.Open();
  }
  for (Answer& answer : answers) {
    EXPECT_EQ(answer.ends(), 1);
    const Result<ServiceResult> result = answer.Wait();
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  }
}

// ---- memory ----

// Two answers that both outgrow what there is: the younger one makes room and comes again.
TEST(Service, AnAnswerThatCannotGrowPushesTheYoungestOut) {
  const int64_t answer_tokens = kAnswerTokensReserved + 400;
  EngineOptions options = HashOptions();
  const auto request = [&](int index) {
    ServiceRequest made = Request(std::vector<int32_t>(100, 50 + index), answer_tokens);
    made.sampling.temperature = 1.0;
    made.sampling.frequency_penalty = 0.5;
    made.sampling.seed = static_cast<uint64_t>(index);
    return made;
  };
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 2; ++i) {
    Answer answer;
    const auto alone = StartService(options);
    Submit(*alone, request(i), answer);
    answer.Wait();
    expected.push_back(answer.ids());
    EXPECT_EQ(answer.ids().size(), static_cast<size_t>(answer_tokens));
  }
  options.cache.ram_bytes = 70 * 105 * 128;
  options.cache.snapshot_bytes = int64_t{1} << 20;
  std::vector<Answer> answers(2);
  const auto service = StartService(options);
  for (int i = 0; i < 2; ++i) Submit(*service, request(i), answers[static_cast<size_t>(i)]);
  EXPECT_EQ(answers[0].Value().preemptions, 0);
  EXPECT_GE(answers[1].Value().preemptions, 1);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(answers[i].ids(), expected[i]) << i;
  ExpectNothingLeft(*service);
}

TEST(Service, WhoeverDoesNotFitBesideTheOthersWaits) {
  EngineOptions options = HashOptions();
  options.cache.ram_bytes = 40 * 105 * 128;
  options.cache.snapshot_bytes = int64_t{1} << 20;
  std::vector<Answer> answers(6);
  const auto service = StartService(options);
  for (int i = 0; i < 6; ++i) {
    std::vector<int32_t> prompt(1500, 60 + i);
    Submit(*service, Request(std::move(prompt), 20), answers[static_cast<size_t>(i)]);
  }
  for (Answer& answer : answers) {
    EXPECT_EQ(answer.Value().answer_tokens, 20);
    EXPECT_LE(service->status().cache.ram_used_bytes, options.cache.ram_bytes);
  }
  ExpectNothingLeft(*service);
}

}  // namespace
}  // namespace minke::testing
