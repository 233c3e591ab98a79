// Whole logits against the official reference: structure first (float32 modes on the reference
// twins), then official numerics. Limits are those of tests/golden/README.md.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/model/golden_model.h"

namespace minke::testing {
namespace {

class Logits : public ::testing::TestWithParam<const char*> {};

constexpr int64_t kAllTokens = 1 << 20;

Distance CompareCacheQuant(const std::string& set) {
  const auto model = LoadGoldenModel(set, Numerics::F32CacheQuant(), ReferenceKernels());
  const Matrix<float> logits = RunTokens(*model, GoldenPrompt(set));
  const Json info = GoldenJson(set + "/case.json");
  const std::vector<int64_t> positions =
      GoldenPositions(*info.Find("f32_modes")->Find("positions"));
  const GoldenMatrix golden = GoldenLogits(set, "logits_f32_cachequant");
  return Compare(TakeRows(logits.view(), positions).view(),
                 View<const float>(golden.values.data(), golden.rows, golden.cols));
}

TEST_P(Logits, Float32Structure) {
  const Distance distance = StructureDistance(GetParam(), ReferenceKernels(), {}, kAllTokens);
  EXPECT_TRUE(StructureHolds(distance)) << "max " << distance.max << " median " << distance.median;
}

TEST_P(Logits, Float32WithQuantizedCaches) {
  const Distance distance = CompareCacheQuant(GetParam());
  EXPECT_LE(distance.median, 0.02);
  EXPECT_LE(distance.p99, 0.5);
}

TEST_P(Logits, OfficialForcedSelection) {
  const std::string set = GetParam();
  const auto model = LoadGoldenModel(set, Numerics::Official(), FastKernels());
  const Golden expected(set + "/expected.json");
  const Diagnostics forced = ForcedSelection(model->config(), expected);
  const Matrix<float> logits = RunTokens(*model, GoldenPrompt(set), {}, &forced);
  const GoldenMatrix golden = GoldenLogits(set, "logits");
  const Distance distance =
      Compare(logits.view(), View<const float>(golden.values.data(), golden.rows, golden.cols));
  EXPECT_LE(distance.median, 0.15);
  EXPECT_LE(distance.max, 1.5);
  EXPECT_GE(distance.min_cosine, 0.98);
}

TEST_P(Logits, OfficialFreeSelection) {
  const std::string set = GetParam();
  const auto model = LoadGoldenModel(set, Numerics::Official(), FastKernels());
  const Matrix<float> logits = RunTokens(*model, GoldenPrompt(set));
  const GoldenMatrix golden = GoldenLogits(set, "logits");
  const Distance distance =
      Compare(logits.view(), View<const float>(golden.values.data(), golden.rows, golden.cols));
  EXPECT_LE(distance.median, 0.4);
  EXPECT_GE(distance.cosine_tenth, 0.9);
}

// Decode after a prefill, owner keys: the golden rows equal those of the one-shot prefill.
TEST_P(Logits, OfficialDecodeOwnerKeys) {
  const std::string set = GetParam();
  const auto model = LoadGoldenModel(set, Numerics::Official(), FastKernels());
  const Json info = GoldenJson(set + "/case.json");
  const int64_t prefill = info.Find("prefill_then_decode")->Find("prefill_tokens")->as_int();
  const Matrix<float> logits =
      RunTokens(*model, GoldenPrompt(set), {.chunk = 0, .decode_from = prefill, .threads = 1});
  const GoldenMatrix golden = GoldenLogits(set, "decode_logits_owner_keys");
  const Distance distance =
      Compare(logits.view().Rows(prefill, golden.rows),
              View<const float>(golden.values.data(), golden.rows, golden.cols));
  EXPECT_LE(distance.median, 0.4);
  EXPECT_GE(distance.cosine_tenth, 0.9);
}

INSTANTIATE_TEST_SUITE_P(Golden, Logits, ::testing::Values("tiny_swa", "full_mini", "wide"));

// The reference's stale index-key slot (architecture.md 4.9): with the switch, the rows selected
// at decode steps are those of the unpatched reference, without it the owner's.
class StaleSlot : public ::testing::TestWithParam<bool> {};

TEST_P(StaleSlot, SelectsAsTheReferenceDecodes) {
  const bool stale = GetParam();
  const std::string set = "full_mini";
  Numerics numerics = Numerics::Official();
  numerics.stale_index_keys = stale;
  const auto model = LoadGoldenModel(set, numerics, FastKernels());
  const Golden expected(set + "/expected.json");
  const Json info = GoldenJson(set + "/case.json");
  const int64_t prefill = info.Find("prefill_then_decode")->Find("prefill_tokens")->as_int();
  // Forced experts, and forced rows in the prefill only: the state before a step is then the
  // reference's up to rounding.
  Diagnostics diagnostics = ForcedSelection(model->config(), expected);
  const std::string mode = stale ? "reference" : "owner_keys";
  int64_t rows_compared = 0;
  int64_t rows_common = 0;
  const auto force_rows = diagnostics.force_topk;
  diagnostics.force_topk = [&](int64_t layer, int64_t position, std::span<int32_t> selected) {
    if (position < prefill) return force_rows(layer, position, selected);
    const std::vector<int64_t> golden =
        expected["decode." + mode + ".topk." + std::to_string(layer)].Ints();
    const auto width = static_cast<int64_t>(selected.size());
    for (int64_t i = 0; i < width; ++i) {
      const int64_t row = golden[static_cast<size_t>((position - prefill) * width + i)];
      rows_compared += 1;
      rows_common += std::count(selected.begin(), selected.end(), static_cast<int32_t>(row));
    }
    // Follow the reference, so that one differing row does not spoil the later steps.
    for (int64_t i = 0; i < width; ++i) {
      selected[static_cast<size_t>(i)] =
          static_cast<int32_t>(golden[static_cast<size_t>((position - prefill) * width + i)]);
    }
  };
  RunTokens(*model, GoldenPrompt(set), {.chunk = 0, .decode_from = prefill, .threads = 1},
            &diagnostics);
  ASSERT_GT(rows_compared, 1000);
  // The other mode shares far fewer rows at even positions; rounding moves a few per cent.
  EXPECT_GE(static_cast<double>(rows_common) / static_cast<double>(rows_compared), 0.97);
}

INSTANTIATE_TEST_SUITE_P(Golden, StaleSlot, ::testing::Bool());

}  // namespace
}  // namespace minke::testing
