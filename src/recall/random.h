// Random numbers that are the same on every machine: a counter-based generator, because the
// distributions of the standard library may differ between its implementations.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>

#include "core/result.h"

namespace minke {

// SplitMix64. Streams of different keys are independent for our purposes.
class Random {
 public:
  // The keys, in order, name the stream: a domain, a seed, a step, an index ...
  Random(std::initializer_list<uint64_t> keys) {
    for (const uint64_t key : keys) state_ = Mix(state_ ^ key) + kStep;
  }

  uint64_t Next() { return Mix(state_ += kStep); }
  // [0, count). REQUIRES count > 0. The bias of the remainder is below count / 2^64.
  int64_t Below(int64_t count) {
    CHECK(count > 0);
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(count));
  }
  // [low, high], both included.
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  // [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  bool Chance(double probability) { return Uniform() < probability; }
  template <typename List>
  const auto& Pick(const List& list) {
    return list[static_cast<size_t>(Below(static_cast<int64_t>(std::size(list))))];
  }

 private:
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

  uint64_t state_ = 0;
};

// First keys of streams. Training and evaluation never share one, whatever their seeds.
inline constexpr uint64_t kTrainingDomain = 0x747261696E;
inline constexpr uint64_t kEvaluationDomain = 0x6576616C;

}  // namespace minke
