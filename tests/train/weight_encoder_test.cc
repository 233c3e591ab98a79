// Stored weights and rounded rows, bit for bit against core/numeric_formats.
#include "train/weight_encoder.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "core/numeric_formats.h"
#include "kernels/kernels.h"
#include "train/row_rounding.h"

namespace minke::train {
namespace {

constexpr int64_t kRows = 70;  // no multiple of a tile
constexpr int64_t kCols = 96;

// Values over many magnitudes, with zeros, exact grid points and ties among them.
std::vector<float> Values(uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) {
    const int kind = static_cast<int>(generator() % 16);
    const float scale = std::ldexp(1.0f, static_cast<int>(i / kCols % 40) - 20);
    values[i] = kind == 0   ? 0.0f
                : kind == 1 ? scale * 2.5f
                : kind == 2 ? -scale * 0.25f
                            : scale * normal(generator);
  }
  return values;
}

struct Format {
  const char* name;
  EncodedWeight (*encode)(std::span<const float>, int64_t, int64_t);
  void (*decode)(std::span<const uint8_t>, std::span<const uint8_t>, int64_t, int64_t,
                 std::span<float>);
  void (*round)(const float*, int64_t, int64_t, float*);
  double error_max;  // of a value, in units of the group's largest magnitude
};
const Format kFormats[] = {
    {"FP8 tiles", EncodeFp8Tiles, DecodeFp8Tiles, RoundToFp8Tiles, 1.0 / 16},
    {"FP8 rows", EncodeFp8Rows, DecodeFp8Rows, RoundToFp8Rows, 1.0 / 16},
    {"FP4 rows", EncodeFp4Rows, DecodeFp4Rows, RoundToFp4Rows, 1.0 / 6},
};

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

std::vector<float> Decoded(const Format& format, const EncodedWeight& encoded) {
  std::vector<float> decoded(kRows * kCols);
  format.decode(encoded.codes, encoded.scales, kRows, kCols, decoded);
  return decoded;
}

TEST(WeightEncoder, EncodingTwiceChangesNothing) {
  for (const Format& format : kFormats) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const EncodedWeight once = format.encode(Values(seed), kRows, kCols);
      const EncodedWeight twice = format.encode(Decoded(format, once), kRows, kCols);
      EXPECT_EQ(once.codes, twice.codes) << format.name << " seed " << seed;
      EXPECT_EQ(once.scales, twice.scales) << format.name << " seed " << seed;
    }
  }
}

TEST(WeightEncoder, RoundingIsDecodingWhatWasEncoded) {
  for (const Format& format : kFormats) {
    const std::vector<float> values = Values(7);
    std::vector<float> rounded(values.size());
    format.round(values.data(), kRows, kCols, rounded.data());
    EXPECT_EQ(Bits(rounded), Bits(Decoded(format, format.encode(values, kRows, kCols))))
        << format.name;
    EXPECT_NE(Bits(rounded), Bits(values)) << "values on the grid prove nothing";
  }
}

TEST(WeightEncoder, ErrorsStayWithinHalfAStep) {
  for (const Format& format : kFormats) {
    const std::vector<float> values = Values(11);
    const std::vector<float> decoded = Decoded(format, format.encode(values, kRows, kCols));
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE(std::fabs(values[i] - decoded[i]), format.error_max * largest);
    }
  }
}

TEST(WeightEncoder, KeepsValuesOfSmallestScales) {
  // Every code under scale 1, with the largest in each group so that the scale is the smallest.
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<uint8_t>(i % 32 == 0 ? 0x7E : i * 7 % 0x7F);
    values[i] = DecodeE4M3(code);
  }
  EXPECT_EQ(Bits(values), Bits(Decoded(kFormats[0], EncodeFp8Tiles(values, kRows, kCols))));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = DecodeE2M1(static_cast<uint8_t>(i % 32 == 0 ? 7 : i % 16));
  }
  EXPECT_EQ(Bits(values), Bits(Decoded(kFormats[2], EncodeFp4Rows(values, kRows, kCols))));
}

TEST(WeightEncoder, ZeroGroupsHaveScaleOne) {
  std::vector<float> values(kRows * kCols, 0.0f);
  values[5] = -0x1p-110f;
  for (const Format& format : kFormats) {
    const EncodedWeight encoded = format.encode(values, kRows, kCols);
    for (const uint8_t code : encoded.codes) EXPECT_EQ(code, 0);
    for (const uint8_t scale : encoded.scales) EXPECT_EQ(scale, 127);
  }
}

// Rows over the magnitudes that quantizers treat apart, among them zero groups and saturation.
std::vector<float> RowsFor(uint32_t seed) {
  std::vector<float> values = Values(seed);
  for (int64_t i = 0; i < kCols; ++i) values[static_cast<size_t>(i)] = 0.0f;
  return values;
}

TEST(RowRounding, EqualsPackedRows) {
  const std::pair<RowRounding, RowFormat> pairs[] = {
      {RowRounding::kFp8Group32, RowFormat::kFp8Group32},
      {RowRounding::kFp4Group16, RowFormat::kFp4Group16},
      {RowRounding::kFp4Group32, RowFormat::kFp4Group32}};
  for (const auto& [rounding, format] : pairs) {
    for (uint32_t seed = 0; seed < 10; ++seed) {
      const std::vector<float> values = RowsFor(seed);
      std::vector<float> rounded(values.size());
      RoundRows(rounding, values.data(), kRows, kCols, rounded.data());
      std::vector<float> expected(values.size());
      std::vector<std::byte> packed(static_cast<size_t>(RowBytes(format, kCols)));
      for (int64_t row = 0; row < kRows; ++row) {
        const auto at = static_cast<size_t>(row * kCols);
        EncodeRow(format, {values.data() + at, kCols}, packed);
        DecodeRow(format, packed, {expected.data() + at, kCols});
      }
      EXPECT_EQ(Bits(rounded), Bits(expected)) << "format " << static_cast<int>(format);
      EXPECT_NE(Bits(rounded), Bits(values));
    }
  }
}

TEST(RowRounding, EqualsKernelOfActivations) {
  std::vector<float> values = RowsFor(3);
  std::vector<float> rounded(values.size());
  std::vector<float> expected(values.size());
  RoundRows(RowRounding::kFp8Group32, values.data(), kRows, kCols, rounded.data());
  ThreadPool pool(1);
  FastKernels().quantize_q8(View<const float>(values.data(), kRows, kCols),
                            View<float>(expected.data(), kRows, kCols), pool);
  EXPECT_EQ(Bits(rounded), Bits(expected));
}

TEST(RowRounding, TernaryHasThreeLevelsAGroup) {
  const std::vector<float> values = RowsFor(5);
  std::vector<float> rounded(values.size());
  RoundRows(RowRounding::kTernaryGroup16, values.data(), kRows, kCols, rounded.data());
  for (size_t group = 0; group < values.size(); group += 16) {
    float level = 0;
    for (size_t i = group; i < group + 16; ++i) level = std::max(level, std::fabs(rounded[i]));
    for (size_t i = group; i < group + 16; ++i) {
      EXPECT_TRUE(rounded[i] == 0.0f || std::fabs(rounded[i]) == level);
    }
  }
}

}  // namespace
}  // namespace minke::train
