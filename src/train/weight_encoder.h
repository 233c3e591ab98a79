// Float matrices -> the checkpoint's stored weights and back (architecture.md 0.2, 2.3): E4M3 under
// one UE8M0 scale per 32 x 32 tile or per 1 x 32 group, E2M1 under one UE8M0 scale per 1 x 32.
//
// Scale rule. The checkpoint format leaves the choice of scales to its writer. This one takes the
// smallest power of two under which the largest magnitude still rounds to the format's largest
// value (448 or 6) instead of beyond it: amax / scale <= 464 for E4M3, < 7 for E2M1. What was
// encoded once is then encoded to the same codes and scales again, because a decoded group always
// holds a value that the next smaller scale could not reach; and values that some smallest scale
// represents exactly come back exactly. A group without any magnitude above 2^-100 is zero, with
// scale 1.
// REQUIRES everywhere: finite values, columns a multiple of 32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minke::train {

struct EncodedWeight {
  std::vector<uint8_t> codes;   // E4M3: [rows, cols]; E2M1: [rows, cols / 2], even column low
  std::vector<uint8_t> scales;  // UE8M0, row-major
};

// values: [rows, cols]. Scales: [ceil(rows / 32), cols / 32].
EncodedWeight EncodeFp8Tiles(std::span<const float> values, int64_t rows, int64_t cols);
// Scales: [rows, cols / 32]; rows of Engram tables.
EncodedWeight EncodeFp8Rows(std::span<const float> values, int64_t rows, int64_t cols);
// Scales: [rows, cols / 32]; routed experts.
EncodedWeight EncodeFp4Rows(std::span<const float> values, int64_t rows, int64_t cols);

// values: [rows, cols]; codes and scales as above.
void DecodeFp8Tiles(std::span<const uint8_t> codes, std::span<const uint8_t> scales, int64_t rows,
                    int64_t cols, std::span<float> values);
void DecodeFp8Rows(std::span<const uint8_t> codes, std::span<const uint8_t> scales, int64_t rows,
                   int64_t cols, std::span<float> values);
void DecodeFp4Rows(std::span<const uint8_t> codes, std::span<const uint8_t> scales, int64_t rows,
                   int64_t cols, std::span<float> values);

// decode(encode(values)) in one pass, the same bits. rounded may be values.
void RoundToFp8Tiles(const float* values, int64_t rows, int64_t cols, float* rounded);
void RoundToFp8Rows(const float* values, int64_t rows, int64_t cols, float* rounded);
void RoundToFp4Rows(const float* values, int64_t rows, int64_t cols, float* rounded);

}  // namespace minke::train
