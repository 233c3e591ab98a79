// The plot of a report, as SVG: text that any browser shows, small enough to be written by hand.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "simulator/report.h"

namespace minke {
namespace {

// The page, in pixels; the plot leaves room for labels on all sides and for the legend.
constexpr double kWidth = 800;
constexpr double kHeight = 460;
constexpr double kLeft = 70;
constexpr double kRight = 590;
constexpr double kTop = 50;
constexpr double kBottom = 390;
constexpr double kTickSpaceX = 58;  // labels closer than that would run into each other
constexpr double kLegendLine = 22;
constexpr double kMarkRadius = 4;
constexpr size_t kColours = 6;

// Colours of light pages and, where the reader prefers it, of dark ones.
constexpr std::string_view kStyle = R"(<style>
:root { color-scheme: light dark; }
text { font: 13px system-ui, sans-serif; fill: #24292f; }
text.title { font-size: 15px; font-weight: 600; }
.page { fill: #ffffff; }
.grid { stroke: #d8dde3; stroke-width: 1; }
.axis { stroke: #57606a; stroke-width: 1; }
.bound { stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 6 5; }
.line { fill: none; stroke-width: 2; }
.s0 { stroke: #1f6fd1; fill: #1f6fd1; } .s1 { stroke: #c2410c; fill: #c2410c; }
.s2 { stroke: #15803d; fill: #15803d; } .s3 { stroke: #9333ea; fill: #9333ea; }
.s4 { stroke: #b91c5c; fill: #b91c5c; } .s5 { stroke: #6b7280; fill: #6b7280; }
.line { fill: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ee; }
.page { fill: #14171c; }
.grid { stroke: #30363d; }
.axis, .bound { stroke: #a5adb8; }
.s0 { stroke: #6ab0ff; fill: #6ab0ff; } .s1 { stroke: #ff9d5c; fill: #ff9d5c; }
.s2 { stroke: #5fd38a; fill: #5fd38a; } .s3 { stroke: #c99bff; fill: #c99bff; }
.s4 { stroke: #ff8fb8; fill: #ff8fb8; } .s5 { stroke: #b0b7c3; fill: #b0b7c3; }
.line { fill: none; }
}
</style>
)";

std::string XmlText(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // XML has no way to write control characters.
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

struct Point {
  double size = 0;  // of the cache, in the unit of the axis
  const SimulationRun* run = nullptr;
};

struct Series {
  std::string name;
  std::vector<Point> points;
};

std::string Mark(size_t series, double x, double y) {
  const std::string colour = fmt::format("s{}", series % kColours);
  const double r = kMarkRadius;
  switch (series % 3) {
    case 0:
      return fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\">", colour, x, y,
                         r);
    case 1:
      return fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}h{}v{}h-{}z\">", colour, x - r,
                         y - r, 2 * r, 2 * r, 2 * r);
    default:
      return fmt::format("<path class=\"{}\" d=\"M{:.1f} {:.1f}l{} {}h-{}z\">", colour, x,
                         y - r - 1, r + 1, 2 * r + 1, 2 * r + 2);
  }
}

std::string MarkEnd(size_t series) {
  return series % 3 == 0 ? "</circle>\n" : "</path>\n";
}

class Plot {
 public:
  explicit Plot(const SimulationReport& report) : report_(report) {
    in_bytes_ = std::all_of(report.runs.begin(), report.runs.end(), [](const SimulationRun& run) {
      return run.capacity.unit != CapacityUnit::kBlocks;
    });
    CollectSeries();
    ChooseRanges();
  }

  std::string Draw() const {
    const double height = std::max(kHeight, LegendY(series_.size()));
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"Hit rate over capacity\">\n",
        kWidth, height);
    svg += kStyle;
    svg += fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", kWidth, height);
    svg +=
        fmt::format("<text class=\"title\" x=\"{}\" y=\"28\">{}: hit rate by cache size</text>\n",
                    kLeft, XmlText(report_.trace.name));
    svg += RatesText() + SizesText() + BoundText();
    for (size_t i = 0; i < series_.size(); ++i) svg += SeriesText(i);
    return svg + "</svg>\n";
  }

 private:
  // The lines of the plot; runs without a limit are the bound that is drawn anyway.
  void CollectSeries() {
    const SimulationRun& first = report_.runs.front();
    const bool one_size = std::all_of(
        report_.runs.begin(), report_.runs.end(),
        [&](const SimulationRun& run) { return run.bytes_per_token == first.bytes_per_token; });
    for (const SimulationRun& run : report_.runs) {
      if (run.capacity.unit == CapacityUnit::kUnlimited) continue;
      std::string name = run.result.policy;
      if (!one_size) name += fmt::format(", {} B/token", run.bytes_per_token);
      auto series = std::find_if(series_.begin(), series_.end(),
                                 [&](const Series& known) { return known.name == name; });
      if (series == series_.end()) series = series_.insert(series_.end(), Series{name, {}});
      const int64_t size = in_bytes_ ? run.capacity.amount : run.result.capacity_blocks;
      series->points.push_back({static_cast<double>(size), &run});
    }
    for (Series& series : series_) {
      std::stable_sort(series.points.begin(), series.points.end(),
                       [](const Point& a, const Point& b) { return a.size < b.size; });
    }
  }

  void ChooseRanges() {
    double best = report_.unlimited.BlockHitRate();
    for (const Series& series : series_) {
      for (const Point& point : series.points) {
        sizes_.push_back(point.size);
        best = std::max(best, point.run->result.BlockHitRate());
      }
    }
    std::sort(sizes_.begin(), sizes_.end());
    sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
    if (sizes_.empty()) sizes_.push_back(1);
    // A single size stands in the middle of the axis.
    const double margin = sizes_.size() == 1 ? 2 : 1;
    low_ = std::log(sizes_.front() / margin);
    high_ = std::log(sizes_.back() * margin);
    rate_step_ = best > 0.5 ? 0.1 : best > 0.1 ? 0.05 : 0.02;
    rate_top_ = std::min(1.0, rate_step_ * std::max(1.0, std::ceil(best / rate_step_ - 1e-9)));
  }

  double X(double size) const {
    return kLeft + (std::log(size) - low_) / (high_ - low_) * (kRight - kLeft);
  }
  double Y(double rate) const { return kBottom - rate / rate_top_ * (kBottom - kTop); }

  // Below the bound's label, which stands at the same side.
  double LegendY(size_t index) const {
    return Y(report_.unlimited.BlockHitRate()) + kLegendLine * static_cast<double>(index + 1) + 8;
  }

  std::string RatesText() const {
    std::string svg;
    const int steps = static_cast<int>(std::lround(rate_top_ / rate_step_));
    for (int i = 0; i <= steps; ++i) {
      const double rate = i * rate_step_;
      svg += fmt::format(
          "<line class=\"{0}\" x1=\"{1}\" y1=\"{2:.1f}\" x2=\"{3}\" y2=\"{2:.1f}\"/>\n"
          "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\">{6:.0f} %</text>\n",
          i == 0 ? "axis" : "grid", kLeft, Y(rate), kRight, kLeft - 8, Y(rate) + 4, 100 * rate);
    }
    const double middle = (kTop + kBottom) / 2;
    return svg + fmt::format(
                     "<text x=\"18\" y=\"{0}\" text-anchor=\"middle\" "
                     "transform=\"rotate(-90 18 {0})\">blocks that hit</text>\n",
                     middle);
  }

  // The sizes that were simulated are the ticks of the axis, as far as their labels have room.
  std::string SizesText() const {
    std::string svg;
    double last_x = -kTickSpaceX;
    for (const double size : sizes_) {
      const double x = X(size);
      if (x - last_x < kTickSpaceX) continue;
      last_x = x;
      const auto amount = static_cast<int64_t>(size);
      svg += fmt::format(
          "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
          x, kBottom, kBottom + 5, kBottom + 21, in_bytes_ ? BytesText(amount) : CountText(amount));
    }
    const std::string unit =
        in_bytes_ ? "bytes" : fmt::format("blocks of {} tokens", report_.trace.block_tokens);
    return svg + fmt::format(
                     "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">size of the cache, "
                     "{} (logarithmic)</text>\n",
                     (kLeft + kRight) / 2, kBottom + 50, unit);
  }

  std::string BoundText() const {
    const double rate = report_.unlimited.BlockHitRate();
    return fmt::format(
        "<line class=\"bound\" x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>\n"
        "<text x=\"{3}\" y=\"{4:.1f}\">unlimited: {5:.2f} %</text>\n",
        kLeft, Y(rate), kRight, kRight + 10, Y(rate) + 4, 100 * rate);
  }

  std::string SeriesText(size_t index) const {
    const Series& series = series_[index];
    std::string path;
    std::string marks;
    for (const Point& point : series.points) {
      const SimulationResult& result = point.run->result;
      const double x = X(point.size);
      const double y = Y(result.BlockHitRate());
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
      marks += Mark(index, x, y);
      marks += fmt::format("<title>{}, {}: {:.2f} % of the blocks, {:.2f} % of the tokens</title>",
                           series.name, XmlText(point.run->capacity.text),
                           100 * result.BlockHitRate(), 100 * result.TokenHitRate());
      marks += MarkEnd(index);
    }
    const double y = LegendY(index);
    std::string svg;
    if (!path.empty()) {
      // Dashes let a line be seen that lies below another one.
      constexpr std::array<std::string_view, 3> kDashes = {"none", "8 4", "2 4"};
      svg += fmt::format("<path class=\"s{} line\" stroke-dasharray=\"{}\" d=\"{}\"/>\n",
                         index % kColours, kDashes[index % kDashes.size()], path);
    }
    svg += marks + Mark(index, kRight + 16, y - 4) + MarkEnd(index);
    return svg +
           fmt::format("<text x=\"{}\" y=\"{:.1f}\">{}</text>\n", kRight + 28, y, series.name);
  }

  const SimulationReport& report_;
  bool in_bytes_ = false;
  std::vector<Series> series_;
  std::vector<double> sizes_;  // ascending, without repetition
  double low_ = 0;             // logarithms of the ends of the axis
  double high_ = 0;
  double rate_step_ = 0;
  double rate_top_ = 0;
};

}  // namespace

std::string SimulationReport::ToSvg() const {
  CHECK(!runs.empty());
  return Plot(*this).Draw();
}

}  // namespace minke
