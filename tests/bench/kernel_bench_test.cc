#include "bench/kernel_bench.h"

#include <gtest/gtest.h>

namespace minke {
namespace {

KernelBenchOptions SmallOptions() {
  KernelBenchOptions options;
  options.formats = {WeightFormat::kFp4Group32, WeightFormat::kFp8Tile32, WeightFormat::kBf16};
  options.shapes = {{64, 96}};
  options.rows = {1, 3};
  options.rounds = 1;
  options.memory_bytes = kBenchMemoryMin;
  return options;
}

TEST(ParseMatrixShape, TakesOutputsByInputs) {
  const auto shape = ParseMatrixShape("2304x5120");
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(shape->rows, 2304);
  EXPECT_EQ(shape->cols, 5120);
  EXPECT_TRUE(ParseMatrixShape("32x1048576").has_value());
  for (const char* text : {"", "x", "32", "32x", "x32", "32x33", "0x32", "32x1048608", "32x32x32",
                           "-32x32", "32 x32", "99999999999999999999x32"}) {
    const auto refused = ParseMatrixShape(text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_NE(refused.error().message.find("2304x5120"), std::string::npos);
  }
}

TEST(MeasureKernels, GoesThroughEveryCaseWithABound) {
  const auto report = MeasureKernels(ReferenceKernels(), SmallOptions());
  ASSERT_TRUE(report.has_value()) << report.error().message;
  ASSERT_EQ(report->cases.size(), 6u);
  for (const KernelBenchCase& one : report->cases) {
    EXPECT_EQ(one.products_per_second.count(), 1);
    EXPECT_GT(one.copies, 1000);
    EXPECT_GT(report->Ratio(one), 0);
  }
  EXPECT_EQ(report->cases[0].weight_bytes(), 64 * 96 / 2 + 64 * 3);
  EXPECT_EQ(report->cases[2].weight_bytes(), 64 * 96 + 2 * 3);
  EXPECT_EQ(report->cases[4].weight_bytes(), 64 * 96 * 2);
  EXPECT_EQ(report->cases[1].multiply_adds(), 3 * 64 * 96);
  const Json json = report->ToJson();
  EXPECT_EQ(json.Find("cases")->as_array().size(), 6u);
  EXPECT_EQ(json.Find("kernels")->as_string(), "reference");
  EXPECT_NE(report->ToText().find("64x96"), std::string::npos);
}

TEST(MeasureKernels, AMatrixBeyondTheMemoryIsAnError) {
  KernelBenchOptions options = SmallOptions();
  options.shapes = {{32768, 32768}};
  const auto report = MeasureKernels(FastKernels(), options);
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("--memory"), std::string::npos) << report.error().message;
}

}  // namespace
}  // namespace minke
