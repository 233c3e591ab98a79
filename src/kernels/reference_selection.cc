// Reference twins of what reads the cache or selects: compressor pooling, index scores,
// candidate blocks, top-k rows, sparse attention and the router.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"

namespace minke::reference {

void CompressorPool(std::span<const float* const> kv, std::span<const float* const> gate,
                    bool round_bf16, std::span<float> pooled) {
  CHECK(kv.size() == gate.size() && !kv.empty());
  std::vector<float> weights(kv.size());
  for (size_t i = 0; i < pooled.size(); ++i) {
    float largest = gate[0][i];
    for (const float* token : gate) largest = std::max(largest, token[i]);
    float denominator = 0.0f;
    for (size_t r = 0; r < gate.size(); ++r) {
      weights[r] = std::exp(gate[r][i] - largest);
      denominator += weights[r];
    }
    float sum = 0.0f;
    for (size_t r = 0; r < kv.size(); ++r) sum += weights[r] / denominator * kv[r][i];
    pooled[i] = RoundIf(round_bf16, sum);
  }
}

void IndexScores(View<const float> queries, std::span<const float> head_weights,
                 RowFormat key_format, std::span<const IndexRun> runs, bool round_bf16) {
  CHECK(static_cast<int64_t>(head_weights.size()) == queries.rows);
  const auto row_bytes = static_cast<size_t>(RowBytes(key_format, queries.cols));
  std::vector<float> key(queries.cols);
  for (const IndexRun& run : runs) {
    for (int64_t j = 0; j < run.row_count; ++j) {
      DecodeRow(key_format, {run.keys + j * row_bytes, row_bytes}, key);
      float sum = 0.0f;
      for (int64_t h = 0; h < queries.rows; ++h) {
        double exact = 0;
        for (int64_t i = 0; i < queries.cols; ++i) {
          exact += static_cast<double>(queries.Row(h)[i]) * key[i];
        }
        const float dot = RoundIf(round_bf16, static_cast<float>(exact));
        const float relu = dot > 0.0f ? dot : 0.0f;
        sum += RoundIf(round_bf16, relu * head_weights[h]);
      }
      run.scores[j] = RoundIf(round_bf16, sum);
    }
  }
}

namespace {

// The `count` best of `candidates`, by descending key and then ascending index; keeps those.
void KeepBest(std::vector<int32_t>& candidates, std::span<const uint32_t> keys, int64_t count) {
  if (static_cast<int64_t>(candidates.size()) <= count) return;
  std::nth_element(
      candidates.begin(), candidates.begin() + count, candidates.end(),
      [&](int32_t a, int32_t b) { return keys[a] != keys[b] ? keys[a] > keys[b] : a < b; });
  candidates.resize(count);
}

}  // namespace

void SelectCandidates(std::span<const float> scores, int64_t block_size, int64_t topk_blocks,
                      std::span<uint8_t> kept) {
  const auto rows = static_cast<int64_t>(scores.size());
  CHECK(block_size > 0);
  const int64_t blocks = (rows + block_size - 1) / block_size;
  CHECK(static_cast<int64_t>(kept.size()) == blocks);
  std::vector<uint32_t> keys(blocks, kMinusInfinityKey);
  for (int64_t i = 0; i < rows; ++i) {
    keys[i / block_size] = std::max(keys[i / block_size], OrderKey(scores[i]));
  }
  if (blocks > 0) keys.back() = std::numeric_limits<uint32_t>::max();  // always kept
  std::vector<int32_t> order;
  for (int64_t block = 0; block < blocks; ++block) {
    if (keys[block] > kMinusInfinityKey) order.push_back(static_cast<int32_t>(block));
  }
  KeepBest(order, keys, topk_blocks);
  std::fill(kept.begin(), kept.end(), uint8_t{0});
  for (const int32_t block : order) kept[block] = 1;
}

int64_t SelectTopk(std::span<const float> scores, std::span<const uint8_t> kept, int64_t block_size,
                   std::span<int32_t> selected) {
  const auto rows = static_cast<int64_t>(scores.size());
  std::vector<uint32_t> keys(rows);
  std::vector<int32_t> order;
  for (int64_t i = 0; i < rows; ++i) {
    keys[i] = OrderKey(scores[i]);
    const bool counts = kept.empty() || kept[i / block_size] != 0;
    if (counts && keys[i] > kMinusInfinityKey) order.push_back(static_cast<int32_t>(i));
  }
  KeepBest(order, keys, static_cast<int64_t>(selected.size()));
  std::sort(order.begin(), order.end());
  std::fill(selected.begin(), selected.end(), -1);
  std::copy(order.begin(), order.end(), selected.begin());
  return static_cast<int64_t>(order.size());
}

namespace {

// Running state of one head over the blocks of slots (architecture.md 0.7).
struct HeadState {
  float maximum = kEmptyMaximum;
  float denominator = 0.0f;
};

// One block of slots for one head. rows: the decoded rows; empty slots have none and add nothing.
void AttendBlock(std::span<const std::vector<float>> rows, const float* q, float scale,
                 bool round_probabilities, HeadState& state, std::span<float> out) {
  std::vector<float> scores(rows.size(), -std::numeric_limits<float>::infinity());
  float maximum = state.maximum;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].empty()) continue;
    scores[i] = Dot(q, rows[i].data(), static_cast<int64_t>(out.size())) * scale;
    maximum = std::max(maximum, scores[i]);
  }
  const float correction = std::exp(state.maximum - maximum);
  for (float& value : out) value *= correction;
  float sum = 0.0f;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].empty()) continue;
    const float e = std::exp(scores[i] - maximum);
    sum += e;  // the denominator takes the probability before it is rounded
    const float p = RoundIf(round_probabilities, e);
    for (size_t c = 0; c < out.size(); ++c) out[c] = std::fma(p, rows[i][c], out[c]);
  }
  state.denominator = state.denominator * correction + sum;
  state.maximum = maximum;
}

}  // namespace

void SparseAttention(View<const float> q, View<const std::byte* const> slots,
                     const AttentionLayout& layout, std::span<const float> sink, float scale,
                     View<float> out, ThreadPool& pool) {
  const int64_t dim = layout.head_dim;
  CHECK(q.cols == layout.head_count * dim && out.cols == q.cols && slots.rows == q.rows);
  CHECK(out.rows == q.rows && static_cast<int64_t>(sink.size()) == layout.head_count);
  pool.ParallelFor(
      q.rows, RowGrain(pool, q.cols * slots.cols), [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          std::vector<HeadState> states(layout.head_count);
          std::fill_n(out.Row(t), out.cols, 0.0f);
          for (int64_t first = 0; first < slots.cols; first += kAttentionBlock) {
            std::vector<std::vector<float>> rows(std::min(kAttentionBlock, slots.cols - first));
            for (size_t i = 0; i < rows.size(); ++i) {
              const int64_t slot = first + static_cast<int64_t>(i);
              const std::byte* packed = slots.Row(t)[slot];
              if (packed == nullptr) continue;
              const RowFormat format =
                  slot < layout.window_slots ? layout.window_format : layout.compressed_format;
              rows[i].resize(dim);
              DecodeRow(format, {packed, static_cast<size_t>(RowBytes(format, dim))}, rows[i]);
            }
            for (int64_t h = 0; h < layout.head_count; ++h) {
              AttendBlock(rows, q.Row(t) + h * dim, scale, layout.round_probabilities, states[h],
                          {out.Row(t) + h * dim, static_cast<size_t>(dim)});
            }
          }
          for (int64_t h = 0; h < layout.head_count; ++h) {
            // The sink joins the denominator only: it is neither scaled nor part of the maximum.
            const float denominator = states[h].denominator + std::exp(sink[h] - states[h].maximum);
            for (int64_t c = 0; c < dim; ++c) {
              float& value = out.Row(t)[h * dim + c];
              value = RoundIf(layout.round_output, value / denominator);
            }
          }
        }
      });
}

void RouterSelect(std::span<const float> logits, std::span<const float> bias,
                  const RouterParameters& parameters, std::span<int32_t> experts,
                  std::span<float> weights) {
  const auto k = static_cast<size_t>(parameters.selected_count);
  CHECK(bias.size() == logits.size() && k <= logits.size());
  CHECK(experts.size() == k && weights.size() == k);
  std::vector<float> scores(logits.size());
  std::vector<uint32_t> keys(logits.size());
  for (size_t e = 0; e < logits.size(); ++e) {
    const float z = logits[e] / parameters.gate_temp;
    scores[e] = std::sqrt(z > 20.0f ? z : std::log1p(std::exp(z)));
    keys[e] = OrderKey(scores[e] + bias[e]);
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(
      order.begin(), order.begin() + static_cast<int64_t>(k), order.end(),
      [&](int32_t a, int32_t b) { return keys[a] != keys[b] ? keys[a] > keys[b] : a < b; });
  float sum = 0.0f;
  for (size_t i = 0; i < k; ++i) {
    experts[i] = order[i];
    weights[i] = scores[order[i]];  // the bias chooses and does not weigh (architecture.md 7.1)
    sum += weights[i];
  }
  for (float& weight : weights) {
    if (parameters.norm_topk_prob && k > 1) weight = weight / (sum + 1e-20f);
    weight *= parameters.routed_scaling_factor;
  }
}

}  // namespace minke::reference
