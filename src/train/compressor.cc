#include "train/compressor.h"

#include <array>

#include "core/result.h"
#include "train/vector_math.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRatioMax = 2;

// Calls body(first token of the group, first latent) as offsets of floats, for every group.
template <typename Body>
void ForEachGroup(int64_t batch, int64_t tokens, int64_t dim, int64_t ratio, const Body& body) {
  const int64_t groups = tokens / ratio;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t group = 0; group < groups; ++group) {
      body((b * tokens + group * ratio) * dim, (b * groups + group) * dim);
    }
  }
}

// Softmax weights of channel i of a group.
std::array<float, kRatioMax> Weights(const float* gate, int64_t dim, int64_t ratio, int64_t i) {
  std::array<float, kRatioMax> weights{};
  if (ratio == 1) return {1.0f};
  weights[0] = VectorSigmoid(gate[i] - gate[dim + i]);
  weights[1] = VectorSigmoid(gate[dim + i] - gate[i]);
  return weights;
}

struct PoolFunction : torch::autograd::Function<PoolFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& kv, const Tensor& gate,
                        int64_t ratio) {
    const int64_t dim = kv.size(2);
    Tensor pooled = torch::empty({kv.size(0), kv.size(1) / ratio, dim});
    ForEachGroup(kv.size(0), kv.size(1), dim, ratio, [&](int64_t tokens, int64_t latent) {
      const float* rows = kv.data_ptr<float>() + tokens;
      for (int64_t i = 0; i < dim; ++i) {
        const auto weights = Weights(gate.data_ptr<float>() + tokens, dim, ratio, i);
        float sum = 0.0f;
        for (int64_t r = 0; r < ratio; ++r)
          sum += weights[static_cast<size_t>(r)] * rows[r * dim + i];
        pooled.data_ptr<float>()[latent + i] = sum;
      }
    });
    context->save_for_backward({kv, gate});
    context->saved_data["ratio"] = ratio;
    return pooled;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const int64_t ratio = context->saved_data["ratio"].toInt();
    const Tensor dpooled = gradients[0].contiguous();
    const int64_t dim = saved[0].size(2);
    Tensor dkv = torch::zeros_like(saved[0]);
    Tensor dgate = torch::zeros_like(saved[1]);
    ForEachGroup(
        saved[0].size(0), saved[0].size(1), dim, ratio, [&](int64_t tokens, int64_t latent) {
          const float* rows = saved[0].data_ptr<float>() + tokens;
          for (int64_t i = 0; i < dim; ++i) {
            const auto weights = Weights(saved[1].data_ptr<float>() + tokens, dim, ratio, i);
            const float g = dpooled.data_ptr<float>()[latent + i];
            float mean = 0.0f;
            for (int64_t r = 0; r < ratio; ++r) {
              mean += weights[static_cast<size_t>(r)] * rows[r * dim + i];
            }
            for (int64_t r = 0; r < ratio; ++r) {
              const float weight = weights[static_cast<size_t>(r)];
              dkv.data_ptr<float>()[tokens + r * dim + i] = g * weight;
              dgate.data_ptr<float>()[tokens + r * dim + i] =
                  g * weight * (rows[r * dim + i] - mean);
            }
          }
        });
    return {dkv, dgate, Tensor()};
  }
};

}  // namespace

Tensor PoolGroups(const Tensor& kv, const Tensor& gate, int64_t ratio) {
  CHECK(ratio >= 1 && ratio <= kRatioMax);
  return PoolFunction::apply(kv.contiguous(), gate.contiguous(), ratio);
}

}  // namespace minke::train
