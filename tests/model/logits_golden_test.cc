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
      RunTokens(*model, GoldenPrompt(set), {.chunk = 0, .decode_from = prefill});
  const GoldenMatrix golden = GoldenLogits(set, "decode_logits_owner_keys");
  const Distance distance =
      Compare(logits.view().Rows(prefill, golden.rows),
              View<const float>(golden.values.data(), golden.rows, golden.cols));
  EXPECT_LE(distance.median, 0.4);
  EXPECT_GE(distance.cosine_tenth, 0.9);
}

INSTANTIATE_TEST_SUITE_P(Golden, Logits, ::testing::Values("tiny_swa", "full_mini", "wide"));

// The reference's stale index-key slot (architecture.md 4.9). On steps whose ratio-2 group is
// open, the rows selected with the switch are those of the unpatched reference, and without it
// the owner's. Rounding moves some rows of the selection, so the two modes are told apart by
// which golden list ours shares more rows with.
class StaleSlot : public ::testing::TestWithParam<bool> {};

// Rows that `ours` shares with one step of a golden decode.
int64_t SharedRows(const std::vector<int64_t>& golden, int64_t step,
                   std::span<const int32_t> ours) {
  int64_t shared = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const int64_t row = golden[static_cast<size_t>(step) * ours.size() + i];
    shared += std::count(ours.begin(), ours.end(), static_cast<int32_t>(row));
  }
  return shared;
}

TEST_P(StaleSlot, SelectsAsTheReferenceDecodes) {
  const bool stale = GetParam();
  const std::string set = "full_mini";
  Numerics numerics = Numerics::Official();
  numerics.stale_index_keys = stale;
  const auto model = LoadGoldenModel(set, numerics, FastKernels());
  const Golden expected(set + "/expected.json");
  const Json info = GoldenJson(set + "/case.json");
  const int64_t prefill = info.Find("prefill_then_decode")->Find("prefill_tokens")->as_int();
  const std::string mode = stale ? "reference" : "owner_keys";
  const std::string other_mode = stale ? "owner_keys" : "reference";
  // Everything before a step follows the reference, so that one differing row does not spoil it.
  Diagnostics diagnostics = ForcedSelection(model->config(), expected);
  const auto force_rows = diagnostics.force_topk;
  int64_t compared = 0;
  int64_t shared = 0;
  int64_t shared_with_other = 0;
  diagnostics.force_topk = [&](int64_t layer, int64_t position, std::span<int32_t> selected) {
    if (position < prefill) return force_rows(layer, position, selected);
    const std::string name = ".topk." + std::to_string(layer);
    const std::vector<int64_t> golden = expected["decode." + mode + name].Ints();
    const int64_t step = position - prefill;
    const bool open = position % 2 == 0;
    if (open && model->config().layers[static_cast<size_t>(layer)].compress_ratio == 2) {
      compared += static_cast<int64_t>(selected.size());
      shared += SharedRows(golden, step, selected);
      shared_with_other +=
          SharedRows(expected["decode." + other_mode + name].Ints(), step, selected);
    }
    for (size_t i = 0; i < selected.size(); ++i) {
      selected[i] = static_cast<int32_t>(golden[static_cast<size_t>(step) * selected.size() + i]);
    }
  };
  RunTokens(*model, GoldenPrompt(set), {.chunk = 0, .decode_from = prefill}, &diagnostics);
  ASSERT_EQ(compared, 20 * 2 * 16);
  EXPECT_GE(shared, compared * 7 / 10) << "with the other mode: " << shared_with_other;
  EXPECT_LE(shared_with_other, shared / 2) << shared;
}

INSTANTIATE_TEST_SUITE_P(Golden, StaleSlot, ::testing::Bool());

}  // namespace
}  // namespace minke::testing
