// Days in UTC, as the price table and the ledger count and spell them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace minke {

inline constexpr int64_t kDaySeconds = 86'400;

// Days since 1970-01-01. Times outside the years 1 to 9999 count as the nearest day within.
int64_t UtcDay(int64_t unix_seconds);
// "2026-11-30"
std::string UtcDayText(int64_t day);
// Nothing unless the text is a day that the calendar has, in exactly that spelling.
std::optional<int64_t> ParseUtcDay(std::string_view text);
// 1: Monday ... 7: Sunday.
int IsoWeekday(int64_t day);

}  // namespace minke
