#include "apps/bench_plots.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/file.h"
#include "simulator/capacity.h"
#include "simulator/line_chart.h"

namespace minke {
namespace {

LineChart RatioChart(const std::string& title, const std::string& x_label) {
  LineChart chart;
  chart.title = title;
  chart.summary = "Share of the bound that is reached, over " + x_label;
  chart.x_label = x_label;
  chart.y_label = "of the bound";
  return chart;
}

// The integer kernels may be faster than the float32 peak that is their bound.
double ShownShare(double ratio) {
  return std::clamp(ratio, 0.0, 1.0);
}

}  // namespace

std::string KernelPlot(const KernelBenchReport& report) {
  LineChart chart = RatioChart("Products of the released shapes", "rows");
  std::map<std::string, std::map<int64_t, std::vector<double>>> formats;
  std::set<int64_t> rows;
  for (const KernelBenchCase& one : report.cases) {
    formats[BenchFormatName(one.format)][one.rows].push_back(report.Ratio(one));
    rows.insert(one.rows);
  }
  for (auto& [name, points] : formats) {
    ChartSeries series;
    series.name = name;
    for (auto& [count, ratios] : points) {
      std::sort(ratios.begin(), ratios.end());
      series.points.push_back(
          {static_cast<double>(count), ShownShare(ratios[ratios.size() / 2]),
           fmt::format("{}, {} rows: {:.0f} to {:.0f} % of the bound in {} shapes", name, count,
                       100 * ratios.front(), 100 * ratios.back(), ratios.size())});
    }
    chart.series.push_back(std::move(series));
  }
  for (const int64_t count : rows) chart.tick_labels.push_back(CountText(count));
  return chart.ToSvg();
}

std::string ContextPlot(const DecodeBenchReport& report) {
  LineChart chart = RatioChart("Decoding one sequence", "tokens of context");
  ChartSeries series;
  series.name = "decode";
  std::map<int64_t, const DecodeBenchCase*> cases;
  for (const DecodeBenchCase& one : report.cases) cases[one.context] = &one;
  for (const auto& [context, one] : cases) {
    const double ratio = report.Ratio(*one);
    series.points.push_back(
        {static_cast<double>(context), ShownShare(ratio),
         fmt::format("{} tokens: {:.0f} % of the bound, {:.3f} tokens/s", CountText(context),
                     100 * ratio, one->tokens_per_second())});
    chart.tick_labels.push_back(CountText(context));
  }
  chart.series.push_back(std::move(series));
  return chart.ToSvg();
}

Status WriteBenchPlot(const std::string& path, const std::string& svg) {
  return WriteFile(path, std::as_bytes(std::span(svg)));
}

}  // namespace minke
