#include "train/hyper_connections.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/result.h"
#include "train/gemm.h"
#include "train/rms_norm.h"
#include "train/sinkhorn.h"
#include "train/vector_math.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// u = sum over c of pre[c] * x[c]. x: [n, d].
void CollapseRow(const float* x, const float* pre, int64_t n, int64_t d, float* u) {
  for (int64_t i = 0; i < d; ++i) u[i] = pre[0] * x[i];
  for (int64_t c = 1; c < n; ++c) AddScaled(pre[c], x + c * d, d, u);
}

// Norm of the collapsed rows; returns the inverse roots [N].
Tensor CollapseNormForward(const Tensor& streams, const Tensor& pre, const Tensor& norm, double eps,
                           Tensor& u) {
  const int64_t tokens = streams.size(0);
  const int64_t n = pre.size(1);
  const int64_t d = streams.size(1) / n;
  u = torch::empty({tokens, d});
  Tensor inverse = torch::empty({tokens});
  std::vector<float> collapsed(static_cast<size_t>(d));
  for (int64_t t = 0; t < tokens; ++t) {
    CollapseRow(streams.data_ptr<float>() + t * n * d, pre.data_ptr<float>() + t * n, n, d,
                collapsed.data());
    inverse.data_ptr<float>()[t] = RmsNormRow(collapsed.data(), norm.data_ptr<float>(), d,
                                              static_cast<float>(eps), u.data_ptr<float>() + t * d);
  }
  return inverse;
}

struct CollapseGradients {
  Tensor streams;  // added to
  Tensor pre;
  Tensor norm;
};

void CollapseNormBackward(const Tensor& streams, const Tensor& pre, const Tensor& norm,
                          const Tensor& inverse, const Tensor& du, CollapseGradients& gradients) {
  const int64_t tokens = streams.size(0);
  const int64_t n = pre.size(1);
  const int64_t d = streams.size(1) / n;
  std::vector<float> collapsed(static_cast<size_t>(d));
  std::vector<float> dcollapsed(static_cast<size_t>(d));
  for (int64_t t = 0; t < tokens; ++t) {
    const float* x = streams.data_ptr<float>() + t * n * d;
    const float* weights = pre.data_ptr<float>() + t * n;
    CollapseRow(x, weights, n, d, collapsed.data());
    RmsNormRowBackward(collapsed.data(), norm.data_ptr<float>(), du.data_ptr<float>() + t * d, d,
                       inverse.data_ptr<float>()[t], dcollapsed.data(),
                       gradients.norm.data_ptr<float>());
    for (int64_t c = 0; c < n; ++c) {
      gradients.pre.data_ptr<float>()[t * n + c] = FastDot(dcollapsed.data(), x + c * d, d);
      AddScaled(weights[c], dcollapsed.data(), d,
                gradients.streams.data_ptr<float>() + (t * n + c) * d);
    }
  }
}

MixParameters ParametersOf(const HyperConnectionOptions& options, const Tensor& base,
                           const Tensor& scale) {
  return {.hc_mult = options.hc_mult,
          .iterations = options.sinkhorn_iters,
          .eps = static_cast<float>(options.hc_eps),
          .base = base.data_ptr<float>(),
          .scale = scale.data_ptr<float>()};
}

struct ReadFunction : torch::autograd::Function<ReadFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& streams, const Tensor& pre,
                               const Tensor& fn, const Tensor& base, const Tensor& scale,
                               const Tensor& norm, int64_t iterations, double norm_eps,
                               double hc_eps) {
    const int64_t tokens = streams.size(0);
    const int64_t width = streams.size(1);
    const int64_t n = pre.size(1);
    const int64_t count = fn.size(0);
    Tensor mixes = torch::empty({tokens, count});
    GemmNt(tokens, count, width, {streams.data_ptr<float>(), width}, {fn.data_ptr<float>(), width},
           0.0f, {mixes.data_ptr<float>(), count});
    Tensor roots = torch::empty({tokens});  // 1 / rms of the whole row of streams
    for (int64_t t = 0; t < tokens; ++t) {
      const float* x = streams.data_ptr<float>() + t * width;
      const float mean = FastDot(x, x, width) / static_cast<float>(width);
      const float root = 1.0f / std::sqrt(mean + static_cast<float>(norm_eps));
      roots.data_ptr<float>()[t] = root;
      float* m = mixes.data_ptr<float>() + t * count;
      for (int64_t i = 0; i < count; ++i) m[i] *= root;
    }
    const HyperConnectionOptions options{n, iterations, norm_eps, hc_eps};
    Tensor next_pre = torch::empty({tokens, n});
    Tensor post = torch::empty({tokens, n});
    Tensor comb = torch::empty({tokens, n * n});
    MixCoefficients(ParametersOf(options, base, scale), mixes.data_ptr<float>(), tokens,
                    next_pre.data_ptr<float>(), post.data_ptr<float>(), comb.data_ptr<float>());
    Tensor u;
    const Tensor inverse = CollapseNormForward(streams, pre, norm, norm_eps, u);
    context->save_for_backward({streams, pre, fn, base, scale, norm, mixes, roots, inverse});
    context->saved_data["iterations"] = iterations;
    context->saved_data["hc_eps"] = hc_eps;
    return {u, next_pre, post, comb};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& streams = saved[0];
    const Tensor& pre = saved[1];
    const Tensor& fn = saved[2];
    const Tensor& mixes = saved[6];
    const int64_t tokens = streams.size(0);
    const int64_t width = streams.size(1);
    const int64_t count = fn.size(0);
    const HyperConnectionOptions options{pre.size(1), context->saved_data["iterations"].toInt(), 0,
                                         context->saved_data["hc_eps"].toDouble()};
    for (Tensor& gradient : gradients) gradient = gradient.contiguous();
    Tensor dmixes = torch::empty_like(mixes);
    Tensor dbase = torch::zeros_like(saved[3]);
    Tensor dscale = torch::zeros_like(saved[4]);
    MixCoefficientsBackward(ParametersOf(options, saved[3], saved[4]), mixes.data_ptr<float>(),
                            tokens, gradients[1].data_ptr<float>(), gradients[2].data_ptr<float>(),
                            gradients[3].data_ptr<float>(), dmixes.data_ptr<float>(),
                            dbase.data_ptr<float>(), dscale.data_ptr<float>());
    // mixes = (x fn^T) * root; by the root: d root = sum(dmixes * mixes) / root, and d root / d x =
    // -root^3 * x / width.
    std::vector<float> along(static_cast<size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      const float root = saved[7].data_ptr<float>()[t];
      float* dm = dmixes.data_ptr<float>() + t * count;
      const float* m = mixes.data_ptr<float>() + t * count;
      float sum = 0.0f;
      for (int64_t i = 0; i < count; ++i) {
        sum += dm[i] * m[i];
        dm[i] *= root;
      }
      along[static_cast<size_t>(t)] = -sum * root * root / static_cast<float>(width);
    }
    Tensor dfn = torch::empty_like(fn);
    GemmTn(count, width, tokens, {dmixes.data_ptr<float>(), count},
           {streams.data_ptr<float>(), width}, 0.0f, {dfn.data_ptr<float>(), width});
    CollapseGradients collapse{torch::empty_like(streams), torch::empty_like(pre),
                               torch::zeros_like(saved[5])};
    GemmNn(tokens, width, count, {dmixes.data_ptr<float>(), count}, {fn.data_ptr<float>(), width},
           0.0f, {collapse.streams.data_ptr<float>(), width});
    for (int64_t t = 0; t < tokens; ++t) {
      AddScaled(along[static_cast<size_t>(t)], streams.data_ptr<float>() + t * width, width,
                collapse.streams.data_ptr<float>() + t * width);
    }
    CollapseNormBackward(streams, pre, saved[5], saved[8], gradients[0], collapse);
    return {collapse.streams, collapse.pre, dfn,      dbase,   dscale,
            collapse.norm,    Tensor(),     Tensor(), Tensor()};
  }
};

struct CollapseFunction : torch::autograd::Function<CollapseFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& streams, const Tensor& pre,
                        const Tensor& norm, double eps) {
    Tensor u;
    const Tensor inverse = CollapseNormForward(streams, pre, norm, eps, u);
    context->save_for_backward({streams, pre, norm, inverse});
    return u;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    CollapseGradients collapse{torch::zeros_like(saved[0]), torch::empty_like(saved[1]),
                               torch::zeros_like(saved[2])};
    CollapseNormBackward(saved[0], saved[1], saved[2], saved[3], gradients[0].contiguous(),
                         collapse);
    return {collapse.streams, collapse.pre, collapse.norm, Tensor()};
  }
};

// kStreams: hc_mult where it is known at compile time, else 0.
template <int64_t kStreams>
void WriteForward(const float* streams, const float* y, const float* post, const float* comb,
                  int64_t tokens, int64_t streams_count, int64_t d, float* out) {
  const int64_t n = kStreams > 0 ? kStreams : streams_count;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* x = streams + t * n * d;
    for (int64_t k = 0; k < n; ++k) {
      float* target = out + (t * n + k) * d;
      const float* weights = comb + t * n * n + k;
      const float own = post[t * n + k];
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) {
        float sum = own * y[t * d + i];
        for (int64_t j = 0; j < n; ++j) sum += weights[j * n] * x[j * d + i];
        target[i] = sum;
      }
    }
  }
}

struct WriteGradients {
  float* streams;
  float* y;
  float* post;
  float* comb;
};

template <int64_t kStreams>
void WriteBackward(const float* streams, const float* y, const float* post, const float* comb,
                   const float* gradient, int64_t tokens, int64_t streams_count, int64_t d,
                   const WriteGradients& out) {
  const int64_t n = kStreams > 0 ? kStreams : streams_count;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* x = streams + t * n * d;
    const float* g = gradient + t * n * d;
    const float* weights = comb + t * n * n;
    const float* own = post + t * n;
    float* dy = out.y + t * d;
#pragma omp simd
    for (int64_t i = 0; i < d; ++i) {
      float sum = 0.0f;
      for (int64_t k = 0; k < n; ++k) sum += own[k] * g[k * d + i];
      dy[i] = sum;
    }
    for (int64_t k = 0; k < n; ++k) out.post[t * n + k] = FastDot(g + k * d, y + t * d, d);
    for (int64_t j = 0; j < n; ++j) {
      float* dx = out.streams + (t * n + j) * d;
      const float* row = weights + j * n;
#pragma omp simd
      for (int64_t i = 0; i < d; ++i) {
        float sum = 0.0f;
        for (int64_t k = 0; k < n; ++k) sum += row[k] * g[k * d + i];
        dx[i] = sum;
      }
      for (int64_t k = 0; k < n; ++k) {
        out.comb[t * n * n + j * n + k] = FastDot(x + j * d, g + k * d, d);
      }
    }
  }
}

struct WriteFunction : torch::autograd::Function<WriteFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& streams, const Tensor& y,
                        const Tensor& post, const Tensor& comb) {
    const int64_t n = post.size(1);
    Tensor out = torch::empty_like(streams);
    const auto run = n == 4 ? WriteForward<4> : n == 2 ? WriteForward<2> : WriteForward<0>;
    run(streams.data_ptr<float>(), y.data_ptr<float>(), post.data_ptr<float>(),
        comb.data_ptr<float>(), y.size(0), n, y.size(1), out.data_ptr<float>());
    context->save_for_backward({streams, y, post, comb});
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor gradient = gradients[0].contiguous();
    variable_list out;
    for (const Tensor& tensor : saved) out.push_back(torch::empty_like(tensor));
    const int64_t n = saved[2].size(1);
    const auto run = n == 4 ? WriteBackward<4> : n == 2 ? WriteBackward<2> : WriteBackward<0>;
    run(saved[0].data_ptr<float>(), saved[1].data_ptr<float>(), saved[2].data_ptr<float>(),
        saved[3].data_ptr<float>(), gradient.data_ptr<float>(), saved[1].size(0), n,
        saved[1].size(1),
        {out[0].data_ptr<float>(), out[1].data_ptr<float>(), out[2].data_ptr<float>(),
         out[3].data_ptr<float>()});
    return out;
  }
};

}  // namespace

HyperConnectionRead ReadStreams(const Tensor& streams, const Tensor& pre,
                                const HyperConnectionTensors& tensors, const Tensor& norm,
                                const HyperConnectionOptions& options) {
  const variable_list out =
      ReadFunction::apply(streams, pre, tensors.fn, tensors.base, tensors.scale, norm,
                          options.sinkhorn_iters, options.norm_eps, options.hc_eps);
  return {out[0], out[1], out[2], out[3]};
}

Tensor CollapseAndNorm(const Tensor& streams, const Tensor& pre, const Tensor& norm, double eps) {
  return CollapseFunction::apply(streams, pre, norm, eps);
}

Tensor WriteStreams(const Tensor& streams, const Tensor& y, const Tensor& post,
                    const Tensor& comb) {
  return WriteFunction::apply(streams, y.contiguous(), post, comb);
}

}  // namespace minke::train
