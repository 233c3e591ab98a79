// Rounding to the grids of BF16, E4M3 and E2M1 without branches, so that loops over rows become
// vector code. The same bits as encoding and decoding by core/numeric_formats, for finite values.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace minke::train {

// Rounds the bit pattern to a multiple of 2^kDropped, ties to even.
template <int kDropped>
inline float RoundMantissa(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t half = (1u << (kDropped - 1)) - 1;
  const uint32_t mask = ~((1u << kDropped) - 1);
  return std::bit_cast<float>((bits + half + ((bits >> kDropped) & 1)) & mask);
}

inline float RoundToBf16(float value) {
  return RoundMantissa<16>(value);
}

// A value already divided by its scale. Saturates to +-448.
inline float RoundToE4M3(float scaled) {
  constexpr float kShift = 0x1.8p14f;  // adding it rounds to multiples of 2^-9
  float magnitude = std::fabs(scaled);
  magnitude = magnitude < 448.0f ? magnitude : 448.0f;
  const float small = (magnitude + kShift) - kShift;
  const float large = RoundMantissa<20>(magnitude);
  return std::copysign(magnitude < 0x1p-6f ? small : large, scaled);
}

// As above, saturates to +-6.
inline float RoundToE2M1(float scaled) {
  constexpr float kShift = 0x1.8p22f;  // adding it rounds to multiples of 1/2
  float magnitude = std::fabs(scaled);
  magnitude = magnitude < 6.0f ? magnitude : 6.0f;
  const float small = (magnitude + kShift) - kShift;
  const float large = RoundMantissa<22>(magnitude);
  return std::copysign(magnitude < 1.0f ? small : large, scaled);
}

}  // namespace minke::train
