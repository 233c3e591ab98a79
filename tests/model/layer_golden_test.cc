// Every layer on its own from the reference's inputs, official numerics, forced selections: what
// went in is exact, so what comes out differs by the order of additions only. Limits are those of
// tests/golden/README.md.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/model/layer_checks.h"

namespace minke::testing {
namespace {

class Layer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = LoadGoldenModel(GetParam(), Numerics::Official(), FastKernels());
    expected_ = std::make_unique<Golden>(std::string(GetParam()) + "/expected.json");
  }
  std::unique_ptr<Model> model_;
  std::unique_ptr<Golden> expected_;
};

TEST_P(Layer, AttentionAlone) {
  for (const LayerAgreement& layer : AttentionAgreement(*model_, *expected_)) {
    EXPECT_TRUE(AttentionHolds(layer))
        << layer.name << ": " << layer.identical_share << " identical, error " << layer.row_error;
  }
}

TEST_P(Layer, MoeAlone) {
  for (const LayerAgreement& layer : MoeAgreement(*model_, *expected_)) {
    EXPECT_TRUE(MoeHolds(layer)) << layer.name << ": " << layer.identical_share
                                 << " identical, error " << layer.row_error;
  }
}

TEST_P(Layer, RouterPicksTheReferencesExperts) {
  const RouterAgreement router = CompareRouter(*model_, *expected_);
  EXPECT_GT(router.rows, 0);
  EXPECT_EQ(router.differing_beyond_margin, 0);
  EXPECT_LE(router.weight_error, 1e-5);
}

// Packed rows as stored, index scores and selections of the source layers.
TEST_P(Layer, SourcesPublishTheReferencesRows) {
  if (model_->config().kv_source_layer_ids.empty()) GTEST_SKIP() << "no kv sources in this set";
  for (const SourceAgreement& source : CompareSources(*model_, *expected_)) {
    EXPECT_GE(source.compressed_bytes_identical, 0.995) << source.name;
    EXPECT_GE(source.index_bytes_identical, 0.995) << source.name;
    EXPECT_GE(source.scores_identical, 0.97) << source.name;
    EXPECT_EQ(source.selections_differing_beyond_margin, 0) << source.name;
    EXPECT_GE(source.candidates_identical, 0.97) << source.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Layer, ::testing::Values("tiny_swa", "full_mini", "wide"));

}  // namespace
}  // namespace minke::testing
