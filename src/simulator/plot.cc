// The plot of a report: hit rates over the size of the cache.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "simulator/line_chart.h"
#include "simulator/report.h"

namespace minke {
namespace {

// Of a run with a limit, in the unit of the axis.
int64_t SizeOf(const SimulationRun& run, bool in_bytes) {
  return in_bytes ? run.capacity.amount : run.result.capacity_blocks;
}

ChartPoint PointOf(const SimulationRun& run, const std::string& name, bool in_bytes) {
  return {
      static_cast<double>(SizeOf(run, in_bytes)), run.result.BlockHitRate(),
      fmt::format("{}, {}: {:.2f} % of the blocks, {:.2f} % of the tokens", name, run.capacity.text,
                  100 * run.result.BlockHitRate(), 100 * run.result.TokenHitRate())};
}

// The lines of the plot; runs without a limit are the bound that is drawn anyway.
std::vector<ChartSeries> SeriesOf(const std::vector<SimulationRun>& runs, bool in_bytes) {
  const bool one_size = std::all_of(runs.begin(), runs.end(), [&](const SimulationRun& run) {
    return run.bytes_per_token == runs.front().bytes_per_token;
  });
  std::vector<ChartSeries> all;
  for (const SimulationRun& run : runs) {
    if (run.capacity.unit == CapacityUnit::kUnlimited) continue;
    std::string name = run.result.policy;
    if (!one_size) name += fmt::format(", {} B/token", run.bytes_per_token);
    auto series = std::find_if(all.begin(), all.end(),
                               [&](const ChartSeries& known) { return known.name == name; });
    if (series == all.end()) series = all.insert(all.end(), ChartSeries{name, {}});
    series->points.push_back(PointOf(run, name, in_bytes));
  }
  for (ChartSeries& series : all) {
    std::stable_sort(series.points.begin(), series.points.end(),
                     [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  }
  return all;
}

}  // namespace

std::string SimulationReport::ToSvg() const {
  CHECK(!runs.empty());
  const bool in_bytes = std::all_of(runs.begin(), runs.end(), [](const SimulationRun& run) {
    return run.capacity.unit != CapacityUnit::kBlocks;
  });
  LineChart chart;
  chart.title = trace.name + ": hit rate by cache size";
  chart.summary = "Hit rate over capacity";
  const std::string unit =
      in_bytes ? "bytes" : fmt::format("blocks of {} tokens", trace.block_tokens);
  chart.x_label = "size of the cache, " + unit;
  chart.y_label = "blocks that hit";
  chart.series = SeriesOf(runs, in_bytes);
  std::set<int64_t> sizes;
  for (const SimulationRun& run : runs) {
    if (run.capacity.unit != CapacityUnit::kUnlimited) sizes.insert(SizeOf(run, in_bytes));
  }
  for (const int64_t size : sizes) {
    chart.tick_labels.push_back(in_bytes ? BytesText(size) : CountText(size));
  }
  chart.bound = unlimited.BlockHitRate();
  chart.bound_label = fmt::format("unlimited: {:.2f} %", 100 * chart.bound);
  return chart.ToSvg();
}

}  // namespace minke
