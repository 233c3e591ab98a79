// Counters, gauges and histograms, and their text for Prometheus (serving.md 5).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace minke {

// A histogram with fixed upper bounds. Observe() may be called from any thread.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void Observe(double value);

  struct Reading {
    std::vector<double> bounds;
    std::vector<int64_t> counts;  // one more than bounds: the last is above all of them
    int64_t count = 0;
    double sum = 0;
  };
  Reading Read() const;

 private:
  std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

// Builds the exposition text: one HELP and TYPE a name, labels escaped.
class MetricsText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  void Counter(std::string_view name, std::string_view help, double value,
               const Labels& labels = {});
  void Gauge(std::string_view name, std::string_view help, double value, const Labels& labels = {});
  void Add(std::string_view name, std::string_view help, const Histogram::Reading& reading,
           const Labels& labels = {});
  const std::string& text() const { return text_; }

 private:
  void Head(std::string_view name, std::string_view help, std::string_view type);
  std::string text_;
  std::string last_name_;
};

}  // namespace minke
