#include "bench/synthetic_checkpoint.h"

#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "core/file.h"
#include "engine/engine.h"
#include "planner/inspect.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

const std::string kNanoDir = std::string(MINKE_SOURCE_DIR) + "/models/nano";
const std::string kReleasedConfig = std::string(MINKE_GOLDEN_DIR) + "/released/config.json";

SyntheticOptions NanoCut(const std::string& directory) {
  SyntheticOptions options;
  options.config_path = JoinPath(kNanoDir, "config.json");
  options.layers = {1, 2, 4, 5};
  options.experts = 4;
  options.vocab_size = 2500;
  options.tokenizer_dir = kNanoDir;
  options.directory = directory;
  return options;
}

std::string WholeFile(const std::string& path) {
  auto text = ReadFile(path, uint64_t{1} << 30);
  EXPECT_TRUE(text.has_value()) << path;
  return text.value_or("");
}

Result<ModelConfig> CutOf(const std::string& path, const LayerCut& cut) {
  const std::string text = TRY(ReadFile(path, kConfigBytesMax));
  const Json root = TRY(ParseJson(text, path));
  const ModelConfig config = TRY(ParseConfig(text, path));
  return ParseConfig(DumpJson(TRY(CutConfig(root, config, cut)), JsonStyle::kCompact), "cut");
}

TEST(CutConfig, KeepsTheRolesOfReleasedLayers) {
  const std::vector<int64_t> layers = {0, 2, 3, 14, 20, 21, 24, 25};
  const auto source = LoadConfig(kReleasedConfig);
  ASSERT_TRUE(source.has_value());
  const auto cut = CutOf(kReleasedConfig, {layers, 32, 0, 64, 99});
  ASSERT_TRUE(cut.has_value()) << cut.error().message;
  ASSERT_EQ(cut->num_hidden_layers, 8);
  EXPECT_EQ(cut->n_routed_experts, 32);
  EXPECT_EQ(cut->vocab_size, 129280);
  EXPECT_EQ(cut->engram_layer_ids, std::vector<int64_t>{3});
  EXPECT_EQ(cut->engram_compressed_vocab_size, 99);
  EXPECT_EQ(cut->num_nextn_predict_layers, 0);
  EXPECT_EQ(cut->vision.num_hidden_layers, 0);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerRole& old_role = source->layers[static_cast<size_t>(layers[i])];
    const LayerRole& role = cut->layers[i];
    EXPECT_EQ(LayerKind(role), LayerKind(old_role)) << layers[i];
    EXPECT_EQ(role.publishes_candidates, old_role.publishes_candidates) << layers[i];
    EXPECT_EQ(role.uses_candidates, old_role.uses_candidates) << layers[i];
    if (role.kv_source < 0) continue;
    EXPECT_EQ(layers[static_cast<size_t>(role.kv_source)], old_role.kv_source) << layers[i];
    EXPECT_EQ(layers[static_cast<size_t>(role.index_source)], old_role.index_source) << layers[i];
  }
}

TEST(CutConfig, SaysWhichLayersAreMissing) {
  const auto cut = CutOf(kReleasedConfig, {{0, 3, 25}, 32, 0, 64, 99});
  ASSERT_FALSE(cut.has_value());
  EXPECT_NE(cut.error().message.find("leaves out 2, 20, 24,"), std::string::npos)
      << cut.error().message;
  EXPECT_NE(cut.error().message.find("--layers 0,2,3,20,24,25"), std::string::npos);
}

TEST(CutConfig, RefusesLayersAndExpertsThatAreNotThere) {
  EXPECT_FALSE(CutOf(kReleasedConfig, {{40}, 32, 0, 64, 99}).has_value());
  EXPECT_FALSE(CutOf(kReleasedConfig, {{0}, 5, 0, 64, 99}).has_value());
  EXPECT_TRUE(CutOf(kReleasedConfig, {{0}, 6, 0, 64, 99}).has_value());
  EXPECT_TRUE(CutOf(kReleasedConfig, {{0}, 384, 0, 64, 99}).has_value());
  EXPECT_FALSE(CutOf(kReleasedConfig, {{0}, 385, 0, 64, 99}).has_value());
}

TEST(CutConfig, CountsTheKindsOfReleasedLayers) {
  const auto config = LoadConfig(kReleasedConfig);
  ASSERT_TRUE(config.has_value());
  const std::map<std::string, int64_t> expected = {{"SWA", 1},
                                                   {"SWA + Engram", 1},
                                                   {"Full, ratio 2", 2},
                                                   {"Full, ratio 1", 1},
                                                   {"Reuse, ratio 2", 15},
                                                   {"Full, ratio 2 + Engram", 1},
                                                   {"Reuse, ratio 1", 15},
                                                   {"Reindex, ratio 1", 4}};
  EXPECT_EQ(LayerKindCounts(*config), expected);
}

TEST(ParseLayerList, TakesAscendingIds) {
  const auto layers = ParseLayerList("0,2,13");
  ASSERT_TRUE(layers.has_value());
  EXPECT_EQ(*layers, (std::vector<int64_t>{0, 2, 13}));
  for (const char* text : {"", ",", "1,", "2,1", "1,1", "-1", "a", "1 ,2", "1;2"}) {
    EXPECT_FALSE(ParseLayerList(text).has_value()) << text;
  }
}

TEST(SyntheticCheckpoint, IsAModelThatGenerates) {
  const testing::TempDirectory directory;
  const SyntheticOptions options = NanoCut(directory.Path("model"));
  ThreadPool pool(2, 0);
  const auto report = WriteSyntheticCheckpoint(options, pool);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->shards, 6);

  const auto config = LoadConfig(JoinPath(options.directory, "config.json"));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  const auto checkpoint = Checkpoint::Open(options.directory);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const auto inspected = InspectReport::Make(*config, &*checkpoint);
  ASSERT_TRUE(inspected.has_value()) << inspected.error().message;
  EXPECT_EQ(inspected->tensors(), report->tensors);
  EXPECT_EQ(inspected->tensor_bytes(), report->tensor_bytes);

  EngineOptions engine_options;
  engine_options.model_dir = options.directory;
  auto engine = Engine::Open(engine_options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  EXPECT_TRUE((*engine)->info().random_weights);
  GenerationOptions generation;
  generation.max_tokens = 5;
  generation.ignore_eos = true;
  const std::vector<int32_t> prompt = {0, 17, 300, 2499, 5, 6, 7};
  const auto session = (*engine)->NewSession();
  const auto result = (*engine)->Generate(*session, prompt, generation);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->ids.size(), 5u);
}

TEST(SyntheticCheckpoint, TheSeedDecidesEveryByte) {
  const testing::TempDirectory directory;
  SyntheticOptions options = NanoCut(directory.Path("first"));
  ThreadPool one(1);
  ThreadPool three(3, 0);
  ASSERT_TRUE(WriteSyntheticCheckpoint(options, one).has_value());
  options.directory = directory.Path("second");
  ASSERT_TRUE(WriteSyntheticCheckpoint(options, three).has_value());
  options.directory = directory.Path("third");
  options.seed = 2;
  ASSERT_TRUE(WriteSyntheticCheckpoint(options, one).has_value());
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.Path("first"))) {
    const std::string name = entry.path().filename().string();
    const std::string bytes = WholeFile(entry.path().string());
    EXPECT_EQ(bytes, WholeFile(directory.Path("second/" + name))) << name;
    if (name.ends_with(".safetensors")) {
      EXPECT_NE(bytes, WholeFile(directory.Path("third/" + name))) << name;
    }
    ++files;
  }
  EXPECT_EQ(files, 11);  // six shards, their index, config, marker and two of the tokenizer
}

TEST(SyntheticCheckpoint, RefusesAFolderThatHoldsSomething) {
  const testing::TempDirectory directory;
  std::filesystem::create_directories(directory.Path("model"));
  ThreadPool pool(1);
  ASSERT_TRUE(WriteSyntheticCheckpoint(NanoCut(directory.Path("model")), pool).has_value());
  const auto again = WriteSyntheticCheckpoint(NanoCut(directory.Path("model")), pool);
  ASSERT_FALSE(again.has_value());
  EXPECT_NE(again.error().message.find("--out"), std::string::npos) << again.error().message;
}

TEST(SyntheticCheckpoint, NamesTheVocabularyThatIsTooSmall) {
  const testing::TempDirectory directory;
  SyntheticOptions options = NanoCut(directory.Path("model"));
  options.vocab_size = 2303;
  ThreadPool pool(1);
  const auto report = WriteSyntheticCheckpoint(options, pool);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("--vocab"), std::string::npos) << report.error().message;
  EXPECT_FALSE(std::filesystem::exists(options.directory));
}

}  // namespace
}  // namespace minke
