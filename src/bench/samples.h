// Repeated measurements of one thing, taken in turn with those of other things, so that a change of
// the machine's pace meets them all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"

namespace minke {

inline constexpr int64_t kRoundsMin = 5;  // of a median that is worth reporting
inline constexpr int64_t kRoundsMax = 1000;

// Rates, where more is better. Median and best are 0 without samples.
class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  int64_t count() const { return static_cast<int64_t>(values_.size()); }
  double Median() const;
  double Best() const;
  double Last() const { return values_.empty() ? 0 : values_.back(); }

 private:
  std::vector<double> values_;
};

// {"median": ..., "best": ..., "samples": ...}
Json SamplesJson(const Samples& samples);

// "31.6 GB/s", "78.1 G/s": three digits with a unit of thousands.
std::string RateText(double per_second, const std::string& unit);

}  // namespace minke
