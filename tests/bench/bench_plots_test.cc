#include "apps/bench_plots.h"

#include <string>

#include <gtest/gtest.h>

namespace minke {
namespace {

KernelBenchCase CaseOf(WeightFormat format, int64_t rows, double products_per_second) {
  KernelBenchCase one{format, {64, 64}, rows, 1, {}};
  one.products_per_second.Add(products_per_second);
  return one;
}

TEST(BenchPlots, HaveALineForEachFormatAndANoteForEachPoint) {
  KernelBenchReport report;
  report.bytes_per_second = 8192;  // one BF16 matrix of 64 x 64 a second
  report.multiply_adds_per_second = 1'000'000;
  report.cases = {CaseOf(WeightFormat::kBf16, 1, 0.25), CaseOf(WeightFormat::kBf16, 1, 0.75),
                  CaseOf(WeightFormat::kBf16, 2, 2.0), CaseOf(WeightFormat::kFp8Tile32, 1, 1.0)};
  const std::string svg = KernelPlot(report);
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  EXPECT_NE(svg.find("bf16, 1 rows: 25 to 75 % of the bound in 2 shapes"), std::string::npos);
  EXPECT_NE(svg.find("bf16, 2 rows: 200 to 200 %"), std::string::npos);
  EXPECT_NE(svg.find("fp8, 1 rows: 50 to 50 %"), std::string::npos) << svg;
}

TEST(BenchPlots, ShowTheShareOfTheBoundOverContexts) {
  DecodeBenchReport report;
  report.bytes_per_second = 1000;
  for (const int64_t context : {16384, 1024}) {
    DecodeBenchCase one{context, 1, {}, {}, KindTimes(ModelConfig(), {}), {}, 0};
    one.steps_per_second.Add(context == 1024 ? 4.0 : 2.0);
    one.bound_share.Add(context == 1024 ? 0.8 : 0.4);
    report.cases.push_back(one);
  }
  const std::string svg = ContextPlot(report);
  EXPECT_NE(svg.find("1,024 tokens: "), std::string::npos) << svg;
  EXPECT_LT(svg.find("1,024 tokens: "), svg.find("16,384 tokens: "));
  EXPECT_NE(svg.find("4.000 tokens/s"), std::string::npos) << svg;
}

TEST(BenchPlots, NameTheFileThatCannotBeWritten) {
  const Status status = WriteBenchPlot("/nonexistent/folder/plot.svg", "<svg/>");
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("/nonexistent/folder/plot.svg"), std::string::npos);
}

}  // namespace
}  // namespace minke
