#include "simulator/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "core/result.h"

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

class Drawing {
 public:
  explicit Drawing(const LineChart& chart) : chart_(chart) {
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) {
        xs_.push_back(point.x);
        best_ = std::max(best_, point.share);
      }
    }
    best_ = std::max(best_, chart.bound);
    std::sort(xs_.begin(), xs_.end());
    xs_.erase(std::unique(xs_.begin(), xs_.end()), xs_.end());
    CHECK(chart.tick_labels.size() >= xs_.size());
    if (xs_.empty()) xs_.push_back(1);
    // A single place stands in the middle of the axis.
    const double margin = xs_.size() == 1 ? 2 : 1;
    low_ = std::log(xs_.front() / margin);
    high_ = std::log(xs_.back() * margin);
    share_step_ = best_ > 0.5 ? 0.1 : best_ > 0.1 ? 0.05 : 0.02;
    share_top_ = std::min(1.0, share_step_ * std::max(1.0, std::ceil(best_ / share_step_ - 1e-9)));
  }

  std::string Draw() const {
    const double height = std::max(kHeight, LegendY(chart_.series.size()));
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\">\n",
        kWidth, height, XmlText(chart_.summary));
    svg += kStyle;
    svg += fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", kWidth, height);
    svg += fmt::format("<text class=\"title\" x=\"{}\" y=\"28\">{}</text>\n", kLeft,
                       XmlText(chart_.title));
    svg += SharesText() + TicksText() + BoundText();
    for (size_t i = 0; i < chart_.series.size(); ++i) svg += SeriesText(i);
    return svg + "</svg>\n";
  }

 private:
  double X(double x) const {
    return kLeft + (std::log(x) - low_) / (high_ - low_) * (kRight - kLeft);
  }
  double Y(double share) const { return kBottom - share / share_top_ * (kBottom - kTop); }

  // Below the bound's label, which stands at the same side.
  double LegendY(size_t index) const {
    const double top = chart_.bound < 0 ? kTop : Y(chart_.bound);
    return top + kLegendLine * static_cast<double>(index + 1) + 8;
  }

  std::string SharesText() const {
    std::string svg;
    const int steps = static_cast<int>(std::lround(share_top_ / share_step_));
    for (int i = 0; i <= steps; ++i) {
      const double share = i * share_step_;
      svg += fmt::format(
          "<line class=\"{0}\" x1=\"{1}\" y1=\"{2:.1f}\" x2=\"{3}\" y2=\"{2:.1f}\"/>\n"
          "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\">{6:.0f} %</text>\n",
          i == 0 ? "axis" : "grid", kLeft, Y(share), kRight, kLeft - 8, Y(share) + 4, 100 * share);
    }
    const double middle = (kTop + kBottom) / 2;
    return svg + fmt::format(
                     "<text x=\"18\" y=\"{0}\" text-anchor=\"middle\" "
                     "transform=\"rotate(-90 18 {0})\">{1}</text>\n",
                     middle, XmlText(chart_.y_label));
  }

  // Ticks as far as their labels have room.
  std::string TicksText() const {
    std::string svg;
    double last_x = -kTickSpaceX;
    for (size_t i = 0; i < xs_.size() && i < chart_.tick_labels.size(); ++i) {
      const double x = X(xs_[i]);
      if (x - last_x < kTickSpaceX) continue;
      last_x = x;
      svg += fmt::format(
          "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
          x, kBottom, kBottom + 5, kBottom + 21, XmlText(chart_.tick_labels[i]));
    }
    return svg + fmt::format(
                     "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{} "
                     "(logarithmic)</text>\n",
                     (kLeft + kRight) / 2, kBottom + 50, XmlText(chart_.x_label));
  }

  std::string BoundText() const {
    if (chart_.bound < 0) return {};
    return fmt::format(
        "<line class=\"bound\" x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>\n"
        "<text x=\"{3}\" y=\"{4:.1f}\">{5}</text>\n",
        kLeft, Y(chart_.bound), kRight, kRight + 10, Y(chart_.bound) + 4,
        XmlText(chart_.bound_label));
  }

  std::string SeriesText(size_t index) const {
    const ChartSeries& series = chart_.series[index];
    std::string path;
    std::string marks;
    for (const ChartPoint& point : series.points) {
      const double x = X(point.x);
      const double y = Y(point.share);
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
      marks += Mark(index, x, y);
      marks += fmt::format("<title>{}</title>", XmlText(point.note));
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
    return svg + fmt::format("<text x=\"{}\" y=\"{:.1f}\">{}</text>\n", kRight + 28, y,
                             XmlText(series.name));
  }

  const LineChart& chart_;
  std::vector<double> xs_;  // ascending, without repetition
  double best_ = 0;
  double low_ = 0;  // logarithms of the ends of the axis
  double high_ = 0;
  double share_step_ = 0;
  double share_top_ = 0;
};

}  // namespace

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

std::string LineChart::ToSvg() const {
  return Drawing(*this).Draw();
}

}  // namespace minke
