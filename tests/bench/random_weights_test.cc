#include "bench/random_weights.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/numeric_formats.h"

namespace minke {
namespace {

constexpr double kDeviation = 0.03;

// Mean and standard deviation of the values behind the codes.
template <typename Decode>
void ExpectNormal(size_t count, double mean, double deviation, const Decode& decode) {
  double sum = 0;
  double squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const double value = decode(i);
    sum += value;
    squares += value * value;
  }
  const double found = sum / static_cast<double>(count);
  EXPECT_NEAR(found, mean, 0.02 * deviation);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count) - found * found), deviation,
              0.05 * deviation);
}

TEST(RandomWeights, CodesHaveTheDeviation) {
  Random random({7});
  std::vector<uint8_t> codes(200'000);
  const QuantizedNormal fp8 = Fp8Normal(kDeviation);
  FillCodes(fp8.codes, random, codes);
  ExpectNormal(codes.size(), 0, kDeviation,
               [&](size_t i) { return DecodeE4M3(codes[i]) * DecodeUe8m0(fp8.scale); });
  const QuantizedNormal fp4 = Fp4Normal(kDeviation);
  FillCodes(fp4.codes, random, codes);
  for (const int shift : {0, 4}) {
    ExpectNormal(codes.size(), 0, kDeviation, [&](size_t i) {
      return DecodeE2M1(codes[i] >> shift & 15) * DecodeUe8m0(fp4.scale);
    });
  }
  std::vector<uint16_t> values(200'000);
  FillBf16(Bf16Normal(0.2, kDeviation), random, values);
  ExpectNormal(values.size(), 0.2, kDeviation, [&](size_t i) { return DecodeBf16(values[i]); });
}

TEST(RandomWeights, TheUsualScaleUsesTheGrid) {
  // The largest codes appear, and are not all there is.
  const QuantizedNormal fp4 = Fp4Normal(kDeviation);
  int64_t largest = 0;
  for (const uint8_t code : fp4.codes) largest += std::abs(DecodeE2M1(code & 15)) == 6 ? 1 : 0;
  EXPECT_GT(largest, 0);
  EXPECT_LT(largest, 65536 / 10);
}

TEST(RandomWeights, ScalesVaryByAPowerOfTwo) {
  Random random({8});
  std::vector<uint8_t> scales(100'003);
  FillScales(120, random, scales);
  int64_t counts[3] = {};
  for (const uint8_t scale : scales) {
    ASSERT_GE(scale, 119);
    ASSERT_LE(scale, 121);
    ++counts[scale - 119];
  }
  EXPECT_NEAR(static_cast<double>(counts[0]), 10'000, 500);
  EXPECT_NEAR(static_cast<double>(counts[1]), 80'000, 800);
  EXPECT_NEAR(static_cast<double>(counts[2]), 10'000, 500);
}

TEST(RandomWeights, TheSameGeneratorGivesTheSameBytes) {
  const QuantizedNormal fp8 = Fp8Normal(kDeviation);
  std::vector<uint8_t> first(1001);
  std::vector<uint8_t> second(1001);
  Random one({5, 6});
  Random other({5, 6});
  FillCodes(fp8.codes, one, first);
  FillCodes(fp8.codes, other, second);
  EXPECT_EQ(first, second);
  FillCodes(fp8.codes, other, second);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace minke
