#include "apps/eval_report.h"

#include <fmt/format.h>

#include <bit>
#include <set>
#include <utility>

#include "simulator/capacity.h"
#include "simulator/line_chart.h"

namespace minke {
namespace {

double CaseShare(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

Json CountJson(int64_t length, const Json& distance, const RecallCount& count) {
  const ShareInterval interval = IntervalOf(count.digits_exact, count.cases);
  Json json;
  json.Set("length", length);
  json.Set("distance", distance);
  json.Set("digits_exact", count.digits_share());
  json.Set("answer_exact", count.answer_share());
  json.Set("cases", count.cases);
  json.Set("digits_exact_low", interval.low);
  json.Set("digits_exact_high", interval.high);
  return json;
}

std::string Line(const std::string& length, const std::string& distance, const RecallCount& count) {
  const ShareInterval interval = IntervalOf(count.digits_exact, count.cases);
  return fmt::format("{:>9}  {:>9}  {:>7}  {:>7.1f} %  {:>5.1f} .. {:>5.1f}  {:>7.1f} %\n", length,
                     distance, CountText(count.cases), 100 * count.digits_share(),
                     100 * interval.low, 100 * interval.high, 100 * count.answer_share());
}

}  // namespace

void RecallCount::Add(const AnswerScore& score) {
  ++cases;
  digits_exact += score.digits_exact ? 1 : 0;
  answer_exact += score.answer_exact ? 1 : 0;
}

double RecallCount::digits_share() const {
  return CaseShare(digits_exact, cases);
}
double RecallCount::answer_share() const {
  return CaseShare(answer_exact, cases);
}

void RecallTable::Add(int64_t length, int64_t distance, const AnswerScore& score) {
  lengths_[length].Add(score);
  const auto rounded = std::bit_ceil(static_cast<uint64_t>(distance < 1 ? 1 : distance));
  distances_[length][static_cast<int64_t>(rounded)].Add(score);
}

Json RecallTable::ToJson() const {
  JsonArray results;
  for (const auto& [length, count] : lengths_) {
    results.push_back(CountJson(length, Json(), count));
    for (const auto& [distance, part] : distances_.at(length)) {
      results.push_back(CountJson(length, Json(distance), part));
    }
  }
  return Json(std::move(results));
}

std::string RecallTable::ToText(const std::string& heading) const {
  std::string text = heading + "\n";
  text += fmt::format("{:>9}  {:>9}  {:>7}  {:>9}  {:>14}  {:>9}\n", "length", "distance", "cases",
                      "digits", "95 % interval", "answer");
  for (const auto& [length, count] : lengths_) {
    text += Line(CountText(length), "", count);
    for (const auto& [distance, part] : distances_.at(length)) {
      text += Line("", "<= " + CountText(distance), part);
    }
  }
  return text;
}

std::string RecallPlot(const std::string& model,
                       const std::vector<std::pair<std::string, const RecallTable*>>& tables) {
  LineChart chart;
  chart.title = model + ": exact digits by length";
  chart.summary = "Share of exact digits over the length of the prompt";
  chart.x_label = "tokens of the prompt";
  chart.y_label = "digits exact";
  std::set<int64_t> lengths;
  for (const auto& [name, table] : tables) {
    ChartSeries series;
    series.name = name;
    for (const auto& [length, count] : table->lengths()) {
      lengths.insert(length);
      series.points.push_back(
          {static_cast<double>(length), count.digits_share(),
           fmt::format("{}, {} tokens: {:.1f} % of {} cases", name, CountText(length),
                       100 * count.digits_share(), CountText(count.cases))});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  for (const int64_t length : lengths) chart.tick_labels.push_back(CountText(length));
  return chart.ToSvg();
}

}  // namespace minke
