// Capacities as people write them, and the three forms of a report.
#include "simulator/report.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/capacity.h"
#include "tests/simulator/trace_support.h"

namespace minke::testing {
namespace {

Capacity Parsed(std::string_view text) {
  const auto capacity = ParseCapacity(text);
  EXPECT_TRUE(capacity.has_value()) << text;
  return capacity.value_or(Capacity());
}

std::string CapacityError(std::string_view text) {
  const auto capacity = ParseCapacity(text);
  return capacity ? "" : capacity.error().message;
}

TEST(Capacity, BlocksBytesAndNoLimit) {
  EXPECT_EQ(Parsed("10000blk").amount, 10'000);
  EXPECT_EQ(Parsed("10000blk").unit, CapacityUnit::kBlocks);
  EXPECT_EQ(Parsed("8GiB").amount, int64_t{8} << 30);
  EXPECT_EQ(Parsed("16G").amount, int64_t{16} << 30);
  EXPECT_EQ(Parsed("3K").amount, int64_t{3} << 10);
  EXPECT_EQ(Parsed("3MB").amount, 3'000'000);
  EXPECT_EQ(Parsed("7B").amount, 7);
  EXPECT_EQ(Parsed("8GiB").unit, CapacityUnit::kBytes);
  EXPECT_EQ(Parsed("unlimited").unit, CapacityUnit::kUnlimited);
  EXPECT_EQ(*Parsed("unlimited").Blocks(512, 890), kUnlimitedBlocks);
  EXPECT_EQ(*Parsed("10blk").Blocks(512, 890), 10);
  // 512 tokens of 890 bytes are 455,680 bytes.
  EXPECT_EQ(*Parsed("911360B").Blocks(512, 890), 2);
  EXPECT_EQ(*Parsed("911359B").Blocks(512, 890), 1);
  const auto none = Parsed("455679B").Blocks(512, 890);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message,
            "Capacity 455679B is less than one block: 512 tokens of 890 bytes take 455680 bytes.");
}

TEST(Capacity, OtherTextIsAnError) {
  for (const char* text : {"", "10", "blk", "GiB", "-1blk", "1.5GiB", "8 GiB", "8gib", "8GiBx"}) {
    EXPECT_NE(CapacityError(text).find("must be a whole number with a unit"), std::string::npos)
        << text;
  }
  EXPECT_EQ(CapacityError("0blk"), "Capacity \"0blk\" must be more than nothing.");
  EXPECT_EQ(CapacityError("9223372036854775807blk"), "");
  EXPECT_NE(CapacityError("9223372036854775808blk").find("more than 2^63 - 1"), std::string::npos);
  EXPECT_EQ(CapacityError("8388607TiB"), "");
  EXPECT_NE(CapacityError("8388608TiB").find("more than 2^63 - 1"), std::string::npos);
}

TEST(Capacity, NumbersForTables) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1000), "1,000");
  EXPECT_EQ(CountText(-123456), "-123,456");
  EXPECT_EQ(CountText(12345678), "12,345,678");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{8} << 30), "8 GiB");
}

// Block 1 stays, 2 and 3 take turns in the other place of a cache of two.
SimulationReport Report(const std::vector<std::string>& capacities) {
  const Trace trace = ReadTrace(MooncakeText({{1}, {2}, {1}, {3}, {1}, {2}}));
  SimulationReport report;
  report.trace = Summarize(trace, "a<b>.jsonl", 1);
  report.unlimited = Simulated(trace, "lru", kUnlimitedBlocks);
  for (const char* policy : {"lru", "belady"}) {
    for (const std::string& text : capacities) {
      SimulationRun run;
      run.capacity = Parsed(text);
      run.bytes_per_token = 890;
      run.result = Simulated(trace, policy, *run.capacity.Blocks(trace.block_tokens, 890));
      report.runs.push_back(run);
    }
  }
  return report;
}

double Number(const Json& json, std::string_view key) {
  const Json* member = json.Find(key);
  EXPECT_TRUE(member != nullptr && member->is_number()) << key;
  return member != nullptr && member->is_number() ? member->as_double() : -1;
}

TEST(SimulationReport, JsonOfOneRunHasItsMembersAtTheTop) {
  SimulationReport report = Report({"2blk"});
  report.runs.resize(1);
  report.prefill_tokens_per_second = 256;
  const Json json = report.ToJson();
  EXPECT_DOUBLE_EQ(Number(json, "block_hit_rate"), 2.0 / 6.0);
  EXPECT_DOUBLE_EQ(Number(json, "token_hit_rate"), 2.0 / 6.0);
  EXPECT_EQ(Number(json, "recomputed_tokens"), 512);
  EXPECT_EQ(Number(json, "recompute_seconds"), 2);
  EXPECT_EQ(Number(json, "compute_seconds"), 8);
  EXPECT_EQ(Number(json, "capacity_blocks"), 2);
  EXPECT_EQ(json.Find("capacity")->as_string(), "2blk");
  EXPECT_EQ(json.Find("gaps")->as_array().size(), kReuseGaps.size());
  EXPECT_DOUBLE_EQ(Number(*json.Find("trace"), "unlimited_block_hit_rate"), 0.5);
  ASSERT_EQ(json.Find("runs")->as_array().size(), 1U);
  EXPECT_EQ(Number(json.Find("runs")->as_array()[0], "hit_tokens"), 1024);
  EXPECT_TRUE(ParseJson(DumpJson(json, JsonStyle::kPretty), "report").has_value());
}

TEST(SimulationReport, JsonOfSeveralRunsIsAList) {
  const Json json = Report({"1blk", "unlimited"}).ToJson();
  EXPECT_EQ(json.Find("block_hit_rate"), nullptr);
  ASSERT_EQ(json.Find("runs")->as_array().size(), 4U);
  EXPECT_TRUE(json.Find("runs")->as_array()[1].Find("capacity_blocks")->is_null());
}

TEST(SimulationReport, TextNamesWhatWasSimulated) {
  SimulationReport report = Report({"2blk"});
  const std::string text = report.ToText();
  for (const char* part :
       {"6 requests", "6 uses of 3 blocks of 512 tokens", "hits 50.00 % of the blocks", "lru",
        "belady", "33.33 %", "<10s", "never", "No request says how long it ran"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find(" \n"), std::string::npos) << text;
  report.prefill_tokens_per_second = 512;
  EXPECT_NE(report.ToText().find("4.0 s"), std::string::npos) << report.ToText();
}

size_t Occurrences(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SimulationReport, SvgHasALineAPolicyAndEscapesTheName) {
  const std::string svg = Report({"1blk", "2blk", "3blk", "unlimited"}).ToSvg();
  EXPECT_EQ(svg.find("<svg "), 0U);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  EXPECT_EQ(Occurrences(svg, " line\" stroke-dasharray="), 2U);
  EXPECT_EQ(Occurrences(svg, "<title>"), 6U);
  EXPECT_EQ(Occurrences(svg, "a&lt;b&gt;.jsonl"), 1U);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(svg.find("blocks that hit"), std::string::npos);
  EXPECT_NE(svg.find("size of the cache, blocks of 512 tokens"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SimulationReport, SvgOfOneSizeOrNoHitIsWhole) {
  const std::string one = Report({"2MiB"}).ToSvg();
  EXPECT_NE(one.find(">2 MiB</text>"), std::string::npos);
  SimulationReport none = Report({"1blk"});
  const Trace trace = ReadTrace(MooncakeText({{1}, {2}}));
  none.unlimited = Simulated(trace, "lru", kUnlimitedBlocks);
  for (SimulationRun& run : none.runs) run.result = Simulated(trace, "lru", 1);
  const std::string svg = none.ToSvg();
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace minke::testing
