// Whatever else runs, an answer of the service has the bits that it has alone.
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/service.h"
#include "tests/engine/service_support.h"
#include "tests/support/resident_memory.h"

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

}  // namespace
}  // namespace minke::testing
