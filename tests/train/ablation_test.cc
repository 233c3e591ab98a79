// The laboratory's plan and its results: what is read, what is refused, what the tables say.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/file.h"
#include "tests/train/nano_config.h"
#include "train/ablation_plan.h"
#include "train/ablation_report.h"

namespace minke::train {
namespace {

constexpr const char* kStages =
    R"("stages": {"short": [{"name": "A", "steps": 10, "rows": [{"length": 64, "count": 4}],
       "kinds": {"plain": 1}}]}, )";

std::string PlanText(const std::string& row) {
  return std::string(R"({"lengths": [512], )") + kStages + R"("rows": [)" + row + "]}";
}

std::string ErrorOf(const std::string& text) {
  const Result<AblationPlan> plan = ParseAblationPlan(text, "plan.json");
  return plan ? "" : plan.error().message;
}

TEST(AblationPlan, TheShippedOneIsRead) {
  const std::string path = std::string(MINKE_SOURCE_DIR) + "/models/nano/ablations.json";
  const std::string text = ReadFile(path, kAblationPlanBytesMax).value();
  const Result<AblationPlan> plan = ParseAblationPlan(text, path);
  ASSERT_TRUE(plan) << plan.error().message;
  for (const AblationRow& row : plan->rows) {
    const Result<std::string> config =
        ChangeConfig(testing::NanoConfigText(), row.config_changes, "nano");
    ASSERT_TRUE(config) << row.name << ": " << config.error().message;
    const Result<ModelConfig> parsed = ParseConfig(*config, row.name);
    EXPECT_TRUE(parsed) << row.name << ": " << parsed.error().message;
  }
}

TEST(AblationPlan, ReadsARow) {
  const Result<AblationPlan> plan = ParseAblationPlan(
      PlanText(R"({"table": "T", "name": "R", "from": "stage-1.state", "stages": "short",
        "config": {"index_topk": 16}, "seeds": [3, 4],
        "evaluate": [{"name": "exact", "attention": "sparse", "quantization": "none"},
                     {"name": "replay", "replay_tokens": 32, "engram": false}]})"),
      "plan.json");
  ASSERT_TRUE(plan) << plan.error().message;
  const AblationRow& row = plan->rows.at(0);
  EXPECT_EQ(row.seeds, (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(row.training.stages.at(0).length.steps, 10);
  EXPECT_EQ(row.lengths, plan->lengths);
  EXPECT_TRUE(row.variants.at(0).options.sparse);
  EXPECT_FALSE(row.variants.at(0).options.pool);
  EXPECT_EQ(row.variants.at(0).options.quantization.rows, RowPrecision::kFloat);
  EXPECT_EQ(row.variants.at(0).replay_tokens, -1);
  EXPECT_TRUE(row.variants.at(1).options.pool);
  EXPECT_EQ(row.variants.at(1).options.quantization.rows, RowPrecision::kQ4K);
  EXPECT_EQ(row.variants.at(1).replay_tokens, 32);
  EXPECT_FALSE(row.variants.at(1).options.engram);
}

TEST(AblationPlan, ARowMayHaveLengthsOfItsOwnAndStartFromNothing) {
  const Result<AblationPlan> plan = ParseAblationPlan(
      PlanText(R"({"table": "T", "name": "R", "stages": "short", "lengths": [128, 256],
        "evaluate": [{"name": "bf16", "quantization": {"rows": "bf16"}}]})"),
      "plan.json");
  ASSERT_TRUE(plan) << plan.error().message;
  const AblationRow& row = plan->rows.at(0);
  EXPECT_EQ(row.lengths, (std::vector<int64_t>{128, 256}));
  EXPECT_EQ(row.trunk_state, "");
  // What a quantization does not name is not rounded.
  const Quantization& quantization = row.variants.at(0).options.quantization;
  EXPECT_EQ(quantization.rows, RowPrecision::kBf16);
  EXPECT_FALSE(quantization.index || quantization.window || quantization.activations ||
               quantization.weights);
}

TEST(AblationPlan, WrongOnesAreRefusedWithTheirPlace) {
  const std::string evaluate = R"("evaluate": [{"name": "v"}])";
  EXPECT_NE(ErrorOf("{}").find("lengths"), std::string::npos);
  EXPECT_NE(ErrorOf(PlanText("")).find("rows"), std::string::npos);
  const auto row = [&](const std::string& members) {
    return ErrorOf(PlanText("{" + members + "}"));
  };
  EXPECT_NE(row(R"("name": "R")").find("rows[0].table"), std::string::npos);
  EXPECT_NE(row(R"("table": "T", "name": "R", )" + evaluate).find("neither"), std::string::npos);
  EXPECT_NE(row(R"("table": "T", "name": "R", "stages": "none", )" + evaluate).find("\"none\""),
            std::string::npos);
  const std::string begin = R"("table": "T", "name": "R", "from": "s", )";
  EXPECT_NE(row(begin + R"("evaluate": [])").find("rows[0].evaluate"), std::string::npos);
  EXPECT_NE(row(begin + R"("seeds": [-1], )" + evaluate).find("rows[0].seeds"), std::string::npos);
  EXPECT_NE(row(begin + R"("lengths": [], )" + evaluate).find("rows[0].lengths"),
            std::string::npos);
  EXPECT_NE(row(begin + R"("speed": 1, )" + evaluate).find("rows[0].speed"), std::string::npos);
  const std::string good = "{" + begin + evaluate + "}";
  EXPECT_EQ(ErrorOf(PlanText(good)), "");
  EXPECT_NE(ErrorOf(PlanText(good + "," + good)).find("earlier row"), std::string::npos);
}

TEST(AblationPlan, ChangesOfTheConfigMustBeMembersOfIt) {
  const std::string config = testing::NanoConfigText();
  const Result<std::string> wrong = ChangeConfig(config, R"({"index_topkk": 3})", "c.json");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("index_topkk"), std::string::npos);
  const std::string changed = ChangeConfig(config, R"({"index_topk": 8})", "c.json").value();
  EXPECT_EQ(ParseConfig(changed, "c.json").value().index_topk, 8);
}

TEST(AblationPlan, CountsBytesAndKeys) {
  const ModelConfig config = testing::NanoConfig();
  // 64 channels at 4 bits and 4 scales, 32 at 4 bits and 1 scale, for sources of ratio 2 and 1.
  EXPECT_DOUBLE_EQ(CacheBytesPerToken(config, RowPrecision::kQ4K, true), (36 + 17) * 1.5);
  EXPECT_DOUBLE_EQ(CacheBytesPerToken(config, RowPrecision::kBf16, false), (128 + 64) * 1.5);
  EXPECT_DOUBLE_EQ(CacheBytesPerToken(config, RowPrecision::kHarsh, true), (16 + 4 + 17) * 1.5);
  EXPECT_DOUBLE_EQ(IndexedKeysPerQuery(config, 1024, false), 512 + 1024 + 1024);
  EXPECT_DOUBLE_EQ(IndexedKeysPerQuery(config, 1024, true), 512 + 1024 + 96);
}

TEST(AblationPlan, APlainDecoderHasAllSourcesOfItsOwn) {
  const std::string changed =
      ChangeConfig(testing::NanoConfigText(),
                   R"({"kv_source_layer_ids": [2, 3, 4, 5], "index_source_layer_ids": [2, 3, 4, 5],
                       "candidate_source_layer_id": -1})",
                   "c.json")
          .value();
  const ModelConfig config = ParseConfig(changed, "c.json").value();
  EXPECT_DOUBLE_EQ(CacheBytesPerToken(config, RowPrecision::kBf16, false), (128 + 64) * 3.0);
  EXPECT_DOUBLE_EQ(IndexedKeysPerQuery(config, 1024, false), 2 * 512 + 2 * 1024);
}

AblationResult Sample(uint64_t seed, int64_t digits) {
  AblationResult result;
  result.table = "T";
  result.row = "R";
  result.variant = "V";
  result.seed = seed;
  result.trained_tokens = 7;
  result.bits_per_byte = 2.5;
  result.cache_bytes_per_token = 79.5;
  result.indexed_keys_per_query = 96;
  result.recall = {{512, 100, digits, digits - 1}};
  result.indexes = {{2, 0.97, 0.5, -1, -1}, {4, 0.99, 0.5, 1, 0.875}};
  return result;
}

TEST(AblationReport, LinesComeBackAsTheyWere) {
  const std::string text = ResultLine(Sample(1, 98)) + ResultLine(Sample(2, 90));
  // A line that was being written when its process ended is not there yet.
  const auto results = ParseResults(text + "{\"table\": ", "results.jsonl").value();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(ResultLine(results[0]) + ResultLine(results[1]), text);
  const auto broken = ParseResults(text + "{}\n", "results.jsonl");
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("line 3 of results.jsonl"), std::string::npos);
}

std::string ParseErrorOf(const AblationResult& first, const AblationResult& second) {
  const auto results = ParseResults(ResultLine(first) + ResultLine(second), "results.jsonl");
  return results ? "" : results.error().message;
}

TEST(AblationReport, ALineThatIsThereTwiceIsRefused) {
  const std::string error = ParseErrorOf(Sample(1, 98), Sample(1, 90));
  EXPECT_NE(error.find("Lines 1 and 2 of results.jsonl"), std::string::npos) << error;
  AblationResult other = Sample(1, 98);
  other.variant = "W";
  EXPECT_EQ(ParseErrorOf(Sample(1, 98), other), "");
}

TEST(AblationReport, NumbersThatNoEvaluationGivesAreRefused) {
  const auto error = [](const AblationRecall& recall) {
    AblationResult second = Sample(2, 90);
    second.recall = {recall};
    return ParseErrorOf(Sample(1, 98), second);
  };
  EXPECT_EQ(error({512, 100, 0, 100}), "");
  const std::vector<AblationRecall> wrong = {
      {512, 100, 101, 5}, {512, 100, -1, 5}, {512, 100, 5, 101}, {512, 100, 5, -1},
      {512, 0, 0, 0},     {512, -1, 0, 0},   {0, 100, 5, 5}};
  for (const AblationRecall& recall : wrong) {
    EXPECT_NE(error(recall).find("line 2 of results.jsonl"), std::string::npos)
        << recall.length << " " << recall.cases << ": " << error(recall);
  }
  AblationResult twice = Sample(2, 90);
  twice.recall.push_back(twice.recall[0]);
  EXPECT_NE(ParseErrorOf(Sample(1, 98), twice).find("512 twice"), std::string::npos);
}

TEST(AblationReport, AKnownResultMustBeWhatIsAskedFor) {
  AblationResult made = Sample(1, 98);
  made.steps = 0;
  made.setup = "aa";
  const AblationResult known = ParseResults(ResultLine(made), "results.jsonl").value().at(0);
  const auto error = [&known](const AblationRequest& asked) {
    const Status status = CheckRequest(known, asked, "results.jsonl");
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(error({{512}, 100, 0, "aa"}), "");
  const std::string lengths = error({{512, 1024}, 100, 0, "aa"});
  EXPECT_NE(lengths.find("prompts of 512 tokens, but asked for is 512, 1024"), std::string::npos)
      << lengths;
  EXPECT_NE(lengths.find("Line 1 of results.jsonl"), std::string::npos) << lengths;
  EXPECT_NE(lengths.find("--results"), std::string::npos) << lengths;
  EXPECT_NE(error({{512}, 40, 0, "aa"}).find("100 cases of each length, but asked for is 40"),
            std::string::npos);
  EXPECT_NE(error({{512}, 100, 7, "aa"}).find("7 steps a stage"), std::string::npos);
  EXPECT_NE(error({{512}, 100, 0, "bb"}).find("another plan or trunk"), std::string::npos);
  // A line of an older program does not say by what it was made.
  EXPECT_TRUE(CheckRequest(Sample(1, 98), {{512}, 100, 7, "bb"}, "results.jsonl"));
}

TEST(AblationReport, TheShippedOnesAreRead) {
  for (const char* name : {"branch.jsonl", "scratch.jsonl", "shipped.jsonl"}) {
    const std::string path = std::string(MINKE_SOURCE_DIR) + "/docs/ablations/" + name;
    const auto results = ParseResults(ReadFile(path, kResultsBytesMax).value(), path);
    EXPECT_TRUE(results) << results.error().message;
  }
}

TEST(AblationReport, TablesPoolSeedsAndShowTheirSpread) {
  const std::string table = MarkdownTables({Sample(1, 98), Sample(2, 90)});
  EXPECT_NE(table.find("### T"), std::string::npos);
  EXPECT_NE(table.find("94.0 [89.8, 96.5] (90.0 to 98.0)"), std::string::npos) << table;
  EXPECT_NE(table.find("| 2: 97, 4: 99 | 4: 100 / 87.5 |"), std::string::npos) << table;
  EXPECT_NE(table.find("| 79.5 | 96 |"), std::string::npos) << table;
  EXPECT_EQ(MarkdownTables({}), "");
}

TEST(AblationReport, RowsOfATableMayHaveLengthsOfTheirOwn) {
  AblationResult other = Sample(1, 50);
  other.row = "Q";
  other.recall[0].length = 256;
  const std::string table = MarkdownTables({Sample(1, 98), other});
  EXPECT_NE(table.find("digits at 256 | answer at 256 | digits at 512"), std::string::npos);
  EXPECT_NE(table.find("| R | V | 1 | - | - | 98.0 ["), std::string::npos) << table;
  EXPECT_NE(table.find("| Q | V | 1 | 50.0 ["), std::string::npos) << table;
}

}  // namespace
}  // namespace minke::train
