#include "core/numeric_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::Golden;
using testing::GoldenTensor;

const Golden& Quant() {
  static const Golden kQuant("quant/quant.json");
  return kQuant;
}

void ExpectSameBits(float expected, float found, int64_t index) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << index;
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(expected), std::bit_cast<uint32_t>(found))
        << index << ": expected " << expected << ", found " << found;
  }
}

TEST(NumericFormats, DecodeTablesAreExact) {
  const std::vector<float> e4m3 = Quant()["table.e4m3"].Floats();
  const std::vector<float> e8m0 = Quant()["table.e8m0"].Floats();
  const std::vector<float> e2m1 = Quant()["table.e2m1"].Floats();
  for (int i = 0; i < 256; ++i) {
    ExpectSameBits(e4m3[i], DecodeE4M3(static_cast<uint8_t>(i)), i);
    ExpectSameBits(e8m0[i], DecodeUe8m0(static_cast<uint8_t>(i)), i);
  }
  for (int i = 0; i < 16; ++i) ExpectSameBits(e2m1[i], DecodeE2M1(static_cast<uint8_t>(i)), i);
}

TEST(NumericFormats, EncodingADecodedValueGivesTheCodeBack) {
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<uint8_t>(i);
    if ((code & 0x7F) != 0x7F) {
      EXPECT_EQ(code, EncodeE4M3(DecodeE4M3(code)));
    }
    if (code != 255) {
      EXPECT_EQ(code, EncodeUe8m0(DecodeUe8m0(code)));
    }
    if (code < 16) {
      EXPECT_EQ(code, EncodeE2M1(DecodeE2M1(code)));
    }
  }
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto code = static_cast<uint16_t>(bits);
    const float value = DecodeBf16(code);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(RoundBf16(value)));
    } else {
      EXPECT_EQ(code, EncodeBf16(value));
    }
  }
}

// The tie between two neighbouring codes goes to the even one; one float beyond it goes on.
TEST(NumericFormats, EncodersRoundToNearestEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint8_t code = 0; code < 0x7E; ++code) {
    const float tie = (DecodeE4M3(code) + DecodeE4M3(code + 1)) / 2;
    EXPECT_EQ((code + 1) & ~1, EncodeE4M3(tie)) << int{code};
    EXPECT_EQ(code, EncodeE4M3(std::nextafter(tie, 0.0f)));
    EXPECT_EQ(code + 1, EncodeE4M3(std::nextafter(tie, infinity)));
    EXPECT_EQ(((code + 1) & ~1) | 0x80, EncodeE4M3(-tie));
  }
  for (uint8_t code = 0; code < 7; ++code) {
    const float tie = (DecodeE2M1(code) + DecodeE2M1(code + 1)) / 2;
    EXPECT_EQ((code + 1) & ~1, EncodeE2M1(tie)) << int{code};
    EXPECT_EQ(code, EncodeE2M1(std::nextafter(tie, 0.0f)));
    EXPECT_EQ(code + 1, EncodeE2M1(std::nextafter(tie, infinity)));
  }
  EXPECT_EQ(0x3F80, EncodeBf16(std::bit_cast<float>(0x3F808000u)));  // tie, down to even
  EXPECT_EQ(0x3F82, EncodeBf16(std::bit_cast<float>(0x3F818000u)));  // tie, up to even
  EXPECT_EQ(0x3F81, EncodeBf16(std::bit_cast<float>(0x3F808001u)));
  EXPECT_EQ(0x7F80, EncodeBf16(std::numeric_limits<float>::max()));
}

TEST(NumericFormats, EncodersSaturateAndSurviveNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(0x7E, EncodeE4M3(1e30f));
  EXPECT_EQ(0xFE, EncodeE4M3(-infinity));
  EXPECT_TRUE(std::isnan(DecodeE4M3(EncodeE4M3(nan))));
  EXPECT_EQ(7, EncodeE2M1(infinity));
  EXPECT_EQ(15, EncodeE2M1(-100.0f));
  EXPECT_LT(EncodeE2M1(nan), 16);
  EXPECT_TRUE(std::isnan(RoundBf16(std::bit_cast<float>(0x7F800001u))));
  EXPECT_TRUE(std::isnan(Pow2Up(nan)));
}

TEST(NumericFormats, Pow2UpRoundsUpToAPowerOfTwo) {
  for (int k = -126; k < 127; ++k) {
    const float power = std::ldexp(1.0f, k);
    EXPECT_EQ(power, Pow2Up(power));
    EXPECT_EQ(2 * power, Pow2Up(std::nextafter(power, 2 * power)));
  }
}

struct FormatCase {
  RowFormat format;
  std::string name;
};
const std::vector<FormatCase>& Formats() {
  static const std::vector<FormatCase> kFormats = {{RowFormat::kFp8Group32, "q8"},
                                                   {RowFormat::kFp4Group16, "q4k"},
                                                   {RowFormat::kFp4Group32, "q4i"}};
  return kFormats;
}

// architecture.md 0.3 against every golden row: codes, scales and decoded values.
TEST(NumericFormats, GoldenRowsQuantizeToTheSameBytes) {
  const GoldenTensor& x = Quant()["x"];
  const std::vector<float> values = x.Floats();
  const int64_t n = x.Dim(1);
  for (const FormatCase& c : Formats()) {
    const std::vector<uint8_t> codes = Quant()[c.name + ".codes"].RawU8();
    const std::vector<uint8_t> scales = Quant()[c.name + ".scales"].RawU8();
    const std::vector<float> dequant = Quant()[c.name + ".dequant"].Floats();
    const int64_t code_bytes = Quant()[c.name + ".codes"].Dim(1);
    const int64_t scale_bytes = Quant()[c.name + ".scales"].Dim(1);
    ASSERT_EQ(code_bytes + scale_bytes, RowBytes(c.format, n));
    for (int64_t row = 0; row < x.Dim(0); ++row) {
      std::vector<std::byte> packed(RowBytes(c.format, n));
      EncodeRow(c.format, std::span(values).subspan(row * n, n), packed);
      for (int64_t i = 0; i < code_bytes; ++i) {
        ASSERT_EQ(codes[row * code_bytes + i], std::to_integer<uint8_t>(packed[i]))
            << c.name << " row " << row << " byte " << i;
      }
      for (int64_t i = 0; i < scale_bytes; ++i) {
        ASSERT_EQ(scales[row * scale_bytes + i], std::to_integer<uint8_t>(packed[code_bytes + i]))
            << c.name << " row " << row << " scale " << i;
      }
      std::vector<float> decoded(n);
      DecodeRow(c.format, packed, decoded);
      for (int64_t i = 0; i < n; ++i) ExpectSameBits(dequant[row * n + i], decoded[i], i);
    }
  }
}

TEST(NumericFormats, ScaleOfEveryPositiveBf16Maximum) {
  for (const FormatCase& c : Formats()) {
    const std::vector<uint8_t> expected = Quant()["scale_by_amax." + c.name].RawU8();
    for (size_t i = 0; i < expected.size(); ++i) {
      std::vector<float> row(32, 0.0f);
      row[5] = row[21] = DecodeBf16(static_cast<uint16_t>(i + 1));
      std::vector<std::byte> packed(RowBytes(c.format, 32));
      EncodeRow(c.format, row, packed);
      ASSERT_EQ(expected[i], std::to_integer<uint8_t>(packed.back())) << c.name << " " << i;
    }
  }
}

// architecture.md B.2.
TEST(NumericFormats, SixteenVectorOfTheSpecification) {
  std::vector<float> row = {0,           0.10009765625f, -0.2001953125f, 0.30078125f, -0.44921875f,
                            0.6015625f,  0.75f,          -0.8984375f,    1.046875f,   1.296875f,
                            -1.6015625f, 1.8984375f,     2.203125f,      -2.703125f,  3.09375f,
                            -3.296875f};
  std::vector<std::byte> packed(RowBytes(RowFormat::kFp4Group16, 16));
  EncodeRow(RowFormat::kFp4Group16, row, packed);
  const std::vector<int> codes = {0, 0, 9, 1, 10, 2, 3, 11, 4, 4, 13, 5, 6, 14, 7, 15};
  for (int i = 0; i < 16; ++i) {
    const int byte = std::to_integer<int>(packed[i / 2]);
    EXPECT_EQ(codes[i], i % 2 == 0 ? byte & 15 : byte >> 4) << i;
  }
  EXPECT_EQ(0.5625f, DecodeE4M3(std::to_integer<uint8_t>(packed[8])));

  row.resize(32, 0.0f);  // zeros do not move the maximum of the longer groups
  std::vector<float> q4i(32);
  packed.resize(RowBytes(RowFormat::kFp4Group32, 32));
  EncodeRow(RowFormat::kFp4Group32, row, packed);
  DecodeRow(RowFormat::kFp4Group32, packed, q4i);
  EXPECT_EQ(1.0f, DecodeUe8m0(std::to_integer<uint8_t>(packed[16])));
  EXPECT_EQ(
      (std::vector<float>{0, 0, -0.0f, 0.5f, -0.5f, 0.5f, 1, -1, 1, 1.5f, -1.5f, 2, 2, -3, 3, -3}),
      std::vector<float>(q4i.begin(), q4i.begin() + 16));

  std::vector<float> q8(32);
  packed.resize(RowBytes(RowFormat::kFp8Group32, 32));
  EncodeRow(RowFormat::kFp8Group32, row, packed);
  DecodeRow(RowFormat::kFp8Group32, packed, q8);
  EXPECT_EQ(0x1p-7f, DecodeUe8m0(std::to_integer<uint8_t>(packed[32])));
  EXPECT_EQ((std::vector<float>{0, 0.1015625f, -0.203125f, 0.3125f, -0.4375f, 0.625f, 0.75f,
                                -0.875f, 1, 1.25f, -1.625f, 1.875f, 2.25f, -2.75f, 3, -3.25f}),
            std::vector<float>(q8.begin(), q8.begin() + 16));
}

std::vector<uint8_t> Unhex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// architecture.md B.1: the first bytes of two tensors of the released checkpoint.
TEST(NumericFormats, ReleasedCheckpointBytes) {
  const Json& released = *Quant().index().Find("released_checkpoint_bytes");
  const Json& fp8 = *released.Find("fp8");
  const Json& fp4 = *released.Find("fp4");
  const std::vector<uint8_t> fp8_bytes = Unhex(fp8.Find("bytes_hex")->as_string());
  const std::vector<uint8_t> fp4_bytes = Unhex(fp4.Find("bytes_hex")->as_string());
  const float fp8_scale = DecodeUe8m0(Unhex(fp8.Find("scale_byte_hex")->as_string())[0]);
  const float fp4_scale = DecodeUe8m0(Unhex(fp4.Find("scale_byte_hex")->as_string())[0]);
  const JsonArray& first8 = fp8.Find("first8")->as_array();
  const JsonArray& first16 = fp4.Find("first16")->as_array();
  ASSERT_EQ(8u, first8.size());
  ASSERT_EQ(16u, first16.size());
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(first8[i].as_double(), double{DecodeE4M3(fp8_bytes[i]) * fp8_scale});
  }
  for (size_t i = 0; i < 16; ++i) {
    const uint8_t byte = fp4_bytes[i / 2];
    const uint8_t code = i % 2 == 0 ? byte & 15 : byte >> 4;
    EXPECT_EQ(first16[i].as_double(), double{DecodeE2M1(code) * fp4_scale});
  }
}

// Holds while Q4K's scale is a normal E4M3 number (its rounding error of up to a half would
// otherwise move the maximum to another code) and nothing overflows to infinity.
TEST(NumericFormats, EncodingADecodedRowChangesNothing) {
  int compared = 0;
  const std::vector<float> values = Quant()["x"].Floats();
  for (const FormatCase& c : Formats()) {
    for (size_t begin = 0; begin + 64 <= values.size(); begin += 64) {
      const auto in_range = [&](size_t group) {
        float amax = 0.0f;
        for (size_t i = 0; i < 16; ++i) amax = std::max(amax, std::fabs(values[group + i]));
        return amax >= 6 * 0x1p-6f && amax < 1e30f;
      };
      if (!in_range(begin) || !in_range(begin + 16) || !in_range(begin + 32) ||
          !in_range(begin + 48)) {
        continue;
      }
      ++compared;
      std::vector<std::byte> once(RowBytes(c.format, 64));
      std::vector<std::byte> twice(once.size());
      std::vector<float> decoded(64);
      std::vector<float> again(64);
      EncodeRow(c.format, std::span(values).subspan(begin, 64), once);
      DecodeRow(c.format, once, decoded);
      EncodeRow(c.format, decoded, twice);
      DecodeRow(c.format, twice, again);
      EXPECT_EQ(decoded, again);
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(NumericFormats, UnroundedRowsKeepEveryBit) {
  const std::vector<float> row = {1.0f / 3, -2.0f / 7, 1e-40f};
  std::vector<std::byte> packed(RowBytes(RowFormat::kF32, 3));
  std::vector<float> decoded(3);
  EncodeRow(RowFormat::kF32, row, packed);
  DecodeRow(RowFormat::kF32, packed, decoded);
  EXPECT_EQ(row, decoded);
}

TEST(NumericFormats, RowsWithInfinityAndNanAreEncodedWithoutHarm) {
  std::vector<float> row(64, 1.0f);
  row[3] = std::numeric_limits<float>::infinity();
  row[40] = std::numeric_limits<float>::quiet_NaN();
  for (const FormatCase& c : Formats()) {
    std::vector<std::byte> packed(RowBytes(c.format, 64));
    std::vector<float> decoded(64);
    EncodeRow(c.format, row, packed);
    DecodeRow(c.format, packed, decoded);
  }
}

}  // namespace
}  // namespace minke
