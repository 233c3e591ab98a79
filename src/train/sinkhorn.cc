#include "train/sinkhorn.h"

#include <algorithm>
#include <vector>

#include "core/result.h"
#include "train/vector_math.h"

namespace minke::train {

namespace {

constexpr int64_t kLanes = 8;  // tokens at a time

// The iterations of eight tokens. Values of one step: [n * n][kLanes].
class SinkhornBlock {
 public:
  explicit SinkhornBlock(const MixParameters& parameters)
      : n_(parameters.hc_mult),
        eps_(parameters.eps),
        steps_(2 * parameters.iterations - 1),
        size_(n_ * n_ * kLanes),
        values_(static_cast<size_t>((steps_ + 2) * size_)),
        inverses_(static_cast<size_t>(steps_ * n_ * kLanes)) {}

  float* logits() { return values_.data(); }      // in
  const float* result() { return Step(steps_); }  // out
  float* gradient() { return gradient_.data(); }  // in: of the result; out: of the logits
  void PrepareGradient() { gradient_.resize(static_cast<size_t>(size_)); }

  void Forward() {
    Softmax(logits(), Step(0));
    for (int64_t step = 0; step < steps_; ++step) {
      // The softmax was the first row step; columns come first here, and last at the end.
      Normalise(step % 2 == 0, Step(step), Step(step + 1), Inverse(step));
    }
  }

  void Backward() {
    for (int64_t step = steps_ - 1; step >= 0; --step) {
      NormaliseBackward(step % 2 == 0, Step(step + 1), Inverse(step));
    }
    SoftmaxBackward(Step(0));
  }

 private:
  float* Step(int64_t step) { return values_.data() + (step + 1) * size_; }
  float* Inverse(int64_t step) { return inverses_.data() + step * n_ * kLanes; }

  void Softmax(const float* in, float* out) const {
    for (int64_t row = 0; row < n_; ++row) {
      float largest[kLanes];
      float sum[kLanes] = {};
      std::copy_n(in + row * n_ * kLanes, kLanes, largest);
      for (int64_t k = 1; k < n_; ++k) {
        const float* value = in + (row * n_ + k) * kLanes;
        for (int64_t l = 0; l < kLanes; ++l) largest[l] = std::max(largest[l], value[l]);
      }
      for (int64_t k = 0; k < n_; ++k) {
        const int64_t at = (row * n_ + k) * kLanes;
#pragma omp simd
        for (int64_t l = 0; l < kLanes; ++l) {
          const float e = VectorExp(in[at + l] - largest[l]);
          out[at + l] = e;
          sum[l] += e;
        }
      }
      for (int64_t k = 0; k < n_; ++k) {
        float* value = out + (row * n_ + k) * kLanes;
        for (int64_t l = 0; l < kLanes; ++l) value[l] = value[l] / sum[l] + eps_;
      }
    }
  }

  void Normalise(bool columns, const float* in, float* out, float* inverse) const {
    const int64_t along = (columns ? n_ : 1) * kLanes;
    const int64_t across = (columns ? 1 : n_) * kLanes;
    for (int64_t line = 0; line < n_; ++line) {
      float sum[kLanes] = {};
      for (int64_t i = 0; i < n_; ++i) {
        const float* value = in + line * across + i * along;
        for (int64_t l = 0; l < kLanes; ++l) sum[l] += value[l];
      }
      float* one_over = inverse + line * kLanes;
      for (int64_t l = 0; l < kLanes; ++l) one_over[l] = 1.0f / (sum[l] + eps_);
      for (int64_t i = 0; i < n_; ++i) {
        const int64_t at = line * across + i * along;
        for (int64_t l = 0; l < kLanes; ++l) out[at + l] = in[at + l] * one_over[l];
      }
    }
  }

  // Of y = c / s with s = sum(c) + eps: dc = (g - sum(g * y)) / s.
  void NormaliseBackward(bool columns, const float* out, const float* inverse) {
    const int64_t along = (columns ? n_ : 1) * kLanes;
    const int64_t across = (columns ? 1 : n_) * kLanes;
    for (int64_t line = 0; line < n_; ++line) {
      float sum[kLanes] = {};
      for (int64_t i = 0; i < n_; ++i) {
        const int64_t at = line * across + i * along;
        const float* g = gradient_.data() + at;
        for (int64_t l = 0; l < kLanes; ++l) sum[l] += g[l] * out[at + l];
      }
      const float* one_over = inverse + line * kLanes;
      for (int64_t i = 0; i < n_; ++i) {
        float* g = gradient_.data() + line * across + i * along;
        for (int64_t l = 0; l < kLanes; ++l) g[l] = (g[l] - sum[l]) * one_over[l];
      }
    }
  }

  // `out` is the softmax plus eps.
  void SoftmaxBackward(const float* out) {
    for (int64_t row = 0; row < n_; ++row) {
      float sum[kLanes] = {};
      for (int64_t k = 0; k < n_; ++k) {
        const int64_t at = (row * n_ + k) * kLanes;
        for (int64_t l = 0; l < kLanes; ++l) {
          sum[l] += gradient_[static_cast<size_t>(at + l)] * (out[at + l] - eps_);
        }
      }
      for (int64_t k = 0; k < n_; ++k) {
        const int64_t at = (row * n_ + k) * kLanes;
        float* g = gradient_.data() + at;
        for (int64_t l = 0; l < kLanes; ++l) g[l] = (out[at + l] - eps_) * (g[l] - sum[l]);
      }
    }
  }

  const int64_t n_;
  const float eps_;
  const int64_t steps_;
  const int64_t size_;
  std::vector<float> values_;    // logits, softmax, every step
  std::vector<float> inverses_;  // [steps][n][kLanes]
  std::vector<float> gradient_;
};

// Reads the logits of up to eight tokens into lanes; unused lanes are zero.
void LoadLogits(const MixParameters& parameters, const float* mixes, int64_t count, float* logits) {
  const int64_t n = parameters.hc_mult;
  const int64_t per_token = (2 + n) * n;
  std::fill_n(logits, n * n * kLanes, 0.0f);
  for (int64_t lane = 0; lane < count; ++lane) {
    for (int64_t i = 0; i < n * n; ++i) {
      logits[i * kLanes + lane] =
          mixes[lane * per_token + 2 * n + i] * parameters.scale[2] + parameters.base[2 * n + i];
    }
  }
}

}  // namespace

void MixCoefficients(const MixParameters& parameters, const float* mixes, int64_t tokens,
                     float* pre, float* post, float* comb) {
  CHECK(parameters.iterations >= 1);
  const int64_t n = parameters.hc_mult;
  const int64_t per_token = (2 + n) * n;
  SinkhornBlock block(parameters);
  for (int64_t first = 0; first < tokens; first += kLanes) {
    const int64_t count = std::min(kLanes, tokens - first);
    LoadLogits(parameters, mixes + first * per_token, count, block.logits());
    block.Forward();
    for (int64_t lane = 0; lane < count; ++lane) {
      const int64_t token = first + lane;
      const float* m = mixes + token * per_token;
      for (int64_t c = 0; c < n; ++c) {
        pre[token * n + c] =
            VectorSigmoid(m[c] * parameters.scale[0] + parameters.base[c]) + parameters.eps;
        post[token * n + c] =
            2.0f * VectorSigmoid(m[n + c] * parameters.scale[1] + parameters.base[n + c]);
      }
      for (int64_t i = 0; i < n * n; ++i) {
        comb[token * n * n + i] = block.result()[i * kLanes + lane];
      }
    }
  }
}

void MixCoefficientsBackward(const MixParameters& parameters, const float* mixes, int64_t tokens,
                             const float* dpre, const float* dpost, const float* dcomb,
                             float* dmixes, float* dbase, float* dscale) {
  const int64_t n = parameters.hc_mult;
  const int64_t per_token = (2 + n) * n;
  SinkhornBlock block(parameters);
  block.PrepareGradient();
  for (int64_t first = 0; first < tokens; first += kLanes) {
    const int64_t count = std::min(kLanes, tokens - first);
    LoadLogits(parameters, mixes + first * per_token, count, block.logits());
    block.Forward();
    std::fill_n(block.gradient(), n * n * kLanes, 0.0f);
    for (int64_t lane = 0; lane < count; ++lane) {
      for (int64_t i = 0; i < n * n; ++i) {
        block.gradient()[i * kLanes + lane] = dcomb[(first + lane) * n * n + i];
      }
    }
    block.Backward();
    for (int64_t lane = 0; lane < count; ++lane) {
      const int64_t token = first + lane;
      const float* m = mixes + token * per_token;
      float* dm = dmixes + token * per_token;
      const auto add = [&](int64_t i, int64_t kind, float dlogit) {
        dm[i] = dlogit * parameters.scale[kind];
        dbase[i] += dlogit;
        dscale[kind] += dlogit * m[i];
      };
      for (int64_t c = 0; c < n; ++c) {
        const float pre = VectorSigmoid(m[c] * parameters.scale[0] + parameters.base[c]);
        add(c, 0, dpre[token * n + c] * pre * (1.0f - pre));
        const float half = VectorSigmoid(m[n + c] * parameters.scale[1] + parameters.base[n + c]);
        add(n + c, 1, 2.0f * dpost[token * n + c] * half * (1.0f - half));
      }
      for (int64_t i = 0; i < n * n; ++i) {
        add(2 * n + i, 2, block.gradient()[i * kLanes + lane]);
      }
    }
  }
}

}  // namespace minke::train
