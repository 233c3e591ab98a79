// Norms, rotary embedding, hyper-connections, expert sums and the Engram gate: a few operations
// a value. Multiplies and adds stay separate, as in the reference twins.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, reference::kLanes>;
using D32 = hn::Rebind<int32_t, D>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = reference::kLanes;
constexpr int64_t kRopeChunk = 32;  // pairs whose angles are computed together

HWY_INLINE V RoundToBf16(V value) {
  const D32 d32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto sum = hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFF)), odd);
  const V rounded = hn::BitCast(D(), hn::ShiftLeft<16>(hn::ShiftRight<16>(sum)));
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(D(), hn::Set(d32, 0x7FC00000)), rounded);
}

HWY_INLINE void Store(V value, bool round_bf16, float* out) {
  hn::StoreU(round_bf16 ? RoundToBf16(value) : value, D(), out);
}

HWY_INLINE V LoadBf16(const uint16_t* words) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, words))));
}

// Canonical sum of squares.
HWY_INLINE float SquareSum(const float* x, int64_t n) {
  const D d;
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V value = hn::LoadU(d, x + i);
    sum = hn::MulAdd(value, value, sum);
  }
  alignas(32) std::array<float, kLanes> lanes;
  hn::Store(sum, d, lanes.data());
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] = std::fma(x[i], x[i], lanes[lane]);
  return reference::ReduceLanes(lanes.data());
}

void RmsNormImpl(View<const float> x, std::span<const uint16_t> weight, float eps, bool round_bf16,
                 View<float> y, ThreadPool& pool) {
  pool.ParallelFor(x.rows, reference::RowGrain(pool, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* in = x.Row(t);
      float* out = y.Row(t);
      const float mean = SquareSum(in, x.cols) / static_cast<float>(x.cols);
      const float r = reference::InverseSqrt(mean + eps);
      const V factor = hn::Set(D(), r);
      int64_t i = 0;
      for (; i + kLanes <= x.cols; i += kLanes) {
        const V scaled = hn::Mul(hn::LoadU(D(), in + i), factor);
        Store(hn::Mul(LoadBf16(&weight[i]), scaled), round_bf16, out + i);
      }
      for (; i < x.cols; ++i) {
        out[i] = reference::RoundIf(round_bf16, DecodeBf16(weight[i]) * (in[i] * r));
      }
    }
  });
}

// One head: pairs [a, b] become [a c - b s, b c + a s]. cosines and sines hold c, c and -s, s.
HWY_INLINE void RotateHead(float* head, const float* cosines, const float* sines, int64_t pairs,
                           bool round_bf16) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= 2 * pairs; i += kLanes) {
    const V value = hn::LoadU(d, head + i);
    const V swapped = hn::Shuffle2301(value);
    const V sum = hn::Add(hn::Mul(value, hn::LoadU(d, cosines + i)),
                          hn::Mul(swapped, hn::LoadU(d, sines + i)));
    Store(sum, round_bf16, head + i);
  }
  for (; i < 2 * pairs; i += 2) {
    const float a = head[i];
    const float b = head[i + 1];
    head[i] = reference::RoundIf(round_bf16, a * cosines[i] + b * sines[i]);
    head[i + 1] = reference::RoundIf(round_bf16, a * sines[i + 1] + b * cosines[i + 1]);
  }
}

void RopeImpl(View<float> x, int64_t head_dim, std::span<const int64_t> positions,
              const RopeTable& table, bool inverse, bool round_bf16, ThreadPool& pool) {
  const auto pairs = static_cast<int64_t>(table.inverse_frequencies.size());
  pool.ParallelFor(x.rows, reference::RowGrain(pool, x.cols), [&](int64_t begin, int64_t end, int) {
    alignas(32) std::array<float, 2 * kRopeChunk> cosines;
    alignas(32) std::array<float, 2 * kRopeChunk> sines;
    for (int64_t t = begin; t < end; ++t) {
      const auto position = static_cast<float>(positions[t]);
      for (int64_t first = 0; first < pairs; first += kRopeChunk) {
        const int64_t count = std::min(kRopeChunk, pairs - first);
        for (int64_t j = 0; j < count; ++j) {
          const float angle = position * table.inverse_frequencies[first + j];
          const float s = inverse ? -std::sin(angle) : std::sin(angle);
          cosines[2 * j] = cosines[2 * j + 1] = std::cos(angle);
          sines[2 * j] = -s;
          sines[2 * j + 1] = s;
        }
        float* head = x.Row(t) + head_dim - 2 * pairs + 2 * first;
        for (int64_t i = 0; i < x.cols / head_dim; ++i) {
          RotateHead(head + i * head_dim, cosines.data(), sines.data(), count, round_bf16);
        }
      }
    }
  });
}

void SquareSumsImpl(View<const float> x, std::span<float> sums, ThreadPool& pool) {
  pool.ParallelFor(x.rows, reference::RowGrain(pool, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) sums[t] = SquareSum(x.Row(t), x.cols);
  });
}

void HcCollapseImpl(View<const float> streams, View<const float> pre, bool round_bf16,
                    View<float> u, ThreadPool& pool) {
  const int64_t d = u.cols;
  pool.ParallelFor(u.rows, reference::RowGrain(pool, u.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* x = streams.Row(t);
      const float* weights = pre.Row(t);
      int64_t i = 0;
      for (; i + kLanes <= d; i += kLanes) {
        V sum = hn::Zero(D());
        for (int64_t c = 0; c < pre.cols; ++c) {
          sum = hn::Add(sum, hn::Mul(hn::Set(D(), weights[c]), hn::LoadU(D(), x + c * d + i)));
        }
        Store(sum, round_bf16, u.Row(t) + i);
      }
      for (; i < d; ++i) {
        float sum = 0.0f;
        for (int64_t c = 0; c < pre.cols; ++c) sum += weights[c] * x[c * d + i];
        u.Row(t)[i] = reference::RoundIf(round_bf16, sum);
      }
    }
  });
}

constexpr int64_t kHcMult = 4;  // of every released model; other counts take the scalar twin

void HcExpandImpl(View<const float> y, View<const float> post, View<const float> comb,
                  bool round_bf16, View<float> streams, ThreadPool& pool) {
  const int64_t d = y.cols;
  pool.ParallelFor(y.rows, reference::RowGrain(pool, y.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* x = streams.Row(t);
      const float* mix = comb.Row(t);
      const float* weights = post.Row(t);
      const float* added = y.Row(t);
      for (int64_t i = 0; i < d; i += kLanes) {
        V in[kHcMult];
#pragma GCC unroll 4
        for (int64_t j = 0; j < kHcMult; ++j) in[j] = hn::LoadU(D(), x + j * d + i);
        const V value = hn::LoadU(D(), added + i);
#pragma GCC unroll 4
        for (int64_t k = 0; k < kHcMult; ++k) {
          V sum = hn::Zero(D());
#pragma GCC unroll 4
          for (int64_t j = 0; j < kHcMult; ++j) {
            sum = hn::Add(sum, hn::Mul(hn::Set(D(), mix[j * kHcMult + k]), in[j]));
          }
          const V first = hn::Mul(hn::Set(D(), weights[k]), value);
          Store(hn::Add(first, sum), round_bf16, x + k * d + i);
        }
      }
    }
  });
}

void MoeCombineImpl(View<const float> routed, std::span<const int32_t> order,
                    std::span<const float> shared, bool round_bf16, std::span<float> y) {
  const auto n = static_cast<int64_t>(y.size());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V sum = hn::Zero(D());
    for (const int32_t slot : order) sum = hn::Add(sum, hn::LoadU(D(), routed.Row(slot) + i));
    Store(hn::Add(sum, hn::LoadU(D(), &shared[i])), round_bf16, &y[i]);
  }
  for (; i < n; ++i) {
    float sum = 0.0f;
    for (const int32_t slot : order) sum += routed.Row(slot)[i];
    y[i] = reference::RoundIf(round_bf16, sum + shared[i]);
  }
}

// Canonical sum of (x * omega) * key over one stream, omega = q_weight * k_weight.
HWY_INLINE float WeightedDot(const float* x, const float* key, const uint16_t* q_weight,
                             const uint16_t* k_weight, int64_t d) {
  V sum = hn::Zero(D());
  for (int64_t i = 0; i < d; i += kLanes) {
    const V omega = hn::Mul(LoadBf16(q_weight + i), LoadBf16(k_weight + i));
    const V weighted = hn::Mul(hn::LoadU(D(), x + i), omega);
    sum = hn::MulAdd(weighted, hn::LoadU(D(), key + i), sum);
  }
  alignas(32) std::array<float, kLanes> lanes;
  hn::Store(sum, D(), lanes.data());
  return reference::ReduceLanes(lanes.data());
}

void EngramWriteImpl(View<float> streams, View<const float> projected,
                     std::span<const uint16_t> q_weight, std::span<const uint16_t> k_weight,
                     std::span<const uint8_t> blocked, int64_t hc_mult, float norm_eps,
                     bool round_bf16, ThreadPool& pool) {
  const int64_t d = streams.cols / hc_mult;
  pool.ParallelFor(
      streams.rows, reference::RowGrain(pool, streams.cols), [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          const float* value = projected.Row(t) + hc_mult * d;
          for (int64_t c = 0; c < hc_mult; ++c) {
            float* x = streams.Row(t) + c * d;
            const float* key = projected.Row(t) + c * d;
            float gate = 0.0f;
            if (blocked.empty() || blocked[t] == 0) {
              const float dot =
                  WeightedDot(x, key, q_weight.data() + c * d, k_weight.data() + c * d, d);
              gate = reference::EngramGate(dot, SquareSum(x, d), SquareSum(key, d), d, norm_eps);
            }
            for (int64_t i = 0; i < d; i += kLanes) {
              const V added = hn::Mul(hn::Set(D(), gate), hn::LoadU(D(), value + i));
              Store(hn::Add(hn::LoadU(D(), x + i), added), round_bf16, x + i);
            }
          }
        }
      });
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(RmsNormImpl);
HWY_EXPORT(RopeImpl);
HWY_EXPORT(SquareSumsImpl);
HWY_EXPORT(HcCollapseImpl);
HWY_EXPORT(HcExpandImpl);
HWY_EXPORT(MoeCombineImpl);
HWY_EXPORT(EngramWriteImpl);

void RmsNorm(View<const float> x, std::span<const uint16_t> weight, float eps, bool round_bf16,
             View<float> y, ThreadPool& pool) {
  CHECK(static_cast<int64_t>(weight.size()) == x.cols && x.rows == y.rows && x.cols == y.cols);
  HWY_DYNAMIC_DISPATCH(RmsNormImpl)(x, weight, eps, round_bf16, y, pool);
}

void Rope(View<float> x, int64_t head_dim, std::span<const int64_t> positions,
          const RopeTable& table, bool inverse, bool round_bf16, ThreadPool& pool) {
  const auto pairs = static_cast<int64_t>(table.inverse_frequencies.size());
  CHECK(head_dim > 0 && x.cols % head_dim == 0 && 2 * pairs <= head_dim);
  CHECK(static_cast<int64_t>(positions.size()) == x.rows);
  HWY_DYNAMIC_DISPATCH(RopeImpl)(x, head_dim, positions, table, inverse, round_bf16, pool);
}

void HcMix(View<const float> streams, const Weight& fn, std::span<const float> base,
           std::span<const float> scale, int64_t sinkhorn_iters, float norm_eps, float hc_eps,
           View<float> pre, View<float> post, View<float> comb, ThreadPool& pool) {
  const int64_t hc_mult = reference::HcMult(fn.rows);
  CHECK(streams.cols == fn.cols && static_cast<int64_t>(base.size()) == fn.rows);
  CHECK(scale.size() == 3 && pre.cols == hc_mult && post.cols == hc_mult &&
        comb.cols == hc_mult * hc_mult);
  Matrix<float> products(streams.rows, fn.rows);
  std::vector<float> square_sums(streams.rows);
  Matmul(streams, fn, products.view(), pool);
  HWY_DYNAMIC_DISPATCH(SquareSumsImpl)(streams, square_sums, pool);
  for (int64_t t = 0; t < streams.rows; ++t) {
    const float mean = square_sums[t] / static_cast<float>(fn.cols);
    const float r = reference::InverseSqrt(mean + norm_eps);
    const std::span<float> m(products.view().Row(t), fn.rows);
    for (float& value : m) value *= r;
    reference::HcCoefficients(m, base, scale, hc_mult, sinkhorn_iters, hc_eps,
                              {pre.Row(t), post.Row(t), comb.Row(t)});
  }
}

void HcCollapse(View<const float> streams, View<const float> pre, bool round_bf16, View<float> u,
                ThreadPool& pool) {
  CHECK(streams.cols == pre.cols * u.cols && streams.rows == u.rows && pre.rows == u.rows);
  HWY_DYNAMIC_DISPATCH(HcCollapseImpl)(streams, pre, round_bf16, u, pool);
}

void HcExpand(View<const float> y, View<const float> post, View<const float> comb, bool round_bf16,
              View<float> streams, ThreadPool& pool) {
  if (post.cols != 4 || y.cols % reference::kLanes != 0) {
    reference::HcExpand(y, post, comb, round_bf16, streams, pool);
    return;
  }
  CHECK(streams.cols == 4 * y.cols && comb.cols == 16 && streams.rows == y.rows);
  HWY_DYNAMIC_DISPATCH(HcExpandImpl)(y, post, comb, round_bf16, streams, pool);
}

void MoeCombine(View<const float> routed, std::span<const int32_t> order,
                std::span<const float> shared, bool round_bf16, std::span<float> y) {
  CHECK(shared.size() == y.size());
  HWY_DYNAMIC_DISPATCH(MoeCombineImpl)(routed, order, shared, round_bf16, y);
}

void EngramWrite(View<float> streams, View<const float> projected,
                 std::span<const uint16_t> q_weight, std::span<const uint16_t> k_weight,
                 std::span<const uint8_t> blocked, int64_t hc_mult, float norm_eps, bool round_bf16,
                 ThreadPool& pool) {
  if (streams.cols / hc_mult % reference::kLanes != 0) {
    reference::EngramWrite(streams, projected, q_weight, k_weight, blocked, hc_mult, norm_eps,
                           round_bf16, pool);
    return;
  }
  CHECK(projected.cols == streams.cols / hc_mult * (hc_mult + 1));
  CHECK(static_cast<int64_t>(q_weight.size()) == streams.cols &&
        k_weight.size() == q_weight.size());
  CHECK(blocked.empty() || static_cast<int64_t>(blocked.size()) == streams.rows);
  HWY_DYNAMIC_DISPATCH(EngramWriteImpl)
  (streams, projected, q_weight, k_weight, blocked, hc_mult, norm_eps, round_bf16, pool);
}

}  // namespace minke::simd
#endif
