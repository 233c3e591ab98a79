// Sinks that keep what they get, and a stand-in for the model, for the tests of the service.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/service.h"
#include "tests/engine/engine_support.h"

namespace minke::testing {

// Everything that one request's sink was told. Outlives the service.
class Answer {
 public:
  // Called for each token, on the engine's thread.
  std::function<AnswerVerdict(const ServiceToken&)> on_token;

  std::unique_ptr<AnswerSink> NewSink() { return std::make_unique<Sink>(*this); }

  // The result, once it is there; fails the test if that takes too long.
  Result<ServiceResult> Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool came = changed_.wait_for(lock, kPatience, [&] { return end_.has_value(); });
    EXPECT_TRUE(came) << "the request has no end";
    return came ? *end_ : Fail("the request has no end");
  }
  ServiceResult Value() {
    const Result<ServiceResult> result = Wait();
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return result.has_value() ? *result : ServiceResult();
  }
  void WaitForTokens(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return ids_.size() >= count; }));
  }
  void WaitForStart() {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return starts_ > 0; }));
  }
  std::vector<int32_t> ids() const { return Get(&Answer::ids_); }
  // Of each token: its own, and those of the alternatives.
  std::vector<double> logprobs() const { return Get(&Answer::logprobs_); }
  int starts() const { return Get(&Answer::starts_); }
  int ends() const { return Get(&Answer::ends_); }
  int64_t prefilled() const { return Get(&Answer::prefilled_); }
  CacheUse use() const { return Get(&Answer::use_); }

 private:
  static constexpr std::chrono::seconds kPatience{300};

  class Sink : public AnswerSink {
   public:
    explicit Sink(Answer& answer) : answer_(answer) {}
    void OnStart(const CacheUse& use) override {
      const std::lock_guard<std::mutex> lock(answer_.mutex_);
      EXPECT_FALSE(answer_.end_.has_value());
      ++answer_.starts_;
      answer_.use_ = use;
      answer_.changed_.notify_all();
    }
    void OnPrefill(int64_t done, int64_t total) override {
      const std::lock_guard<std::mutex> lock(answer_.mutex_);
      EXPECT_FALSE(answer_.end_.has_value());
      EXPECT_GT(done, answer_.prefilled_);
      EXPECT_LE(done, total);
      answer_.prefilled_ = done;
    }
    AnswerVerdict OnToken(const ServiceToken& token) override {
      {
        const std::lock_guard<std::mutex> lock(answer_.mutex_);
        EXPECT_EQ(answer_.starts_, 1);
        EXPECT_FALSE(answer_.end_.has_value());
        answer_.ids_.push_back(token.id);
        if (token.logprob != nullptr) answer_.logprobs_.push_back(token.logprob->logprob);
        for (const TokenLogprob& other : token.alternatives) {
          answer_.logprobs_.push_back(other.logprob);
        }
        answer_.changed_.notify_all();
      }
      return answer_.on_token ? answer_.on_token(token) : AnswerVerdict::kGoOn;
    }
    void OnEnd(const Result<ServiceResult>& result) override {
      const std::lock_guard<std::mutex> lock(answer_.mutex_);
      ++answer_.ends_;
      answer_.end_ = result;
      answer_.changed_.notify_all();
    }

   private:
    Answer& answer_;
  };

  template <typename T>
  T Get(T Answer::*member) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return this->*member;
  }

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<int32_t> ids_;
  std::vector<double> logprobs_;
  int starts_ = 0;
  int ends_ = 0;
  int64_t prefilled_ = 0;
  CacheUse use_;
  std::optional<Result<ServiceResult>> end_;
};

inline std::unique_ptr<Service> StartService(const EngineOptions& engine_options,
                                             const ServiceOptions& options = {}) {
  Result<std::unique_ptr<Service>> service = Service::Start(Open(engine_options), options);
  EXPECT_TRUE(service.has_value()) << service.error().message;
  return service.has_value() ? std::move(service).value() : nullptr;
}

inline RequestId Submit(Service& service, const ServiceRequest& request, Answer& answer) {
  const Result<RequestId> id = service.Submit(request, answer.NewSink());
  EXPECT_TRUE(id.has_value()) << id.error().message;
  return id.value_or(0);
}

inline std::string SubmitError(Service& service, const ServiceRequest& request) {
  Answer answer;
  const Result<RequestId> id = service.Submit(request, answer.NewSink());
  EXPECT_FALSE(id.has_value());
  return id.has_value() ? std::string() : id.error().message;
}

inline ServiceRequest Request(std::vector<int32_t> prompt, int64_t max_tokens) {
  ServiceRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// Nothing runs, and all memory has come back: what is left in the pools is the cache's, and goes.
inline void ExpectNothingLeft(Service& service) {
  ASSERT_TRUE(service.WaitUntilIdle(120));
  service.engine().DropCacheMemory();
  const CacheStatus cache = service.engine().cache_status();
  EXPECT_EQ(cache.ram_used_bytes, 0);
  EXPECT_EQ(cache.ram_blocks, 0);
  EXPECT_EQ(cache.snapshot_used_bytes, 0);
  const ServiceStatus status = service.status();
  EXPECT_EQ(status.queued + status.prefilling + status.decoding, 0);
  EXPECT_EQ(status.finished + status.cancelled + status.failed, status.submitted);
}

// Logits that depend on the last tokens and their number, at no cost.
inline Status HashModel(std::span<const ForwardSequence> sequences) {
  for (const ForwardSequence& sequence : sequences) {
    if (sequence.logits.empty()) continue;
    uint64_t digest = 14695981039346656037U ^ sequence.history.size();
    for (const int32_t id : sequence.history.last(std::min<size_t>(8, sequence.history.size()))) {
      digest = (digest ^ static_cast<uint32_t>(id)) * 1099511628211U;
    }
    for (float& logit : sequence.logits) {
      digest = digest * 6364136223846793005U + 1442695040888963407U;
      logit = static_cast<float>(digest >> 40) * 0x1p-20f;
    }
  }
  return {};
}

inline EngineOptions HashOptions() {
  EngineOptions options = Options();
  options.forward = HashModel;
  return options;
}

// Lets steps through one at a time.
class Gate {
 public:
  // A model that stops before each step.
  ForwardFunction Model() {
    return [this](std::span<const ForwardSequence> sequences) -> Status {
      std::unique_lock<std::mutex> lock(mutex_);
      ++arrived_;
      last_sequences_ = sequences.size();
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_ || passed_ < allowed_; });
      ++passed_;
      for (const ForwardSequence& sequence : sequences) rows_passed_ += sequence.new_tokens;
      changed_.notify_all();  // after the last step no other one arrives and says so
      lock.unlock();
      return HashModel(sequences);
    };
  }
  // Waits until a step is at the gate.
  void WaitForStep() {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return arrived_ > passed_; }));
  }
  // Returns when the step has gone through.
  void LetOnePass() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t target = ++allowed_;
    changed_.notify_all();
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return passed_ >= target; }));
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int64_t passed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return passed_;
  }
  int64_t rows_passed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return rows_passed_;
  }
  size_t last_sequences() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_sequences_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t arrived_ = 0;
  int64_t passed_ = 0;
  int64_t allowed_ = 0;
  int64_t rows_passed_ = 0;
  size_t last_sequences_ = 0;
  bool open_ = false;
};

}  // namespace minke::testing
