// Export: what is written is a checkpoint in the released format, and the model that it was.
#include "train/export.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "model/config.h"
#include "planner/inspect.h"
#include "tests/support/temp_directory.h"
#include "train/evaluation.h"
#include "train/model_folder.h"
#include "train/optimizer.h"
#include "train/recall_probe.h"
#include "train/row_source.h"
#include "train/stage_config.h"
#include "train/trainer.h"

namespace minke::train {
namespace {

using testing::TempDirectory;

const std::string kMini = std::string(MINKE_SOURCE_DIR) + "/models/mini";

ModelFolder MiniFolder() {
  Result<ModelFolder> folder = OpenModelFolder(JoinPath(kMini, kModelConfigFile), kMini);
  CHECK(folder.has_value(), folder ? "" : folder.error().message);
  return std::move(*folder);
}

std::unique_ptr<Model> NewModel(const ModelFolder& folder, uint64_t seed) {
  auto model = Model::Create(folder.config, folder.engram_token_map, seed, Initialisation::kPlain);
  CHECK(model.has_value(), model ? "" : model.error().message);
  return std::move(*model);
}

torch::Tensor LogitsOf(const Model& model, const Quantization& quantization) {
  const torch::NoGradGuard no_grad;
  torch::Tensor ids = torch::arange(80, torch::kInt64).mul(37).remainder(400).add(3).view({1, 80});
  ForwardOptions options;
  options.quantization = quantization;
  return model.Logits(model.Forward(ids, options).hidden[0], quantization);
}

TEST(Export, IsAReleasedCheckpointAndTheSameModel) {
  const TempDirectory directory;
  const ModelFolder folder = MiniFolder();
  const std::unique_ptr<Model> model = NewModel(folder, 3);
  const std::string out = directory.Path("out");
  const Status exported = ExportModel(*model, kMini, Json(JsonObject{{"steps", 7}}), out);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(DumpJson(ReadModelOrigin(out).value(), JsonStyle::kCompact), R"({"steps":7})");
  EXPECT_TRUE(ReadModelOrigin(directory.path()).value().is_null()) << "no model, no origin";
  directory.Write("minke.json", R"({"trained": {"steps": [1]}})");
  EXPECT_NE(ReadModelOrigin(directory.path()).error().message.find("minke.json: trained"),
            std::string::npos);

  const auto config = LoadConfig(JoinPath(out, "config.json"));
  ASSERT_TRUE(config) << config.error().message;
  const auto checkpoint = Checkpoint::Open(out);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto report = InspectReport::Make(*config, &*checkpoint);
  ASSERT_TRUE(report) << report.error().message;

  // Every weight as it is stored: the loaded model computes exactly what the trained one does.
  const std::unique_ptr<Model> loaded = NewModel(folder, 4);
  const Status status = loaded->Load(out);
  ASSERT_TRUE(status) << status.error().message;
  Quantization stored;
  stored.weights = true;
  const torch::Tensor expected = LogitsOf(*model, stored);
  EXPECT_GT(expected.abs().max().item<float>(), 0);
  EXPECT_FALSE(expected.equal(LogitsOf(*model, {})));  // or nothing was rounded
  EXPECT_TRUE(expected.equal(LogitsOf(*loaded, stored)));
  EXPECT_TRUE(expected.equal(LogitsOf(*loaded, {})));  // what is on the grid stays there
}

TEST(Export, TwiceGivesTheSameBytes) {
  const TempDirectory directory;
  const ModelFolder folder = MiniFolder();
  const std::unique_ptr<Model> model = NewModel(folder, 3);
  std::filesystem::create_directory(directory.Path("a"));
  std::filesystem::create_directory(directory.Path("b"));
  ASSERT_TRUE(WriteWeights(*model, directory.Path("a")));
  const std::unique_ptr<Model> loaded = NewModel(folder, 4);
  ASSERT_TRUE(loaded->Load(directory.Path("a")));
  ASSERT_TRUE(WriteWeights(*loaded, directory.Path("b")));
  constexpr uint64_t kLimit = uint64_t{1} << 30;
  const auto a = ReadFile(directory.Path("a/model.safetensors"), kLimit);
  const auto b = ReadFile(directory.Path("b/model.safetensors"), kLimit);
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(*a == *b);
}

TEST(Export, RefusesAFolderWithAModelAndValuesThatAreNone) {
  const TempDirectory directory;
  const ModelFolder folder = MiniFolder();
  const std::unique_ptr<Model> model = NewModel(folder, 3);
  EXPECT_FALSE(ExportModel(*model, kMini, Json(JsonObject{}), kMini));
  const torch::NoGradGuard no_grad;
  model->parameters()[0].value.view({-1})[5] = NAN;
  const Status status = ExportModel(*model, kMini, Json(JsonObject{}), directory.Path("out"));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find(model->parameters()[0].name), std::string::npos);
}

// Rows of any tokens, for steps on a golden model.
class AnyRows : public RowSource {
 public:
  Row Make(const RowRequest& request) const override {
    Row row;
    for (int64_t i = 0; i < request.length; ++i) {
      const double uniform = UniformOf(request.seed, request.step, request.index * 10'000 + i, 99);
      row.ids.push_back(static_cast<int32_t>(uniform * 400));
      row.weights.push_back(i + 1 < request.length ? 1.0F : 0.0F);
      row.targets.push_back(TargetKind::kText);
    }
    return row;
  }
};

torch::Tensor DraftLogits(const Model& model) {
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.drafts = {{0, 20}, {0, 60}};
  const torch::Tensor ids =
      torch::arange(80, torch::kInt64).mul(37).remainder(400).add(3).view({1, 80});
  return model.Forward(ids, options).drafts.logits;
}

TEST(Export, DraftStagesLearnAndComeBack) {
  const std::string golden = std::string(MINKE_GOLDEN_DIR) + "/dspark";
  Result<ModelFolder> folder = OpenModelFolder(JoinPath(golden, kModelConfigFile), golden);
  ASSERT_TRUE(folder) << folder.error().message;
  auto model = NewModel(*folder, 3);
  ASSERT_TRUE(model->Load(golden));
  const TempDirectory directory;
  auto config = ParseTrainingConfig(
      R"({"stages": [{"name": "drafts", "steps": 2, "rows": [{"length": 64, "count": 3}],
          "kinds": {"plain": 1}, "drafts": 0.5}]})",
      "plan");
  ASSERT_TRUE(config) << config.error().message;
  const AnyRows rows;
  std::vector<torch::Tensor> before;
  for (const Parameter& parameter : model->parameters()) {
    before.push_back(parameter.value.detach().clone());
  }
  Trainer trainer(std::move(*config), {"c", "m", "t", "r", 1, 2}, std::move(model), rows,
                  directory.path());
  const auto outcome = trainer.Run({});
  ASSERT_TRUE(outcome) << outcome.error().message;
  const Model& trained = trainer.model();
  for (size_t i = 0; i < before.size(); ++i) {
    const Parameter& parameter = trainer.model().parameters()[i];
    // Images are not trained on, nor indexes where nothing distils them.
    const bool still = parameter.name.ends_with(".bias_vl") ||
                       parameter.name.find(".indexer.") != std::string::npos;
    EXPECT_EQ(torch::equal(before[i], parameter.value.detach()), still) << parameter.name;
  }
  const std::string out = directory.Path("out");
  const Status exported = ExportModel(trained, golden, Json(JsonObject{}), out);
  ASSERT_TRUE(exported) << exported.error().message;
  const auto checkpoint = Checkpoint::Open(out);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto report = InspectReport::Make(folder->config, &*checkpoint);
  ASSERT_TRUE(report) << report.error().message;
  const auto loaded = NewModel(*folder, 4);
  ASSERT_TRUE(loaded->Load(out));
  const torch::Tensor drafts = DraftLogits(*loaded);
  EXPECT_FALSE(drafts.equal(DraftLogits(*NewModel(*folder, 4))));
  // Once more through the file: what is on the grid stays there.
  std::filesystem::create_directory(directory.Path("again"));
  ASSERT_TRUE(WriteWeights(*loaded, directory.Path("again")));
  const auto again = NewModel(*folder, 5);
  ASSERT_TRUE(again->Load(directory.Path("again")));
  EXPECT_TRUE(drafts.equal(DraftLogits(*again)));
}

TEST(Greedy, DraftsChangeNothing) {
  const ModelFolder folder = MiniFolder();
  const std::unique_ptr<Model> model = NewModel(folder, 3);
  const std::vector<int32_t> prompt = {0, 17, 30, 99, 200, 31, 8, 77};
  const GreedyAnswer plain = DecodeGreedily(*model, prompt, {}, {}, false);
  ASSERT_FALSE(plain.ids.empty());
  ASSERT_EQ(plain.ids.size(), plain.leads.size());
  std::vector<int32_t> half_right = plain.ids;
  if (half_right.size() > 4) half_right[3] += 1;
  for (const std::vector<int32_t>& draft : {plain.ids, half_right, std::vector<int32_t>{5, 6, 7}}) {
    EXPECT_EQ(DecodeGreedily(*model, prompt, draft, {}, false).ids, plain.ids);
  }
}

TEST(TextScore, CountsEveryTokenButTheFirstOnce) {
  const ModelFolder folder = MiniFolder();
  const std::unique_ptr<Model> model = NewModel(folder, 3);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The harbour gate is open. ";
  const auto tokens = static_cast<int64_t>(folder.tokenizer.EncodePlain(text).size());
  const TextScore score = ScoreText(*model, folder.tokenizer, text, 64, 1'000'000, {});
  EXPECT_EQ(score.tokens, tokens - 1);
  EXPECT_LT(score.bytes, static_cast<int64_t>(text.size()));
  EXPECT_GT(score.bytes, static_cast<int64_t>(text.size()) - 32);
  EXPECT_GT(score.nats_per_token(), 0);
  // With the whole text in one window every token sees more, and about as many are scored.
  const TextScore whole = ScoreText(*model, folder.tokenizer, text, 4096, 1'000'000, {});
  EXPECT_EQ(whole.tokens, score.tokens);
  EXPECT_EQ(whole.bytes, score.bytes);
}

}  // namespace
}  // namespace minke::train
