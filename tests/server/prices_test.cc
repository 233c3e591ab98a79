// Days in UTC and the table of prices: windows at their borders, weekends, holidays, answers that
// cross a border, and the file (docs/formats/prices.md).
#include "server/prices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

#include "server/utc_day.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::TempDirectory;

// Seconds since 1970 of a time in UTC.
int64_t At(const char* day, int hour, int minute = 0, int second = 0) {
  return *ParseUtcDay(day) * kDaySeconds + hour * 3600 + minute * 60 + second;
}

Json MustParse(std::string_view text) {
  auto json = ParseJson(text, "table");
  CHECK(json.has_value(), json.error().message);
  return std::move(*json);
}

std::string ErrorOf(std::string_view text) {
  const auto table = PriceTable::Parse(MustParse(text), "prices.json");
  return table.has_value() ? "no error" : table.error().message;
}

// A table with a window up to midnight and one from it, on Mondays.
PriceTable MondayTable() {
  const auto table = PriceTable::Parse(
      MustParse(R"({"currency": "CNY", "off_peak": {"input_hit": 1, "input_miss": 2, "output": 4},
                    "peak": {"input_hit": 10, "input_miss": 20, "output": 40},
                    "peak_windows": ["00:00-00:10", "23:50-24:00"], "peak_weekdays": [1]})"),
      "prices.json");
  CHECK(table.has_value(), table.error().message);
  return *table;
}

TEST(UtcDay, CountsAndSpellsDays) {
  EXPECT_EQ(UtcDayText(0), "1970-01-01");
  EXPECT_EQ(UtcDay(-1), -1);
  EXPECT_EQ(UtcDayText(UtcDay(-1)), "1969-12-31");
  EXPECT_EQ(UtcDay(kDaySeconds - 1), 0);
  EXPECT_EQ(UtcDay(kDaySeconds), 1);
  EXPECT_EQ(UtcDayText(UtcDay(1'795'996'800)), "2026-11-30");
  EXPECT_EQ(UtcDayText(UtcDay(INT64_MAX)), "9999-12-31");
  EXPECT_EQ(UtcDayText(UtcDay(INT64_MIN)), "0001-01-01");
}

TEST(UtcDay, KnowsWeekdays) {
  EXPECT_EQ(IsoWeekday(0), 4);  // a Thursday
  EXPECT_EQ(IsoWeekday(-4), 7);
  EXPECT_EQ(IsoWeekday(-3), 1);
  EXPECT_EQ(IsoWeekday(*ParseUtcDay("2026-11-30")), 1);
  EXPECT_EQ(IsoWeekday(*ParseUtcDay("2026-11-29")), 7);
  EXPECT_EQ(IsoWeekday(*ParseUtcDay("1900-01-01")), 1);
}

TEST(UtcDay, ReadsOnlyDaysThatExist) {
  EXPECT_EQ(ParseUtcDay("1970-01-02"), 1);
  EXPECT_TRUE(ParseUtcDay("2024-02-29").has_value());
  for (const char* wrong :
       {"", "2026-02-29", "2026-13-01", "2026-00-01", "2026-01-00", "2026-04-31", "26-01-01",
        "2026-1-01", "2026/01/01", "2026-01-01 ", "+026-01-01", "2026-01-1x", "0000-01-01"}) {
    EXPECT_FALSE(ParseUtcDay(wrong).has_value()) << wrong;
  }
  for (int64_t day = -800'000; day < 800'000; day += 37) {
    ASSERT_EQ(ParseUtcDay(UtcDayText(day)).value_or(-1'000'000), std::max<int64_t>(day, -719'162));
  }
}

TEST(Prices, DefaultWindowsHaveTheirBorders) {
  const PriceTable table = PriceTable::Default();
  const char* monday = "2026-11-30";
  EXPECT_FALSE(table.IsPeak(At(monday, 0, 59, 59)));
  EXPECT_TRUE(table.IsPeak(At(monday, 1)));
  EXPECT_TRUE(table.IsPeak(At(monday, 3, 59, 59)));
  EXPECT_FALSE(table.IsPeak(At(monday, 4)));
  EXPECT_FALSE(table.IsPeak(At(monday, 5, 59, 59)));
  EXPECT_TRUE(table.IsPeak(At(monday, 6)));
  EXPECT_TRUE(table.IsPeak(At(monday, 9, 59, 59)));
  EXPECT_FALSE(table.IsPeak(At(monday, 10)));
  EXPECT_FALSE(table.IsPeak(At(monday, 23, 59, 59)));
}

TEST(Prices, WeekendsAndHolidaysAreOffPeak) {
  const PriceTable table = PriceTable::Default();
  EXPECT_TRUE(table.IsPeak(At("2026-11-27", 2)));   // Friday
  EXPECT_FALSE(table.IsPeak(At("2026-11-28", 2)));  // Saturday
  EXPECT_FALSE(table.IsPeak(At("2026-11-29", 2)));  // Sunday
  // The first and last working days beside each holiday, and the holiday's.
  EXPECT_FALSE(table.IsPeak(At("2026-01-01", 2)));
  EXPECT_FALSE(table.IsPeak(At("2026-01-02", 2)));
  EXPECT_TRUE(table.IsPeak(At("2026-01-05", 2)));
  EXPECT_TRUE(table.IsPeak(At("2026-02-13", 2)));
  for (const char* day : {"2026-02-16", "2026-02-17", "2026-02-20", "2026-02-23"}) {
    EXPECT_FALSE(table.IsPeak(At(day, 2))) << day;
  }
  EXPECT_TRUE(table.IsPeak(At("2026-02-24", 2)));
  EXPECT_FALSE(table.IsPeak(At("2026-04-06", 2)));
  EXPECT_TRUE(table.IsPeak(At("2026-04-07", 2)));
  EXPECT_TRUE(table.IsPeak(At("2026-04-30", 2)));
  EXPECT_FALSE(table.IsPeak(At("2026-05-05", 9)));
  EXPECT_TRUE(table.IsPeak(At("2026-05-06", 9)));
  EXPECT_FALSE(table.IsPeak(At("2026-06-19", 9)));
  EXPECT_FALSE(table.IsPeak(At("2026-09-25", 9)));
  EXPECT_FALSE(table.IsPeak(At("2026-10-01", 9)));
  EXPECT_FALSE(table.IsPeak(At("2026-10-07", 9)));
  EXPECT_TRUE(table.IsPeak(At("2026-10-08", 9)));
  // Saturdays on which offices worked are Saturdays all the same.
  EXPECT_FALSE(table.IsPeak(At("2026-10-10", 9)));
  EXPECT_EQ(table.holidays.size(), 33U);
}

TEST(Prices, MondayBeginsAtMidnightUtc) {
  const PriceTable table = MondayTable();
  EXPECT_FALSE(table.IsPeak(At("2026-11-29", 23, 59, 59)));  // Sunday
  EXPECT_TRUE(table.IsPeak(At("2026-11-30", 0)));
  EXPECT_TRUE(table.IsPeak(At("2026-11-30", 0, 9, 59)));
  EXPECT_FALSE(table.IsPeak(At("2026-11-30", 0, 10)));
  EXPECT_FALSE(table.IsPeak(At("2026-11-30", 23, 49, 59)));
  EXPECT_TRUE(table.IsPeak(At("2026-11-30", 23, 59, 59)));
  EXPECT_FALSE(table.IsPeak(At("2026-12-01", 0)));  // Tuesday
}

TEST(Prices, PeakSecondsAgreeWithEveryMinute) {
  const PriceTable table = MondayTable();
  const int64_t first = At("2026-11-29", 23, 55);
  int64_t counted = 0;
  // Borders are whole minutes.
  for (int64_t minute = first; minute < first + 2 * kDaySeconds; minute += 60) {
    ASSERT_EQ(table.PeakSeconds(first, minute), counted) << minute - first;
    ASSERT_EQ(table.IsPeak(minute), table.IsPeak(minute + 59));
    counted += table.IsPeak(minute) ? 60 : 0;
  }
  EXPECT_EQ(counted, 20 * 60);
}

TEST(Prices, ARequestHasThePricesOfTheTable) {
  const PriceTable table = PriceTable::Default();
  const PricedTokens tokens = {
      .hit_tokens = 1'000'000, .miss_tokens = 2'000'000, .output_tokens = 3'000'000};
  const int64_t peak = At("2026-11-30", 2);
  const int64_t off = At("2026-11-30", 12);
  EXPECT_NEAR(PriceOf(table, tokens, peak, peak, peak + 60), 0.006 + 2 * 0.30 + 3 * 1.20, 1e-12);
  EXPECT_NEAR(PriceOf(table, tokens, off, off, off + 60), 0.003 + 2 * 0.15 + 3 * 0.60, 1e-12);
  // Read in the peak window, written behind it.
  EXPECT_NEAR(PriceOf(table, tokens, peak, off, off + 60), 0.006 + 2 * 0.30 + 3 * 0.60, 1e-12);
  EXPECT_EQ(PriceOf(table, {}, peak, peak, peak), 0);
}

TEST(Prices, AnAnswerAcrossABorderIsPricedByTime) {
  const PriceTable table = MondayTable();
  const PricedTokens output = {.output_tokens = 1'000'000};
  const int64_t midnight = At("2026-11-30", 0);
  // A quarter of the time was Sunday's.
  EXPECT_NEAR(PriceOf(table, output, midnight, midnight - 100, midnight + 300),
              0.25 * 4 + 0.75 * 40, 1e-12);
  // Exactly up to the border, and exactly from it.
  EXPECT_NEAR(PriceOf(table, output, midnight, midnight - 100, midnight), 4, 1e-12);
  EXPECT_NEAR(PriceOf(table, output, midnight, midnight, midnight + 600), 40, 1e-12);
  // Over a whole day there are twenty minutes of peak.
  EXPECT_NEAR(PriceOf(table, output, midnight, midnight, midnight + kDaySeconds),
              (1200.0 * 40 + (kDaySeconds - 1200.0) * 4) / kDaySeconds, 1e-9);
  // Within one second.
  EXPECT_NEAR(PriceOf(table, output, midnight, midnight, midnight), 40, 1e-12);
  EXPECT_NEAR(PriceOf(table, output, midnight, midnight - 1, midnight - 1), 4, 1e-12);
}

TEST(Prices, AClockThatWasSetDoesNotBreakAPrice) {
  const PriceTable table = MondayTable();
  const PricedTokens output = {.output_tokens = 1'000'000};
  const int64_t midnight = At("2026-11-30", 0);
  EXPECT_EQ(PriceOf(table, output, 0, midnight + kDaySeconds, midnight), 40);
  EXPECT_EQ(PriceOf(table, output, 0, 0, midnight), 40);
  EXPECT_EQ(PriceOf(table, output, 0, 0, midnight + kDaySeconds), 4);
}

TEST(Prices, TheFileSaysWhatTheTableHas) {
  const PriceTable table = PriceTable::Default();
  const TempDirectory directory;
  directory.Write("prices.json", DumpJson(table.ToJson(), JsonStyle::kPretty));
  const auto read = PriceTable::Read(directory.Path("prices.json"));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(DumpJson(read->ToJson(), JsonStyle::kCompact),
            DumpJson(table.ToJson(), JsonStyle::kCompact));
}

// The document shows the shipped table, to be copied.
TEST(Prices, TheDocumentShowsTheDefault) {
  std::ostringstream text;
  text << std::ifstream(std::string(MINKE_SOURCE_DIR) + "/docs/formats/prices.md").rdbuf();
  const std::string document = text.str();
  const size_t begin = document.find("```json\n");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = document.find("```", begin + 3);
  const auto table = PriceTable::Parse(
      MustParse(std::string_view(document).substr(begin + 8, end - begin - 8)), "prices.md");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(DumpJson(table->ToJson(), JsonStyle::kCompact),
            DumpJson(PriceTable::Default().ToJson(), JsonStyle::kCompact));
}

TEST(Prices, WithoutPeakTheOtherPricesHoldAllDay) {
  const auto table = PriceTable::Parse(MustParse(R"({"note": "ours", "currency": "EUR",
                    "off_peak": {"input_hit": 0, "input_miss": 1, "output": 2.5}})"),
                                       "prices.json");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_FALSE(table->IsPeak(At("2026-11-30", 2)));
  EXPECT_NEAR(PriceOf(*table, {.miss_tokens = 10, .output_tokens = 10}, 0, 0, 9), 35e-6, 1e-12);
}

TEST(Prices, WrongTablesAreNamed) {
  const std::string prices = R"({"input_hit": 1, "input_miss": 2, "output": 3})";
  const auto with = [&](const std::string& rest) {
    return R"({"currency": "USD", "off_peak": )" + prices + R"(, "peak": )" + prices + "," + rest +
           "}";
  };
  const auto windows = [&](const std::string& list) {
    return with(R"("peak_weekdays": [1], "peak_windows": )" + list);
  };
  struct Case {
    std::string text;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"[]", "must be an object, found a value of type array"},
      {"{}", "currency"},
      {R"({"currency": "usd"})", "capital letters"},
      {R"({"currency": "ABCDEFGHI"})", "capital letters"},
      {R"({"currency": "USD"})", "off_peak"},
      {R"({"currency": "USD", "off_peak": 1})", "off_peak"},
      {R"({"currency": "USD", "off_peak": {"input_hit": 1, "output": 1}})", "input_miss"},
      {R"({"currency": "USD", "off_peak": {"input_hit": -1, "input_miss": 1, "output": 1}})",
       "prices.json: off_peak: input_hit must be the price of a million tokens"},
      {R"({"currency": "USD", "off_peak": {"input_hit": 1, "input_miss": 1e7, "output": 1}})",
       "input_miss must be"},
      {R"({"currency": "USD", "off_peak": {"input_hit": 1, "hit": 1}})",
       "there is no member \"hit\""},
      {R"({"currencies": "USD"})", "there is no member \"currencies\""},
      {R"({"currency": "USD", "holidays": [], "off_peak": )" + prices + "}",
       "holidays goes with peak"},
      {with(R"("peak_weekdays": [1])"), "peak_windows"},
      {with(R"("peak_windows": [])"), "peak_weekdays"},
      {windows(R"(["1:00-04:00"])"), "peak_windows[0] must be a span"},
      {windows(R"(["01:00-24:01"])"), "peak_windows[0]"},
      {windows(R"(["01:60-02:00"])"), "peak_windows[0]"},
      {windows(R"(["22:00-02:00"])"), "across midnight"},
      {windows(R"(["02:00-02:00"])"), "peak_windows[0]"},
      {windows(R"(["01:00-04:00", 5])"), "peak_windows[1]"},
      {windows(R"(["01:00-04:00", "03:59-05:00"])"), "must ascend and not overlap"},
      {with(R"("peak_windows": [], "peak_weekdays": [0])"), "peak_weekdays[0] must be 1"},
      {with(R"("peak_windows": [], "peak_weekdays": [1, 8])"), "peak_weekdays[1] must be 1"},
      {with(R"("peak_windows": [], "peak_weekdays": [2, 2])"), "each at most once"},
      {with(R"("peak_windows": [], "peak_weekdays": [18446744073709551615])"), "peak_weekdays[0]"},
      {with(R"("peak_windows": [], "peak_weekdays": [], "holidays": ["2026-02-30"])"),
       "holidays[0] must be a day"},
      {with(R"("peak_windows": [], "peak_weekdays": [], "holidays": [20260101])"),
       "holidays[0] must be a day"},
  };
  for (const Case& wrong : cases) {
    const std::string message = ErrorOf(wrong.text);
    EXPECT_NE(message.find(wrong.message), std::string::npos) << wrong.text << "\n" << message;
    EXPECT_NE(message.find("prices.json"), std::string::npos) << message;
  }
}

// A list of that many entries, and of one more.
TEST(Prices, ListsHaveLimits) {
  const auto table = [](size_t windows, size_t holidays) {
    Json json = PriceTable::Default().ToJson();
    JsonArray spans;
    for (size_t i = 0; i < windows; ++i) {
      const auto clock = [](size_t minute) {
        const std::string hours = std::to_string(minute / 60);
        const std::string minutes = std::to_string(minute % 60);
        return std::string(2 - hours.size(), '0') + hours + ":" +
               std::string(2 - minutes.size(), '0') + minutes;
      };
      spans.emplace_back(clock(2 * i) + "-" + clock(2 * i + 1));
    }
    JsonArray days;
    for (size_t i = 0; i < holidays; ++i) days.emplace_back(UtcDayText(static_cast<int64_t>(i)));
    json.Set("peak_windows", std::move(spans));
    json.Set("holidays", std::move(days));
    return PriceTable::Parse(json, "prices.json").has_value();
  };
  EXPECT_TRUE(table(kPeakWindowsMax, kHolidaysMax));
  EXPECT_FALSE(table(kPeakWindowsMax + 1, kHolidaysMax));
  EXPECT_FALSE(table(kPeakWindowsMax, kHolidaysMax + 1));
  const TempDirectory directory;
  directory.Write("prices.json", std::string(kPriceFileBytesMax + 1, ' '));
  const auto read = PriceTable::Read(directory.Path("prices.json"));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace minke
