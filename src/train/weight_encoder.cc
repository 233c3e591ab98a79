#include "train/weight_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/numeric_formats.h"
#include "core/result.h"
#include "train/grid_rounding.h"

namespace minke::train {

namespace {

constexpr int64_t kTile = 32;                // rows and columns under one scale
constexpr float kZeroMagnitude = 0x1p-100f;  // not above it: a group is zero
constexpr float kE4M3Reach = 464.0f;         // the largest magnitude that rounds to 448
constexpr float kE2M1Reach = 7.0f;           // magnitudes below it round to at most 6
constexpr uint8_t kScaleOne = 127;           // UE8M0 of 1

// Which positions share a scale and how they are coded.
struct Grid {
  int64_t tile_rows;
  bool is_fp8;
};
constexpr Grid kFp8Tiles{kTile, true};
constexpr Grid kFp8Rows{1, true};
constexpr Grid kFp4Rows{1, false};

int64_t ScaleRows(const Grid& grid, int64_t rows) {
  return (rows + grid.tile_rows - 1) / grid.tile_rows;
}

void CheckShape(const Grid& grid, int64_t rows, int64_t cols, size_t values, size_t codes,
                size_t scales) {
  CHECK(rows >= 0 && cols >= 0 && cols % kTile == 0);
  CHECK(values == static_cast<size_t>(rows * cols));
  CHECK(codes == static_cast<size_t>(grid.is_fp8 ? rows * cols : rows * cols / 2));
  CHECK(scales == static_cast<size_t>(ScaleRows(grid, rows) * (cols / kTile)));
}

float GroupMaximum(const float* values, int64_t rows, int64_t stride) {
  float largest = 0.0f;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < kTile; ++i) {
      largest = std::max(largest, std::fabs(values[row * stride + i]));
    }
  }
  return largest;
}

// The smallest power of two that the rule in the header allows. REQUIRES: amax > kZeroMagnitude.
float ScaleOf(const Grid& grid, float amax) {
  const float limit = grid.is_fp8 ? kE4M3Reach : kE2M1Reach;
  int exponent = 0;
  std::frexp(amax / limit, &exponent);
  // amax / limit lies in [2^(exponent - 1), 2^exponent); its lower end is reached exactly.
  float scale = std::ldexp(1.0f, exponent - 1);
  const bool fits = grid.is_fp8 ? amax <= limit * scale : amax < limit * scale;
  if (!fits) scale *= 2.0f;
  return scale;
}

EncodedWeight Encode(const Grid& grid, std::span<const float> values, int64_t rows, int64_t cols) {
  EncodedWeight encoded;
  encoded.codes.resize(static_cast<size_t>(grid.is_fp8 ? rows * cols : rows * cols / 2));
  encoded.scales.resize(static_cast<size_t>(ScaleRows(grid, rows) * (cols / kTile)), kScaleOne);
  CheckShape(grid, rows, cols, values.size(), encoded.codes.size(), encoded.scales.size());
  for (int64_t first = 0; first < rows; first += grid.tile_rows) {
    const int64_t count = std::min(grid.tile_rows, rows - first);
    for (int64_t column = 0; column < cols; column += kTile) {
      const float* group = values.data() + first * cols + column;
      const float amax = GroupMaximum(group, count, cols);
      if (!(amax > kZeroMagnitude)) continue;
      const float scale = ScaleOf(grid, amax);
      encoded
          .scales[static_cast<size_t>(first / grid.tile_rows * (cols / kTile) + column / kTile)] =
          EncodeUe8m0(scale);
      for (int64_t row = 0; row < count; ++row) {
        for (int64_t i = 0; i < kTile; ++i) {
          const float scaled = group[row * cols + i] / scale;
          const auto at = static_cast<size_t>((first + row) * cols + column + i);
          if (grid.is_fp8) {
            encoded.codes[at] = EncodeE4M3(scaled);
          } else {
            encoded.codes[at / 2] |= static_cast<uint8_t>(EncodeE2M1(scaled) << (at % 2 * 4));
          }
        }
      }
    }
  }
  return encoded;
}

void Decode(const Grid& grid, std::span<const uint8_t> codes, std::span<const uint8_t> scales,
            int64_t rows, int64_t cols, std::span<float> values) {
  CheckShape(grid, rows, cols, values.size(), codes.size(), scales.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < cols; ++column) {
      const auto at = static_cast<size_t>(row * cols + column);
      const float scale = DecodeUe8m0(
          scales[static_cast<size_t>(row / grid.tile_rows * (cols / kTile) + column / kTile)]);
      const auto nibble = static_cast<uint8_t>((codes[grid.is_fp8 ? at : at / 2] >> (at % 2 * 4)));
      values[at] =
          (grid.is_fp8 ? DecodeE4M3(codes[at]) : DecodeE2M1(static_cast<uint8_t>(nibble & 0xF))) *
          scale;
    }
  }
}

void Round(const Grid& grid, const float* values, int64_t rows, int64_t cols, float* rounded) {
  CHECK(cols % kTile == 0);
  for (int64_t first = 0; first < rows; first += grid.tile_rows) {
    const int64_t count = std::min(grid.tile_rows, rows - first);
    for (int64_t column = 0; column < cols; column += kTile) {
      const int64_t offset = first * cols + column;
      const float amax = GroupMaximum(values + offset, count, cols);
      const bool is_zero = !(amax > kZeroMagnitude);
      const float scale = is_zero ? 1.0f : ScaleOf(grid, amax);
      const float inverse = is_zero ? 0.0f : 1.0f / scale;
      for (int64_t row = 0; row < count; ++row) {
        const float* in = values + offset + row * cols;
        float* out = rounded + offset + row * cols;
        if (is_zero) {
          std::fill_n(out, kTile, 0.0f);
        } else if (grid.is_fp8) {
          for (int64_t i = 0; i < kTile; ++i) out[i] = RoundToE4M3(in[i] * inverse) * scale;
        } else {
          for (int64_t i = 0; i < kTile; ++i) out[i] = RoundToE2M1(in[i] * inverse) * scale;
        }
      }
    }
  }
}

}  // namespace

EncodedWeight EncodeFp8Tiles(std::span<const float> values, int64_t rows, int64_t cols) {
  return Encode(kFp8Tiles, values, rows, cols);
}
EncodedWeight EncodeFp8Rows(std::span<const float> values, int64_t rows, int64_t cols) {
  return Encode(kFp8Rows, values, rows, cols);
}
EncodedWeight EncodeFp4Rows(std::span<const float> values, int64_t rows, int64_t cols) {
  return Encode(kFp4Rows, values, rows, cols);
}

void DecodeFp8Tiles(std::span<const uint8_t> codes, std::span<const uint8_t> scales, int64_t rows,
                    int64_t cols, std::span<float> values) {
  Decode(kFp8Tiles, codes, scales, rows, cols, values);
}
void DecodeFp8Rows(std::span<const uint8_t> codes, std::span<const uint8_t> scales, int64_t rows,
                   int64_t cols, std::span<float> values) {
  Decode(kFp8Rows, codes, scales, rows, cols, values);
}
void DecodeFp4Rows(std::span<const uint8_t> codes, std::span<const uint8_t> scales, int64_t rows,
                   int64_t cols, std::span<float> values) {
  Decode(kFp4Rows, codes, scales, rows, cols, values);
}

void RoundToFp8Tiles(const float* values, int64_t rows, int64_t cols, float* rounded) {
  Round(kFp8Tiles, values, rows, cols, rounded);
}
void RoundToFp8Rows(const float* values, int64_t rows, int64_t cols, float* rounded) {
  Round(kFp8Rows, values, rows, cols, rounded);
}
void RoundToFp4Rows(const float* values, int64_t rows, int64_t cols, float* rounded) {
  Round(kFp4Rows, values, rows, cols, rounded);
}

}  // namespace minke::train
