#include "train/engram.h"

#include <algorithm>
#include <cmath>

#include "core/result.h"
#include "train/vector_math.h"
#include "train/weight_encoder.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr float kSmallestProduct = 1e-6f;  // under the root of the gate (8.4)

struct LookUpFunction : torch::autograd::Function<LookUpFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& table, const Tensor& rows,
                        bool quantize) {
    const int64_t dim = table.size(1);
    const int64_t count = rows.numel();
    Tensor out = torch::empty({rows.size(0), rows.size(1) * dim});
    const int64_t* ids = rows.data_ptr<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      DCHECK(ids[i] >= 0 && ids[i] < table.size(0));
      std::copy_n(table.data_ptr<float>() + ids[i] * dim, dim, out.data_ptr<float>() + i * dim);
    }
    if (quantize) RoundToFp8Rows(out.data_ptr<float>(), count, dim, out.data_ptr<float>());
    context->save_for_backward({rows});
    context->saved_data["table_rows"] = table.size(0);
    context->saved_data["dim"] = dim;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Tensor rows = context->get_saved_variables()[0];
    const Tensor dout = gradients[0].contiguous();
    const int64_t dim = context->saved_data["dim"].toInt();
    Tensor dtable = torch::zeros({context->saved_data["table_rows"].toInt(), dim});
    const int64_t* ids = rows.data_ptr<int64_t>();
    for (int64_t i = 0; i < rows.numel(); ++i) {
      AddScaled(1.0f, dout.data_ptr<float>() + i * dim, dim,
                dtable.data_ptr<float>() + ids[i] * dim);
    }
    return {dtable, Tensor(), Tensor()};
  }
};

// One token and stream.
struct GateInputs {
  const float* x;
  const float* key;
  const float* q;
  const float* k;
  int64_t d;
  float eps;
};

struct Gate {
  float product;  // sum of x * q * k * key
  float x_root;   // 1 / rms
  float key_root;
  float scaled;
  float gate;
};

Gate ComputeGate(const GateInputs& in) {
  float product = 0.0f;
#pragma omp simd reduction(+ : product)
  for (int64_t i = 0; i < in.d; ++i) product += in.x[i] * (in.q[i] * in.k[i]) * in.key[i];
  const auto count = static_cast<float>(in.d);
  const float x_root = 1.0f / std::sqrt(FastDot(in.x, in.x, in.d) / count + in.eps);
  const float key_root = 1.0f / std::sqrt(FastDot(in.key, in.key, in.d) / count + in.eps);
  const float scaled = product * (x_root * key_root) / std::sqrt(count);
  const float root = std::sqrt(std::max(std::fabs(scaled), kSmallestProduct));
  return {product, x_root, key_root, scaled, VectorSigmoid(std::copysign(root, scaled))};
}

struct GateGradients {
  float* x;  // all are added to
  float* key;
  float* q;
  float* k;
};

void GateBackward(const GateInputs& in, const Gate& gate, float dgate, const GateGradients& out) {
  if (std::fabs(gate.scaled) <= kSmallestProduct) return;
  const float slope = gate.gate * (1.0f - gate.gate) / (2.0f * std::sqrt(std::fabs(gate.scaled)));
  const auto count = static_cast<float>(in.d);
  const float dscaled = dgate * slope / std::sqrt(count);
  const float dproduct = dscaled * gate.x_root * gate.key_root;
  // d root / d x = -root^3 x / d; product * root folds into dproduct * product * root^2.
  const float x_along = -dproduct * gate.product * gate.x_root * gate.x_root / count;
  const float key_along = -dproduct * gate.product * gate.key_root * gate.key_root / count;
#pragma omp simd
  for (int64_t i = 0; i < in.d; ++i) {
    const float weight = in.q[i] * in.k[i];
    const float both = dproduct * in.x[i] * in.key[i];
    out.q[i] += both * in.k[i];
    out.k[i] += both * in.q[i];
    out.x[i] += dproduct * weight * in.key[i] + x_along * in.x[i];
    out.key[i] += dproduct * weight * in.x[i] + key_along * in.key[i];
  }
}

GateInputs InputsOf(const Tensor& streams, const Tensor& projected, const Tensor& q_weight,
                    const Tensor& k_weight, double eps, int64_t t, int64_t c) {
  const int64_t n = q_weight.size(0);
  const int64_t d = q_weight.size(1);
  return {streams.data_ptr<float>() + (t * n + c) * d,
          projected.data_ptr<float>() + (t * (n + 1) + c) * d,
          q_weight.data_ptr<float>() + c * d,
          k_weight.data_ptr<float>() + c * d,
          d,
          static_cast<float>(eps)};
}

struct WriteEngramFunction : torch::autograd::Function<WriteEngramFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& streams, const Tensor& projected,
                        const Tensor& q_weight, const Tensor& k_weight, double eps) {
    const int64_t n = q_weight.size(0);
    const int64_t d = q_weight.size(1);
    Tensor out = torch::empty_like(streams);
    for (int64_t t = 0; t < streams.size(0); ++t) {
      const float* value = projected.data_ptr<float>() + (t * (n + 1) + n) * d;
      for (int64_t c = 0; c < n; ++c) {
        const GateInputs in = InputsOf(streams, projected, q_weight, k_weight, eps, t, c);
        const float gate = ComputeGate(in).gate;
        float* target = out.data_ptr<float>() + (t * n + c) * d;
#pragma omp simd
        for (int64_t i = 0; i < d; ++i) target[i] = in.x[i] + gate * value[i];
      }
    }
    context->save_for_backward({streams, projected, q_weight, k_weight});
    context->saved_data["eps"] = eps;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const double eps = context->saved_data["eps"].toDouble();
    const int64_t n = saved[2].size(0);
    const int64_t d = saved[2].size(1);
    const Tensor dout = gradients[0].contiguous();
    Tensor dstreams = dout.clone();
    Tensor dprojected = torch::zeros_like(saved[1]);
    Tensor dq = torch::zeros_like(saved[2]);
    Tensor dk = torch::zeros_like(saved[3]);
    for (int64_t t = 0; t < dout.size(0); ++t) {
      const int64_t value_at = (t * (n + 1) + n) * d;
      for (int64_t c = 0; c < n; ++c) {
        const GateInputs in = InputsOf(saved[0], saved[1], saved[2], saved[3], eps, t, c);
        const Gate gate = ComputeGate(in);
        const float* g = dout.data_ptr<float>() + (t * n + c) * d;
        AddScaled(gate.gate, g, d, dprojected.data_ptr<float>() + value_at);
        const float dgate = FastDot(g, saved[1].data_ptr<float>() + value_at, d);
        GateBackward(in, gate, dgate,
                     {dstreams.data_ptr<float>() + (t * n + c) * d,
                      dprojected.data_ptr<float>() + (t * (n + 1) + c) * d,
                      dq.data_ptr<float>() + c * d, dk.data_ptr<float>() + c * d});
      }
    }
    return {dstreams, dprojected, dq, dk, Tensor()};
  }
};

}  // namespace

Tensor LookUpEngram(const Tensor& table, const Tensor& rows, bool quantize) {
  return LookUpFunction::apply(table, rows, quantize);
}

Tensor WriteEngram(const Tensor& streams, const Tensor& projected, const Tensor& q_weight,
                   const Tensor& k_weight, double norm_eps) {
  return WriteEngramFunction::apply(streams, projected.contiguous(), q_weight, k_weight, norm_eps);
}

}  // namespace minke::train
