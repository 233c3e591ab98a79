#include "train/fake_quantization.h"

#include <algorithm>

#include "train/grid_rounding.h"
#include "train/weight_encoder.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct StraightThroughRows : torch::autograd::Function<StraightThroughRows> {
  static Tensor forward(AutogradContext*, const Tensor& x, int64_t rounding) {
    const Tensor in = x.contiguous();
    Tensor out = torch::empty_like(in);
    const int64_t cols = in.size(-1);
    RoundRows(static_cast<RowRounding>(rounding), in.data_ptr<float>(), in.numel() / cols, cols,
              out.data_ptr<float>());
    return out;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0], Tensor()};
  }
};

void RoundMatrix(WeightGrid grid, const float* in, int64_t rows, int64_t cols, float* out) {
  switch (grid) {
    case WeightGrid::kFloat:
      std::copy_n(in, rows * cols, out);
      return;
    case WeightGrid::kBf16:
      for (int64_t i = 0; i < rows * cols; ++i) out[i] = RoundToBf16(in[i]);
      return;
    case WeightGrid::kFp8Tiles:
      return RoundToFp8Tiles(in, rows, cols, out);
    case WeightGrid::kFp8Rows:
      return RoundToFp8Rows(in, rows, cols, out);
    case WeightGrid::kFp4Rows:
      return RoundToFp4Rows(in, rows, cols, out);
  }
}

struct StraightThroughWeight : torch::autograd::Function<StraightThroughWeight> {
  static Tensor forward(AutogradContext*, const Tensor& weight, int64_t grid) {
    Tensor out = torch::empty_like(weight);
    const int64_t cols = weight.size(-1);
    const int64_t rows = weight.dim() == 1 ? 1 : weight.size(-2);
    const int64_t matrix = rows * cols;
    for (int64_t first = 0; first < weight.numel(); first += matrix) {
      RoundMatrix(static_cast<WeightGrid>(grid), weight.data_ptr<float>() + first, rows, cols,
                  out.data_ptr<float>() + first);
    }
    return out;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0], Tensor()};
  }
};

}  // namespace

Tensor FakeQuantizeRows(const Tensor& x, RowRounding rounding) {
  if (rounding == RowRounding::kNone) return x;
  return StraightThroughRows::apply(x, static_cast<int64_t>(rounding));
}

Tensor FakeQuantizeWeight(const Tensor& weight, WeightGrid grid) {
  if (grid == WeightGrid::kFloat) return weight;
  return StraightThroughWeight::apply(weight, static_cast<int64_t>(grid));
}

}  // namespace minke::train
