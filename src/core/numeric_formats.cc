#include "core/numeric_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/result.h"

namespace minke {
namespace {

constexpr uint32_t kSignBit = 0x80000000u;
constexpr uint32_t kInfinityBits = 0x7F800000u;
constexpr float kE4M3Max = 448.0f;
constexpr float kE4M3MinNormal = 0x1p-6f;
constexpr uint8_t kE4M3Nan = 0x7F;
constexpr float kE2M1Max = 6.0f;
constexpr std::array<float, 8> kE2M1Magnitudes = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

// What the three quantizers of architecture.md 0.3 do differently.
struct Quantizer {
  int64_t group;     // channels that share a scale
  float amax_floor;  // keeps the scale of a zero group above zero
};

constexpr Quantizer QuantizerOf(RowFormat format) {
  switch (format) {
    case RowFormat::kFp8Group32:
      return {32, 1e-4f};
    case RowFormat::kFp4Group16:
      return {16, 6 * 0x1p-9f};
    case RowFormat::kFp4Group32:
      return {32, 6 * 0x1p-126f};
    case RowFormat::kF32:
      break;
  }
  return {1, 0.0f};
}

// The scale code of one group. The three formulas are not interchangeable: Q8 and Q4I multiply by
// a rounded reciprocal and round up to a power of two, Q4K divides and rounds to nearest.
uint8_t EncodeScale(RowFormat format, float amax) {
  switch (format) {
    case RowFormat::kFp8Group32:
      return EncodeUe8m0(Pow2Up(amax * (1.0f / 448.0f)));
    case RowFormat::kFp4Group16:
      return EncodeE4M3(amax / 6.0f);
    case RowFormat::kFp4Group32:
      return EncodeUe8m0(Pow2Up(amax * (1.0f / 6.0f)));
    case RowFormat::kF32:
      break;
  }
  return 0;
}

float DecodeScale(RowFormat format, uint8_t code) {
  return format == RowFormat::kFp4Group16 ? DecodeE4M3(code) : DecodeUe8m0(code);
}

// The largest magnitude of the group and the floor. The maximum is taken over the bit patterns,
// which orders magnitudes as numbers do and lets a NaN win, so that it is not lost in the scale.
float GroupMaximum(std::span<const float> group, float floor) {
  uint32_t largest = std::bit_cast<uint32_t>(floor);
  for (const float value : group) {
    largest = std::max(largest, std::bit_cast<uint32_t>(RoundBf16(value)) & ~kSignBit);
  }
  return std::bit_cast<float>(largest);
}

}  // namespace

// The seven magnitude bits moved to the top of the float32 mantissa are the value times 2^-120,
// also for subnormals, because both formats count exponents the same way.
float DecodeE4M3(uint8_t bits) {
  if ((bits & 0x7F) == kE4M3Nan) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = std::bit_cast<float>(static_cast<uint32_t>(bits & 0x7F) << 20) * 0x1p120f;
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t EncodeE4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits & kSignBit) >> 24);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return kE4M3Nan;
  if (magnitude >= kE4M3Max) return sign | 0x7E;
  if (magnitude < kE4M3MinNormal) {
    // Adding 1.5 * 2^14 leaves multiples of 2^-9 in the last bits, rounded to nearest even.
    const float shifted = magnitude + 0x1.8p14f;
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) & 0xF);
  }
  const uint32_t rounded = (bits & ~kSignBit) + 0x7FFFF + ((bits >> 20) & 1);
  return sign | static_cast<uint8_t>((rounded >> 20) - ((127 - 7) << 3));
}

uint8_t EncodeUe8m0(float power_of_two) {
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(power_of_two) >> 23);
}

float DecodeE2M1(uint8_t code) {
  const float magnitude = kE2M1Magnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// Counts the thresholds below the magnitude; a tie at a threshold goes to the even code, hence
// the alternation of > and >=.
uint8_t EncodeE2M1(float value) {
  const float a = std::fabs(value);
  const int magnitude = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                        (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>((std::signbit(value) ? 8 : 0) | magnitude);
}

float Pow2Up(float value) {
  if (std::isnan(value)) return value;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x7FFFFFu) & kInfinityBits);
}

void EncodeRow(RowFormat format, std::span<const float> row, std::span<std::byte> packed) {
  const auto channels = static_cast<int64_t>(row.size());
  CHECK(static_cast<int64_t>(packed.size()) == RowBytes(format, channels));
  if (format == RowFormat::kF32) {
    if (!row.empty()) std::memcpy(packed.data(), row.data(), row.size_bytes());
    return;
  }
  const Quantizer quantizer = QuantizerOf(format);
  CHECK(channels % quantizer.group == 0);
  const bool is_fp8 = format == RowFormat::kFp8Group32;
  const float limit = is_fp8 ? kE4M3Max : kE2M1Max;
  std::byte* codes = packed.data();
  std::byte* scales = codes + (is_fp8 ? channels : channels / 2);
  for (int64_t begin = 0; begin < channels; begin += quantizer.group) {
    const auto group = row.subspan(begin, quantizer.group);
    const uint8_t scale_code = EncodeScale(format, GroupMaximum(group, quantizer.amax_floor));
    const float scale = DecodeScale(format, scale_code);
    scales[begin / quantizer.group] = std::byte{scale_code};
    for (int64_t i = 0; i < quantizer.group; ++i) {
      const float scaled = std::clamp(RoundBf16(group[i]) / scale, -limit, limit);
      if (is_fp8) {
        codes[begin + i] = std::byte{EncodeE4M3(scaled)};
        continue;
      }
      std::byte& pair = codes[(begin + i) / 2];
      const std::byte code{EncodeE2M1(scaled)};
      pair = i % 2 == 0 ? code : (pair | (code << 4));
    }
  }
}

void DecodeRow(RowFormat format, std::span<const std::byte> packed, std::span<float> row) {
  const auto channels = static_cast<int64_t>(row.size());
  CHECK(static_cast<int64_t>(packed.size()) == RowBytes(format, channels));
  if (format == RowFormat::kF32) {
    if (!row.empty()) std::memcpy(row.data(), packed.data(), row.size_bytes());
    return;
  }
  const int64_t group = QuantizerOf(format).group;
  const bool is_fp8 = format == RowFormat::kFp8Group32;
  const std::byte* codes = packed.data();
  const std::byte* scales = codes + (is_fp8 ? channels : channels / 2);
  for (int64_t i = 0; i < channels; ++i) {
    const float scale = DecodeScale(format, std::to_integer<uint8_t>(scales[i / group]));
    const auto byte = std::to_integer<uint8_t>(codes[is_fp8 ? i : i / 2]);
    const uint8_t nibble = i % 2 == 0 ? byte & 0xF : byte >> 4;
    row[i] = (is_fp8 ? DecodeE4M3(byte) : DecodeE2M1(nibble)) * scale;
  }
}

}  // namespace minke
