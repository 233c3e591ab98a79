// A plot of lines as SVG: text that any browser shows, on light and on dark pages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minke {

struct ChartPoint {
  double x = 0;      // above 0
  double share = 0;  // 0..1
  std::string note;  // shown when pointed at
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // ascending in x
};

// Shares over a logarithmic axis.
struct LineChart {
  std::string title;
  std::string summary;  // for those who do not see it
  std::string x_label;
  std::string y_label;
  std::vector<std::string> tick_labels;  // one for each different x of the points, ascending
  std::vector<ChartSeries> series;
  double bound = -1;        // a line across; below 0: none
  std::string bound_label;  // at its right end

  // A whole SVG file.
  std::string ToSvg() const;
};

// Text for XML: characters with a meaning there are escaped.
std::string XmlText(std::string_view text);

}  // namespace minke
