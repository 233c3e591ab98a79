// Can the golden tests see a mistake? Each typical mistake is planted by replacing one entry of
// the reference kernels' table or one config value; the structure check (Logits.Float32Structure)
// must then fail. Each rounding is left out by its switch in Numerics; the check of single layers
// (Layer.*) must then fail. Production code holds none of this.
#include <algorithm>
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/model/layer_checks.h"

namespace minke::testing {
namespace {

// Enough tokens for three windows and for the candidate pool to exclude something.
constexpr int64_t kTokens = 121;

struct Mistake {
  const char* name;
  void (*plant)(Kernels& kernels);
  void (*change)(ModelConfig& config) = nullptr;
};

// ---- mHC -----------------------------------------------------------------------------------

void TransposeComb(Kernels& kernels) {
  kernels.hc_expand = [](View<const float> y, View<const float> post, View<const float> comb,
                         bool round, View<float> streams, ThreadPool& pool) {
    Matrix<float> transposed(comb.rows, comb.cols);
    const int64_t n = post.cols;
    for (int64_t row = 0; row < comb.rows; ++row) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t k = 0; k < n; ++k) {
          transposed.view().Row(row)[j * n + k] = comb.Row(row)[k * n + j];
        }
      }
    }
    ReferenceKernels().hc_expand(y, post, transposed.view(), round, streams, pool);
  };
}

template <int64_t kIterations>
void SinkhornIterations(Kernels& kernels) {
  kernels.hc_mix = [](View<const float> streams, const Weight& fn, std::span<const float> base,
                      std::span<const float> scale, int64_t, float norm_eps, float hc_eps,
                      View<float> pre, View<float> post, View<float> comb, ThreadPool& pool) {
    ReferenceKernels().hc_mix(streams, fn, base, scale, kIterations, norm_eps, hc_eps, pre, post,
                              comb, pool);
  };
}

// The collapse weights of the latest mix, as a V4-style block would use them.
std::vector<float>& LatestPre() {
  static std::vector<float> pre;
  return pre;
}

void CollapseInOwnSublayer(Kernels& kernels) {
  kernels.hc_mix = [](View<const float> streams, const Weight& fn, std::span<const float> base,
                      std::span<const float> scale, int64_t iterations, float norm_eps,
                      float hc_eps, View<float> pre, View<float> post, View<float> comb,
                      ThreadPool& pool) {
    ReferenceKernels().hc_mix(streams, fn, base, scale, iterations, norm_eps, hc_eps, pre, post,
                              comb, pool);
    LatestPre().assign(pre.data, pre.data + pre.rows * pre.cols);
  };
  kernels.hc_collapse = [](View<const float> streams, View<const float> pre, bool round,
                           View<float> u, ThreadPool& pool) {
    ReferenceKernels().hc_collapse(
        streams, View<const float>(LatestPre().data(), pre.rows, pre.cols), round, u, pool);
  };
}

// ---- rotation ------------------------------------------------------------------------------

void RotateHalves(Kernels& kernels) {
  kernels.rope = [](View<float> x, int64_t head_dim, std::span<const int64_t> positions,
                    const RopeTable& table, bool inverse, bool, ThreadPool&) {
    const auto half = static_cast<int64_t>(table.inverse_frequencies.size());
    for (int64_t row = 0; row < x.rows; ++row) {
      for (int64_t head = 0; head < x.cols / head_dim; ++head) {
        float* v = x.Row(row) + (head + 1) * head_dim - 2 * half;
        for (int64_t j = 0; j < half; ++j) {
          const float angle = static_cast<float>(positions[static_cast<size_t>(row)]) *
                              table.inverse_frequencies[static_cast<size_t>(j)];
          const float c = std::cos(angle);
          const float s = inverse ? -std::sin(angle) : std::sin(angle);
          const float re = v[j];
          const float im = v[j + half];
          v[j] = re * c - im * s;
          v[j + half] = re * s + im * c;
        }
      }
    }
  };
}

void NoInverseRotation(Kernels& kernels) {
  kernels.rope = [](View<float> x, int64_t head_dim, std::span<const int64_t> positions,
                    const RopeTable& table, bool inverse, bool round, ThreadPool& pool) {
    if (inverse) return;
    ReferenceKernels().rope(x, head_dim, positions, table, inverse, round, pool);
  };
}

// Ratio-2 rows are the only calls whose positions go in steps of two.
void CompressedRowsAtTheirIndex(Kernels& kernels) {
  kernels.rope = [](View<float> x, int64_t head_dim, std::span<const int64_t> positions,
                    const RopeTable& table, bool inverse, bool round, ThreadPool& pool) {
    std::vector<int64_t> changed(positions.begin(), positions.end());
    if (changed.size() >= 2 && changed[1] == changed[0] + 2) {
      for (int64_t& position : changed) position /= 2;
    }
    ReferenceKernels().rope(x, head_dim, changed, table, inverse, round, pool);
  };
}

// ---- attention -----------------------------------------------------------------------------

template <int kSink>  // 0: no sink, 1: scaled like a score
void WrongSink(Kernels& kernels) {
  kernels.sparse_attention = [](View<const float> q, View<const std::byte* const> slots,
                                const AttentionLayout& layout, std::span<const float> sink,
                                float scale, View<float> out, ThreadPool& pool) {
    std::vector<float> changed(sink.begin(), sink.end());
    for (float& value : changed) value = kSink == 0 ? -INFINITY : value * scale;
    ReferenceKernels().sparse_attention(q, slots, layout, changed, scale, out, pool);
  };
}

void WindowOneShort(Kernels& kernels) {
  kernels.sparse_attention = [](View<const float> q, View<const std::byte* const> slots,
                                const AttentionLayout& layout, std::span<const float> sink,
                                float scale, View<float> out, ThreadPool& pool) {
    std::vector<const std::byte*> changed(slots.data, slots.data + slots.rows * slots.cols);
    for (int64_t row = 0; row < slots.rows; ++row) {
      const int64_t first = row * slots.cols;
      const bool full = changed[static_cast<size_t>(first + layout.window_slots - 1)] != nullptr;
      if (full) changed[static_cast<size_t>(first)] = nullptr;
    }
    ReferenceKernels().sparse_attention(
        q, View<const std::byte* const>(changed.data(), slots.rows, slots.cols), layout, sink,
        scale, out, pool);
  };
}

template <bool kMean>
void WrongPooling(Kernels& kernels) {
  kernels.compressor_pool = [](std::span<const float* const> kv, std::span<const float* const> gate,
                               bool round, std::span<float> pooled) {
    std::vector<std::vector<float>> changed;
    std::vector<const float*> rows;
    for (const float* row : gate) {
      changed.emplace_back(pooled.size(), kMean ? 0.0f : row[0]);
    }
    for (const auto& row : changed) rows.push_back(row.data());
    ReferenceKernels().compressor_pool(kv, rows, round, pooled);
  };
}

void IgnoreCandidates(Kernels& kernels) {
  kernels.select_topk = [](std::span<const float> scores, std::span<const uint8_t>,
                           int64_t block_size, std::span<int32_t> selected) {
    return ReferenceKernels().select_topk(scores, {}, block_size, selected);
  };
}

// ---- MoE -----------------------------------------------------------------------------------

template <bool kBothSides>
void WrongClamp(Kernels& kernels) {
  kernels.swiglu = [](View<const float> gate, View<const float> up,
                      std::span<const float> row_weights, float limit, bool round, View<float> h,
                      ThreadPool& pool) {
    Matrix<float> clamped(gate.rows, gate.cols);
    for (int64_t row = 0; row < gate.rows; ++row) {
      for (int64_t i = 0; i < gate.cols; ++i) {
        clamped.view().Row(row)[i] =
            kBothSides ? std::max(gate.Row(row)[i], -limit) : gate.Row(row)[i];
      }
    }
    ReferenceKernels().swiglu(clamped.view(), up, row_weights, kBothSides ? limit : 0.0f, round, h,
                              pool);
  };
}

template <bool kSigmoid>  // otherwise the correction bias leaks into the weights
void WrongRouter(Kernels& kernels) {
  kernels.router_select = [](std::span<const float> logits, std::span<const float> bias,
                             const RouterParameters& parameters, std::span<int32_t> experts,
                             std::span<float> weights) {
    std::vector<float> scores;
    for (float logit : logits) {
      scores.push_back(kSigmoid ? 1.0f / (1.0f + std::exp(-logit))
                                : std::sqrt(std::log1p(std::exp(logit))));
    }
    std::vector<int32_t> order;
    for (size_t e = 0; e < scores.size(); ++e) order.push_back(static_cast<int32_t>(e));
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const auto x = static_cast<size_t>(a);
      const auto y = static_cast<size_t>(b);
      return scores[x] + bias[x] > scores[y] + bias[y];
    });
    float sum = 0;
    for (size_t i = 0; i < experts.size(); ++i) {
      const auto expert = static_cast<size_t>(order[i]);
      experts[i] = order[i];
      weights[i] = kSigmoid ? scores[expert] : scores[expert] + bias[expert];
      sum += weights[i];
    }
    for (float& weight : weights) weight = weight / sum * parameters.routed_scaling_factor;
  };
}

void WeightedSharedExpert(Kernels& kernels) {
  kernels.moe_combine = [](View<const float> routed, std::span<const int32_t> order,
                           std::span<const float> shared, bool round, std::span<float> y) {
    std::vector<float> changed(shared.begin(), shared.end());
    for (float& value : changed) value *= 1.5f;
    ReferenceKernels().moe_combine(routed, order, changed, round, y);
  };
}

// ---- Engram, norms -------------------------------------------------------------------------

template <bool kJoint, bool kSignedRoot>
void WrongEngramGate(Kernels& kernels) {
  kernels.engram_write = [](View<float> streams, View<const float> projected,
                            std::span<const uint16_t> q_weight, std::span<const uint16_t> k_weight,
                            std::span<const uint8_t>, int64_t hc_mult, float eps, bool,
                            ThreadPool&) {
    const int64_t d = streams.cols / hc_mult;
    for (int64_t row = 0; row < streams.rows; ++row) {
      float* x = streams.Row(row);
      const float* key = projected.Row(row);
      std::vector<double> xx(static_cast<size_t>(hc_mult));
      std::vector<double> kk(xx.size());
      std::vector<double> dot(xx.size());
      for (int64_t i = 0; i < hc_mult * d; ++i) {
        const auto c = static_cast<size_t>(i / d);
        const auto at = static_cast<size_t>(i);
        xx[c] += double{x[i]} * x[i] / static_cast<double>(d);
        kk[c] += double{key[i]} * key[i] / static_cast<double>(d);
        dot[c] += double{x[i]} * key[i] * DecodeBf16(q_weight[at]) * DecodeBf16(k_weight[at]);
      }
      double joint_x = 0;
      double joint_k = 0;
      for (size_t c = 0; c < xx.size(); ++c) {
        joint_x += xx[c] / static_cast<double>(hc_mult);
        joint_k += kk[c] / static_cast<double>(hc_mult);
      }
      for (int64_t c = 0; c < hc_mult; ++c) {
        const auto at = static_cast<size_t>(c);
        double z = dot[at] / std::sqrt((kJoint ? joint_x : xx[at]) + double{eps}) /
                   std::sqrt((kJoint ? joint_k : kk[at]) + double{eps}) /
                   std::sqrt(static_cast<double>(d));
        if (kSignedRoot) z = std::copysign(std::sqrt(std::max(std::abs(z), 1e-6)), z);
        const double gate = 1 / (1 + std::exp(-z));
        for (int64_t i = 0; i < d; ++i) {
          x[c * d + i] += static_cast<float>(gate * key[hc_mult * d + i]);
        }
      }
    }
  };
}

void NoEngram(Kernels& kernels) {
  kernels.engram_write = [](View<float>, View<const float>, std::span<const uint16_t>,
                            std::span<const uint16_t>, std::span<const uint8_t>, int64_t, float,
                            bool, ThreadPool&) {};
}

void NormEpsilon(Kernels& kernels) {
  kernels.rms_norm = [](View<const float> x, std::span<const uint16_t> weight, float, bool round,
                        View<float> y, ThreadPool& pool) {
    ReferenceKernels().rms_norm(x, weight, 1e-6f, round, y, pool);
  };
}

void Nothing(Kernels&) {}

const std::array kMistakes = {
    Mistake{"CombTransposed", TransposeComb},
    Mistake{"RotaryPairsSplitInHalves", RotateHalves},
    Mistake{"NoInverseRotaryOnTheOutput", NoInverseRotation},
    Mistake{"CollapseWeightsInTheirOwnSublayer", CollapseInOwnSublayer},
    Mistake{"SwigluGateClampedOnBothSides", WrongClamp<true>},
    Mistake{"SwigluNotClamped", WrongClamp<false>},
    Mistake{"BiasLeaksIntoRoutingWeights", WrongRouter<false>},
    Mistake{"SigmoidInsteadOfSqrtSoftplus", WrongRouter<true>},
    Mistake{"SinkMissing", WrongSink<0>},
    Mistake{"SinkScaledLikeAScore", WrongSink<1>},
    Mistake{"WindowOneTokenShort", WindowOneShort},
    Mistake{"TwoSinkhornIterations", SinkhornIterations<2>},
    Mistake{"TwentyOneSinkhornIterations", SinkhornIterations<21>},
    Mistake{"PoolingWithOneWeightPerToken", WrongPooling<false>},
    Mistake{"PoolingAsPlainMean", WrongPooling<true>},
    Mistake{"CandidateMaskIgnored", IgnoreCandidates},
    Mistake{"EngramGateNormalisedJointly", WrongEngramGate<true, true>},
    Mistake{"EngramGateWithoutSignedRoot", WrongEngramGate<false, false>},
    Mistake{"EngramLeftOut", NoEngram},
    Mistake{"SharedExpertWeighted", WeightedSharedExpert},
    Mistake{"NormEpsilonOneMillionth", NormEpsilon},
    Mistake{"YarnOff", Nothing,
            [](ModelConfig& c) { c.rope_scaling.original_max_position_embeddings = 0; }},
    Mistake{"OneRotaryBaseForAllLayers", Nothing,
            [](ModelConfig& c) { c.compress_rope_theta = c.rope_theta; }},
    Mistake{"CompressedRowRotatedAtItsIndex", CompressedRowsAtTheirIndex},
};

class PlantedMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(PlantedMistake, FailsTheStructureTest) {
  Kernels kernels = ReferenceKernels();
  GetParam().plant(kernels);
  const ConfigChange change = GetParam().change == nullptr ? ConfigChange{} : GetParam().change;
  const Distance distance = StructureDistance("full_mini", kernels, change, kTokens);
  EXPECT_FALSE(StructureHolds(distance)) << "max " << distance.max << " median " << distance.median;
}

std::string MistakeName(const ::testing::TestParamInfo<Mistake>& mistake) {
  return mistake.param.name;
}
INSTANTIATE_TEST_SUITE_P(All, PlantedMistake, ::testing::ValuesIn(kMistakes), MistakeName);

// The stand-ins above must be right where they claim to be: unchanged variants pass.
TEST(PlantedMistakes, StandInsWithoutTheMistakePass) {
  Kernels kernels = ReferenceKernels();
  SinkhornIterations<20>(kernels);
  WrongEngramGate<false, true>(kernels);
  EXPECT_TRUE(StructureHolds(StructureDistance("full_mini", kernels, {}, kTokens)));
}

// ---- roundings -----------------------------------------------------------------------------

bool AttentionTestHolds(const Numerics& numerics, const std::string& set) {
  const auto model = LoadGoldenModel(set, numerics, ReferenceKernels());
  const auto layers = AttentionAgreement(*model, Golden(set + "/expected.json"));
  return std::all_of(layers.begin(), layers.end(), AttentionHolds);
}

TEST(RoundingLeftOut, WindowFp8FailsTheAttentionTest) {
  Numerics numerics = Numerics::Official();
  numerics.window_fp8 = false;
  EXPECT_FALSE(AttentionTestHolds(numerics, "wide"));
}

TEST(RoundingLeftOut, RowFp4FailsTheAttentionTest) {
  Numerics numerics = Numerics::Official();
  numerics.compressed_fp4 = false;
  EXPECT_FALSE(AttentionTestHolds(numerics, "wide"));
}

TEST(RoundingLeftOut, ProbabilitiesFailTheAttentionTest) {
  Numerics numerics = Numerics::Official();
  numerics.round_probabilities = false;
  EXPECT_FALSE(AttentionTestHolds(numerics, "wide"));
}

TEST(RoundingLeftOut, Q8FailsTheMoeTest) {
  Numerics numerics = Numerics::Official();
  numerics.quantize_gemm_input = false;
  const auto model = LoadGoldenModel("wide", numerics, ReferenceKernels());
  const auto layers = MoeAgreement(*model, Golden("wide/expected.json"));
  EXPECT_FALSE(std::all_of(layers.begin(), layers.end(), MoeHolds));
}

TEST(RoundingLeftOut, ScoresFailTheSourceTest) {
  Numerics numerics = Numerics::Official();
  numerics.round_scores = false;
  const auto model = LoadGoldenModel("full_mini", numerics, ReferenceKernels());
  const auto sources = CompareSources(*model, Golden("full_mini/expected.json"));
  EXPECT_TRUE(std::any_of(sources.begin(), sources.end(), [](const SourceAgreement& source) {
    return source.scores_identical < 0.97;
  }));
}

TEST(RoundingLeftOut, NoneLeftOutHolds) {
  EXPECT_TRUE(AttentionTestHolds(Numerics::Official(), "wide"));
}

}  // namespace
}  // namespace minke::testing
