#include "kernels/self_check.h"

#include <array>
#include <cstring>
#include <vector>

namespace minke {

namespace {

constexpr int64_t kCols = 544;    // a chunk of inputs, and half a step more
constexpr int64_t kOutputs = 37;  // a block of outputs, and some that are left over
constexpr std::array<int64_t, 3> kRowCounts = {1, 7, 66};
constexpr float kEps = 1e-6f;

// xorshift64*: the same inputs at every start.
class Noise {
 public:
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 2685821657736338717ULL;
  }
  // Of many magnitudes and both signs, with zeros.
  float NextFloat() {
    const uint64_t bits = Next();
    if (bits % 16 == 0) return 0.0f;
    const auto fraction = static_cast<float>(static_cast<int64_t>(bits >> 40) - (1 << 23));
    return fraction / static_cast<float>(int64_t{1} << (18 + bits % 8));
  }

 private:
  uint64_t state_ = 88172645463325252ULL;
};

struct Values {
  Values(int64_t rows_in, int64_t cols_in)
      : rows(rows_in), cols(cols_in), data(static_cast<size_t>(rows_in * cols_in)) {}
  Values(int64_t rows_in, int64_t cols_in, Noise& noise) : Values(rows_in, cols_in) {
    for (float& value : data) value = noise.NextFloat();
  }
  View<float> view() { return {data.data(), rows, cols}; }

  int64_t rows;
  int64_t cols;
  std::vector<float> data;
};

bool Same(const Values& a, const Values& b) {
  return std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0;
}

// Numbers as the format has them: none is NaN.
void FillWeights(WeightFormat format, Noise& noise, std::vector<std::byte>& bytes) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    const float value = noise.NextFloat();
    const uint16_t word = EncodeBf16(value);
    std::memcpy(&bytes[i], &value, sizeof value);
    if (format == WeightFormat::kBf16) {
      std::memcpy(&bytes[i], &word, sizeof word);
      std::memcpy(&bytes[i + sizeof word], &word, sizeof word);
    }
    for (size_t k = i; format == WeightFormat::kFp8Tile32 && k < i + sizeof(float); ++k) {
      if ((bytes[k] & std::byte{0x7F}) == std::byte{0x7F}) bytes[k] = std::byte{0x31};
    }
  }
}

bool ProductsAreSame(const Kernels& table, ThreadPool& pool, Noise& noise) {
  const Kernels& twin = ReferenceKernels();
  std::vector<std::byte> bytes(static_cast<size_t>(kOutputs * kCols) * sizeof(float));
  std::vector<uint8_t> scales(static_cast<size_t>(kOutputs * kCols / 32));
  for (uint8_t& scale : scales) scale = static_cast<uint8_t>(110 + noise.Next() % 30);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16,
                                    WeightFormat::kFp8Tile32, WeightFormat::kFp4Group32}) {
    FillWeights(format, noise, bytes);
    const Weight weight{format, bytes.data(), scales.data(), kOutputs, kCols};
    for (const int64_t rows : kRowCounts) {
      Values x(rows, kCols, noise);
      twin.quantize_q8(x.view(), x.view(), pool);
      Values expected(rows, kOutputs);
      Values found(rows, kOutputs);
      twin.matmul(x.view(), weight, expected.view(), pool);
      table.matmul(x.view(), weight, found.view(), pool);
      if (!Same(expected, found)) return false;
    }
  }
  return true;
}

using InPlace = void (*)(View<float> values, const Kernels& kernels, ThreadPool& pool);

bool InPlaceIsSame(InPlace run, const Kernels& table, ThreadPool& pool, Noise& noise) {
  Values expected(5, kCols, noise);
  Values found = expected;
  run(expected.view(), ReferenceKernels(), pool);
  run(found.view(), table, pool);
  return Same(expected, found);
}

void RoundRows(View<float> values, const Kernels& kernels, ThreadPool& pool) {
  kernels.round_bf16(values, pool);
}
void QuantizeActivations(View<float> values, const Kernels& kernels, ThreadPool& pool) {
  kernels.quantize_q8(values, values, pool);
}
void QuantizeQueries(View<float> values, const Kernels& kernels, ThreadPool& pool) {
  kernels.quantize_q4i(values, pool);
}
void NormaliseRows(View<float> values, const Kernels& kernels, ThreadPool& pool) {
  std::vector<uint16_t> weight(static_cast<size_t>(values.cols));
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<uint16_t>(0x3F00 + i % 256);
  kernels.rms_norm(values, weight, kEps, true, values, pool);
}
void RotateRows(View<float> values, const Kernels& kernels, ThreadPool& pool) {
  std::array<float, 8> frequencies{};
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = 1.0f / static_cast<float>(1 + i * i);
  }
  std::vector<int64_t> positions(static_cast<size_t>(values.rows));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i * 1000);
  kernels.rope(values, 32, positions, {frequencies}, false, true, pool);
}

bool IndexScoresAreSame(const Kernels& table, Noise& noise) {
  constexpr int64_t kHeads = 4;
  constexpr int64_t kDim = 128;
  constexpr int64_t kRows = 50;
  const auto row_bytes = RowBytes(RowFormat::kFp4Group32, kDim);
  std::vector<std::byte> keys(static_cast<size_t>(row_bytes * kRows));
  for (int64_t row = 0; row < kRows; ++row) {
    Values key(1, kDim, noise);
    EncodeRow(RowFormat::kFp4Group32, key.data,
              {keys.data() + row * row_bytes, static_cast<size_t>(row_bytes)});
  }
  Values queries(kHeads, kDim, noise);
  ThreadPool alone(1);
  ReferenceKernels().quantize_q4i(queries.view(), alone);
  const std::array<float, kHeads> weights = {0.5f, -0.25f, 1.0f, 0.125f};
  Values expected(1, kRows);
  Values found(1, kRows);
  const auto run = [&](const Kernels& kernels, Values& scores) {
    const IndexRun rows{keys.data(), kRows, scores.data.data()};
    kernels.index_scores(queries.view(), weights, RowFormat::kFp4Group32, {&rows, 1}, true);
  };
  run(ReferenceKernels(), expected);
  run(table, found);
  return Same(expected, found);
}

bool AttentionIsSame(const Kernels& table, ThreadPool& pool, Noise& noise) {
  constexpr int64_t kHeads = 3;
  constexpr int64_t kDim = 64;
  constexpr int64_t kSlots = 70;
  AttentionLayout layout;
  layout.head_count = kHeads;
  layout.head_dim = kDim;
  layout.window_slots = 20;
  std::vector<std::vector<std::byte>> rows;
  std::vector<const std::byte*> slots;
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    const RowFormat format =
        slot < layout.window_slots ? layout.window_format : layout.compressed_format;
    Values row(1, kDim, noise);
    rows.emplace_back(static_cast<size_t>(RowBytes(format, kDim)));
    EncodeRow(format, row.data, rows.back());
    slots.push_back(slot % 9 == 8 ? nullptr : rows.back().data());
  }
  const std::array<float, kHeads> sink = {0.1f, -1.0f, 2.0f};
  Values q(1, kHeads * kDim, noise);
  Values expected(1, kHeads * kDim);
  Values found(1, kHeads * kDim);
  const View<const std::byte* const> list(slots.data(), 1, kSlots);
  ReferenceKernels().sparse_attention(q.view(), list, layout, sink, 0.125f, expected.view(), pool);
  table.sparse_attention(q.view(), list, layout, sink, 0.125f, found.view(), pool);
  return Same(expected, found);
}

bool StreamsAreSame(const Kernels& table, ThreadPool& pool, Noise& noise) {
  constexpr int64_t kStreams = 4;
  constexpr int64_t kWidth = 40;
  Values expected(3, kStreams * kWidth, noise);
  Values found = expected;
  Values y(3, kWidth, noise);
  Values post(3, kStreams, noise);
  Values comb(3, kStreams * kStreams, noise);
  const auto run = [&](const Kernels& kernels, Values& streams) {
    kernels.hc_expand(y.view(), post.view(), comb.view(), true, streams.view(), pool);
    Values collapsed(3, kWidth);
    kernels.hc_collapse(streams.view(), post.view(), true, collapsed.view(), pool);
    streams.data.insert(streams.data.end(), collapsed.data.begin(), collapsed.data.end());
  };
  run(ReferenceKernels(), expected);
  run(table, found);
  return Same(expected, found);
}

}  // namespace

const char* FirstDifference(const Kernels& table) {
  Noise noise;
  ThreadPool pool(1);
  if (!ProductsAreSame(table, pool, noise)) return "matmul";
  if (!InPlaceIsSame(RoundRows, table, pool, noise)) return "round_bf16";
  if (!InPlaceIsSame(QuantizeActivations, table, pool, noise)) return "quantize_q8";
  if (!InPlaceIsSame(QuantizeQueries, table, pool, noise)) return "quantize_q4i";
  if (!InPlaceIsSame(NormaliseRows, table, pool, noise)) return "rms_norm";
  if (!InPlaceIsSame(RotateRows, table, pool, noise)) return "rope";
  if (!IndexScoresAreSame(table, noise)) return "index_scores";
  if (!AttentionIsSame(table, pool, noise)) return "sparse_attention";
  if (!StreamsAreSame(table, pool, noise)) return "hc_expand or hc_collapse";
  return nullptr;
}

}  // namespace minke
