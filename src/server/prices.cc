#include "server/prices.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "server/utc_day.h"

namespace minke {

namespace {

constexpr double kTokensPerPrice = 1e6;
constexpr int64_t kMinuteSeconds = 60;
constexpr int kHourMinutes = 60;
constexpr size_t kShownBytesMax = 40;  // of a wrong value, in an error

// Days of Chinese public holidays in 2026, as the State Council announced them in November 2025:
// New Year, Spring Festival, Qingming, Labour Day, Dragon Boat, Mid-Autumn, National Day. The price
// page says "excluding Chinese public holidays" and gives no list (serving.md 1.3), so this one is
// an assumption, which docs/formats/prices.md tells users. Weekend days of these are listed too,
// and the weekend days that were made working days are none, because the page says Monday to
// Friday.
struct HolidaySpan {
  std::string_view first;
  int days;
};
constexpr HolidaySpan kHolidays2026[] = {
    {"2026-01-01", 3}, {"2026-02-15", 9}, {"2026-04-04", 3}, {"2026-05-01", 5},
    {"2026-06-19", 3}, {"2026-09-25", 3}, {"2026-10-01", 7},
};

// "04:00" as minutes, 24:00 included; -1 for anything else.
int MinuteOf(std::string_view text) {
  if (text.size() != 5 || text[2] != ':') return -1;
  for (const size_t at : {size_t{0}, size_t{1}, size_t{3}, size_t{4}}) {
    if (text[at] < '0' || text[at] > '9') return -1;
  }
  const int hours = (text[0] - '0') * 10 + (text[1] - '0');
  const int minutes = (text[3] - '0') * 10 + (text[4] - '0');
  const int minute = hours * kHourMinutes + minutes;
  return minutes >= kHourMinutes || minute > kDayMinutes ? -1 : minute;
}

std::string WindowText(const PeakWindow& window) {
  return fmt::format("{:02}:{:02}-{:02}:{:02}", window.begin_minute / kHourMinutes,
                     window.begin_minute % kHourMinutes, window.end_minute / kHourMinutes,
                     window.end_minute % kHourMinutes);
}

Status CheckMembers(const Json& object, std::string_view what,
                    std::initializer_list<std::string_view> known) {
  for (const JsonMember& member : object.as_object()) {
    if (std::find(known.begin(), known.end(), member.first) != known.end()) continue;
    return Fail(fmt::format("{}: there is no member \"{}\" here; the members are {}.", what,
                            member.first.substr(0, kShownBytesMax), fmt::join(known, ", ")));
  }
  return {};
}

Result<double> ReadPrice(const Json& prices, std::string_view key, const std::string& what) {
  const double price = TRY(JsonDouble(prices, key, what));
  if (std::isfinite(price) && price >= 0 && price <= kTokenPriceMax) return price;
  return Fail(fmt::format("{}: {} must be the price of a million tokens, 0 to {}, found {}.", what,
                          key, kTokenPriceMax, price));
}

Result<TokenPrices> ReadPrices(const Json& table, std::string_view key, std::string_view what) {
  TRY_STATUS(JsonMembers(table, key, what));
  const Json& object = *table.Find(key);
  const std::string place = fmt::format("{}: {}", what, key);
  TRY_STATUS(CheckMembers(object, place, {"input_hit", "input_miss", "output"}));
  TokenPrices prices;
  prices.input_hit = TRY(ReadPrice(object, "input_hit", place));
  prices.input_miss = TRY(ReadPrice(object, "input_miss", place));
  prices.output = TRY(ReadPrice(object, "output", place));
  return prices;
}

Result<std::vector<PeakWindow>> ReadWindows(const Json& table, std::string_view what) {
  const JsonArray& list = *TRY(JsonList(table, "peak_windows", what));
  if (list.size() > kPeakWindowsMax) {
    return Fail(ErrorCode::kLimit, fmt::format("{}: peak_windows has {} windows, at most {} are "
                                               "accepted.",
                                               what, list.size(), kPeakWindowsMax));
  }
  std::vector<PeakWindow> windows;
  for (const Json& entry : list) {
    const std::string text = entry.is_string() ? entry.as_string() : "";
    const std::string_view view = text;
    PeakWindow window;
    window.begin_minute = text.size() == 11 && text[5] == '-' ? MinuteOf(view.substr(0, 5)) : -1;
    window.end_minute = window.begin_minute < 0 ? -1 : MinuteOf(view.substr(6));
    if (window.begin_minute < 0 || window.end_minute <= window.begin_minute) {
      return Fail(
          fmt::format("{}: peak_windows[{}] must be a span of one day in UTC such as "
                      "\"01:00-04:00\"; one across midnight is written as two, up to "
                      "24:00 and from 00:00.",
                      what, windows.size()));
    }
    if (!windows.empty() && window.begin_minute < windows.back().end_minute) {
      return Fail(
          fmt::format("{}: peak_windows[{}] begins before the window in front of it ends; "
                      "windows must ascend and not overlap.",
                      what, windows.size()));
    }
    windows.push_back(window);
  }
  return windows;
}

Result<std::vector<int>> ReadWeekdays(const Json& table, std::string_view what) {
  std::vector<int> weekdays;
  for (const Json& entry : *TRY(JsonList(table, "peak_weekdays", what))) {
    const bool valid = entry.is_integer() && entry.as_double() >= 1 && entry.as_double() <= 7;
    const int weekday = valid ? static_cast<int>(entry.as_int()) : 0;
    if (!valid || std::find(weekdays.begin(), weekdays.end(), weekday) != weekdays.end()) {
      return Fail(
          fmt::format("{}: peak_weekdays[{}] must be 1 (Monday) to 7 (Sunday), each at "
                      "most once.",
                      what, weekdays.size()));
    }
    weekdays.push_back(weekday);
  }
  return weekdays;
}

Result<std::vector<std::string>> ReadHolidays(const Json& table, std::string_view what) {
  const JsonArray& list = *TRY(JsonList(table, "holidays", what));
  if (list.size() > kHolidaysMax) {
    return Fail(ErrorCode::kLimit, fmt::format("{}: holidays has {} days, at most {} are accepted.",
                                               what, list.size(), kHolidaysMax));
  }
  std::vector<std::string> holidays;
  for (const Json& entry : list) {
    if (!entry.is_string() || !ParseUtcDay(entry.as_string()).has_value()) {
      return Fail(fmt::format("{}: holidays[{}] must be a day such as \"2026-10-01\".", what,
                              holidays.size()));
    }
    holidays.push_back(entry.as_string());
  }
  return holidays;
}

Json PricesJson(const TokenPrices& prices) {
  Json json;
  json.Set("input_hit", prices.input_hit);
  json.Set("input_miss", prices.input_miss);
  json.Set("output", prices.output);
  return json;
}

bool IsPeakDay(const PriceTable& table, int64_t day) {
  const auto& weekdays = table.peak_weekdays;
  if (std::find(weekdays.begin(), weekdays.end(), IsoWeekday(day)) == weekdays.end()) return false;
  const auto& holidays = table.holidays;
  return std::find(holidays.begin(), holidays.end(), UtcDayText(day)) == holidays.end();
}

}  // namespace

PriceTable PriceTable::Default() {
  PriceTable table;
  table.off_peak = {.input_hit = 0.003, .input_miss = 0.15, .output = 0.60};
  table.peak = {.input_hit = 0.006, .input_miss = 0.30, .output = 1.20};
  table.peak_windows = {{.begin_minute = 60, .end_minute = 240},
                        {.begin_minute = 360, .end_minute = 600}};
  table.peak_weekdays = {1, 2, 3, 4, 5};
  for (const HolidaySpan& span : kHolidays2026) {
    const int64_t first = *ParseUtcDay(span.first);
    for (int day = 0; day < span.days; ++day) table.holidays.push_back(UtcDayText(first + day));
  }
  return table;
}

Result<PriceTable> PriceTable::Parse(const Json& value, std::string_view what) {
  if (!value.is_object()) {
    return Fail(fmt::format("{}: a price table must be an object, found a value of type {}.", what,
                            value.TypeName()));
  }
  TRY_STATUS(CheckMembers(
      value, what,
      {"note", "currency", "off_peak", "peak", "peak_windows", "peak_weekdays", "holidays"}));
  PriceTable table;
  table.currency = TRY(JsonString(value, "currency", what));
  const bool letters = std::all_of(table.currency.begin(), table.currency.end(),
                                   [](char c) { return c >= 'A' && c <= 'Z'; });
  if (table.currency.empty() || table.currency.size() > kCurrencyBytesMax || !letters) {
    return Fail(fmt::format("{}: currency must be 1 to {} capital letters such as \"USD\".", what,
                            kCurrencyBytesMax));
  }
  table.off_peak = TRY(ReadPrices(value, "off_peak", what));
  table.peak = table.off_peak;
  if (value.Find("peak") == nullptr) {
    for (const std::string_view key : {"peak_windows", "peak_weekdays", "holidays"}) {
      if (value.Find(key) == nullptr) continue;
      return Fail(
          fmt::format("{}: {} goes with peak, the prices in those windows, which is "
                      "missing.",
                      what, key));
    }
    return table;
  }
  table.peak = TRY(ReadPrices(value, "peak", what));
  table.peak_windows = TRY(ReadWindows(value, what));
  table.peak_weekdays = TRY(ReadWeekdays(value, what));
  if (value.Find("holidays") != nullptr) table.holidays = TRY(ReadHolidays(value, what));
  return table;
}

Result<PriceTable> PriceTable::Read(const std::string& path) {
  const std::string text = TRY(ReadFile(path, kPriceFileBytesMax));
  return Parse(TRY(ParseJson(text, path)), path);
}

Json PriceTable::ToJson() const {
  JsonArray windows;
  for (const PeakWindow& window : peak_windows) windows.emplace_back(WindowText(window));
  JsonArray weekdays;
  for (const int weekday : peak_weekdays) weekdays.emplace_back(weekday);
  JsonArray days;
  for (const std::string& day : holidays) days.emplace_back(day);
  Json json;
  json.Set("currency", currency);
  json.Set("off_peak", PricesJson(off_peak));
  json.Set("peak", PricesJson(peak));
  json.Set("peak_windows", std::move(windows));
  json.Set("peak_weekdays", std::move(weekdays));
  json.Set("holidays", std::move(days));
  return json;
}

bool PriceTable::IsPeak(int64_t unix_seconds) const {
  return PeakSeconds(unix_seconds, unix_seconds + 1) > 0;
}

int64_t PriceTable::PeakSeconds(int64_t begin, int64_t end) const {
  CHECK(begin <= end && end - begin <= kAnswerDaysMax * kDaySeconds);
  int64_t seconds = 0;
  for (int64_t day = UtcDay(begin); day <= UtcDay(end); ++day) {
    if (peak_windows.empty() || !IsPeakDay(*this, day)) continue;
    for (const PeakWindow& window : peak_windows) {
      const int64_t midnight = day * kDaySeconds;
      const int64_t from = std::max(begin, midnight + window.begin_minute * kMinuteSeconds);
      const int64_t to = std::min(end, midnight + window.end_minute * kMinuteSeconds);
      seconds += std::max<int64_t>(0, to - from);
    }
  }
  return seconds;
}

double PriceOf(const PriceTable& table, const PricedTokens& tokens, int64_t prefill_unix_seconds,
               int64_t decode_begin_unix_seconds, int64_t decode_end_unix_seconds) {
  const TokenPrices& input = table.At(prefill_unix_seconds);
  const int64_t begin = decode_begin_unix_seconds;
  const int64_t end = decode_end_unix_seconds;
  double peak_share = table.IsPeak(end) ? 1 : 0;
  if (end == begin || (end > begin && end - begin <= kAnswerDaysMax * kDaySeconds)) {
    // An answer within one second was written in the window of that second.
    const int64_t seconds = std::max<int64_t>(1, end - begin);
    const int64_t peak = table.PeakSeconds(begin, begin + seconds);
    peak_share = static_cast<double>(peak) / static_cast<double>(seconds);
  }
  const double output = peak_share * table.peak.output + (1 - peak_share) * table.off_peak.output;
  return (static_cast<double>(tokens.hit_tokens) * input.input_hit +
          static_cast<double>(tokens.miss_tokens) * input.input_miss +
          static_cast<double>(tokens.output_tokens) * output) /
         kTokensPerPrice;
}

}  // namespace minke
