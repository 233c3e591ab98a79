#include "train/rms_norm.h"

#include <cmath>

#include "train/vector_math.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        double eps) {
    const Tensor x = input.contiguous();
    const int64_t n = x.size(-1);
    const int64_t rows = x.numel() / n;
    Tensor y = torch::empty_like(x);
    Tensor inverse = torch::empty({rows});
    for (int64_t row = 0; row < rows; ++row) {
      inverse.data_ptr<float>()[row] =
          RmsNormRow(x.data_ptr<float>() + row * n, weight.data_ptr<float>(), n,
                     static_cast<float>(eps), y.data_ptr<float>() + row * n);
    }
    context->save_for_backward({x, weight, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor dy = gradients[0].contiguous();
    const int64_t n = saved[0].size(-1);
    const int64_t rows = saved[0].numel() / n;
    Tensor dx = torch::empty_like(saved[0]);
    Tensor dweight = torch::zeros_like(saved[1]);
    for (int64_t row = 0; row < rows; ++row) {
      RmsNormRowBackward(saved[0].data_ptr<float>() + row * n, saved[1].data_ptr<float>(),
                         dy.data_ptr<float>() + row * n, n, saved[2].data_ptr<float>()[row],
                         dx.data_ptr<float>() + row * n, dweight.data_ptr<float>());
    }
    return {dx, dweight, Tensor()};
  }
};

}  // namespace

float RmsNormRow(const float* x, const float* weight, int64_t n, float eps, float* y) {
  const float mean = FastDot(x, x, n) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = weight[i] * (x[i] * inverse);
  return inverse;
}

void RmsNormRowBackward(const float* x, const float* weight, const float* dy, int64_t n,
                        float inverse, float* dx, float* dweight) {
  float projection = 0.0f;
#pragma omp simd reduction(+ : projection)
  for (int64_t i = 0; i < n; ++i) projection += dy[i] * weight[i] * x[i];
  const float along = projection * inverse * inverse / static_cast<float>(n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    dweight[i] += dy[i] * (x[i] * inverse);
    dx[i] = inverse * (dy[i] * weight[i] - x[i] * along);
  }
}

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  return RmsNormFunction::apply(x, weight, eps);
}

}  // namespace minke::train
