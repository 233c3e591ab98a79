#include "kernels/reference.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/result.h"

namespace minke {

Weight Weight::Rows(int64_t begin, int64_t count) const {
  CHECK(begin >= 0 && count >= 0 && begin + count <= rows);
  Weight part = *this;
  part.rows = count;
  switch (format) {
    case WeightFormat::kF32:
      part.data += begin * cols * 4;
      break;
    case WeightFormat::kBf16:
      part.data += begin * cols * 2;
      break;
    case WeightFormat::kFp8Tile32:
      CHECK(begin % 32 == 0);
      part.data += begin * cols;
      part.scales += begin / 32 * ((cols + 31) / 32);
      break;
    case WeightFormat::kFp4Group32:
      part.data += begin * (cols / 2);
      part.scales += begin * (cols / 32);
      break;
  }
  return part;
}

namespace reference {

float Dot(const float* a, const float* b, int64_t n) {
  std::array<float, kLanes> lanes{};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] = std::fma(a[i], b[i], lanes[i % kLanes]);
  return ReduceLanes(lanes.data());
}

void DecodeFp4Codes(const Weight& w, int64_t n, float* out) {
  const std::byte* pairs = w.data + n * (w.cols / 2);
  for (int64_t i = 0; i < w.cols; ++i) {
    const auto pair = std::to_integer<uint8_t>(pairs[i / 2]);
    out[i] = DecodeE2M1(i % 2 == 0 ? pair & 0xF : pair >> 4);
  }
}

float Fp4Dot(const float* x, const float* codes, const uint8_t* scales, int64_t cols) {
  std::array<float, 2> sums{};
  for (int64_t g = 0; g < cols / kScaleGroup; ++g) {
    double exact = 0;
    for (int64_t i = g * kScaleGroup; i < (g + 1) * kScaleGroup; ++i) {
      exact += static_cast<double>(x[i]) * static_cast<double>(codes[i]);
    }
    float& sum = sums[g % 2];
    sum = std::fma(static_cast<float>(exact), DecodeUe8m0(scales[g]), sum);
  }
  return sums[0] + sums[1];
}

void DecodeWeightRow(const Weight& w, int64_t row, float* out) {
  const std::byte* data = w.data;
  for (int64_t i = 0; i < w.cols; ++i) {
    switch (w.format) {
      case WeightFormat::kF32:
        std::memcpy(&out[i], data + (row * w.cols + i) * 4, 4);
        break;
      case WeightFormat::kBf16: {
        uint16_t bits;
        std::memcpy(&bits, data + (row * w.cols + i) * 2, 2);
        out[i] = DecodeBf16(bits);
        break;
      }
      case WeightFormat::kFp8Tile32: {
        const int64_t tiles = (w.cols + 31) / 32;
        out[i] = DecodeE4M3(std::to_integer<uint8_t>(data[row * w.cols + i])) *
                 DecodeUe8m0(w.scales[row / 32 * tiles + i / 32]);
        break;
      }
      case WeightFormat::kFp4Group32: {
        const auto pair = std::to_integer<uint8_t>(data[row * (w.cols / 2) + i / 2]);
        out[i] = DecodeE2M1(i % 2 == 0 ? pair & 0xF : pair >> 4) *
                 DecodeUe8m0(w.scales[row * (w.cols / 32) + i / 32]);
        break;
      }
    }
  }
}

void Matmul(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  CHECK(x.cols == w.cols && y.cols == w.rows && x.rows == y.rows);
  pool.ParallelFor(w.rows, RowGrain(pool, x.rows * w.cols), [&](int64_t begin, int64_t end, int) {
    std::vector<float> decoded(w.cols);
    for (int64_t n = begin; n < end; ++n) {
      if (w.format == WeightFormat::kFp4Group32) {
        DecodeFp4Codes(w, n, decoded.data());
        const uint8_t* scales = w.scales + n * (w.cols / kScaleGroup);
        for (int64_t t = 0; t < x.rows; ++t) {
          y.Row(t)[n] = Fp4Dot(x.Row(t), decoded.data(), scales, w.cols);
        }
        continue;
      }
      DecodeWeightRow(w, n, decoded.data());
      for (int64_t t = 0; t < x.rows; ++t) y.Row(t)[n] = Dot(x.Row(t), decoded.data(), w.cols);
    }
  });
}

void RoundBf16Rows(View<float> values, ThreadPool& pool) {
  pool.ParallelFor(values.rows, RowGrain(pool, values.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = values.Row(t);
      for (int64_t i = 0; i < values.cols; ++i) row[i] = RoundBf16(row[i]);
    }
  });
}

namespace {

// Through the packed form, so that a quantized activation and a stored row cannot differ.
void QuantizeGroups(RowFormat format, View<const float> x, View<float> y, ThreadPool& pool) {
  CHECK(x.rows == y.rows && x.cols == y.cols && x.cols % kScaleGroup == 0);
  pool.ParallelFor(x.rows, RowGrain(pool, x.cols), [&](int64_t begin, int64_t end, int) {
    std::vector<std::byte> packed(RowBytes(format, x.cols));
    for (int64_t t = begin; t < end; ++t) {
      EncodeRow(format, {x.Row(t), static_cast<size_t>(x.cols)}, packed);
      DecodeRow(format, packed, {y.Row(t), static_cast<size_t>(x.cols)});
    }
  });
}

}  // namespace

void QuantizeQ8(View<const float> x, View<float> y, ThreadPool& pool) {
  QuantizeGroups(RowFormat::kFp8Group32, x, y, pool);
}

void QuantizeQ4I(View<float> values, ThreadPool& pool) {
  QuantizeGroups(RowFormat::kFp4Group32, values, values, pool);
}

void RmsNorm(View<const float> x, std::span<const uint16_t> weight, float eps, bool round_bf16,
             View<float> y, ThreadPool& pool) {
  CHECK(static_cast<int64_t>(weight.size()) == x.cols && x.rows == y.rows && x.cols == y.cols);
  pool.ParallelFor(x.rows, RowGrain(pool, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* in = x.Row(t);
      float* out = y.Row(t);
      const float mean = Dot(in, in, x.cols) / static_cast<float>(x.cols);
      const float r = InverseSqrt(mean + eps);
      for (int64_t i = 0; i < x.cols; ++i) {
        out[i] = RoundIf(round_bf16, DecodeBf16(weight[i]) * (in[i] * r));
      }
    }
  });
}

void Rope(View<float> x, int64_t head_dim, std::span<const int64_t> positions,
          const RopeTable& table, bool inverse, bool round_bf16, ThreadPool& pool) {
  const auto pairs = static_cast<int64_t>(table.inverse_frequencies.size());
  CHECK(head_dim > 0 && x.cols % head_dim == 0 && 2 * pairs <= head_dim);
  CHECK(static_cast<int64_t>(positions.size()) == x.rows);
  pool.ParallelFor(x.rows, RowGrain(pool, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const auto position = static_cast<float>(positions[t]);
      for (int64_t j = 0; j < pairs; ++j) {
        // The angle is rounded to float32 before cos and sin see it (architecture.md 0.6).
        const float angle = position * table.inverse_frequencies[j];
        const float c = std::cos(angle);
        const float s = inverse ? -std::sin(angle) : std::sin(angle);
        for (int64_t head = 0; head < x.cols / head_dim; ++head) {
          float* pair = x.Row(t) + (head + 1) * head_dim - 2 * pairs + 2 * j;
          const float a = pair[0];
          const float b = pair[1];
          pair[0] = RoundIf(round_bf16, a * c - b * s);
          pair[1] = RoundIf(round_bf16, a * s + b * c);
        }
      }
    }
  });
}

int64_t HcMult(int64_t coefficient_count) {
  int64_t hc_mult = 1;
  while ((2 + hc_mult) * hc_mult < coefficient_count) ++hc_mult;
  CHECK((2 + hc_mult) * hc_mult == coefficient_count);
  return hc_mult;
}

namespace {

// comb[j, k] /= sum over k (or over j) + eps. The sums run in ascending order.
void NormaliseComb(float* comb, int64_t n, float eps, bool columns) {
  const int64_t along = columns ? n : 1;
  const int64_t across = columns ? 1 : n;
  for (int64_t line = 0; line < n; ++line) {
    float sum = 0.0f;
    for (int64_t i = 0; i < n; ++i) sum += comb[line * across + i * along];
    for (int64_t i = 0; i < n; ++i) comb[line * across + i * along] /= sum + eps;
  }
}

}  // namespace

void HcCoefficients(std::span<const float> m, std::span<const float> base,
                    std::span<const float> scale, int64_t hc_mult, int64_t sinkhorn_iters,
                    float hc_eps, const HcOutputs& out) {
  const int64_t n = hc_mult;
  for (int64_t c = 0; c < n; ++c) {
    out.pre[c] = Sigmoid(m[c] * scale[0] + base[c]) + hc_eps;
    out.post[c] = 2.0f * Sigmoid(m[n + c] * scale[1] + base[n + c]);
  }
  for (int64_t j = 0; j < n; ++j) {
    float* row = out.comb + j * n;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = 2 * n + j * n + k;
      row[k] = m[i] * scale[2] + base[i];
    }
    const float largest = *std::max_element(row, row + n);
    float sum = 0.0f;
    for (int64_t k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - largest);
    for (int64_t k = 0; k < n; ++k) row[k] = row[k] / sum + hc_eps;
  }
  // The softmax was the first row step; every iteration ends on a column step.
  for (int64_t iteration = 0; iteration < sinkhorn_iters; ++iteration) {
    if (iteration > 0) NormaliseComb(out.comb, n, hc_eps, /*columns=*/false);
    NormaliseComb(out.comb, n, hc_eps, /*columns=*/true);
  }
}

void HcMix(View<const float> streams, const Weight& fn, std::span<const float> base,
           std::span<const float> scale, int64_t sinkhorn_iters, float norm_eps, float hc_eps,
           View<float> pre, View<float> post, View<float> comb, ThreadPool& pool) {
  const int64_t hc_mult = HcMult(fn.rows);
  CHECK(streams.cols == fn.cols && static_cast<int64_t>(base.size()) == fn.rows);
  CHECK(scale.size() == 3 && pre.cols == hc_mult && post.cols == hc_mult &&
        comb.cols == hc_mult * hc_mult);
  std::vector<float> decoded(fn.rows * fn.cols);
  for (int64_t n = 0; n < fn.rows; ++n) DecodeWeightRow(fn, n, &decoded[n * fn.cols]);
  pool.ParallelFor(streams.rows, RowGrain(pool, streams.cols),
                   [&](int64_t begin, int64_t end, int) {
                     std::vector<float> m(fn.rows);
                     for (int64_t t = begin; t < end; ++t) {
                       const float* x = streams.Row(t);
                       const float mean = Dot(x, x, fn.cols) / static_cast<float>(fn.cols);
                       const float r = InverseSqrt(mean + norm_eps);
                       // The product is taken first and scaled then (architecture.md 3.2).
                       for (int64_t n = 0; n < fn.rows; ++n)
                         m[n] = Dot(x, &decoded[n * fn.cols], fn.cols) * r;
                       HcCoefficients(m, base, scale, hc_mult, sinkhorn_iters, hc_eps,
                                      {pre.Row(t), post.Row(t), comb.Row(t)});
                     }
                   });
}

void HcCollapse(View<const float> streams, View<const float> pre, bool round_bf16, View<float> u,
                ThreadPool& pool) {
  const int64_t d = u.cols;
  CHECK(streams.cols == pre.cols * d && streams.rows == u.rows && pre.rows == u.rows);
  pool.ParallelFor(u.rows, RowGrain(pool, u.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < d; ++i) {
        float sum = 0.0f;
        for (int64_t c = 0; c < pre.cols; ++c) sum += pre.Row(t)[c] * streams.Row(t)[c * d + i];
        u.Row(t)[i] = RoundIf(round_bf16, sum);
      }
    }
  });
}

void HcExpand(View<const float> y, View<const float> post, View<const float> comb, bool round_bf16,
              View<float> streams, ThreadPool& pool) {
  const int64_t d = y.cols;
  const int64_t n = post.cols;
  CHECK(streams.cols == n * d && comb.cols == n * n && streams.rows == y.rows);
  pool.ParallelFor(y.rows, RowGrain(pool, y.cols), [&](int64_t begin, int64_t end, int) {
    std::vector<float> column(n);  // channel i of every stream before it is overwritten
    for (int64_t t = begin; t < end; ++t) {
      float* x = streams.Row(t);
      for (int64_t i = 0; i < d; ++i) {
        for (int64_t j = 0; j < n; ++j) column[j] = x[j * d + i];
        for (int64_t k = 0; k < n; ++k) {
          float sum = 0.0f;
          for (int64_t j = 0; j < n; ++j) sum += comb.Row(t)[j * n + k] * column[j];
          x[k * d + i] = RoundIf(round_bf16, post.Row(t)[k] * y.Row(t)[i] + sum);
        }
      }
    }
  });
}

void SwiGlu(View<const float> gate, View<const float> up, std::span<const float> row_weights,
            float limit, bool round_bf16, View<float> h, ThreadPool& pool) {
  CHECK(gate.rows == h.rows && up.rows == h.rows && gate.cols == h.cols && up.cols == h.cols);
  CHECK(row_weights.empty() || static_cast<int64_t>(row_weights.size()) == h.rows);
  pool.ParallelFor(h.rows, RowGrain(pool, h.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float weight = row_weights.empty() ? 1.0f : row_weights[t];
      for (int64_t i = 0; i < h.cols; ++i) {
        const float unit = GatedUnit(gate.Row(t)[i], up.Row(t)[i], limit);
        h.Row(t)[i] = RoundIf(round_bf16, weight * unit);
      }
    }
  });
}

void MoeCombine(View<const float> routed, std::span<const int32_t> order,
                std::span<const float> shared, bool round_bf16, std::span<float> y) {
  CHECK(shared.size() == y.size());
  for (size_t i = 0; i < y.size(); ++i) {
    float sum = 0.0f;
    for (const int32_t slot : order) sum += routed.Row(slot)[i];
    y[i] = RoundIf(round_bf16, sum + shared[i]);
  }
}

float EngramGate(float dot, float stream_square_sum, float key_square_sum, int64_t d, float eps) {
  const auto count = static_cast<float>(d);
  const float rho =
      InverseSqrt(stream_square_sum / count + eps) * InverseSqrt(key_square_sum / count + eps);
  const auto inverse_root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  const float scaled = dot * rho * inverse_root;
  return Sigmoid(std::copysign(std::sqrt(std::max(std::fabs(scaled), 1e-6f)), scaled));
}

void EngramWrite(View<float> streams, View<const float> projected,
                 std::span<const uint16_t> q_weight, std::span<const uint16_t> k_weight,
                 std::span<const uint8_t> blocked, int64_t hc_mult, float norm_eps, bool round_bf16,
                 ThreadPool& pool) {
  const int64_t d = streams.cols / hc_mult;
  CHECK(streams.cols == hc_mult * d && projected.cols == (hc_mult + 1) * d);
  CHECK(static_cast<int64_t>(q_weight.size()) == streams.cols &&
        k_weight.size() == q_weight.size());
  CHECK(blocked.empty() || static_cast<int64_t>(blocked.size()) == streams.rows);
  pool.ParallelFor(
      streams.rows, RowGrain(pool, streams.cols), [&](int64_t begin, int64_t end, int) {
        std::vector<float> weighted(d);
        for (int64_t t = begin; t < end; ++t) {
          const float* value = projected.Row(t) + hc_mult * d;
          for (int64_t c = 0; c < hc_mult; ++c) {
            float* x = streams.Row(t) + c * d;
            const float* key = projected.Row(t) + c * d;
            for (int64_t i = 0; i < d; ++i) {
              weighted[i] =
                  x[i] * (DecodeBf16(q_weight[c * d + i]) * DecodeBf16(k_weight[c * d + i]));
            }
            const bool is_blocked = !blocked.empty() && blocked[t] != 0;
            const float gate = is_blocked ? 0.0f
                                          : EngramGate(Dot(weighted.data(), key, d), Dot(x, x, d),
                                                       Dot(key, key, d), d, norm_eps);
            for (int64_t i = 0; i < d; ++i) x[i] = RoundIf(round_bf16, x[i] + gate * value[i]);
          }
        }
      });
}

}  // namespace reference
}  // namespace minke
