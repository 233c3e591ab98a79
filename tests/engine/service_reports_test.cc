// The service under what was reported of others (serving.md 6), and reading from disk.
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/sequence.h"
#include "engine/service.h"
#include "tests/engine/service_support.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

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
  options.stall_seconds_max = 1;
  std::vector<Answer> answers(2);
  Answer later;
  const auto service = StartService(engine_options, options);
  for (Answer& answer : answers) Submit(*service, Request(Prompt(10), 1000), answer);
  gate.WaitForStep();
  for (Answer& answer : answers) {  // nobody opened the gate
    const Result<ServiceResult> result = answer.Wait();
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kLimit);
    EXPECT_NE(result.error().message.find("1 seconds"), std::string::npos);
  }
  EXPECT_NE(SubmitError(*service, Request(Prompt(10), 1)).find("one step"), std::string::npos);
  EXPECT_EQ(service->status().failed, 2);
  EXPECT_EQ(service->status().stalled, 2);
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
    // How many were still there to be cancelled depends on the machine.
    EXPECT_GT(status.cancelled, static_cast<int64_t>(count / 20)) << "seed " << seed;
    EXPECT_GT(status.finished, 0);
    EXPECT_EQ(status.failed, 0);
    EXPECT_EQ(status.cache.disk_warning, "");
  }
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(answers[i].ends(), 1) << i;
}

}  // namespace
}  // namespace minke::testing
