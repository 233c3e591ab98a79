#include "train/attention_blocks.h"

#include <algorithm>
#include <cmath>

#include "train/gemm.h"
#include "train/vector_math.h"

namespace minke::train {

namespace {

// Which columns of a query's row are seen.
struct Seen {
  int64_t window_begin;
  int64_t window_end;
  int64_t compressed_end;  // columns from key_count() on
};

Seen SeenBy(const AttentionBlock& block, int64_t position) {
  int64_t oldest = std::max<int64_t>(0, position - block.window + 1);
  if (block.window_from >= 0 && position >= block.window_from) {
    oldest = std::max(oldest, block.window_from);
  }
  Seen seen{oldest - block.key_first(), position + 1 - block.key_first(), block.visible(position)};
  if (block.slots > 0) {
    const int32_t* list = block.selected + position * block.slots;
    seen.compressed_end = 0;
    while (seen.compressed_end < block.slots && list[seen.compressed_end] >= 0) {
      ++seen.compressed_end;
    }
  }
  return seen;
}

float ScaleOf(const AttentionBlock& block) {
  return static_cast<float>(std::pow(static_cast<double>(block.head_dim), -0.5));
}

float Largest(const float* values, int64_t n, float largest) {
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

float Exponentials(float* values, int64_t n, float scale, float largest) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const float e = VectorExp(values[i] * scale - largest);
    values[i] = e;
    sum += e;
  }
  return sum;
}

void Scale(float* values, int64_t n, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) values[i] *= factor;
}

// Scores -> probabilities of one row in place; returns that of the sink. The sink takes part in
// the maximum here, which changes nothing but the range.
float SoftmaxRow(float* row, const Seen& seen, int64_t keys, int64_t columns, float scale,
                 float sink) {
  float* window = row + seen.window_begin;
  const int64_t window_count = seen.window_end - seen.window_begin;
  float* compressed = row + keys;
  const float lowest = -1e30f;
  float largest = Largest(window, window_count, lowest);
  largest = Largest(compressed, seen.compressed_end, largest);
  largest = std::max(largest * scale, sink);
  float sum = Exponentials(window, window_count, scale, largest);
  sum += Exponentials(compressed, seen.compressed_end, scale, largest);
  const float sink_part = std::exp(sink - largest);
  const float inverse = 1.0f / (sum + sink_part);
  std::fill(row, window, 0.0f);
  Scale(window, window_count, inverse);
  std::fill(window + window_count, compressed, 0.0f);
  Scale(compressed, seen.compressed_end, inverse);
  std::fill(compressed + seen.compressed_end, row + columns, 0.0f);
  return sink_part * inverse;
}

// Products with listed rows, of one query: y[head][slot] = x[head] . row(slot).
void ListProducts(const AttentionBlock& block, int64_t position, int64_t used, const float* x,
                  float* y, int64_t stride) {
  const int64_t dim = block.head_dim;
  const int32_t* list = block.selected + position * block.slots;
  for (int64_t slot = 0; slot < used; ++slot) {
    const float* key = block.compressed + list[slot] * dim;
    for (int64_t head = 0; head < block.heads; ++head) {
      y[head * stride + slot] = FastDot(x + head * dim, key, dim);
    }
  }
}

// Sums over listed rows, of one query: y[head] += sum over slots of w[head][slot] * row(slot).
void ListSums(const AttentionBlock& block, int64_t position, int64_t used, const float* w,
              int64_t stride, float* y) {
  const int64_t dim = block.head_dim;
  const int32_t* list = block.selected + position * block.slots;
  for (int64_t head = 0; head < block.heads; ++head) {
    for (int64_t slot = 0; slot < used; ++slot) {
      AddScaled(w[head * stride + slot], block.compressed + list[slot] * dim, dim, y + head * dim);
    }
  }
}

// The gradient of listed rows: row(slot) += w[head][slot] * x[head].
void ListScatter(const AttentionBlock& block, int64_t position, int64_t used, const float* w,
                 int64_t stride, const float* x, float* rows) {
  const int64_t dim = block.head_dim;
  const int32_t* list = block.selected + position * block.slots;
  for (int64_t slot = 0; slot < used; ++slot) {
    for (int64_t head = 0; head < block.heads; ++head) {
      AddScaled(w[head * stride + slot], x + head * dim, dim, rows + list[slot] * dim);
    }
  }
}

// x: rows of the block, [count * heads, head_dim]; y: [count * heads, columns()].
void KeyProducts(const AttentionBlock& block, const float* x, float* y) {
  const int64_t dim = block.head_dim;
  const int64_t stride = block.columns();
  const int64_t keys = block.key_count();
  GemmNt(block.row_count(), keys, dim, {x, dim}, {block.window_rows + block.key_first() * dim, dim},
         0.0f, {y, stride});
  if (block.slots == 0) {
    GemmNt(block.row_count(), block.compressed_count(), dim, {x, dim}, {block.compressed, dim},
           0.0f, {y + keys, stride});
    return;
  }
  for (int64_t t = 0; t < block.count; ++t) {
    const int64_t used = SeenBy(block, block.first + t).compressed_end;
    ListProducts(block, block.first + t, used, x + t * block.heads * dim,
                 y + t * block.heads * stride + keys, stride);
  }
}

// w: [count * heads, columns()]; y: [count * heads, head_dim], overwritten.
void KeySums(const AttentionBlock& block, const float* w, float* y) {
  const int64_t dim = block.head_dim;
  const int64_t stride = block.columns();
  const int64_t keys = block.key_count();
  GemmNn(block.row_count(), dim, keys, {w, stride},
         {block.window_rows + block.key_first() * dim, dim}, 0.0f, {y, dim});
  if (block.slots == 0) {
    GemmNn(block.row_count(), dim, block.compressed_count(), {w + keys, stride},
           {block.compressed, dim}, 1.0f, {y, dim});
    return;
  }
  for (int64_t t = 0; t < block.count; ++t) {
    const int64_t used = SeenBy(block, block.first + t).compressed_end;
    ListSums(block, block.first + t, used, w + t * block.heads * stride + keys, stride,
             y + t * block.heads * dim);
  }
}

// Adds w^T x to the gradients of the keys.
void KeyScatter(const AttentionBlock& block, const float* w, const float* x,
                const AttentionBlockGradients& gradients) {
  const int64_t dim = block.head_dim;
  const int64_t stride = block.columns();
  const int64_t keys = block.key_count();
  GemmTn(keys, dim, block.row_count(), {w, stride}, {x, dim}, 1.0f,
         {gradients.window_rows + block.key_first() * dim, dim});
  if (block.slots == 0) {
    GemmTn(block.compressed_count(), dim, block.row_count(), {w + keys, stride}, {x, dim}, 1.0f,
           {gradients.compressed, dim});
    return;
  }
  for (int64_t t = 0; t < block.count; ++t) {
    const int64_t used = SeenBy(block, block.first + t).compressed_end;
    ListScatter(block, block.first + t, used, w + t * block.heads * stride + keys, stride,
                x + t * block.heads * dim, gradients.compressed);
  }
}

}  // namespace

void AttendBlock(const AttentionBlock& block, float* probabilities, float* sink_probabilities,
                 float* out) {
  const int64_t row_floats = block.heads * block.head_dim;
  KeyProducts(block, block.q + block.first * row_floats, probabilities);
  const float scale = ScaleOf(block);
  const int64_t columns = block.columns();
  for (int64_t t = 0; t < block.count; ++t) {
    const Seen seen = SeenBy(block, block.first + t);
    for (int64_t head = 0; head < block.heads; ++head) {
      sink_probabilities[(block.first + t) * block.heads + head] =
          SoftmaxRow(probabilities + (t * block.heads + head) * columns, seen, block.key_count(),
                     columns, scale, block.sink[head]);
    }
  }
  KeySums(block, probabilities, out + block.first * row_floats);
}

void AttendBlockBackward(const AttentionBlock& block, const float* probabilities,
                         const float* sink_probabilities, const float* dout, float* scratch,
                         const AttentionBlockGradients& gradients) {
  const int64_t row_floats = block.heads * block.head_dim;
  const float* block_dout = dout + block.first * row_floats;
  const float* block_q = block.q + block.first * row_floats;
  KeyScatter(block, probabilities, block_dout, gradients);
  // Slots beyond a list are never written below; their probabilities are zero.
  if (block.slots > 0) std::fill_n(scratch, block.row_count() * block.columns(), 0.0f);
  KeyProducts(block, block_dout, scratch);
  const float scale = ScaleOf(block);
  const int64_t columns = block.columns();
  for (int64_t row = 0; row < block.row_count(); ++row) {
    const float* p = probabilities + row * columns;
    float* ds = scratch + row * columns;
    const float sum = FastDot(p, ds, columns);
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) ds[i] = p[i] * (ds[i] - sum) * scale;
    const int64_t head = row % block.heads;
    gradients.sink[head] -= sink_probabilities[block.first * block.heads + row] * sum;
  }
  KeySums(block, scratch, gradients.q + block.first * row_floats);
  KeyScatter(block, scratch, block_q, gradients);
}

void MeasureQuery(const AttentionBlock& block, int64_t position, float* scratch, float* mass) {
  const int64_t dim = block.head_dim;
  AttentionBlock every = block;
  every.slots = 0;
  every.first = position;
  every.count = 1;
  const Seen seen = SeenBy(every, position);
  const int64_t keys = every.key_count();
  for (int64_t head = 0; head < block.heads; ++head) {
    const float* q = block.q + (position * block.heads + head) * dim;
    GemmNt(1, keys, dim, {q, dim}, {block.window_rows + every.key_first() * dim, dim}, 0.0f,
           {scratch, every.columns()});
    GemmNt(1, every.compressed_count(), dim, {q, dim}, {block.compressed, dim}, 0.0f,
           {scratch + keys, every.columns()});
    SoftmaxRow(scratch, seen, keys, every.columns(), ScaleOf(block), block.sink[head]);
    for (int64_t i = 0; i < seen.compressed_end; ++i) mass[i] += scratch[keys + i];
  }
}

}  // namespace minke::train
