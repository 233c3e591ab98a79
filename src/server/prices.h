// What tokens cost: a table of prices with peak windows, and the price of one request
// (serving.md 1.3). docs/formats/prices.md describes the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace minke {

inline constexpr uint64_t kPriceFileBytesMax = uint64_t{1} << 20;
inline constexpr size_t kPeakWindowsMax = 48;
inline constexpr size_t kHolidaysMax = 1000;    // days
inline constexpr double kTokenPriceMax = 1e6;   // of a million tokens
inline constexpr size_t kCurrencyBytesMax = 8;  // capital letters
inline constexpr int64_t kAnswerDaysMax = 30;   // a longer answer is a clock that was set
inline constexpr int kDayMinutes = 1440;

// Prices of a million tokens.
struct TokenPrices {
  double input_hit = 0;
  double input_miss = 0;
  double output = 0;
};

// Minutes of a day in UTC, [begin, end).
struct PeakWindow {
  int begin_minute = 0;
  int end_minute = 0;
};

struct PriceTable {
  std::string currency = "USD";
  TokenPrices off_peak;
  TokenPrices peak;
  std::vector<PeakWindow> peak_windows;  // ascending; on peak_weekdays, but for holidays
  std::vector<int> peak_weekdays;        // 1: Monday ... 7: Sunday, of the UTC day
  std::vector<std::string> holidays;     // "2026-10-01", UTC days

  // The shipped table.
  static PriceTable Default();
  // Errors name file and member.
  static Result<PriceTable> Parse(const Json& value, std::string_view what);
  static Result<PriceTable> Read(const std::string& path);
  // What Parse() reads.
  Json ToJson() const;

  bool IsPeak(int64_t unix_seconds) const;
  // Seconds of [begin, end) in peak windows. REQUIRES begin <= end, at most kAnswerDaysMax days
  // apart.
  int64_t PeakSeconds(int64_t begin, int64_t end) const;
  const TokenPrices& At(int64_t unix_seconds) const {
    return IsPeak(unix_seconds) ? peak : off_peak;
  }
};

// The tokens of one request in the order in which they were processed.
struct PricedTokens {
  int64_t hit_tokens = 0;
  int64_t miss_tokens = 0;
  int64_t output_tokens = 0;
};

// In the table's currency. Input counts when it was read, output when it was written: the price of
// a token is that of the window in which it was processed; an answer that crosses a border is
// priced by the time that each side took. An answer that ends before it begins, or takes more than
// kAnswerDaysMax, is one of a clock that was set: it has the price of its end.
double PriceOf(const PriceTable& table, const PricedTokens& tokens, int64_t prefill_unix_seconds,
               int64_t decode_begin_unix_seconds, int64_t decode_end_unix_seconds);

}  // namespace minke
