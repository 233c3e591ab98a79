#include "server/metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/result.h"

namespace minke {

namespace {

constexpr double kWholeMax = 9007199254740992.0;  // 2^53: doubles below it are exact integers

// As Prometheus reads it.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (std::trunc(value) == value && std::abs(value) <= kWholeMax) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string EscapeLabel(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

std::string EscapeHelp(std::string_view help) {
  std::string text;
  for (const char c : help) {
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c == '\\' ? "\\\\" : std::string(1, c);
    }
  }
  return text;
}

// "{a="1",b="2"}", or nothing where there is no label.
std::string LabelsText(const MetricsText::Labels& labels) {
  if (labels.empty()) return {};
  std::string text;
  for (const auto& [name, value] : labels) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "{" : ",", name, EscapeLabel(value));
  }
  return text + "}";
}

bool IsMetricName(std::string_view name) {
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == ':';
         });
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  const auto descends = [](double a, double b) { return !(a < b); };
  CHECK(std::adjacent_find(bounds_.begin(), bounds_.end(), descends) == bounds_.end(),
        "bounds of a histogram must ascend");
}

void Histogram::Observe(double value) {
  if (!std::isfinite(value)) return;
  // A bound belongs to its bucket.
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

Histogram::Reading Histogram::Read() const {
  Reading reading;
  reading.bounds = bounds_;
  const std::lock_guard<std::mutex> lock(mutex_);
  reading.counts = counts_;
  for (const int64_t count : counts_) reading.count += count;
  reading.sum = sum_;
  return reading;
}

void MetricsText::Head(std::string_view name, std::string_view help, std::string_view type) {
  CHECK(IsMetricName(name), name);
  if (name == last_name_) return;
  last_name_ = std::string(name);
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, EscapeHelp(help), name, type);
}

void MetricsText::Counter(std::string_view name, std::string_view help, double value,
                          const Labels& labels) {
  Head(name, help, "counter");
  text_ += fmt::format("{}{} {}\n", name, LabelsText(labels), NumberText(value));
}

void MetricsText::Gauge(std::string_view name, std::string_view help, double value,
                        const Labels& labels) {
  Head(name, help, "gauge");
  text_ += fmt::format("{}{} {}\n", name, LabelsText(labels), NumberText(value));
}

void MetricsText::Add(std::string_view name, std::string_view help,
                      const Histogram::Reading& reading, const Labels& labels) {
  Head(name, help, "histogram");
  int64_t below = 0;
  for (size_t i = 0; i < reading.counts.size(); ++i) {
    below += reading.counts[i];
    Labels bucket = labels;
    bucket.emplace_back("le", i < reading.bounds.size() ? NumberText(reading.bounds[i]) : "+Inf");
    text_ += fmt::format("{}_bucket{} {}\n", name, LabelsText(bucket), below);
  }
  text_ += fmt::format("{}_sum{} {}\n", name, LabelsText(labels), NumberText(reading.sum));
  text_ += fmt::format("{}_count{} {}\n", name, LabelsText(labels), reading.count);
}

}  // namespace minke
