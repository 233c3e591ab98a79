// Random weights on the stored grids, with the spread of a trained matrix: normal numbers of a
// given standard deviation, quantized as the released checkpoint is (architecture.md 2.3).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "recall/random.h"

namespace minke {

// Sixteen random bits pick a code; every code is as frequent as quantizing normal numbers by one
// scale makes it.
struct QuantizedNormal {
  std::vector<uint8_t> codes;  // [65536]; of FP4 a byte holds two codes
  uint8_t scale = 127;         // UE8M0, the usual one
};
// The scale is the one that a group of 32, or a tile of 32 x 32, of such numbers has most often.
// REQUIRES deviation > 0.
QuantizedNormal Fp4Normal(double deviation);
QuantizedNormal Fp8Normal(double deviation);
// Sixteen random bits pick a bf16 value.
std::vector<uint16_t> Bf16Normal(double mean, double deviation);

// Independent draws from a table. The same generator gives the same bytes.
void FillCodes(const std::vector<uint8_t>& table, Random& random, std::span<uint8_t> codes);
void FillBf16(const std::vector<uint16_t>& table, Random& random, std::span<uint16_t> values);
// One in ten a power of two smaller, one in ten larger: groups differ in their largest value.
void FillScales(uint8_t scale, Random& random, std::span<uint8_t> scales);

}  // namespace minke
