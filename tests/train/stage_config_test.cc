// The training plan: what is read, what is refused, and what it does to the rates.
#include "train/stage_config.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/train/nano_config.h"
#include "train/row_source.h"

namespace minke::train {
namespace {

constexpr const char* kStage =
    R"("name": "A", "steps": 10, "rows": [{"length": 64, "count": 4}],
       "kinds": {"list": 0.5, "plain": 0.5})";

std::string Plan(const std::string& more) {
  return std::string(R"({"seed": 3, "stages": [{)") + kStage + more + "}]}";
}

std::string ErrorOf(const std::string& text) {
  const Result<TrainingConfig> config = ParseTrainingConfig(text, "plan.json");
  return config ? "" : config.error().message;
}

TEST(TrainingConfig, ReadsAStageWithDefaults) {
  const Result<TrainingConfig> config = ParseTrainingConfig(Plan(""), "plan.json");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->stages.size(), 1u);
  const StageConfig& stage = config->stages[0];
  EXPECT_EQ(config->seed, 3u);
  EXPECT_EQ(stage.name, "A");
  EXPECT_EQ(stage.length.steps, 10);
  EXPECT_FALSE(stage.sparse);
  EXPECT_EQ(stage.quantization.rows, RowPrecision::kFloat);
  EXPECT_EQ(stage.kinds[static_cast<size_t>(RowKind::kDocument)], 0);
}

TEST(TrainingConfig, ReadsQuantizationAsWordAndAsObject) {
  const auto all = ParseTrainingConfig(Plan(R"(, "quantization": "all")"), "plan.json");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->stages[0].quantization.rows, RowPrecision::kQ4K);
  EXPECT_TRUE(all->stages[0].quantization.weights);
  const auto some =
      ParseTrainingConfig(Plan(R"(, "quantization": {"rows": "harsh", "window": true})"), "p");
  ASSERT_TRUE(some) << some.error().message;
  EXPECT_EQ(some->stages[0].quantization.rows, RowPrecision::kHarsh);
  EXPECT_TRUE(some->stages[0].quantization.window);
  EXPECT_FALSE(some->stages[0].quantization.weights);
}

TEST(TrainingConfig, AStageMayTrainTheIndexersAlone) {
  const auto config = ParseTrainingConfig(
      Plan(R"(, "train": "indexers", "distill": 1, "index_sharpness": 4)"), "plan.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->stages[0].indexers_only);
  EXPECT_EQ(config->stages[0].index_sharpness, 4);
  EXPECT_NE(ErrorOf(Plan(R"(, "train": "indexers")")).find("would train nothing"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Plan(R"(, "index_sharpness": 4)")).find("leave it out"), std::string::npos);
}

TEST(TrainingConfig, AStageMayReadListsAndPoolsOfItsOwn) {
  const auto config =
      ParseTrainingConfig(Plan(R"(, "index_topk": 32, "candidate_topk_blocks": 24)"), "plan.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->stages[0].index_topk, 32);
  EXPECT_EQ(config->stages[0].candidate_topk_blocks, 24);
}

TEST(TrainingConfig, ListsThatAPoolMayNotFillAreRefused) {
  const auto check = [](const std::string& more) {
    const Status status =
        CheckStages(ParseTrainingConfig(Plan(more), "p").value(), minke::testing::NanoConfig());
    return status ? "" : status.error().message;
  };
  // Seven full blocks of four rows and one row.
  EXPECT_EQ(check(R"(, "index_topk": 29, "candidate_topk_blocks": 8)"), "");
  EXPECT_NE(check(R"(, "index_topk": 30, "candidate_topk_blocks": 8)")
                .find("p: stages[0] (A) selects lists of 30 rows in a pool of 8 blocks of 4 rows"),
            std::string::npos);
  EXPECT_NE(check(R"(, "index_topk": 94)").find("a pool of 24 blocks"), std::string::npos);
}

TEST(TrainingConfig, TheShippedOneIsRead) {
  const std::string nano = std::string(MINKE_SOURCE_DIR) + "/models/nano/";
  const auto training = LoadTrainingConfig(nano + "training.json");
  ASSERT_TRUE(training) << training.error().message;
  ASSERT_EQ(training->stages.size(), 8u);
  EXPECT_TRUE(training->stages.back().indexers_only);
}

TEST(TrainingConfig, ErrorsNameTheKeyAndItsPlace) {
  struct Case {
    std::string more;
    std::string place;
  };
  const Case cases[] = {
      {R"(, "muon_rat": 0.1)", "stages[0].muon_rat"},
      {R"(, "muon_rate": -1)", "stages[0].muon_rate"},
      {R"(, "muon_rate": "fast")", "stages[0].muon_rate"},
      {R"(, "warmup_steps": 1.5)", "stages[0].warmup_steps"},
      {R"(, "attention": "pool")", "stages[0].attention"},
      {R"(, "index_topk": 0)", "stages[0].index_topk"},
      {R"(, "candidate_topk_blocks": "all")", "stages[0].candidate_topk_blocks"},
      {R"(, "quantization": "some")", "stages[0].quantization"},
      {R"(, "quantization": {"row": "q4k"})", "stages[0].quantization.row"},
      {R"(, "train": "index")", "stages[0].train"},
      {R"(, "drafts": -1)", "stages[0].drafts"},
      {R"(, "train": "indexers", "distill": 1, "drafts": 1)", "stages[0].drafts"},
      {R"(, "train": "indexers", "distill": 1, "index_sharpness": 0)", "stages[0].index_sharpness"},
      {R"(, "weights": {"first": -1})", "stages[0].weights.first"},
      {R"(, "facts": [4, 2])", "stages[0].facts"},
      {R"(, "facts": 4)", "stages[0].facts"},
      {R"(, "short_values": 1)", "stages[0].short_values"},
      {R"(, "tokens": 5)", "exactly one of steps, tokens and minutes"},
      {R"(, "gate_first": 2)", "stages[0].gate_first"},
      {R"(, "facts": [3, 257])",
       "stages[0].facts must be [least, most] with integers from 1 to 256"},
      {R"(, "questions": [3, 65])",
       "stages[0].questions must be [least, most] with integers from 1 to 64"},
  };
  for (const Case& entry : cases) {
    const std::string error = ErrorOf(Plan(entry.more));
    EXPECT_NE(error.find(entry.place), std::string::npos) << entry.more << ": " << error;
    EXPECT_NE(error.find("plan.json"), std::string::npos) << error;
  }
}

std::string PlanNamed(const std::string& name) {
  return R"({"stages": [{"name": ")" + name + R"(", "steps": 1, "kinds": {"plain": 1},
      "rows": [{"length": 64, "count": 1}]}]})";
}

TEST(TrainingConfig, NamesAreShortAndPlain) {
  EXPECT_EQ(ErrorOf(PlanNamed("C2 long_rows, as-stored 0.5")), "");
  EXPECT_EQ(ErrorOf(PlanNamed(std::string(kStageNameMax, 'a'))), "");
  for (const std::string& name :
       {std::string(), std::string(kStageNameMax + 1, 'a'), std::string("a\\u001b[2J"),
        std::string("a/b"), std::string("a\\nb"), std::string("caf\u00e9")}) {
    EXPECT_NE(ErrorOf(PlanNamed(name)).find("stages[0].name"), std::string::npos) << name;
  }
}

TEST(TrainingConfig, AGateNeedsLists) {
  EXPECT_EQ(ErrorOf(Plan(R"(, "gate_first": 0.5)")), "");
  const std::string error = ErrorOf(R"({"stages": [{"name": "A", "steps": 1, "gate_first": 0.5,
      "kinds": {"plain": 1}, "rows": [{"length": 64, "count": 1}]}]})");
  EXPECT_NE(error.find("stages[0].gate_first"), std::string::npos) << error;
  EXPECT_NE(error.find("stages[0].kinds"), std::string::npos) << error;
}

TEST(TrainingConfig, RefusesWhatIsNoPlan) {
  EXPECT_NE(ErrorOf("[]").find("object"), std::string::npos);
  EXPECT_NE(ErrorOf("{}").find("stages"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"stages": []})").find("stages"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"stages": [{"name": "A", "steps": 1}]})").find("stages[0].rows"),
            std::string::npos);
  const std::string stage = std::string("{") + kStage + "}";
  EXPECT_NE(ErrorOf(R"({"stages": [)" + stage + "," + stage + "]}").find("stages[1].name"),
            std::string::npos);
  const std::string big = R"({"stages": [{"name": "A", "steps": 1, "kinds": {"plain": 1},
      "rows": [{"length": 16384, "count": 65}]}]})";
  EXPECT_NE(ErrorOf(big).find("stages[0].rows[0].count"), std::string::npos) << ErrorOf(big);
}

TEST(TrainingConfig, DigestIsOfTheMeaning) {
  const auto one = ParseTrainingConfig(Plan(R"(, "distill": 1)"), "p");
  const auto spaced = ParseTrainingConfig(Plan(R"(,   "distill":1 )"), "p");
  const auto other = ParseTrainingConfig(Plan(R"(, "distill": 2)"), "p");
  ASSERT_TRUE(one && spaced && other);
  EXPECT_EQ(one->digest, spaced->digest);
  EXPECT_NE(one->digest, other->digest);
}

TEST(RateFactor, WarmsUpAndDecays) {
  StageConfig stage;
  stage.length.steps = 100;
  stage.warmup_steps = 10;
  stage.decay_share = 0.5;
  stage.decay_to = 0.2;
  EXPECT_DOUBLE_EQ(RateFactor(stage, {0, 0, 0}), 0.1);
  EXPECT_DOUBLE_EQ(RateFactor(stage, {9, 0, 0}), 1);
  EXPECT_DOUBLE_EQ(RateFactor(stage, {50, 0, 0}), 1);
  EXPECT_DOUBLE_EQ(RateFactor(stage, {75, 0, 0}), 0.6);
  EXPECT_DOUBLE_EQ(RateFactor(stage, {100, 0, 0}), 0.2);
}

TEST(PlanStep, KeepsTheSharesAndIsRepeatable) {
  StageConfig stage;
  stage.shapes = {{64, 8, 3}, {128, 4, 1}, {256, 2, 0}};
  stage.kinds = {0.5, 0.25, 0.25};
  int64_t short_steps = 0;
  for (int64_t step = 0; step < 400; ++step) {
    const StepPlan plan = PlanStep(stage, 7, step);
    const StepPlan again = PlanStep(stage, 7, step);
    EXPECT_EQ(plan.kinds, again.kinds);
    EXPECT_EQ(plan.shape.length, again.shape.length);
    EXPECT_NE(plan.shape.length, 256);
    if (plan.shape.length != 64) continue;
    ++short_steps;
    // Layered drawing: 8 rows have the shares exactly.
    EXPECT_EQ(std::count(plan.kinds.begin(), plan.kinds.end(), RowKind::kList), 4);
    EXPECT_EQ(std::count(plan.kinds.begin(), plan.kinds.end(), RowKind::kPlain), 2);
  }
  EXPECT_NEAR(static_cast<double>(short_steps), 300, 40);
}

TEST(DraftPlaces, AreSpreadOverTheRowAndLeaveRoom) {
  const std::vector<int64_t> places = DraftPlaces(256, 5, 1, 2, 3);
  ASSERT_EQ(static_cast<int64_t>(places.size()), kDraftsPerRow);
  for (size_t i = 1; i < places.size(); ++i) EXPECT_LT(places[i - 1], places[i]);
  EXPECT_LT(places.front(), 16);
  EXPECT_GE(places.back(), 232);
  EXPECT_LT(places.back() + 5 + 1, 256);
  EXPECT_EQ(places, DraftPlaces(256, 5, 1, 2, 3));
  EXPECT_NE(places, DraftPlaces(256, 5, 1, 2, 4));
  EXPECT_EQ(DraftPlaces(8, 5, 1, 2, 3), (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(DraftPlaces(6, 5, 1, 2, 3).empty());
}

TEST(ReplayStart, LiesAWindowBeforeAnAnswer) {
  StageConfig stage;
  stage.replay_share = 1;
  Row row;
  row.ids.assign(100, 5);
  row.weights.assign(100, 0);
  row.targets.assign(100, TargetKind::kText);
  for (size_t i = 60; i < 70; ++i) row.targets[i] = TargetKind::kRestated;
  EXPECT_EQ(ReplayStart(stage, row, 32, 1, 2, 3), 60 + 1 - 32);
  stage.replay_share = 0;
  EXPECT_EQ(ReplayStart(stage, row, 32, 1, 2, 3), -1);
}

}  // namespace
}  // namespace minke::train
