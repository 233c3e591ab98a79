// Candidate blocks and top-k rows: golden sets of released size, ties, NaN and empty input.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/support.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::Golden;

const float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

class Selection : public ::testing::TestWithParam<const char*> {
 protected:
  const Kernels& kernels() const {
    return std::string(GetParam()) == "fast" ? FastKernels() : ReferenceKernels();
  }
  std::vector<int32_t> Topk(const std::vector<float>& scores, int64_t k,
                            const std::vector<uint8_t>& kept = {}, int64_t block_size = 8) const {
    std::vector<int32_t> selected(k, 12345);
    const int64_t count = kernels().select_topk(scores, kept, block_size, selected);
    for (int64_t i = 0; i < k; ++i) EXPECT_EQ(i < count, selected[i] >= 0);
    return selected;
  }
  std::vector<uint8_t> Candidates(const std::vector<float>& scores, int64_t block_size,
                                  int64_t topk_blocks) const {
    const auto rows = static_cast<int64_t>(scores.size());
    std::vector<uint8_t> kept((rows + block_size - 1) / block_size, 77);
    kernels().select_candidates(scores, block_size, topk_blocks, kept);
    return kept;
  }
};

TEST_P(Selection, GoldenCasesAreExact) {
  const Golden golden("selection/selection.json");
  int pruned = 0;
  for (const Json& c : golden.index().Find("cases")->as_array()) {
    const std::string name = c.Find("name")->as_string();
    const int64_t visible = c.Find("visible")->as_int();
    const int64_t block_size = c.Find("block_size")->as_int();
    std::vector<float> source = golden[name + ".source_scores"].Floats();
    std::vector<float> reindex = golden[name + ".reindex_scores"].Floats();
    source.resize(visible);
    reindex.resize(visible);
    std::vector<uint8_t> kept =
        Candidates(source, block_size, c.Find("candidate_blocks")->as_int());
    std::vector<uint8_t> expected = golden[name + ".kept_blocks"].RawU8();
    for (size_t i = kept.size(); i < expected.size(); ++i) EXPECT_EQ(0, expected[i]) << name;
    expected.resize(kept.size());
    EXPECT_EQ(expected, kept) << name;
    const auto check = [&](const std::string& list, const std::vector<float>& scores,
                           const std::vector<uint8_t>& mask) {
      std::vector<int32_t> rows;
      for (const int64_t row : golden[name + list].Ints())
        rows.push_back(static_cast<int32_t>(row));
      pruned += static_cast<int64_t>(rows.size()) < visible ? 1 : 0;
      EXPECT_EQ(rows, Topk(scores, static_cast<int64_t>(rows.size()), mask, block_size))
          << name << list;
    };
    check(".source_topk", source, {});
    check(".reindex_topk", reindex, kept);
  }
  EXPECT_GE(pruned, 10) << "a top-k that takes everything proves nothing";
}

TEST_P(Selection, EqualScoresTakeTheLowerRow) {
  EXPECT_EQ((std::vector<int32_t>{0, 2, 4}), Topk({1, 0, 1, 0, 1, 1, 1}, 3));
  EXPECT_EQ((std::vector<int32_t>{0, 1}), Topk({-0.0f, 0.0f, -0.0f, 0.0f}, 2));
  EXPECT_EQ((std::vector<int32_t>{1, 2}), Topk({-1e-30f, -0.0f, 0.0f, -0.0f}, 2));
}

TEST_P(Selection, ShortAndEmptyInput) {
  EXPECT_EQ((std::vector<int32_t>{-1, -1}), Topk({}, 2));
  EXPECT_EQ((std::vector<int32_t>{0, 1, -1}), Topk({5, -5}, 3));
  EXPECT_EQ((std::vector<int32_t>{}), Topk({1, 2, 3}, 0));
  EXPECT_EQ((std::vector<uint8_t>{}), Candidates({}, 8, 4));
  EXPECT_EQ((std::vector<uint8_t>{1}), Candidates({-3}, 8, 4));
}

TEST_P(Selection, InfinityAndNanDoNotCount) {
  EXPECT_EQ((std::vector<int32_t>{1, 3, -1}), Topk({kNan, 2, -kInfinity, 1, -kNan}, 3));
  EXPECT_EQ((std::vector<int32_t>{2, -1}), Topk({kNan, kNan, kInfinity}, 2));
  EXPECT_EQ((std::vector<uint8_t>{0, 1, 1}), Candidates({kNan, kNan, 1, 1, kNan, kNan}, 2, 3));
}

TEST_P(Selection, TheBlockOfTheLastRowIsAlwaysKept) {
  EXPECT_EQ((std::vector<uint8_t>{0, 1, 0, 1}), Candidates({1, 2, 9, 3, 4, 5, -8}, 2, 2));
  EXPECT_EQ((std::vector<uint8_t>{0, 0, 1}), Candidates({9, 9, 9, 9, -1}, 2, 1));
  EXPECT_EQ((std::vector<uint8_t>{1, 0, 1}), Candidates({9, 9, 9, 9, -1}, 2, 2));
}

TEST_P(Selection, RowsOutsideKeptBlocksDoNotCount) {
  EXPECT_EQ((std::vector<int32_t>{2, 3, -1}), Topk({9, 8, 1, 2, 7}, 3, {0, 1, 0}, 2));
}

TEST_P(Selection, RandomInputEqualsASortedList) {
  std::mt19937 random(20);
  for (int round = 0; round < 300; ++round) {
    const auto rows = static_cast<int64_t>(random() % 700);
    const auto k = static_cast<int64_t>(random() % 80);
    std::vector<float> scores(rows);
    // Few distinct values make ties at the boundary the rule.
    for (float& score : scores) score = static_cast<float>(static_cast<int>(random() % 19) - 9);
    std::vector<int32_t> order(rows);
    for (int64_t i = 0; i < rows; ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(rows, k));
    std::sort(order.begin(), order.end());
    order.resize(k, -1);
    ASSERT_EQ(order, Topk(scores, k)) << round;
  }
}

TEST_P(Selection, RouterTiesTakeTheLowerExpert) {
  const std::vector<float> logits = {1, 2, 2, 0, 2};
  const std::vector<float> bias(5, 0.0f);
  std::vector<int32_t> experts(2);
  std::vector<float> weights(2);
  kernels().router_select(logits, bias, {.selected_count = 2, .routed_scaling_factor = 1.5f},
                          experts, weights);
  EXPECT_EQ((std::vector<int32_t>{1, 2}), experts);
  EXPECT_EQ((std::vector<float>{0.75f, 0.75f}), weights);
}

TEST_P(Selection, ASingleExpertIsNotNormalised) {
  std::vector<int32_t> experts(1);
  std::vector<float> weights(1);
  kernels().router_select(std::vector<float>{25, 1}, std::vector<float>{0, 0},
                          {.selected_count = 1}, experts, weights);
  EXPECT_EQ(0, experts[0]);
  EXPECT_EQ(5.0f, weights[0]);  // above 20 softplus is the identity
}

INSTANTIATE_TEST_SUITE_P(Tables, Selection, ::testing::Values("reference", "fast"), TableName);

}  // namespace
}  // namespace minke
