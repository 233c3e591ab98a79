// The service with real models and with a stand-in: what it answers, whatever else runs.
#include "engine/service.h"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/sequence.h"
#include "tests/engine/service_support.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

// Requests of all kinds: lengths around blocks and windows, common beginnings, greedy and drawn,
// with penalties that have to remember the answer so far.
ServiceRequest MixedRequest(int index) {
  const int family = index % 4;
  std::vector<int32_t> prompt(static_cast<size_t>(9 + 31 * (family / 2)), 7 + family);
  for (int i = 0; i < 3 + (index * 13) % 41; ++i) prompt.push_back(3 + (index * 31 + i * 17) % 400);
  ServiceRequest request = Request(std::move(prompt), 6 + index % 5);
  request.sampling.logprobs = 3;
  request.sampling.seed = static_cast<uint64_t>(index);
  if (index % 3 != 0) request.sampling.temperature = 0.9;
  if (index % 3 == 2) {
    request.sampling.repetition_penalty = 1.3;
    request.sampling.frequency_penalty = 0.7;
    request.sampling.presence_penalty = 0.4;
  }
  request.tenant = index % 5 == 0 ? "anna" : "bert";
  return request;
}

struct Expected {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;
};

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// Each request in an engine that has seen nothing else.
std::vector<Expected> AloneAnswers(const EngineOptions& options, int count) {
  std::vector<Expected> answers;
  const auto engine = Open(options);
  for (int i = 0; i < count; ++i) {
    const ServiceRequest request = MixedRequest(i);
    Expected expected;
    GenerationOptions generation;
    generation.sampling = request.sampling;
    generation.max_tokens = request.max_tokens;
    generation.ignore_eos = request.ignore_eos;
    generation.tenant = request.tenant;
    generation.on_token = [&](const TokenEvent& event) {
      if (event.id == kNoToken) return;
      expected.logprobs.push_back(event.logprob->logprob);
      for (const TokenLogprob& other : event.alternatives) {
        expected.logprobs.push_back(other.logprob);
      }
    };
    expected.ids = Generate(*engine, *engine->NewSession(), request.prompt, generation).ids;
    engine->DropCacheMemory();
    answers.push_back(std::move(expected));
  }
  return answers;
}

void ExpectAnswers(std::vector<Answer>& answers, const std::vector<Expected>& expected) {
  for (size_t i = 0; i < answers.size(); ++i) {
    const ServiceResult result = answers[i].Value();
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
    EXPECT_EQ(answers[i].ids(), expected[i].ids) << "request " << i;
    EXPECT_TRUE(SameBits(answers[i].logprobs(), expected[i].logprobs)) << "request " << i;
    EXPECT_EQ(result.answer_tokens, static_cast<int64_t>(expected[i].ids.size()));
    EXPECT_EQ(answers[i].ends(), 1);
  }
}

void RunTogether(const EngineOptions& engine_options, int count,
                 const std::vector<Expected>& expected) {
  ServiceOptions options;
  options.step_rows_max = 48;
  const auto service = StartService(engine_options, options);
  std::vector<Answer> answers(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Submit(*service, MixedRequest(i), answers[static_cast<size_t>(i)]);
  }
  ExpectAnswers(answers, expected);
  ExpectNothingLeft(*service);
}

// With few slots, and requests of higher and higher priority that come while others are at work.
void RunWithPreemption(const EngineOptions& engine_options, int count,
                       const std::vector<Expected>& expected) {
  ServiceOptions options;
  options.running_max = 3;
  options.step_rows_max = 24;
  const auto service = StartService(engine_options, options);
  std::vector<Answer> answers(static_cast<size_t>(count));
  int next = 0;  // of the engine's thread, once it has something to do
  std::function<void()> submit_next;
  const auto prepare = [&] {
    answers[static_cast<size_t>(next)].on_token = [&, seen = 0](const ServiceToken&) mutable {
      if (++seen == 2) submit_next();
      return AnswerVerdict::kGoOn;
    };
    return next++;
  };
  const auto submit = [&](int index) {
    ServiceRequest request = MixedRequest(index);
    request.priority = index % 7;
    Submit(*service, request, answers[static_cast<size_t>(index)]);
  };
  submit_next = [&] {
    if (next < count) submit(prepare());
  };
  for (int i = 0; i < options.running_max; ++i) prepare();
  for (int i = 0; i < options.running_max; ++i) submit(i);
  ExpectAnswers(answers, expected);
  ASSERT_TRUE(service->WaitUntilIdle(60));
  EXPECT_GT(service->status().preemptions, count / 8) << "a test in which nothing was pushed out";
  ExpectNothingLeft(*service);
}

TEST(Service, AnswersDoNotDependOnWhoElseRuns) {
  const int count = kSanitized ? 8 : 32;
  for (const std::string& model : {kFullMini, kMini}) {
    SCOPED_TRACE(model);
    const EngineOptions options = Options(model);
    const std::vector<Expected> expected = AloneAnswers(options, count);
    for (const int together : {1, 8, 32}) {
      if (together <= count) RunTogether(options, together, expected);
    }
    RunWithPreemption(options, count, expected);
  }
}

TEST(Service, AnswersDoNotDependOnWhoElseRunsInReplayMode) {
  EngineOptions options = Options(kFullMini);
  options.prefill = PrefillMode::kReplay;
  options.cache.snapshot_bytes = int64_t{64} << 20;
  const int count = 6;
  const std::vector<Expected> expected = AloneAnswers(options, count);
  RunWithPreemption(options, count, expected);
}

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
  options.queue_seconds_max = 0.05;
  Answer running;
  Answer waiting;
  const auto service = StartService(engine_options, options);
  ServiceRequest request = Request(Prompt(10), 1'000'000);
  request.seconds_max = 0.15;
  Submit(*service, request, running);
  Submit(*service, Request(Prompt(10), 5), waiting);
  gate.WaitForStep();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
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
  EXPECT_NE(ran.error().message.find("0.15 seconds"), std::string::npos);
  ExpectNothingLeft(*service);
}

TEST(Service, TheEndOfTheServiceEndsWhatRunsAndWaits) {
  Gate gate;
  EngineOptions engine_options = HashOptions();
  engine_options.forward = gate.Model();
  ServiceOptions options;
  options.running_max = 2;
  std::vector<Answer> answers(6);
  {
    const auto service = StartService(engine_options, options);
    for (Answer& answer : answers) Submit(*service, Request(Prompt(10), 1000), answer);
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

// ---- the cache ----

TEST(Service, ALongReadFromDiskLetsTheOthersGoOn) {
  const TempDirectory disk;
  Gate gate;
  EngineOptions options = HashOptions();
  options.cache.disk_dir = disk.path();
  const std::vector<int32_t> prompt = Prompt(128 * (3 * static_cast<size_t>(kDiskBlocksAtOnce)));
  {
    Answer answer;
    const auto service = StartService(options);
    Submit(*service, Request(prompt, 1), answer);
    answer.Value();
  }
  options.forward = gate.Model();
  for (const bool cancel : {true, false}) {
    SCOPED_TRACE(cancel);
    Answer other;
    Answer answer;
    const auto service = StartService(options);
    const RequestId other_id = Submit(*service, Request({5, 6, 7}, 100'000), other);
    gate.WaitForStep();
    const RequestId id = Submit(*service, Request(prompt, 1), answer);
    for (int i = 0; i < 3; ++i) {  // two of them read the short prompt
      gate.LetOnePass();
      gate.WaitForStep();
    }
    EXPECT_EQ(gate.last_sequences(), 1u) << "the long one is not read yet";
    EXPECT_EQ(answer.starts(), 0);
    EXPECT_EQ(service->status().prefilling, 1);
    if (cancel) {
      service->Cancel(id);
      gate.LetOnePass();
      gate.WaitForStep();
      const Result<ServiceResult> result = answer.Wait();
      ASSERT_FALSE(result.has_value());
      EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
      EXPECT_LT(service->status().cache.disk_bytes_read, 2 * kDiskBlocksAtOnce * 105 * 128);
    } else {
      while (answer.ends() == 0) {
        gate.LetOnePass();
        gate.WaitForStep();
      }
      EXPECT_EQ(answer.use().disk_tokens, static_cast<int64_t>(prompt.size()) - 1);
      EXPECT_EQ(answer.use().ram_tokens, 0);
      EXPECT_EQ(answer.use().tier, "disk");
      EXPECT_EQ(answer.use().computed_tokens, 1);
      EXPECT_GE(other.ids().size(), 5u);
    }
    service->Cancel(other_id);
    gate.LetOnePass();
    other.Wait();
    ExpectNothingLeft(*service);
  }
}

// ---- reports ----

// serving.md 6.F 85.
TEST(Reports, LlamaCpp24496AClientThatIsGoneStopsCostingWithinOneStep) {
  enum class State { kQueue, kPrefill, kDecode };
  for (const State state : {State::kQueue, State::kPrefill, State::kDecode}) {
    SCOPED_TRACE(static_cast<int>(state));
    Gate gate;
    EngineOptions engine_options = HashOptions();
    engine_options.forward = gate.Model();
    ServiceOptions options;
    options.running_max = 1;
    options.step_rows_max = 16;
    Answer other;
    Answer answer;
    const auto service = StartService(engine_options, options);
    if (state == State::kQueue) {
      Submit(*service, Request(Prompt(16), 3), other);
      gate.WaitForStep();
    }
    const std::vector<int32_t> prompt = Prompt(state == State::kPrefill ? 1600 : 16);
    const RequestId id = Submit(*service, Request(prompt, 1000), answer);
    gate.WaitForStep();
    for (int i = 0; i < 2; ++i) {
      gate.LetOnePass();
      gate.WaitForStep();
    }
    EXPECT_EQ(answer.starts(), state == State::kQueue ? 0 : 1);
    EXPECT_EQ(answer.ids().empty(), state != State::kDecode);
    const int64_t before = gate.passed();
    service->Cancel(id);
    gate.Open();
    const Result<ServiceResult> result = answer.Wait();
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
    if (state == State::kQueue) other.Value();
    ASSERT_TRUE(service->WaitUntilIdle(60));
    // The step that was running, and the steps of the other one.
    EXPECT_LE(gate.passed(), before + (state == State::kQueue ? 3 : 1));
    EXPECT_EQ(service->status().cancelled, 1);
    // What was read of it is worth keeping.
    const auto kept = service->ExplainCache(prompt, "");
    ASSERT_TRUE(kept.has_value());
    EXPECT_GE(kept->cached_tokens, state == State::kPrefill ? 48 : 0);
    ExpectNothingLeft(*service);
  }
}

// serving.md 6.F 84: a stream that stops without a word.
TEST(Reports, DeepSeekV31608AStepThatHangsEndsTheStreamsWithAnError) {
  Gate gate;
  EngineOptions engine_options = HashOptions();
  engine_options.forward = gate.Model();
  ServiceOptions options;
  options.running_max = 1;
  options.stall_seconds_max = 0.1;
  std::vector<Answer> answers(2);
  Answer later;
  const auto service = StartService(engine_options, options);
  for (Answer& answer : answers) Submit(*service, Request(Prompt(10), 1000), answer);
  gate.WaitForStep();
  for (Answer& answer : answers) {  // nobody opened the gate
    const Result<ServiceResult> result = answer.Wait();
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kLimit);
    EXPECT_NE(result.error().message.find("0.1 seconds"), std::string::npos);
  }
  EXPECT_NE(SubmitError(*service, Request(Prompt(10), 1)).find("one step"), std::string::npos);
  EXPECT_EQ(service->status().failed, 2);
  gate.Open();  // it comes back after all
  ASSERT_TRUE(service->WaitUntilIdle(60));
  Submit(*service, Request(Prompt(10), 3), later);
  EXPECT_EQ(later.Value().answer_tokens, 3);
  for (Answer& answer : answers) EXPECT_EQ(answer.ends(), 1);
  ExpectNothingLeft(*service);
}

// serving.md 6.G 104, with the service around the scheduler.
TEST(Reports, Vllm51454AShortRequestUnderALongPrefillWaitsAtMostTwoChunks) {
  Gate gate;
  EngineOptions engine_options = HashOptions();
  engine_options.forward = gate.Model();
  engine_options.cache.ram_bytes = int64_t{1} << 30;
  ServiceOptions options;
  options.step_rows_max = 32;
  Answer longer;
  Answer shorter;
  const auto service = StartService(engine_options, options);
  const RequestId id = Submit(*service, Request(Prompt(1'000'000), 1), longer);
  gate.WaitForStep();
  for (int i = 0; i < 5; ++i) {
    gate.LetOnePass();
    gate.WaitForStep();
  }
  Submit(*service, Request(std::vector<int32_t>(20, 9), 1), shorter);
  gate.LetOnePass();  // the step that was running, one chunk
  gate.WaitForStep();
  const int64_t before = gate.rows_passed();
  while (shorter.ends() == 0 && gate.rows_passed() < before + 10 * options.step_rows_max) {
    gate.LetOnePass();
    gate.WaitForStep();
  }
  EXPECT_LE(gate.rows_passed(), before + options.step_rows_max) << "one more chunk";
  service->Cancel(id);
  gate.Open();
  longer.Wait();
  ExpectNothingLeft(*service);
}

// serving.md 6.D 57.
TEST(Reports, LmCache4185AThousandAbortsLeaveNothingBehind) {
  const TempDirectory disk;
  EngineOptions engine_options = HashOptions();
  engine_options.cache.disk_dir = disk.path();
  engine_options.cache.ram_bytes = 300 * 105 * 128;
  engine_options.cache.snapshot_bytes = int64_t{2} << 20;
  ServiceOptions options;
  options.running_max = 6;
  options.step_rows_max = 128;
  const size_t count = kSanitized ? 300 : 1000;
  std::vector<Answer> answers(count);
  const uint64_t seed = 20261130;
  std::mt19937_64 random(seed);
  {
    const auto service = StartService(engine_options, options);
    std::vector<RequestId> ids;
    for (size_t i = 0; i < count; ++i) {
      // Few beginnings, so that what one leaves the next one finds, in memory or on disk.
      std::vector<int32_t> prompt(200 + 400 * (random() % 6), static_cast<int32_t>(random() % 12));
      for (size_t k = 0; k < random() % 40; ++k) prompt.push_back(static_cast<int32_t>(k + 40));
      ServiceRequest request = Request(std::move(prompt), 1 + static_cast<int64_t>(random() % 30));
      request.priority = static_cast<int>(random() % 3);
      request.tenant = random() % 2 == 0 ? "anna" : "bert";
      ids.push_back(Submit(*service, request, answers[i]));
      // Mostly the new ones, sometimes one that is gone.
      const size_t back = random() % 12;
      if (back < ids.size()) service->Cancel(ids[ids.size() - 1 - back]);
      if (random() % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
      }
    }
    ExpectNothingLeft(*service);
    const ServiceStatus status = service->status();
    EXPECT_GT(status.cancelled, static_cast<int64_t>(count / 4)) << "seed " << seed;
    EXPECT_GT(status.finished, 0);
    EXPECT_EQ(status.failed, 0);
    EXPECT_EQ(status.cache.disk_warning, "");
  }
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(answers[i].ends(), 1) << i;
}

}  // namespace
}  // namespace minke::testing
