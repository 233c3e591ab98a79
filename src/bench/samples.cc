#include "bench/samples.h"

#include <algorithm>

#include <fmt/format.h>

namespace minke {

double Samples::Median() const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  if (sorted.size() % 2 == 1) return sorted[middle];
  return (sorted[middle - 1] + sorted[middle]) / 2;
}

double Samples::Best() const {
  return values_.empty() ? 0 : *std::max_element(values_.begin(), values_.end());
}

Json SamplesJson(const Samples& samples) {
  Json json;
  json.Set("median", samples.Median());
  json.Set("best", samples.Best());
  json.Set("samples", samples.count());
  return json;
}

std::string RateText(double per_second, const std::string& unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (per_second >= 1000 && prefix + 1 < std::size(kPrefixes)) {
    per_second /= 1000;
    ++prefix;
  }
  const int decimals = per_second >= 100 ? 0 : per_second >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}", per_second, decimals, kPrefixes[prefix], unit);
}

}  // namespace minke
