// Both kernel tables against values computed with the model's official code.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/support.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::Golden;
using testing::GoldenTensor;

class GoldenKernels : public ::testing::TestWithParam<const char*> {
 protected:
  const Kernels& kernels() const {
    return std::string(GetParam()) == "fast" ? FastKernels() : ReferenceKernels();
  }
  ThreadPool pool_{2};
};

const Golden& Quant() {
  static const Golden kQuant("quant/quant.json");
  return kQuant;
}

// Distance in bf16 steps; both numbers must be bf16 values.
int64_t StepsApart(float a, float b) {
  const auto key = [](float value) {
    const auto bits = static_cast<int16_t>(EncodeBf16(value));
    return bits < 0 ? -static_cast<int64_t>(bits & 0x7FFF) : static_cast<int64_t>(bits);
  };
  return std::abs(key(a) - key(b));
}

double Float64(const GoldenTensor& tensor, int64_t index) {
  double value;
  std::memcpy(&value, tensor.bytes.data() + index * 8, 8);
  return value;
}

void ExpectNotAllZero(const std::vector<float>& values) {
  float sum = 0.0f;
  for (const float value : values) sum += std::fabs(value);
  ASSERT_GT(sum, 0.0f) << "a comparison with zeros proves nothing";
}

TEST_P(GoldenKernels, QuantizedRowsAreExact) {
  const GoldenTensor& x = Quant()["x"];
  std::vector<float> values = x.Floats();
  std::vector<float> y(values.size());
  kernels().quantize_q8(View<const float>(values.data(), x.Dim(0), x.Dim(1)),
                        View<float>(y.data(), x.Dim(0), x.Dim(1)), pool_);
  kernels().quantize_q4i(View<float>(values.data(), x.Dim(0), x.Dim(1)), pool_);
  const std::vector<float> q8 = Quant()["q8.dequant"].Floats();
  const std::vector<float> q4i = Quant()["q4i.dequant"].Floats();
  EXPECT_EQ(0, std::memcmp(q8.data(), y.data(), y.size() * 4));
  EXPECT_EQ(0, std::memcmp(q4i.data(), values.data(), y.size() * 4));
}

void CheckGemm(const Kernels& kernels, ThreadPool& pool, const std::string& letter, bool fp4) {
  const std::string name = (fp4 ? "gemm_fp4." : "gemm_fp8.") + letter;
  const GoldenTensor& x = Quant()["gemm_fp8." + letter + ".x"];
  const GoldenTensor& w = Quant()[name + ".w"];
  const GoldenTensor& exact = Quant()[name + ".y_exact"];
  const std::vector<float> expected = Quant()[name + ".y"].Floats();
  const std::vector<uint8_t> scales = Quant()[name + ".w_scale"].RawU8();
  ExpectNotAllZero(expected);
  std::vector<float> xq = x.Floats();
  const View<float> input(xq.data(), x.Dim(0), x.Dim(1));
  kernels.quantize_q8(input, input, pool);
  const Weight weight = {.format = fp4 ? WeightFormat::kFp4Group32 : WeightFormat::kFp8Tile32,
                         .data = reinterpret_cast<const std::byte*>(w.bytes.data()),
                         .scales = scales.data(),
                         .rows = w.Dim(0),
                         .cols = x.Dim(1)};
  Matrix<float> y(x.Dim(0), w.Dim(0));
  kernels.matmul(input, weight, y.view(), pool);
  double largest = 0.0;
  for (int64_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::fabs(Float64(exact, i)));
  }
  for (int64_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(Float64(exact, i), y.data()[i], 1e-6 * largest) << name << " " << i;
    EXPECT_LE(StepsApart(expected[i], RoundBf16(y.data()[i])), 1) << name << " " << i;
  }
}

TEST_P(GoldenKernels, Fp8ProductsIncludingAPartialTile) {
  for (const char* letter : {"a", "b", "c"}) CheckGemm(kernels(), pool_, letter, false);
}

TEST_P(GoldenKernels, Fp4Products) {
  for (const char* letter : {"a", "b", "c"}) CheckGemm(kernels(), pool_, letter, true);
}

// The golden coefficients start from m itself. A token of ones has r = 1, and fn rows that hold m
// in their first column make the product m.
TEST_P(GoldenKernels, SinkhornCoefficients) {
  const GoldenTensor& mixes = Quant()["sinkhorn.mixes"];
  const std::vector<float> m = mixes.Floats();
  const std::vector<float> base = Quant()["sinkhorn.base"].Floats();
  const std::vector<float> scale = Quant()["sinkhorn.scale"].Floats();
  const std::vector<std::vector<float>> expected = {Quant()["sinkhorn.pre"].Floats(),
                                                    Quant()["sinkhorn.post"].Floats(),
                                                    Quant()["sinkhorn.comb"].Floats()};
  const int64_t n = mixes.Dim(1);
  constexpr int64_t kCols = 4 * 8;
  const std::vector<float> ones(kCols, 1.0f);
  for (int64_t t = 0; t < mixes.Dim(0); ++t) {
    std::vector<float> fn(n * kCols, 0.0f);
    for (int64_t i = 0; i < n; ++i) fn[i * kCols] = m[t * n + i];
    const Weight weight = {.format = WeightFormat::kF32,
                           .data = reinterpret_cast<const std::byte*>(fn.data()),
                           .rows = n,
                           .cols = kCols};
    std::vector<std::vector<float>> found = {std::vector<float>(4), std::vector<float>(4),
                                             std::vector<float>(16)};
    kernels().hc_mix(View<const float>(ones.data(), 1, kCols), weight, base, scale, 20, 1e-20f,
                     1e-6f, View<float>(found[0].data(), 1, 4), View<float>(found[1].data(), 1, 4),
                     View<float>(found[2].data(), 1, 16), pool_);
    for (size_t part = 0; part < 3; ++part) {
      ExpectNotAllZero(expected[part]);
      const size_t count = found[part].size();
      for (size_t i = 0; i < count; ++i) {
        // Forty normalisations in float32, each a division of relative error 2^-24.
        const float value = expected[part][t * count + i];
        EXPECT_NEAR(value, found[part][i], std::fabs(value) * 40 * 0x1p-24f + 0x1p-24f)
            << part << " " << t << " " << i;
      }
    }
  }
}

TEST_P(GoldenKernels, AttentionCore) {
  const GoldenTensor& q = Quant()["sparse_attn.q"];
  const GoldenTensor& idx = Quant()["sparse_attn.idx"];
  const std::vector<float> kv = Quant()["sparse_attn.kv"].Floats();
  const std::vector<float> expected = Quant()["sparse_attn.o"].Floats();
  const std::vector<int64_t> rows = idx.Ints();
  const std::vector<float> sink = Quant()["sparse_attn.sink"].Floats();
  const std::vector<float> queries = q.Floats();
  const int64_t tokens = q.Dim(1);
  const int64_t heads = q.Dim(2);
  const int64_t dim = q.Dim(3);
  const int64_t slot_count = idx.Dim(2);
  ExpectNotAllZero(expected);
  // -1 stands for an empty slot; Ints() gives it as an i32.
  std::vector<const std::byte*> slots(tokens * slot_count, nullptr);
  for (int64_t i = 0; i < tokens * slot_count; ++i) {
    if (rows[i] >= 0) slots[i] = reinterpret_cast<const std::byte*>(&kv[rows[i] * dim]);
  }
  const AttentionLayout layout = {.head_count = heads,
                                  .head_dim = dim,
                                  .window_slots = 50,
                                  .window_format = RowFormat::kF32,
                                  .compressed_format = RowFormat::kF32};
  Matrix<float> out(tokens, heads * dim);
  kernels().sparse_attention(View<const float>(queries.data(), tokens, heads * dim),
                             View<const std::byte* const>(slots.data(), tokens, slot_count), layout,
                             sink, static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim))),
                             out.view(), pool_);
  int64_t different = 0;
  for (int64_t i = 0; i < q.size(); ++i) {
    EXPECT_LE(StepsApart(expected[i], out.data()[i]), 1) << i;
    different += expected[i] != out.data()[i] ? 1 : 0;
  }
  RecordProperty("values_one_step_apart", static_cast<int>(different));
  EXPECT_LE(different, q.size() / 50) << "only sums in another order may differ";
  // The last row has no slot at all: its output is exactly zero.
  for (int64_t i = 0; i < heads * dim; ++i) EXPECT_EQ(0.0f, out.view().Row(tokens - 1)[i]);
}

void CheckRope(const Kernels& kernels, ThreadPool& pool, const std::string& name) {
  const Golden rope("rope/rope.json");
  const std::vector<float> frequencies = rope[name + ".inv_freq"].Floats();
  const RopeTable table = {.inverse_frequencies = frequencies};
  const GoldenTensor& x = rope[name + ".x"];
  std::vector<int64_t> positions;
  for (const Json& position : rope.index().Find("positions")->as_array()) {
    positions.push_back(position.as_int());
  }
  const std::vector<float> cosines = rope[name + ".cos"].Floats();
  const std::vector<float> sines = rope[name + ".sin"].Floats();
  const auto pairs = static_cast<int64_t>(frequencies.size());
  Matrix<float> unit(x.Dim(0), 2 * pairs);
  for (int64_t t = 0; t < x.Dim(0); ++t) {
    for (int64_t j = 0; j < pairs; ++j) unit.view().Row(t)[2 * j] = 1.0f;
  }
  kernels.rope(unit.view(), 2 * pairs, positions, table, false, false, pool);
  for (int64_t i = 0; i < x.Dim(0) * pairs; ++i) {
    EXPECT_NEAR(cosines[i], unit.data()[2 * i], 1e-6f) << name << " " << i;
    EXPECT_NEAR(sines[i], unit.data()[2 * i + 1], 1e-6f) << name << " " << i;
  }

  std::vector<float> values = x.Floats();
  const View<float> view(values.data(), x.Dim(0), x.Dim(1) * x.Dim(2));
  kernels.rope(view, x.Dim(2), positions, table, false, true, pool);
  const std::vector<float> rotated = rope[name + ".rotated"].Floats();
  ExpectNotAllZero(rotated);
  EXPECT_EQ(rotated, values);
  kernels.rope(view, x.Dim(2), positions, table, true, true, pool);
  EXPECT_EQ(rope[name + ".unrotated"].Floats(), values);
}

TEST_P(GoldenKernels, RotatedVectorsAreExact) {
  CheckRope(kernels(), pool_, "window");
  CheckRope(kernels(), pool_, "compressed");
}

void CheckRouter(const Kernels& kernels, ThreadPool& pool, const std::string& name) {
  const Golden router("router/router.json");
  const GoldenTensor& x = router[name + ".x"];
  const GoldenTensor& weight = router[name + ".weight"];
  const std::vector<float> inputs = x.Floats();
  const std::vector<float> bias = router[name + ".bias"].Floats();
  const std::vector<float> bias_vl = router[name + ".bias_vl"].Floats();
  const std::vector<uint8_t> image = router[name + ".image_mask"].RawU8();
  const int64_t k = router[name + ".idx"].Dim(1);
  const Weight gate = {.format = WeightFormat::kBf16,
                       .data = reinterpret_cast<const std::byte*>(weight.bytes.data()),
                       .rows = weight.Dim(0),
                       .cols = weight.Dim(1)};
  Matrix<float> logits(x.Dim(0), gate.rows);
  kernels.matmul(View<const float>(inputs.data(), x.Dim(0), x.Dim(1)), gate, logits.view(), pool);
  const RouterParameters parameters = {.selected_count = k, .routed_scaling_factor = 1.5f};
  for (const bool text_only : {false, true}) {
    const std::string suffix = text_only ? "_text_only" : "";
    const std::vector<int64_t> experts = router[name + ".idx" + suffix].Ints();
    const std::vector<float> weights = router[name + ".w" + suffix].Floats();
    for (int64_t t = 0; t < x.Dim(0); ++t) {
      std::vector<int32_t> chosen(k);
      std::vector<float> found(k);
      const bool is_image = !text_only && image[t] != 0;
      kernels.router_select({logits.view().Row(t), static_cast<size_t>(gate.rows)},
                            is_image ? bias_vl : bias, parameters, chosen, found);
      for (int64_t i = 0; i < k; ++i) {
        EXPECT_EQ(experts[t * k + i], chosen[i]) << name << " token " << t << " place " << i;
        EXPECT_NEAR(weights[t * k + i], found[i], 2e-6f * weights[t * k + i]);
      }
    }
  }
}

TEST_P(GoldenKernels, RouterChoosesTheSameExperts) {
  for (const char* name : {"backbone", "draft", "large_logits"}) {
    CheckRouter(kernels(), pool_, name);
  }
}

TEST_P(GoldenKernels, SwiGluClampsAndRoundsOnce) {
  const Golden router("router/router.json");
  const std::vector<float> gate = router["swiglu.gate"].Floats();
  const std::vector<float> up = router["swiglu.up"].Floats();
  const auto n = static_cast<int64_t>(gate.size());
  std::vector<float> h(n);
  const View<const float> gate_view(gate.data(), 1, n);
  const View<const float> up_view(up.data(), 1, n);
  kernels().swiglu(gate_view, up_view, {}, 10.0f, true, View<float>(h.data(), 1, n), pool_);
  ExpectNotAllZero(h);
  EXPECT_EQ(router["swiglu.act"].Floats(), h);
  const std::vector<float> row_weights = {0.37f};
  kernels().swiglu(gate_view, up_view, row_weights, 10.0f, true, View<float>(h.data(), 1, n),
                   pool_);
  EXPECT_EQ(router["swiglu.act_times_0.37"].Floats(), h);
}

INSTANTIATE_TEST_SUITE_P(Tables, GoldenKernels, ::testing::Values("reference", "fast"), TableName);

}  // namespace
}  // namespace minke
