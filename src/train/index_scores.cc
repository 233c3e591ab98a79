#include "train/index_scores.h"

#include <algorithm>
#include <cmath>

#include "train/gemm.h"
#include "train/vector_math.h"

namespace minke::train {

namespace {

constexpr int64_t kQueriesAtOnce = 32;
constexpr float kSmallestMass = 1e-6f;  // a query with less attention on rows teaches nothing

// scores[j] = sum over heads of weights[head] * relu(dots[head][j]).
void Combine(const float* dots, int64_t stride, const float* weights, int64_t heads, int64_t count,
             float* scores) {
  std::fill_n(scores, count, 0.0f);
  for (int64_t head = 0; head < heads; ++head) {
    const float* row = dots + head * stride;
    const float weight = weights[head];
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) scores[j] += (row[j] > 0.0f ? row[j] : 0.0f) * weight;
  }
}

// scores -> m * (softmax(scores) - target) in place, where target = mass / m. Returns m * KL.
double LossGradient(const float* mass, float m, int64_t count, float* scores) {
  float largest = -1e30f;
  for (int64_t j = 0; j < count; ++j) largest = std::max(largest, scores[j]);
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) sum += VectorExp(scores[j] - largest);
  const float log_sum = largest + std::log(sum);
  double loss = 0;
  for (int64_t j = 0; j < count; ++j) {
    if (mass[j] > 0.0f) loss += mass[j] * (std::log(mass[j] / m) - (scores[j] - log_sum));
  }
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) scores[j] = m * VectorExp(scores[j] - log_sum) - mass[j];
  return loss;
}

// dots -> their gradients in place, and those of the head weights.
void SplitGradient(const float* dscores, const float* weights, int64_t heads, int64_t count,
                   int64_t stride, float* dots, float* dweights) {
  for (int64_t head = 0; head < heads; ++head) {
    float* row = dots + head * stride;
    const float weight = weights[head];
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < count; ++j) {
      const bool passes = row[j] > 0.0f;
      sum += passes ? dscores[j] * row[j] : 0.0f;
      row[j] = passes ? dscores[j] * weight : 0.0f;
    }
    dweights[head] += sum;
  }
}

float Sum(const float* values, int64_t count) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

// Every visible row of queries [first, first + count).
void AddDenseBlock(const IndexScorer& scorer, int64_t first, int64_t count,
                   const IndexLossPart& part, std::vector<float>& dots, std::vector<float>& scores,
                   IndexLossSums& sums) {
  const int64_t heads = scorer.heads;
  const int64_t columns = (first + count) / scorer.ratio;
  if (columns == 0) return;
  dots.resize(static_cast<size_t>(count * heads * columns));
  scores.resize(static_cast<size_t>(columns));
  const float* queries = scorer.queries + first * heads * scorer.dim;
  GemmNt(count * heads, columns, scorer.dim, {queries, scorer.dim}, {scorer.keys, scorer.dim}, 0.0f,
         {dots.data(), columns});
  for (int64_t t = first; t < first + count; ++t) {
    float* rows = dots.data() + (t - first) * heads * columns;
    const int64_t visible = (t + 1) / scorer.ratio;
    const float* mass = part.mass + t * part.mass_columns;
    const float m = Sum(mass, visible);
    const float* weights = scorer.weights + t * heads;
    if (m <= kSmallestMass) {
      std::fill_n(rows, heads * columns, 0.0f);
      continue;
    }
    Combine(rows, columns, weights, heads, visible, scores.data());
    sums.loss += LossGradient(mass, m, visible, scores.data());
    sums.weight += m;
    SplitGradient(scores.data(), weights, heads, visible, columns, rows, part.dweights + t * heads);
    for (int64_t head = 0; head < heads; ++head) {
      std::fill(rows + head * columns + visible, rows + (head + 1) * columns, 0.0f);
    }
  }
  GemmNn(count * heads, scorer.dim, columns, {dots.data(), columns}, {scorer.keys, scorer.dim},
         1.0f, {part.dqueries + first * heads * scorer.dim, scorer.dim});
  GemmTn(columns, scorer.dim, count * heads, {dots.data(), columns}, {queries, scorer.dim}, 1.0f,
         {part.dkeys, scorer.dim});
}

// The listed rows of query t.
void AddListed(const IndexScorer& scorer, int64_t t, const IndexLossPart& part,
               std::vector<float>& dots, std::vector<float>& scores, IndexLossSums& sums) {
  const int64_t heads = scorer.heads;
  const int64_t dim = scorer.dim;
  const int64_t stride = part.mass_columns;
  const int32_t* list = part.selected + t * stride;
  int64_t used = 0;
  while (used < stride && list[used] >= 0) ++used;
  const float* mass = part.mass + t * stride;
  const float m = Sum(mass, used);
  if (m <= kSmallestMass) return;
  dots.resize(static_cast<size_t>(heads * stride));
  scores.resize(static_cast<size_t>(stride));
  const float* queries = scorer.queries + t * heads * dim;
  const float* weights = scorer.weights + t * heads;
  for (int64_t slot = 0; slot < used; ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      dots[static_cast<size_t>(head * stride + slot)] =
          FastDot(queries + head * dim, scorer.keys + list[slot] * dim, dim);
    }
  }
  Combine(dots.data(), stride, weights, heads, used, scores.data());
  sums.loss += LossGradient(mass, m, used, scores.data());
  sums.weight += m;
  SplitGradient(scores.data(), weights, heads, used, stride, dots.data(),
                part.dweights + t * heads);
  for (int64_t slot = 0; slot < used; ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      const float gradient = dots[static_cast<size_t>(head * stride + slot)];
      AddScaled(gradient, scorer.keys + list[slot] * dim, dim,
                part.dqueries + (t * heads + head) * dim);
      AddScaled(gradient, queries + head * dim, dim, part.dkeys + list[slot] * dim);
    }
  }
}

}  // namespace

int64_t IndexScorer::Score(int64_t first, int64_t count, std::vector<float>& scores,
                           std::vector<float>& scratch) const {
  const int64_t columns = (first + count) / ratio;
  scratch.resize(static_cast<size_t>(count * heads * columns));
  scores.resize(static_cast<size_t>(count * columns));
  GemmNt(count * heads, columns, dim, {queries + first * heads * dim, dim}, {keys, dim}, 0.0f,
         {scratch.data(), columns});
  for (int64_t t = 0; t < count; ++t) {
    Combine(scratch.data() + t * heads * columns, columns, weights + (first + t) * heads, heads,
            columns, scores.data() + t * columns);
  }
  return columns;
}

void AddIndexLoss(const IndexScorer& scorer, int64_t first, int64_t end, const IndexLossPart& part,
                  IndexLossSums& sums) {
  std::vector<float> dots;
  std::vector<float> scores;
  if (part.selected != nullptr) {
    for (int64_t t = first; t < end; ++t) AddListed(scorer, t, part, dots, scores, sums);
    return;
  }
  for (int64_t t = first; t < end; t += kQueriesAtOnce) {
    AddDenseBlock(scorer, t, std::min(kQueriesAtOnce, end - t), part, dots, scores, sums);
  }
}

}  // namespace minke::train
