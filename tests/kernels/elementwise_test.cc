// Every other SIMD kernel against its scalar twin, bit for bit, over lengths around the vector
// width and several thread counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/support.h"

namespace minke {
namespace {

constexpr int kThreads[] = {1, 2, 5};
constexpr int64_t kLengths[] = {0, 1, 7, 8, 9, 15, 16, 17, 33, 512};
constexpr int64_t kRowCounts[] = {0, 1, 2, 3, 11};

std::vector<uint16_t> RandomBf16(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<uint16_t> words(count);
  for (uint16_t& word : words) word = EncodeBf16(normal(random));
  return words;
}

// Runs `call` with both tables on copies of `input` and compares what they leave in it.
template <typename Call>
void CompareInPlace(TestMatrix input, const Call& call) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads, 0);
    TestMatrix expected = input;
    TestMatrix found = input;
    call(ReferenceKernels(), expected.view(), pool);
    call(FastKernels(), found.view(), pool);
    EXPECT_TRUE(SameBits(expected.view(), found.view()))
        << "[" << input.view().rows << ", " << input.view().cols << "], threads " << threads;
  }
}

void PutSpecials(View<float> values) {
  const float specials[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max(),
                            -0.0f,
                            1e-40f};
  for (int64_t i = 0; i < values.cols && i < 6 && values.rows > 0; ++i) {
    values.Row(0)[i] = specials[i];
  }
}

TEST(Elementwise, RoundBf16) {
  std::mt19937 random(1);
  for (const int64_t rows : kRowCounts) {
    for (const int64_t n : kLengths) {
      TestMatrix x(rows, n);
      x.Randomize(random);
      PutSpecials(x.view());
      CompareInPlace(std::move(x), [](const Kernels& kernels, View<float> view, ThreadPool& pool) {
        kernels.round_bf16(view, pool);
      });
    }
  }
}

TEST(Elementwise, QuantizersOverMagnitudes) {
  std::mt19937 random(2);
  for (const int64_t n : {0, 32, 64, 544}) {
    for (const int exponent : {-149, -130, -126, -60, -20, -7, 0, 3, 20, 100, 126}) {
      TestMatrix x(5, n);
      x.Randomize(random, 8);
      for (int64_t t = 0; t < 5; ++t) {
        for (int64_t i = 0; i < n; ++i) {
          x.view().Row(t)[i] = std::ldexp(x.view().Row(t)[i], exponent);
        }
      }
      CompareInPlace(x, [](const Kernels& kernels, View<float> view, ThreadPool& pool) {
        kernels.quantize_q8(view, view, pool);
      });
      CompareInPlace(x, [](const Kernels& kernels, View<float> view, ThreadPool& pool) {
        kernels.quantize_q4i(view, pool);
      });
    }
  }
}

TEST(Elementwise, QuantizersMeetInfinityAndNan) {
  std::mt19937 random(3);
  TestMatrix x(3, 96);
  x.Randomize(random);
  PutSpecials(x.view());
  x.view().Row(1)[40] = std::numeric_limits<float>::infinity();
  x.view().Row(2)[70] = std::numeric_limits<float>::quiet_NaN();
  CompareInPlace(x, [](const Kernels& kernels, View<float> view, ThreadPool& pool) {
    kernels.quantize_q8(view, view, pool);
  });
  CompareInPlace(x, [](const Kernels& kernels, View<float> view, ThreadPool& pool) {
    kernels.quantize_q4i(view, pool);
  });
}

TEST(Elementwise, RmsNorm) {
  std::mt19937 random(4);
  for (const int64_t rows : kRowCounts) {
    for (const int64_t n : kLengths) {
      TestMatrix x(rows, n);
      x.Randomize(random);
      const std::vector<uint16_t> weight = RandomBf16(n, random);
      for (const bool round : {false, true}) {
        CompareInPlace(x, [&](const Kernels& kernels, View<float> view, ThreadPool& pool) {
          kernels.rms_norm(view, weight, 1e-20f, round, view, pool);
        });
      }
    }
  }
}

TEST(Elementwise, AZeroRowStaysZeroUnderTheNorm) {
  ThreadPool pool(1);
  const std::vector<uint16_t> weight(24, EncodeBf16(1.5f));
  for (const Kernels* kernels : {&ReferenceKernels(), &FastKernels()}) {
    TestMatrix x(1, 24);
    kernels->rms_norm(x.view(), weight, 1e-20f, true, x.view(), pool);
    EXPECT_FALSE(AnyNonZero(x.view()));
  }
}

TEST(Elementwise, Rope) {
  std::mt19937 random(5);
  for (const int64_t pairs : {0, 1, 3, 4, 5, 32, 33, 40}) {
    std::vector<float> frequencies(pairs);
    for (int64_t j = 0; j < pairs; ++j) {
      frequencies[j] = std::pow(10000.0f, -static_cast<float>(j) / 32.0f);
    }
    const RopeTable table = {.inverse_frequencies = frequencies};
    for (const int64_t rows : kRowCounts) {
      TestMatrix x(rows, 3 * 96);
      x.Randomize(random);
      std::vector<int64_t> positions(rows);
      for (int64_t& position : positions) position = random() % 1048576;
      for (const bool inverse : {false, true}) {
        CompareInPlace(x, [&](const Kernels& kernels, View<float> view, ThreadPool& pool) {
          kernels.rope(view, 96, positions, table, inverse, !inverse, pool);
        });
      }
    }
  }
}

TEST(Elementwise, HyperConnectionMix) {
  std::mt19937 random(6);
  for (const int64_t hc_mult : {1, 2, 4}) {
    for (const int64_t d : {1, 8, 24, 1280}) {
      const int64_t count = (2 + hc_mult) * hc_mult;
      const TestWeight fn(WeightFormat::kF32, count, hc_mult * d, random);
      TestMatrix base(1, count);
      base.Randomize(random);
      const std::vector<float> scale = {1.1f, 0.9f, 1.3f};
      TestMatrix streams(3, hc_mult * d);
      streams.Randomize(random);
      const int64_t width = 2 * hc_mult + hc_mult * hc_mult;
      CompareInPlace(TestMatrix(3, width), [&](const Kernels& kernels, View<float> out,
                                               ThreadPool& pool) {
        kernels.hc_mix(streams.view(), fn.weight, {base.view().Row(0), static_cast<size_t>(count)},
                       scale, 20, 1e-20f, 1e-6f, out.Cols(0, hc_mult), out.Cols(hc_mult, hc_mult),
                       out.Cols(2 * hc_mult, hc_mult * hc_mult), pool);
      });
    }
  }
}

TEST(Elementwise, HyperConnectionCollapseAndExpand) {
  std::mt19937 random(7);
  for (const int64_t hc_mult : {1, 2, 4}) {
    for (const int64_t d : {0, 1, 7, 8, 9, 16, 17, 640}) {
      TestMatrix streams(5, hc_mult * d);
      streams.Randomize(random);
      TestMatrix weights(5, 2 * hc_mult + hc_mult * hc_mult);
      weights.Randomize(random);
      TestMatrix y(5, d);
      y.Randomize(random);
      const View<float> pre = weights.view().Cols(0, hc_mult);
      const View<float> post = weights.view().Cols(hc_mult, hc_mult);
      const View<float> comb = weights.view().Cols(2 * hc_mult, hc_mult * hc_mult);
      for (const bool round : {false, true}) {
        CompareInPlace(y, [&](const Kernels& kernels, View<float> u, ThreadPool& pool) {
          kernels.hc_collapse(streams.view(), pre, round, u, pool);
        });
        CompareInPlace(streams, [&](const Kernels& kernels, View<float> x, ThreadPool& pool) {
          kernels.hc_expand(y.view(), post, comb, round, x, pool);
        });
      }
    }
  }
}

TEST(Elementwise, SwiGlu) {
  std::mt19937 random(8);
  for (const int64_t n : kLengths) {
    TestMatrix gate(3, n);
    TestMatrix up(3, n);
    gate.Randomize(random);
    up.Randomize(random);
    const std::vector<float> row_weights = {0.25f, 1.5f, 0.1f};
    for (const float limit : {0.0f, 0.4f, 10.0f}) {
      CompareInPlace(TestMatrix(3, n),
                     [&](const Kernels& kernels, View<float> h, ThreadPool& pool) {
                       kernels.swiglu(gate.view(), up.view(), row_weights, limit, true, h, pool);
                     });
    }
  }
}

TEST(Elementwise, MoeCombine) {
  std::mt19937 random(9);
  for (const int64_t n : kLengths) {
    TestMatrix routed(6, n);
    TestMatrix shared(1, n);
    routed.Randomize(random);
    shared.Randomize(random);
    const std::vector<std::vector<int32_t>> orders = {{}, {2}, {5, 0, 3, 1, 4, 2}};
    for (const std::vector<int32_t>& order : orders) {
      CompareInPlace(TestMatrix(1, n), [&](const Kernels& kernels, View<float> y, ThreadPool&) {
        const auto count = static_cast<size_t>(n);
        kernels.moe_combine(routed.view(), order, {shared.view().Row(0), count}, true,
                            {y.Row(0), count});
      });
    }
  }
}

TEST(Elementwise, EngramWrite) {
  std::mt19937 random(10);
  for (const int64_t d : {0, 1, 7, 8, 9, 24, 640}) {
    for (const int64_t hc_mult : {1, 4}) {
      TestMatrix streams(5, hc_mult * d);
      TestMatrix projected(5, (hc_mult + 1) * d);
      streams.Randomize(random);
      projected.Randomize(random);
      const std::vector<uint16_t> q_weight = RandomBf16(hc_mult * d, random);
      const std::vector<uint16_t> k_weight = RandomBf16(hc_mult * d, random);
      for (const std::vector<uint8_t>& blocked :
           {std::vector<uint8_t>{}, std::vector<uint8_t>{0, 1, 0, 1, 1}}) {
        CompareInPlace(streams, [&](const Kernels& kernels, View<float> x, ThreadPool& pool) {
          kernels.engram_write(x, projected.view(), q_weight, k_weight, blocked, hc_mult, 1e-20f,
                               true, pool);
        });
      }
    }
  }
}

// architecture.md 8.4 written out for one stream of four channels.
TEST(Elementwise, EngramGateFollowsTheFormula) {
  ThreadPool pool(1);
  const float x[4] = {1, 2, 3, 4};
  const float key[4] = {0.5f, 0.25f, -1, 2};
  const float value[4] = {8, -8, 16, 4};
  const double rho = 1 / std::sqrt(30.0 / 4) / std::sqrt((0.25 + 0.0625 + 1 + 4) / 4);
  const double dot = (0.5 + 0.5 - 3 + 8) * 2 * rho * 0.5;
  const double gate = 1 / (1 + std::exp(-std::sqrt(dot)));
  TestMatrix projected(1, 8);
  std::copy_n(key, 4, projected.view().Row(0));
  std::copy_n(value, 4, projected.view().Row(0) + 4);
  const std::vector<uint16_t> q_weight(4, EncodeBf16(4.0f));
  const std::vector<uint16_t> k_weight(4, EncodeBf16(0.5f));
  for (const Kernels* kernels : {&ReferenceKernels(), &FastKernels()}) {
    TestMatrix streams(1, 4);
    std::copy_n(x, 4, streams.view().Row(0));
    kernels->engram_write(streams.view(), projected.view(), q_weight, k_weight, {}, 1, 1e-20f,
                          false, pool);
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(x[i] + gate * value[i], streams.view().Row(0)[i], 1e-5);
    }
  }
}

TEST(Elementwise, CompressorPool) {
  const float kv0[3] = {1, 2, 3};
  const float kv1[3] = {5, -2, 3};
  const float gate0[3] = {0, 100, 1};
  const float gate1[3] = {0, -100, 1};
  const std::vector<const float*> kv = {kv0, kv1};
  const std::vector<const float*> gate = {gate0, gate1};
  for (const Kernels* kernels : {&ReferenceKernels(), &FastKernels()}) {
    std::vector<float> pooled(3);
    kernels->compressor_pool(kv, gate, false, pooled);
    EXPECT_EQ((std::vector<float>{3, 2, 3}), pooled);
  }
}

}  // namespace
}  // namespace minke
