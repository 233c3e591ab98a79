// Decode, context and prefill on the nano model: that every figure is there and adds up.
#include <algorithm>
#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "bench/decode_bench.h"
#include "bench/layer_cut.h"
#include "bench/prefill_bench.h"
#include "bench/synthetic_context.h"
#include "engine/model_loader.h"

namespace minke {
namespace {

class EngineBench : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.model_dir = std::string(MINKE_SOURCE_DIR) + "/models/nano";
    auto loaded = LoadModel(options);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    loaded_ = std::make_unique<LoadedModel>(*std::move(loaded));
  }
  const Model& model() const { return *loaded_->model; }
  const ModelConfig& config() const { return model().config(); }

  std::unique_ptr<LoadedModel> loaded_;
};

TEST(ModelWork, AgreesWithTheReleasedModelsSums) {
  // architecture.md, appendix A: bytes and multiply-adds of the released sizes.
  const auto config = LoadConfig(std::string(MINKE_GOLDEN_DIR) + "/released/config.json");
  ASSERT_TRUE(config.has_value());
  const StateLayout layout(*config, Numerics::Official());
  const ModelWork work(*config, layout);
  EXPECT_EQ(work.expert_bytes(), 18'800'640);
  const StepBytes bytes = work.DecodeBytes(131'072, 1, 6 * 40);
  EXPECT_EQ(bytes.experts, 6 * 40 * int64_t{18'800'640});
  EXPECT_EQ(bytes.engram, 12'672);
  EXPECT_NEAR(static_cast<double>(bytes.total() - bytes.cache), 13.035e9, 0.001e9);
  EXPECT_NEAR(static_cast<double>(bytes.cache), 35.0e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(work.DecodeBytes(1'048'576, 1, 0).cache), 191.0e6, 0.1e6);
  // Sixteen sequences have sixteen caches and one set of dense weights.
  EXPECT_EQ(work.DecodeBytes(4096, 16, 0).dense, bytes.dense);
  EXPECT_EQ(work.DecodeBytes(131'072, 16, 0).cache, 16 * bytes.cache);
  const auto gflop = [&](int64_t context) {
    return 2e-9 * work.MultiplyAdds(context - 1, 1, 1, 1);
  };
  EXPECT_NEAR(gflop(1), 32.27, 0.05);
  EXPECT_NEAR(gflop(4096), 35.70, 0.05);
  EXPECT_NEAR(gflop(1'048'576), 57.49, 0.05);
  // Replay: half of the layers for all but the last window of tokens.
  const double share = work.MultiplyAdds(0, 4096, 128, 1) / work.MultiplyAdds(0, 4096, 4096, 1);
  EXPECT_NEAR(share, (17.20 + 0.53) / 34.02, 0.01);
}

TEST_F(EngineBench, ASyntheticContextIsReadyForTheNextToken) {
  const StateLayout layout(config(), model().numerics());
  BlockPool blocks(layout.block_bytes, int64_t{1} << 30);
  ThreadPool pool(1);
  Arena arena;
  for (const int64_t tokens : {0, 1, 31, 128, 1001}) {
    auto state = MakeSyntheticContext(model(), blocks, tokens, 3);
    ASSERT_TRUE(state.has_value()) << state.error().message;
    EXPECT_EQ((*state)->length(), tokens);
    EXPECT_EQ((*state)->window_begin(0), std::max<int64_t>(0, tokens - config().sliding_window));
    Matrix<float> logits(3, config().vocab_size);
    const std::vector<int32_t> ids = {5, 6, 7};
    const ForwardRows rows{state->get(), ids, 0, 0};
    ASSERT_TRUE(model().Forward({&rows, 1}, logits.view(), pool, arena).has_value());
    (*state)->Commit(3);
    for (int64_t i = 0; i < config().vocab_size; ++i) {
      ASSERT_TRUE(std::isfinite(logits.data()[i])) << tokens;
    }
  }
}

TEST_F(EngineBench, ASyntheticContextBeyondTheMemoryIsAnError) {
  const StateLayout layout(config(), model().numerics());
  BlockPool blocks(layout.block_bytes, layout.block_bytes);
  const auto state = MakeSyntheticContext(model(), blocks, 129, 3);
  ASSERT_FALSE(state.has_value());
  EXPECT_NE(state.error().message.find("129 tokens"), std::string::npos);
}

TEST_F(EngineBench, DecodeTellsFigureAndBoundOfEveryContext) {
  DecodeBenchOptions options;
  options.contexts = {0, 300};
  options.tokens = 3;
  options.sequences = 2;
  options.layer_kinds = LayerKindCounts(config());
  options.layer_kinds["Reindex, ratio 9"] = 2;
  ThreadPool pool(2);
  const auto report = MeasureDecode(model(), options, pool);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_EQ(report->cases.size(), 2u);
  for (const DecodeBenchCase& one : report->cases) {
    EXPECT_EQ(one.steps_per_second.count(), 3);
    EXPECT_GT(report->Ratio(one), 0);
    EXPECT_GT(one.bytes.cache, 0);
    EXPECT_GE(one.bytes.experts,
              ModelWork(config(), StateLayout(config(), model().numerics())).expert_bytes() *
                  config().num_experts_per_tok * config().num_hidden_layers);
    EXPECT_EQ(one.times.MissingKinds(), std::vector<std::string>{"Reindex, ratio 9"});
    EXPECT_GT(one.times.WeightedSeconds(), 0);
  }
  EXPECT_NE(report->ToText().find("tokens/s"), std::string::npos);
  EXPECT_NE(report->ToContextText().find("of the first context"), std::string::npos);
  EXPECT_EQ(report->ToJson().Find("cases")->as_array().size(), 2u);
}

TEST_F(EngineBench, DecodeRefusesAContextThatTheModelDoesNotHold) {
  DecodeBenchOptions options;
  options.tokens = 3;
  options.contexts = {config().max_position_embeddings - 3};
  ThreadPool pool(1);
  const auto report = MeasureDecode(model(), options, pool);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("max_position_embeddings"), std::string::npos);
}

TEST_F(EngineBench, PrefillComparesReplayWithExact) {
  PrefillBenchOptions options;
  options.tokens = 100;
  options.rows = 40;
  options.replay = true;
  options.rounds = 1;
  options.layer_kinds = LayerKindCounts(config());
  ThreadPool pool(2);
  const auto report = MeasurePrefill(model(), options, pool);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_EQ(report->cases.size(), 2u);
  EXPECT_LT(report->cases[1].multiply_adds, report->cases[0].multiply_adds);
  EXPECT_GT(report->Ratio(report->cases[0]), 0);
  EXPECT_GT(report->ReplayShare(), 0);
  EXPECT_NE(report->ToText().find("replay over exact"), std::string::npos);
  EXPECT_EQ(report->ToJson().Find("cases")->as_array().size(), 2u);
}

}  // namespace
}  // namespace minke
