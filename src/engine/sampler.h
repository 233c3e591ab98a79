// From logits to a token (architecture.md 11). The draw is the Gumbel-max form of the softmax: the
// candidate with the largest logit / temperature + noise wins, where the noise of a token id at a
// position is a function of (seed, position, id) alone. So the order of candidates, other
// sequences and other filters cannot change a draw, and filters only take candidates away.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"

namespace minke {

// Uniform in (0, 1): Philox4x32-10 with the seed as key and (position, id) as counter.
double CounterUniform(uint64_t seed, uint64_t position, uint32_t id);

// A token that is still in the race, with its logit after penalties and temperature.
struct Candidate {
  int32_t id = 0;
  double logit = 0;
};

class Sampler {
 public:
  // Errors name the option, its range and what was found.
  static Status Check(const SamplingOptions& options, int64_t vocab_size);
  static Result<Sampler> Create(const SamplingOptions& options, int64_t vocab_size);

  // Tokens of the prompt count for the repetition penalty only.
  void AddPrompt(std::span<const int32_t> ids);
  // A token of the answer counts for all penalties.
  void AddAnswer(int32_t id);

  // The candidates that the filters leave, in no particular order. logits: [vocab_size]; minus
  // infinity rules a token out. NaN, plus infinity and a row of nothing but minus infinity are
  // errors. The span lives until the next call.
  Result<std::span<const Candidate>> Filter(std::span<const float> logits);
  // The token for `position` of the timeline.
  Result<int32_t> Sample(std::span<const float> logits, int64_t position);

 private:
  Sampler(const SamplingOptions& options, int64_t vocab_size);
  Status Fill(std::span<const float> logits);
  double Adjusted(double logit, size_t id) const;
  void KeepTopK();
  void KeepTopP();
  void KeepMinP();

  SamplingOptions options_;
  bool penalties_ = false;
  std::vector<uint32_t> answer_counts_;  // [vocab_size]; empty without penalties
  std::vector<uint8_t> seen_;            // [vocab_size], prompt and answer
  std::vector<double> bias_;             // [vocab_size]; empty without logit_bias
  std::vector<Candidate> candidates_;
};

// The logarithm of the softmax of the logits themselves, for `id` and the `count` best tokens,
// best first, lower id first on ties.
struct Logprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> best;
};
Logprobs ComputeLogprobs(std::span<const float> logits, int32_t id, int count);

// Finds stop strings in a stream of text pieces. What may still become a stop string is held back.
// The first match to end wins, the longest if several end there, so the outcome does not depend
// on how the text was cut into pieces.
class StopMatcher {
 public:
  // REQUIRES: no empty string.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Text that is safe to show. Once matched() is true nothing more comes out.
  std::string Push(std::string_view piece);
  // What was held back; it is no stop string.
  std::string Flush();
  bool matched() const { return matched_ >= 0; }
  const std::string& match() const { return stops_[static_cast<size_t>(matched_)]; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace minke
