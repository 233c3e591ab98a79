// minke simulate as a person runs it: what it prints, writes and refuses.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/json.h"
#include "tests/apps/process.h"

namespace minke::testing {
namespace {

// Block 1 stays, 2 and 3 take turns in the other place of a cache of two.
std::string Trace() {
  std::string text;
  int milliseconds = 0;
  for (const int id : {1, 2, 1, 3, 1, 2}) {
    text += "{\"timestamp\": " + std::to_string(milliseconds += 1000) +
            ", \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [" + std::to_string(id) +
            "]}\n";
  }
  return text;
}

TEST(Simulate, JsonHasTheHitRates) {
  TemporaryFolder folder;
  const std::string trace = folder.Write("t.jsonl", Trace());
  const Finished run = RunMinke(
      {"simulate", "--trace", trace, "--capacity", "2blk", "--policy", "lru-flat", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const auto json = ParseJson(run.out, "output");
  ASSERT_TRUE(json.has_value()) << run.out;
  EXPECT_DOUBLE_EQ(json->Find("block_hit_rate")->as_double(), 2.0 / 6.0);
  EXPECT_DOUBLE_EQ(json->Find("token_hit_rate")->as_double(), 2.0 / 6.0);
}

TEST(Simulate, CurvesComparePoliciesAndTokenSizes) {
  TemporaryFolder folder;
  const std::string trace = folder.Write("t.jsonl", Trace());
  const std::string svg = folder.Path("curve.svg");
  const Finished run =
      RunMinke({"simulate", "--trace", trace, "--capacity", "1MiB,4MiB", "--policy", "lru,belady",
                "--bytes-per-token", "890,1780", "--svg", svg});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  // 1 MiB is two blocks of 890 bytes a token, one of 1780; 4 MiB is enough for all.
  for (const char* part : {"6 requests", "belady", "1,780", "33.33 %", "50.00 %"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
  const std::string plot = TemporaryFolder::Read(svg);
  EXPECT_NE(plot.find("lru, 1780 B/token"), std::string::npos);
}

TEST(Simulate, WithoutACapacityTellsTheBound) {
  TemporaryFolder folder;
  const Finished run = RunMinke({"simulate", "--trace", folder.Write("t.jsonl", Trace())});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("50.00 %"), std::string::npos) << run.out;
}

TEST(Simulate, WrongCommandLinesAreExplained) {
  TemporaryFolder folder;
  const std::string trace = folder.Write("t.jsonl", Trace());
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"simulate"}, "--trace is required"},
      {{"simulate", "--trace", trace, "--capacity", "12"}, "a whole number with a unit"},
      {{"simulate", "--trace", trace, "--policy", "best"}, "best not in"},
      {{"simulate", "--trace", trace, "--svg", folder.Path("x.svg")}, "at least one --capacity"},
      {{"simulate", "--trace", trace, "--capacity", "9blk", "--bytes-per-token", "1,2"},
       "only where --capacity is in bytes"},
  };
  for (const Case& wrong : cases) {
    const Finished run = RunMinke(wrong.arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_NE(run.err.find(wrong.message), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
}

TEST(Simulate, BrokenTracesAreNamedWithTheirLine) {
  TemporaryFolder folder;
  const std::string trace = folder.Write("broken.jsonl", Trace() + "{\"timestamp\": 7000}\n");
  const Finished run = RunMinke({"simulate", "--trace", trace});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("broken.jsonl, line 7"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("input_length"), std::string::npos) << run.err;
  EXPECT_EQ(RunMinke({"simulate", "--trace", folder.Path("none")}).exit_code, 1);
}

TEST(Simulate, HelpTeaches) {
  const Finished run = RunMinke({"simulate", "--help"});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* part : {"--capacity", "10000blk", "belady", "Examples:", "curve.svg"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace minke::testing
