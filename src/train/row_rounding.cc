#include "train/row_rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/numeric_formats.h"
#include "core/result.h"
#include "train/grid_rounding.h"

namespace minke::train {

namespace {

// The largest magnitude of a group after rounding to bf16. Magnitudes are compared as bit patterns,
// which vectorise.
template <int64_t kGroup>
float GroupMaximum(const float* in, float floor) {
  uint32_t largest = std::bit_cast<uint32_t>(floor);
  for (int64_t i = 0; i < kGroup; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(RoundToBf16(in[i])) & 0x7FFFFFFFu;
    largest = bits > largest ? bits : largest;
  }
  return std::bit_cast<float>(largest);
}

// The floors and formulas of the scales are those of architecture.md 0.3.
void RoundFp8Group(const float* in, float* out) {
  const float scale = Pow2Up(GroupMaximum<32>(in, 1e-4f) * (1.0f / 448.0f));
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < 32; ++i) out[i] = RoundToE4M3(RoundToBf16(in[i]) * inverse) * scale;
}

void RoundFp4Group32(const float* in, float* out) {
  const float scale = Pow2Up(GroupMaximum<32>(in, 6 * 0x1p-126f) * (1.0f / 6.0f));
  for (int64_t i = 0; i < 32; ++i) out[i] = RoundToE2M1(RoundToBf16(in[i]) / scale) * scale;
}

void RoundFp4Group16(const float* in, float* out) {
  const float scale = DecodeE4M3(EncodeE4M3(GroupMaximum<16>(in, 6 * 0x1p-9f) / 6.0f));
  for (int64_t i = 0; i < 16; ++i) out[i] = RoundToE2M1(RoundToBf16(in[i]) / scale) * scale;
}

void RoundTernaryGroup(const float* in, float* out) {
  const float scale = DecodeE4M3(EncodeE4M3(GroupMaximum<16>(in, 0x1p-9f)));
  for (int64_t i = 0; i < 16; ++i) {
    out[i] = std::fabs(in[i]) > 0.5f * scale ? std::copysign(scale, in[i]) : 0.0f;
  }
}

}  // namespace

void RoundRows(RowRounding rounding, const float* in, int64_t rows, int64_t cols, float* out) {
  const int64_t count = rows * cols;
  switch (rounding) {
    case RowRounding::kNone:
      std::copy_n(in, count, out);
      return;
    case RowRounding::kBf16:
      for (int64_t i = 0; i < count; ++i) out[i] = RoundToBf16(in[i]);
      return;
    case RowRounding::kFp8Group32:
      CHECK(cols % 32 == 0);
      for (int64_t i = 0; i < count; i += 32) RoundFp8Group(in + i, out + i);
      return;
    case RowRounding::kFp4Group16:
      CHECK(cols % 16 == 0);
      for (int64_t i = 0; i < count; i += 16) RoundFp4Group16(in + i, out + i);
      return;
    case RowRounding::kFp4Group32:
      CHECK(cols % 32 == 0);
      for (int64_t i = 0; i < count; i += 32) RoundFp4Group32(in + i, out + i);
      return;
    case RowRounding::kTernaryGroup16:
      CHECK(cols % 16 == 0);
      for (int64_t i = 0; i < count; i += 16) RoundTernaryGroup(in + i, out + i);
      return;
  }
}

}  // namespace minke::train
