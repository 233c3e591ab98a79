#include "server/utc_day.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace minke {

namespace {

constexpr int64_t kFirstDay = -719'162;  // 0001-01-01
constexpr int64_t kLastDay = 2'932'896;  // 9999-12-31
constexpr int64_t kWeekDays = 7;
constexpr int64_t kWeekdayOfDayZero = 4;  // 1970-01-01 was a Thursday

int64_t FloorDivide(int64_t value, int64_t divisor) {
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

// The number that the digits at [at, at + count) spell, or -1.
int DigitsAt(std::string_view text, size_t at, size_t count) {
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

int64_t UtcDay(int64_t unix_seconds) {
  return std::clamp(FloorDivide(unix_seconds, kDaySeconds), kFirstDay, kLastDay);
}

std::string UtcDayText(int64_t day) {
  const std::chrono::year_month_day date{
      std::chrono::sys_days(std::chrono::days(std::clamp(day, kFirstDay, kLastDay)))};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

std::optional<int64_t> ParseUtcDay(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const int year = DigitsAt(text, 0, 4);
  const int month = DigitsAt(text, 5, 2);
  const int day = DigitsAt(text, 8, 2);
  if (year < 1 || month < 0 || day < 0) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count();
}

int IsoWeekday(int64_t day) {
  const int64_t from_monday = day + kWeekdayOfDayZero - 1;
  return static_cast<int>(from_monday - FloorDivide(from_monday, kWeekDays) * kWeekDays) + 1;
}

}  // namespace minke
