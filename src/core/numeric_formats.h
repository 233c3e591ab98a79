// Number formats and the packed row layouts of the cache: BF16, E4M3, E2M1, UE8M0
// (architecture.md 0.2, 0.3, 5.1). One writer and one reader of each layout.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace minke {

// ---- scalars -------------------------------------------------------------------------------

// bf16 <-> float32. Encoding rounds to nearest even; NaN stays NaN (quiet).
inline float DecodeBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t EncodeBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;  // one NaN, whatever its payload was
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
inline float RoundBf16(float value) {
  return DecodeBf16(EncodeBf16(value));
}

// E4M3FN (OCP): max +-448, no infinity, 0x7F and 0xFF are NaN. Encoding saturates to +-448 and
// rounds to nearest even.
float DecodeE4M3(uint8_t bits);
uint8_t EncodeE4M3(float value);

// UE8M0: 2^(b - 127); 255 is NaN. Code 0 lies below the normal numbers of float32.
inline float DecodeUe8m0(uint8_t bits) {
  if (bits == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : static_cast<uint32_t>(bits) << 23);
}
// The code of a power of two. REQUIRES: value is one, within 2^-127 .. 2^127.
uint8_t EncodeUe8m0(float power_of_two);

// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6; sign in bit 3; code 8 decodes to zero. Encoding saturates to
// +-6 and rounds to nearest, ties to the even code.
float DecodeE2M1(uint8_t code);
uint8_t EncodeE2M1(float value);

// 2^ceil(log2 t) on the bits, never with a float logarithm (architecture.md 0.3). REQUIRES t > 0.
float Pow2Up(float value);

// ---- packed rows ---------------------------------------------------------------------------

// One row of the cache. All scales follow all codes, so that a row is
// [codes][scales] with no padding.
enum class RowFormat : uint8_t {
  kF32,         // diagnostic modes only: float32, unrounded
  kFp8Group32,  // window KV: E4M3 codes, UE8M0 scale per 32 channels (Q8)
  kFp4Group16,  // compressed KV: E2M1 codes, E4M3 scale per 16 channels (Q4K)
  kFp4Group32,  // index keys: E2M1 codes, UE8M0 scale per 32 channels (Q4I)
};

constexpr int64_t RowBytes(RowFormat format, int64_t channels) {
  switch (format) {
    case RowFormat::kF32:
      return channels * 4;
    case RowFormat::kFp8Group32:
      return channels + channels / 32;
    case RowFormat::kFp4Group16:
      return channels / 2 + channels / 16;
    case RowFormat::kFp4Group32:
      return channels / 2 + channels / 32;
  }
  return 0;
}
static_assert(RowBytes(RowFormat::kFp8Group32, 512) == 528);
static_assert(RowBytes(RowFormat::kFp4Group16, 512) == 288);
static_assert(RowBytes(RowFormat::kFp4Group32, 128) == 68);

// Quantizes one row of channels into its packed form; input is rounded to bf16 first (but for
// kF32). packed: RowBytes(format, row.size()).
void EncodeRow(RowFormat format, std::span<const float> row, std::span<std::byte> packed);
// The exact values that EncodeRow stored; every one of them is a bf16 value.
void DecodeRow(RowFormat format, std::span<const std::byte> packed, std::span<float> row);

}  // namespace minke
