// Inputs and comparisons of the tests that hold a SIMD kernel against its scalar twin.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace minke {

// Names a test after the table of kernels that it runs.
inline std::string TableName(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

// A row-major matrix whose rows are `stride` apart and whose data begins `offset` floats after an
// aligned address, so that no kernel can rely on alignment.
class TestMatrix {
 public:
  TestMatrix(int64_t rows, int64_t cols, int64_t offset = 1, int64_t padding = 3)
      : rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        offset_(offset),
        data_(static_cast<size_t>(rows * stride_ + offset)) {}
  View<float> view() { return View<float>(data_.data() + offset_, rows_, cols_, stride_); }

  // Values of many magnitudes and both signs; one in `zero_in` is zero.
  void Randomize(std::mt19937& random, int zero_in = 16) {
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        const float scale = std::ldexp(1.0f, static_cast<int>(random() % 9) - 4);
        view().Row(r)[c] = random() % zero_in == 0 ? 0.0f : normal(random) * scale;
      }
    }
  }

 private:
  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  int64_t offset_;
  std::vector<float> data_;
};

inline ::testing::AssertionResult SameBits(View<const float> expected, View<const float> found) {
  for (int64_t r = 0; r < expected.rows; ++r) {
    for (int64_t c = 0; c < expected.cols; ++c) {
      const float a = expected.Row(r)[c];
      const float b = found.Row(r)[c];
      const bool same = std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
                        (std::isnan(a) && std::isnan(b));
      if (!same) {
        return ::testing::AssertionFailure()
               << "[" << r << ", " << c << "]: expected " << a << ", found " << b;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

inline bool AnyNonZero(View<const float> values) {
  for (int64_t r = 0; r < values.rows; ++r) {
    for (int64_t c = 0; c < values.cols; ++c) {
      if (values.Row(r)[c] != 0.0f) return true;
    }
  }
  return false;
}

// Random bytes and scales of a weight matrix. Codes are what a checkpoint may hold; NaN codes only
// where asked for.
struct TestWeight {
  TestWeight(WeightFormat format, int64_t rows, int64_t cols, std::mt19937& random,
             bool with_nan = false) {
    const int64_t tiles = (cols + 31) / 32;
    int64_t data_bytes = 0;
    int64_t scale_count = 0;
    switch (format) {
      case WeightFormat::kF32:
        data_bytes = rows * cols * 4;
        break;
      case WeightFormat::kBf16:
        data_bytes = rows * cols * 2;
        break;
      case WeightFormat::kFp8Tile32:
        data_bytes = rows * cols;
        scale_count = (rows + 31) / 32 * tiles;
        break;
      case WeightFormat::kFp4Group32:
        data_bytes = rows * cols / 2;
        scale_count = rows * tiles;
        break;
    }
    bytes.resize(data_bytes + kOffset);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFF);
    if (format == WeightFormat::kF32 || format == WeightFormat::kBf16) {
      FillFloats(format, rows * cols, random);
    } else if (format == WeightFormat::kFp8Tile32 && !with_nan) {
      for (std::byte& byte : bytes) {
        if ((byte & std::byte{0x7F}) == std::byte{0x7F}) byte = std::byte{0x33};
      }
    }
    scales.resize(scale_count);
    for (uint8_t& scale : scales) scale = static_cast<uint8_t>(110 + random() % 30);
    weight = {.format = format,
              .data = bytes.data() + kOffset,
              .scales = scales.empty() ? nullptr : scales.data(),
              .rows = rows,
              .cols = cols};
  }
  TestWeight(const TestWeight&) = delete;
  TestWeight& operator=(const TestWeight&) = delete;

  void FillFloats(WeightFormat format, int64_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) {
      const float value = normal(random);
      const uint16_t word = EncodeBf16(value);
      if (format == WeightFormat::kF32) std::memcpy(&bytes[kOffset + i * 4], &value, 4);
      if (format == WeightFormat::kBf16) std::memcpy(&bytes[kOffset + i * 2], &word, 2);
    }
  }

  static constexpr int64_t kOffset = 4;  // bytes; a checkpoint promises 8, a slice of it less
  std::vector<std::byte> bytes;
  std::vector<uint8_t> scales;
  Weight weight;
};

}  // namespace minke
