#include "train/rope.h"

#include <algorithm>
#include <cmath>

#include "core/result.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor Rotate(const Tensor& input, int64_t head_dim, const Tensor& table, bool inverse) {
  const Tensor x = input.contiguous();
  const int64_t rows = table.size(0);
  const int64_t pairs = table.size(1);
  const int64_t cols = x.size(-1);
  CHECK(x.size(1) == rows && cols % head_dim == 0 && 2 * pairs <= head_dim);
  Tensor out = torch::empty_like(x);
  const int64_t plain = head_dim - 2 * pairs;
  const float sign = inverse ? -1.0f : 1.0f;
  for (int64_t row = 0; row < x.size(0) * rows; ++row) {
    const float* angles = table.data_ptr<float>() + row % rows * 2 * pairs;
    for (int64_t head = 0; head < cols; head += head_dim) {
      const float* source = x.data_ptr<float>() + row * cols + head;
      float* target = out.data_ptr<float>() + row * cols + head;
      std::copy_n(source, plain, target);
      for (int64_t j = 0; j < pairs; ++j) {
        const float c = angles[2 * j];
        const float s = sign * angles[2 * j + 1];
        const float a = source[plain + 2 * j];
        const float b = source[plain + 2 * j + 1];
        target[plain + 2 * j] = a * c - b * s;
        target[plain + 2 * j + 1] = a * s + b * c;
      }
    }
  }
  return out;
}

// The gradient of a rotation is the rotation back.
struct RopeFunction : torch::autograd::Function<RopeFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t head_dim,
                        const Tensor& table, bool inverse) {
    context->save_for_backward({table});
    context->saved_data["head_dim"] = head_dim;
    context->saved_data["inverse"] = inverse;
    return Rotate(x, head_dim, table, inverse);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {Rotate(gradients[0], context->saved_data["head_dim"].toInt(),
                   context->get_saved_variables()[0], !context->saved_data["inverse"].toBool()),
            Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor MakeRopeTable(const std::vector<float>& inverse_frequencies, int64_t rows, int64_t step) {
  const auto pairs = static_cast<int64_t>(inverse_frequencies.size());
  Tensor table = torch::empty({rows, pairs, 2});
  float* out = table.data_ptr<float>();
  for (int64_t row = 0; row < rows; ++row) {
    const auto position = static_cast<float>(row * step);
    for (const float frequency : inverse_frequencies) {
      const float angle = position * frequency;  // rounded to float32 before cos and sin see it
      *out++ = std::cos(angle);
      *out++ = std::sin(angle);
    }
  }
  return table;
}

Tensor Rope(const Tensor& x, int64_t head_dim, const Tensor& table, bool inverse) {
  return RopeFunction::apply(x, head_dim, table, inverse);
}

}  // namespace minke::train
