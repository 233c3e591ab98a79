// The SIMD product against its scalar twin, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <string>

#include "kernels/kernels.h"
#include "kernels/reference.h"
#include "kernels/simd.h"
#include "tests/kernels/support.h"

namespace minke {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16,
                                     WeightFormat::kFp8Tile32, WeightFormat::kFp4Group32};

struct Shape {
  int64_t rows;
  int64_t outputs;
  int64_t cols;
};

// As FP8 and FP4 products get them in the model.
void QuantizeInputs(TestMatrix& x, ThreadPool& pool) {
  FastKernels().quantize_q8(x.view(), x.view(), pool);
}

void CheckProduct(WeightFormat format, const Shape& shape, int threads, bool with_nan,
                  bool quantized = false) {
  std::mt19937 random(static_cast<uint32_t>(shape.rows * 7 + shape.outputs * 3 + shape.cols));
  ThreadPool pool(threads, 0);
  const TestWeight weight(format, shape.outputs, shape.cols, random, with_nan);
  TestMatrix x(shape.rows, shape.cols);
  x.Randomize(random);
  if (quantized) QuantizeInputs(x, pool);
  TestMatrix expected(shape.rows, shape.outputs);
  TestMatrix found(shape.rows, shape.outputs, 2, 5);
  ReferenceKernels().matmul(x.view(), weight.weight, expected.view(), pool);
  FastKernels().matmul(x.view(), weight.weight, found.view(), pool);
  if (shape.rows * shape.outputs * shape.cols > 0) {
    ASSERT_TRUE(AnyNonZero(expected.view()));
  }
  EXPECT_TRUE(SameBits(expected.view(), found.view()))
      << "format " << static_cast<int>(format) << ", x [" << shape.rows << ", " << shape.cols
      << "], outputs " << shape.outputs << ", threads " << threads;
}

TEST(Matmul, EqualsTheReferenceOverShapes) {
  for (const WeightFormat format : kFormats) {
    for (const int64_t rows : {0, 1, 2, 3, 4, 5, 7, 64, 65, 67}) {
      for (const int64_t outputs : {0, 1, 3, 4, 7, 8, 9, 33}) {
        for (const int64_t cols : {32, 64, 96}) {
          CheckProduct(format, {rows, outputs, cols}, 2, false);
        }
      }
    }
  }
}

// The way of FP4 weights through integers is open to Q8 inputs alone. Inputs of many magnitudes
// have groups that need the third byte.
TEST(Matmul, QuantizedInputsEqualTheReference) {
  for (const WeightFormat format : {WeightFormat::kFp8Tile32, WeightFormat::kFp4Group32}) {
    for (const int64_t rows : {1, 2, 3, 8, 9, 64, 65, 67}) {
      for (const int64_t outputs : {1, 3, 4, 31, 32, 33, 70}) {
        for (const int64_t cols : {32, 64, 96, 512, 544}) {
          CheckProduct(format, {rows, outputs, cols}, 2, false, true);
        }
      }
    }
    CheckProduct(format, {1, 256, 5120}, 2, false, true);
    CheckProduct(format, {17, 160, 2304}, 2, false, true);
  }
}

// Q8 inputs that are multiplied by a power of two stay integers under a power of two, until that
// leaves the floats.
TEST(Matmul, Fp4OfQuantizedInputsAtTheEndsOfTheFloats) {
  std::mt19937 random(11);
  ThreadPool pool(1);
  for (const int exponent : {-140, -110, -90, -60, 0, 60, 90, 110}) {
    for (const uint8_t scale : {0, 1, 20, 127, 230, 254, 255}) {
      TestWeight weight(WeightFormat::kFp4Group32, 12, 96, random);
      for (uint8_t& code : weight.scales) code = scale;
      TestMatrix x(2, 96);
      x.Randomize(random);
      QuantizeInputs(x, pool);
      for (int64_t i = 0; i < 96; ++i) {
        for (int64_t r = 0; r < 2; ++r) x.view().Row(r)[i] *= std::ldexp(1.0f, exponent);
      }
      TestMatrix expected(2, 12);
      TestMatrix found(2, 12);
      ReferenceKernels().matmul(x.view(), weight.weight, expected.view(), pool);
      FastKernels().matmul(x.view(), weight.weight, found.view(), pool);
      EXPECT_TRUE(SameBits(expected.view(), found.view())) << exponent << " " << int{scale};
    }
  }
}

// What kernels.h promises of FP4, written out once more.
TEST(Matmul, TheSumOfFp4IsExactWithinGroups) {
  std::mt19937 random(12);
  ThreadPool pool(1);
  const TestWeight weight(WeightFormat::kFp4Group32, 4, 96, random);
  TestMatrix x(1, 96);
  x.Randomize(random);
  QuantizeInputs(x, pool);
  float sums[2] = {};
  for (int g = 0; g < 3; ++g) {
    double exact = 0;
    for (int i = 32 * g + 31; i >= 32 * g; --i) {  // no order matters
      const auto pair = std::to_integer<uint8_t>(weight.weight.data[i / 2]);
      exact += double{x.view().Row(0)[i]} * DecodeE2M1(i % 2 == 0 ? pair & 0xF : pair >> 4);
    }
    sums[g % 2] += static_cast<float>(exact) * DecodeUe8m0(weight.weight.scales[g]);
  }
  for (const Kernels* kernels : {&ReferenceKernels(), &FastKernels()}) {
    TestMatrix y(1, 4);
    kernels->matmul(x.view(), weight.weight, y.view(), pool);
    EXPECT_EQ(sums[0] + sums[1], y.view().Row(0)[0]);
  }
}

TEST(Matmul, EqualsTheReferenceOverInputCounts) {
  for (const WeightFormat format : kFormats) {
    for (const int64_t cols : {0, 1, 7, 8, 9, 31, 32, 33, 40, 95, 511, 512, 513, 544, 1029}) {
      const bool fp4 = format == WeightFormat::kFp4Group32;
      if (fp4 && cols % 32 != 0) continue;  // the format has whole groups only
      for (const int64_t rows : {1, 2, 6}) CheckProduct(format, {rows, 37, cols}, 1, false);
    }
  }
}

TEST(Matmul, EqualsTheReferenceOverThreads) {
  for (const WeightFormat format : kFormats) {
    for (const int threads : {1, 2, 5}) {
      CheckProduct(format, {1, 200, 320}, threads, false);
      CheckProduct(format, {130, 20, 320}, threads, false);
    }
  }
}

TEST(Matmul, EqualsTheReferenceAtRealSizes) {
  CheckProduct(WeightFormat::kFp8Tile32, {2, 512, 5120}, 2, false);
  CheckProduct(WeightFormat::kFp4Group32, {3, 256, 2304}, 2, false);
  CheckProduct(WeightFormat::kBf16, {1, 384, 5120}, 2, false);
  CheckProduct(WeightFormat::kF32, {5, 24, 20480}, 2, false);
}

TEST(Matmul, NanCodesGiveNan) {
  CheckProduct(WeightFormat::kFp8Tile32, {3, 40, 96}, 2, true);
  std::mt19937 random(5);
  ThreadPool pool(1);
  TestWeight weight(WeightFormat::kFp8Tile32, 1, 64, random);
  TestMatrix x(1, 64);
  x.Randomize(random);
  TestMatrix y(1, 1);
  FastKernels().matmul(x.view(), weight.weight, y.view(), pool);
  EXPECT_FALSE(std::isnan(y.view().Row(0)[0]));
  weight.bytes[TestWeight::kOffset + 33] = std::byte{0xFF};
  FastKernels().matmul(x.view(), weight.weight, y.view(), pool);
  EXPECT_TRUE(std::isnan(y.view().Row(0)[0]));
}

TEST(Matmul, EveryScaleCode) {
  std::mt19937 random(6);
  ThreadPool pool(1);
  for (const WeightFormat format : {WeightFormat::kFp8Tile32, WeightFormat::kFp4Group32}) {
    TestWeight weight(format, 256 * 32, 32, random);
    for (size_t i = 0; i < weight.scales.size(); ++i) {
      const size_t row = format == WeightFormat::kFp8Tile32 ? i * 32 : i;
      weight.scales[i] = static_cast<uint8_t>(row / 32);
    }
    TestMatrix x(1, 32);
    x.Randomize(random);
    TestMatrix expected(1, weight.weight.rows);
    TestMatrix found(1, weight.weight.rows);
    ReferenceKernels().matmul(x.view(), weight.weight, expected.view(), pool);
    FastKernels().matmul(x.view(), weight.weight, found.view(), pool);
    EXPECT_TRUE(SameBits(expected.view(), found.view()));
    EXPECT_TRUE(std::isnan(found.view().Row(0)[255 * 32]));
  }
}

// One row takes a way of its own, which scales the inputs: no input may overflow or lose bits.
TEST(Matmul, OneRowOfExtremeInputs) {
  std::mt19937 random(10);
  ThreadPool pool(1);
  const float extremes[] = {1e30f,
                            -3e38f,
                            1e-40f,
                            -1e-45f,
                            1e-30f,
                            0.0f,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  for (const WeightFormat format : kFormats) {
    for (const uint8_t scale : {0, 6, 7, 8, 60, 127, 134, 135, 200, 254}) {
      for (const float extreme : extremes) {
        TestWeight weight(format, 27, 96, random);
        for (uint8_t& code : weight.scales) code = scale;
        TestMatrix x(1, 96);
        x.Randomize(random);
        for (int64_t i = 0; i < 96; i += 5) x.view().Row(0)[i] *= extreme;
        TestMatrix expected(1, 27);
        TestMatrix found(1, 27);
        ReferenceKernels().matmul(x.view(), weight.weight, expected.view(), pool);
        FastKernels().matmul(x.view(), weight.weight, found.view(), pool);
        EXPECT_TRUE(SameBits(expected.view(), found.view()))
            << static_cast<int>(format) << " " << int{scale} << " " << extreme;
      }
    }
  }
}

// A batch is its rows: no row may depend on how many others there are.
TEST(Matmul, ARowAloneEqualsTheRowInABatch) {
  std::mt19937 random(7);
  ThreadPool pool(2, 0);
  const TestWeight weight(WeightFormat::kFp8Tile32, 70, 544, random);
  TestMatrix x(131, 544);
  x.Randomize(random);
  TestMatrix batch(131, 70);
  FastKernels().matmul(x.view(), weight.weight, batch.view(), pool);
  for (int64_t t = 0; t < 131; ++t) {
    TestMatrix alone(1, 70);
    FastKernels().matmul(x.view().Rows(t, 1), weight.weight, alone.view(), pool);
    ASSERT_TRUE(SameBits(batch.view().Rows(t, 1), alone.view())) << t;
  }
}

TEST(Matmul, RowsOfAWeightAreTheWholeRestricted) {
  std::mt19937 random(8);
  ThreadPool pool(1);
  for (const WeightFormat format : kFormats) {
    const TestWeight weight(format, 96, 64, random);
    TestMatrix x(2, 64);
    x.Randomize(random);
    TestMatrix whole(2, 96);
    TestMatrix part(2, 40);
    FastKernels().matmul(x.view(), weight.weight, whole.view(), pool);
    FastKernels().matmul(x.view(), weight.weight.Rows(32, 40), part.view(), pool);
    EXPECT_TRUE(SameBits(whole.view().Cols(32, 40), part.view()));
  }
}

// The order of additions that kernels.h promises, written out once more.
TEST(Matmul, TheSumIsTheCanonicalOne) {
  std::mt19937 random(9);
  ThreadPool pool(1);
  const TestWeight weight(WeightFormat::kF32, 1, 19, random);
  TestMatrix x(1, 19);
  x.Randomize(random);
  float w[19];
  std::memcpy(w, weight.weight.data, sizeof w);
  float s[8] = {};
  for (int i = 0; i < 19; ++i) s[i % 8] = std::fma(x.view().Row(0)[i], w[i], s[i % 8]);
  const float expected = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  for (const Kernels* kernels : {&ReferenceKernels(), &FastKernels()}) {
    TestMatrix y(1, 1);
    kernels->matmul(x.view(), weight.weight, y.view(), pool);
    EXPECT_EQ(expected, y.view().Row(0)[0]);
  }
}

TEST(Target, AForcedNameDecidesWhatRuns) {
  EXPECT_EQ(&ReferenceKernels(), &simd::TableFor("reference"));
  EXPECT_NE(&ReferenceKernels(), &simd::TableFor("AVX2"));
  // Every x86-64-v3 processor has AVX2, so this name must always win.
  EXPECT_STREQ("AVX2", simd::ForceTarget("AVX2"));
  EXPECT_STREQ("AVX2", simd::RunningTarget());
  const std::string best = simd::ForceTarget("");
  EXPECT_EQ(best, simd::ForceTarget("no such target"));
  EXPECT_EQ(best, simd::RunningTarget());
  // The others run where the processor has them and are refused elsewhere.
  for (const std::string name : {"AVX3", "AVX3_DL"}) {
    const std::string running = simd::ForceTarget(name);
    EXPECT_TRUE(running == name || running == best) << running;
    EXPECT_EQ(running, simd::RunningTarget());
  }
  EXPECT_STREQ(best.c_str(), simd::ForceTarget(""));
  // What the tests behind this one run on is what was asked for.
  const char* asked = std::getenv("MINKE_TARGET");
  simd::ForceTarget(asked == nullptr ? "" : asked);
}

}  // namespace
}  // namespace minke
