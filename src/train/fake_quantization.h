// What storing does to values, inside the forward pass: rows rounded to the grids of the packed
// cache rows and activations (architecture.md 0.3), weights to those of the checkpoint. Gradients
// pass straight through: the derivative of rounding is taken as one, also where a value saturates.
#pragma once

#include <torch/torch.h>

#include "train/row_rounding.h"

namespace minke::train {

// x: [..., cols] float32.
torch::Tensor FakeQuantizeRows(const torch::Tensor& x, RowRounding rounding);

// How a parameter is stored.
enum class WeightGrid { kFloat, kBf16, kFp8Tiles, kFp8Rows, kFp4Rows };
// weight: [rows, cols], or a stack [n, rows, cols], or a vector (kBf16 alone).
torch::Tensor FakeQuantizeWeight(const torch::Tensor& weight, WeightGrid grid);

}  // namespace minke::train
