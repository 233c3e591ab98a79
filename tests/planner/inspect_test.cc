#include "planner/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "model/state.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::GoldenPath;

ModelConfig Load(const std::string& set) {
  auto config = LoadConfig(GoldenPath(set + "/config.json"));
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config ? *config : ModelConfig();
}

InspectReport Report(const std::string& set) {
  auto report = InspectReport::Make(Load(set), nullptr);
  EXPECT_TRUE(report.has_value()) << report.error().message;
  return *report;
}

// architecture.md 1.4, 2.1 and 5.2: none of these numbers is written in the program.
TEST(Inspect, ReleasedFigures) {
  const InspectReport report = Report("released");
  EXPECT_EQ(report.tensors(), 96'085);
  EXPECT_EQ(report.tensor_bytes(), 510'286'023'000);
  EXPECT_EQ(report.parameters(), 763'205'315'794);
  EXPECT_EQ(report.cache().kv_bytes_per_token, 890.0);
  EXPECT_EQ(report.cache().window_state_bytes, 2'703'360);
  EXPECT_EQ(report.cache().context_tokens, 1'048'576);
  EXPECT_EQ(report.cache().kv_bytes_at_context, 933'232'640.0);
  EXPECT_EQ(report.cache().open_group_bytes, 3 * 4'096);
}

TEST(Inspect, DerivationLeadsToTheSum) {
  const auto lines = Report("released").cache().kv_derivation;
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_NE(lines[0].find("= 288 B"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("= 68 B"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2], "one row pair: 288 + 68 = 356 B");
  EXPECT_EQ(lines[3], "layers 2, 8, 14, a row pair per 2 tokens: 3 x 356 / 2 = 534 B/token");
  EXPECT_EQ(lines[4], "layer 20, a row pair per token: 1 x 356 / 1 = 356 B/token");
  EXPECT_EQ(lines[5], "sum: 890 B/token");
  EXPECT_EQ(Report("tiny_swa").cache().kv_derivation.size(), 1u);
  EXPECT_EQ(Report("tiny_swa").cache().kv_bytes_per_token, 0.0);
}

TEST(Inspect, JsonCarriesTheFigures) {
  const Json json = Report("released").ToJson();
  EXPECT_EQ(json.Find("tensors")->as_int(), 96'085);
  EXPECT_EQ(json.Find("tensor_bytes")->as_int(), 510'286'023'000);
  const Json& parameters = *json.Find("parameters");
  EXPECT_EQ(parameters.Find("total")->as_int(), 763'205'315'794);
  EXPECT_EQ(parameters.Find("routed_experts")->as_int(), 543'581'798'400);
  EXPECT_EQ(parameters.Find("engram")->as_int(), 196'928'504'320);
  int64_t sum = 0;
  for (const auto& [part, count] : parameters.as_object()) {
    if (part != "total") sum += count.as_int();
  }
  EXPECT_EQ(sum, parameters.Find("total")->as_int());
  // An integer, so that a reader can compare it with ==.
  ASSERT_TRUE(json.Find("kv_bytes_per_token")->is_integer());
  EXPECT_EQ(json.Find("kv_bytes_per_token")->as_int(), 890);
  EXPECT_EQ(json.Find("window_state_bytes")->as_int(), 2'703'360);
  const JsonArray& layers = json.Find("layers")->as_array();
  ASSERT_EQ(layers.size(), 40u);
  EXPECT_EQ(layers[0].Find("mode")->as_string(), "SWA");
  EXPECT_TRUE(layers[0].Find("kv_source")->is_null());
  EXPECT_EQ(layers[20].Find("mode")->as_string(), "Full");
  EXPECT_EQ(layers[24].Find("mode")->as_string(), "Reindex");
  EXPECT_EQ(layers[25].Find("mode")->as_string(), "Reuse");
  EXPECT_EQ(layers[25].Find("index_source")->as_int(), 24);
  EXPECT_TRUE(layers[14].Find("engram")->as_bool());
  EXPECT_TRUE(json.Find("checkpoint")->is_null());
  // What is written is JSON.
  EXPECT_TRUE(ParseJson(DumpJson(json, JsonStyle::kPretty), "report").has_value());
}

TEST(Inspect, GoldenSetsAgreeWithTheirFiles) {
  for (const char* set : {"tiny_swa", "full_mini", "wide", "chat", "dspark", "vision"}) {
    const auto checkpoint = Checkpoint::Open(GoldenPath(set));
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    const auto report = InspectReport::Make(Load(set), &*checkpoint);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->tensors(), static_cast<int64_t>(checkpoint->tensors().size())) << set;
    EXPECT_EQ(report->tensor_bytes(), static_cast<int64_t>(checkpoint->tensor_bytes())) << set;
    const Json json = report->ToJson();
    EXPECT_EQ(json.Find("checkpoint")->Find("file_bytes")->as_int(),
              static_cast<int64_t>(checkpoint->file_bytes()));
  }
}

TEST(Inspect, AForeignCheckpointIsRefused) {
  const auto checkpoint = Checkpoint::Open(GoldenPath("chat"));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const auto report = InspectReport::Make(Load("tiny_swa"), &*checkpoint);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("others are present"), std::string::npos);
}

// The report's constant state is what a sequence really holds.
TEST(Inspect, ConstantStateIsThatOfASequence) {
  for (const char* set : {"tiny_swa", "full_mini", "wide", "released"}) {
    const ModelConfig config = Load(set);
    const CacheReport cache = Report(set).cache();
    const StateLayout layout(config, Numerics::Official());
    BlockPool pool(std::max<int64_t>(1, layout.block_bytes), 0);
    const SequenceState state(config, Numerics::Official(), pool);
    EXPECT_EQ(cache.window_state_bytes + cache.open_group_bytes + cache.engram_history_bytes,
              state.constant_bytes())
        << set;
  }
}

TEST(Inspect, TextFitsATerminal) {
  for (const char* set : {"released", "full_mini", "tiny_swa"}) {
    const std::string text = Report(set).ToText();
    EXPECT_EQ(text.back(), '\n');
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    }
  }
  const std::string text = Report("released").ToText();
  for (const char* part :
       {"763,205,315,794", "510,286,023,000", "96,085", "890 B/token", "2,703,360", "Reindex"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace minke
