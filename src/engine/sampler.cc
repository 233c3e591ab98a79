#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace minke {
namespace {

constexpr double kTemperatureMax = 100.0;
// Where the reference clamps a positive temperature (architecture.md 11).
constexpr double kTemperatureMin = 1e-5;
constexpr double kRepetitionPenaltyMax = 100.0;
constexpr double kPenaltyMax = 2.0;
constexpr double kLogitBiasMax = 1000.0;

// A strict total order, so that every selection is a unique set.
bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

Status CheckRange(const char* option, double value, double low, double high, bool low_open) {
  const bool low_ok = low_open ? value > low : value >= low;
  if (low_ok && value <= high) return {};
  return Fail(fmt::format("{} must be in {}{}, {}], found {}.", option, low_open ? "(" : "[", low,
                          high, value));
}

Status CheckOptions(const SamplingOptions& options, int64_t vocab_size) {
  TRY_STATUS(CheckRange("temperature", options.temperature, 0, kTemperatureMax, false));
  TRY_STATUS(CheckRange("top_p", options.top_p, 0, 1, true));
  TRY_STATUS(CheckRange("min_p", options.min_p, 0, 1, false));
  TRY_STATUS(
      CheckRange("repetition_penalty", options.repetition_penalty, 0, kRepetitionPenaltyMax, true));
  TRY_STATUS(
      CheckRange("presence_penalty", options.presence_penalty, -kPenaltyMax, kPenaltyMax, false));
  TRY_STATUS(
      CheckRange("frequency_penalty", options.frequency_penalty, -kPenaltyMax, kPenaltyMax, false));
  if (options.top_k < 0) {
    return Fail(fmt::format("top_k must be 0 (all tokens) or more, found {}.", options.top_k));
  }
  if (options.logprobs < -1 || options.logprobs > kLogprobsMax) {
    return Fail(fmt::format("logprobs must be between 0 and {}, found {}.", kLogprobsMax,
                            options.logprobs));
  }
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return Fail(fmt::format("logit_bias names token {}, but the vocabulary has ids 0 to {}.", id,
                              vocab_size - 1));
    }
    TRY_STATUS(CheckRange("logit_bias", bias, -kLogitBiasMax, kLogitBiasMax, false));
  }
  return {};
}

// Ten rounds of Philox4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): a
// bijection of the 128-bit counter under a 64-bit key, checked against its published vectors.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// No less than -log(-log(uniform)), without a logarithm: -log(u) is at least 1 - u, of which the
// binary exponent is read. The slack is far above what rounding makes of either side.
double NoiseBound(double uniform) {
  constexpr double kLog2 = 0.693147180559945309;
  constexpr double kSlack = 1e-3;
  constexpr int kMantissaBits = 52;
  constexpr int kExponentBias = 1023;
  const auto exponent =
      static_cast<int>(std::bit_cast<uint64_t>(1.0 - uniform) >> kMantissaBits) - kExponentBias;
  return -exponent * kLog2 + kSlack;
}

}  // namespace

double CounterUniform(uint64_t seed, uint64_t position, uint32_t id) {
  const std::array<uint32_t, 4> bits =
      Philox({id, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = (static_cast<uint64_t>(bits[1]) << 32) | bits[0];
  // 52 bits and a half step: neither 0 nor 1 can come out, whose logarithms would be infinite.
  return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
}

Status Sampler::Check(const SamplingOptions& options, int64_t vocab_size) {
  return CheckOptions(options, vocab_size);
}

Result<Sampler> Sampler::Create(const SamplingOptions& options, int64_t vocab_size) {
  CHECK(vocab_size > 0);
  TRY_STATUS(CheckOptions(options, vocab_size));
  return Sampler(options, vocab_size);
}

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size) : options_(options) {
  const auto size = static_cast<size_t>(vocab_size);
  penalties_ = options.repetition_penalty != 1.0 || options.presence_penalty != 0.0 ||
               options.frequency_penalty != 0.0;
  if (penalties_) {
    answer_counts_.assign(size, 0);
    seen_.assign(size, 0);
  }
  if (!options.logit_bias.empty()) bias_.assign(size, 0.0);
  for (const auto& [id, bias] : options.logit_bias) bias_[static_cast<size_t>(id)] += bias;
  candidates_.reserve(size);
}

void Sampler::AddPrompt(std::span<const int32_t> ids) {
  if (!penalties_) return;
  for (int32_t id : ids) seen_[static_cast<size_t>(id)] = 1;
}

void Sampler::AddAnswer(int32_t id) {
  if (!penalties_) return;
  seen_[static_cast<size_t>(id)] = 1;
  ++answer_counts_[static_cast<size_t>(id)];
}

double Sampler::Adjusted(double logit, size_t id) const {
  if (penalties_) {
    if (seen_[id] != 0) {
      logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    }
    if (answer_counts_[id] > 0) {
      logit -= options_.presence_penalty;
      logit -= options_.frequency_penalty * static_cast<double>(answer_counts_[id]);
    }
  }
  return bias_.empty() ? logit : logit + bias_[id];
}

Status Sampler::Fill(std::span<const float> logits) {
  CHECK(!logits.empty());
  candidates_.clear();
  const double scale =
      options_.temperature > 0 ? 1.0 / std::max(options_.temperature, kTemperatureMin) : 1.0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double logit = logits[id];
    if (std::isnan(logit) || logit == std::numeric_limits<double>::infinity()) {
      return Fail(ErrorCode::kModel,
                  fmt::format("The model gave a logit that is not a finite number ({}) for token "
                              "{}; its weights are damaged: get the checkpoint's files again.",
                              logit, id));
    }
    if (logit == -std::numeric_limits<double>::infinity()) continue;
    candidates_.push_back({static_cast<int32_t>(id), Adjusted(logit, id) * scale});
  }
  if (candidates_.empty()) {
    return Fail(ErrorCode::kModel,
                "Every logit of this position is minus infinity, so there is no token to choose.");
  }
  return {};
}

void Sampler::KeepTopK() {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  std::partial_sort(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(),
                    Better);
  candidates_.resize(k);
}

void Sampler::KeepTopP() {
  if (options_.top_p >= 1.0) return;
  double best = candidates_.front().logit;
  for (const Candidate& candidate : candidates_) best = std::max(best, candidate.logit);
  double mass = 0;
  for (const Candidate& candidate : candidates_) mass += std::exp(candidate.logit - best);
  // Taking the best from a heap until enough is held costs less than a sort, since few suffice.
  const auto worse = [](const Candidate& a, const Candidate& b) { return Better(b, a); };
  std::make_heap(candidates_.begin(), candidates_.end(), worse);
  auto heap_end = candidates_.end();
  double held = 0;
  while (heap_end != candidates_.begin() && held < options_.top_p * mass) {
    std::pop_heap(candidates_.begin(), heap_end, worse);
    --heap_end;
    held += std::exp(heap_end->logit - best);
  }
  candidates_.erase(candidates_.begin(), heap_end);
}

void Sampler::KeepMinP() {
  if (options_.min_p <= 0.0) return;
  double best = candidates_.front().logit;
  for (const Candidate& candidate : candidates_) best = std::max(best, candidate.logit);
  const double least = best + std::log(options_.min_p);
  std::erase_if(candidates_, [least](const Candidate& c) { return c.logit < least; });
}

Result<std::span<const Candidate>> Sampler::Filter(std::span<const float> logits) {
  TRY_STATUS(Fill(logits));
  if (options_.temperature == 0.0) {
    candidates_.front() = *std::min_element(candidates_.begin(), candidates_.end(), Better);
    candidates_.resize(1);
    return std::span<const Candidate>(candidates_);
  }
  KeepTopK();
  KeepTopP();
  KeepMinP();
  CHECK(!candidates_.empty());
  return std::span<const Candidate>(candidates_);
}

Result<int32_t> Sampler::Sample(std::span<const float> logits, int64_t position) {
  const std::span<const Candidate> candidates = TRY(Filter(logits));
  Candidate best;
  bool first = true;
  for (const Candidate& candidate : candidates) {
    Candidate noisy = candidate;
    if (candidates.size() > 1) {
      const double uniform = CounterUniform(options_.seed, static_cast<uint64_t>(position),
                                            static_cast<uint32_t>(candidate.id));
      // Of a large vocabulary nearly all end here: two logarithms each took most of a draw.
      if (!first && noisy.logit + NoiseBound(uniform) < best.logit) continue;
      noisy.logit -= std::log(-std::log(uniform));
    }
    if (first || Better(noisy, best)) best = noisy;
    first = false;
  }
  return best.id;
}

Logprobs ComputeLogprobs(std::span<const float> logits, int32_t id, int count) {
  CHECK(id >= 0 && static_cast<size_t>(id) < logits.size());
  const double best = *std::max_element(logits.begin(), logits.end());
  double mass = 0;
  for (float logit : logits) mass += std::exp(static_cast<double>(logit) - best);
  const double log_mass = best + std::log(mass);

  std::vector<Candidate> order;
  order.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    order.push_back({static_cast<int32_t>(i), logits[i]});
  }
  const size_t wanted = std::min(static_cast<size_t>(std::max(count, 0)), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(wanted), order.end(),
                    Better);
  Logprobs result;
  result.chosen = {id, static_cast<double>(logits[static_cast<size_t>(id)]) - log_mass};
  for (size_t i = 0; i < wanted; ++i) {
    result.best.push_back({order[i].id, order[i].logit - log_mass});
  }
  return result;
}

std::string StopMatcher::Push(std::string_view piece) {
  if (matched()) return {};
  const size_t old_size = held_.size();
  held_ += piece;
  for (size_t end = old_size + 1; end <= held_.size(); ++end) {
    const std::string_view seen(held_.data(), end);
    for (size_t i = 0; i < stops_.size(); ++i) {
      const bool longer = !matched() || stops_[i].size() > match().size();
      if (longer && seen.ends_with(stops_[i])) matched_ = static_cast<int>(i);
    }
    if (matched()) {
      std::string shown = held_.substr(0, end - match().size());
      held_.clear();
      return shown;
    }
  }
  // Keep the longest tail that begins a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > keep; --size) {
      if (held_.ends_with(std::string_view(stop).substr(0, size))) keep = size;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::Flush() {
  return std::exchange(held_, {});
}

}  // namespace minke
