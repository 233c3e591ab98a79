// Rows rounded to the grids of the packed cache rows and of activations (architecture.md 0.3). No
// libtorch.
#pragma once

#include <cstdint>

namespace minke::train {

enum class RowRounding {
  kNone,
  kBf16,
  kFp8Group32,  // Q8: activations and window rows
  kFp4Group16,  // Q4K: compressed rows
  kFp4Group32,  // Q4I: index keys and queries
  // A control that is harsher than any format of the model: -a, 0 or +a under one scale a per 16
  // channels, a = the largest magnitude rounded to E4M3, a value of more than a / 2 becoming +-a.
  kTernaryGroup16,
};

// Rounds every row of `in` as EncodeRow() and DecodeRow() of core/numeric_formats would, the same
// bits. in, out: [rows, cols], may be the same; cols a multiple of the group. REQUIRES: finite.
void RoundRows(RowRounding rounding, const float* in, int64_t rows, int64_t cols, float* out);

}  // namespace minke::train
