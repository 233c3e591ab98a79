// What stands in for the model under load, and the clients: sockets of one thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "server/api.h"

namespace minke::bench {

using LoadTime = std::chrono::steady_clock::time_point;

// In place of the model: each step says one letter to every stream, and the letter says which step
// of the last 64 it was. An answer ends where its timeline has a length of a multiple of 512.
class StepLetters {
 public:
  static Result<std::unique_ptr<StepLetters>> Create(const std::string& model_dir);
  // The object outlives the engine. Each row of a step takes so many seconds.
  ForwardFunction function(double row_seconds);
  // Since the end of the step that said the letter, which is the last such one; -1: no letter.
  double SecondsSince(char letter, LoadTime now) const;

 private:
  static constexpr size_t kLetters = 64;
  StepLetters() = default;
  std::array<int32_t, kLetters> ids_ = {};
  int32_t eos_ = 0;
  size_t step_ = 0;
  std::array<std::atomic<LoadTime>, kLetters> ends_;
};

struct LoadOptions {
  int streams = 500;
  double abort_share = 0.01;  // of requests, given up by their clients
};

// Counts in steps of a tenth of a millisecond.
class DelayCounts {
 public:
  void Add(double seconds);
  double Quantile(double part) const;  // seconds; 1: the largest

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double max_ = 0;
};

struct LoadCounts {
  int64_t events = 0;
  int64_t ended = 0;  // answers that came whole
  int64_t aborted = 0;
  int64_t errors = 0;
  std::string first_error;
  DelayCounts delays;
  DelayCounts first;  // from the request to its first letter
};

class LoadClients {
 public:
  LoadClients(uint16_t port, const LoadOptions& options, const StepLetters* letters);
  ~LoadClients();
  LoadClients(const LoadClients&) = delete;
  LoadClients& operator=(const LoadClients&) = delete;

  // Keeps the streams open: where one ends, the next begins.
  void RunFor(double seconds);
  void CloseAll();
  const LoadCounts& counts() const { return counts_; }

 private:
  // One connection, with one request at a time.
  struct Stream {
    int descriptor = -1;
    ApiFamily family = ApiFamily::kChat;
    int64_t letters = 0;
    int64_t tokens_said = -1;  // by the answer
    int64_t abort_at = -1;     // the letter after which the client goes; -1: it stays
    int requests_left = 0;     // before the connection is given up
    bool head_seen = false;
    LoadTime asked;
    std::string rest;  // what came and is not read yet
  };
  void Connect(Stream& stream);
  void Ask(Stream& stream);
  void Read(Stream& stream);
  // A line of the stream. False at the end of the answer.
  bool ReadLine(Stream& stream, std::string_view line, LoadTime now);
  void EndAnswer(Stream& stream);
  void Fail(Stream& stream, std::string_view what);
  void Close(Stream& stream, bool reset);

  const uint16_t port_;
  const LoadOptions options_;
  const StepLetters* const letters_;
  const int poll_;
  std::mt19937 random_{1};
  int64_t asked_ = 0;
  std::vector<Stream> streams_;
  LoadCounts counts_;
};

}  // namespace minke::bench
