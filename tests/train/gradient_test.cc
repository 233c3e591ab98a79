// Every fused function against a twin of plain libtorch operations: values and gradients. The twins
// run in double precision; what is left is the float32 rounding of the fused side.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "train/attention.h"
#include "train/compressor.h"
#include "train/engram.h"
#include "train/fake_quantization.h"
#include "train/hyper_connections.h"
#include "train/indexer.h"
#include "train/linear.h"
#include "train/moe.h"
#include "train/rms_norm.h"
#include "train/rope.h"

namespace minke::train {
namespace {

using torch::Tensor;
using Function = std::function<Tensor(const std::vector<Tensor>&)>;

constexpr double kTolerance = 2e-5;  // of the largest value

void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_TRUE(actual.defined() && expected.defined()) << what;
  const double largest = expected.abs().max().item<double>();
  EXPECT_GT(largest, 0) << what << ": a zero reference proves nothing";
  const double error = (actual.to(torch::kFloat64) - expected).abs().max().item<double>();
  EXPECT_LE(error, kTolerance * std::max(largest, 1e-3)) << what;
}

Tensor Random(std::vector<int64_t> shape, double scale = 1.0) {
  return torch::randn(shape) * scale;
}

void CompareWithTwin(const std::vector<Tensor>& inputs, const Function& fused,
                     const Function& twin) {
  std::vector<Tensor> floats;
  std::vector<Tensor> doubles;
  for (const Tensor& input : inputs) {
    floats.push_back(input.clone().set_requires_grad(true));
    doubles.push_back(input.to(torch::kFloat64).set_requires_grad(true));
  }
  const Tensor y = fused(floats);
  const Tensor expected = twin(doubles);
  ExpectNear(y.detach(), expected.detach(), "value");
  const Tensor gradient = torch::randn(y.sizes());
  y.backward(gradient);
  expected.backward(gradient.to(torch::kFloat64));
  for (size_t i = 0; i < inputs.size(); ++i) {
    ExpectNear(floats[i].grad(), doubles[i].grad(), "gradient " + std::to_string(i));
  }
}

Tensor NormTwin(const Tensor& x, const Tensor& weight, double eps) {
  return weight * x * torch::rsqrt(x.square().mean(-1, true) + eps);
}

class Gradients : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(20); }
};

TEST_F(Gradients, RmsNorm) {
  CompareWithTwin(
      {Random({5, 7, 40}), Random({40})},
      [](const auto& in) { return RmsNorm(in[0], in[1], 1e-3); },
      [](const auto& in) { return NormTwin(in[0], in[1], 1e-3); });
}

TEST_F(Gradients, Rope) {
  const std::vector<float> frequencies = {1.0f, 0.3f, 0.01f};
  for (const bool inverse : {false, true}) {
    const Tensor table = MakeRopeTable(frequencies, 6, 2);
    const Tensor angles = torch::arange(6, torch::kFloat64).mul(2).unsqueeze(1) *
                          torch::tensor({1.0, 0.3, 0.01}, torch::kFloat64);
    CompareWithTwin(
        {Random({2, 6, 20})}, [&](const auto& in) { return Rope(in[0], 10, table, inverse); },
        [&](const auto& in) {
          const Tensor x = in[0].view({2, 6, 2, 10});
          const Tensor a = x.slice(3, 4, 10, 2);
          const Tensor b = x.slice(3, 5, 10, 2);
          const Tensor c = angles.cos().unsqueeze(1);
          const Tensor s = (inverse ? -angles.sin() : angles.sin()).unsqueeze(1);
          const Tensor turned = torch::stack({a * c - b * s, a * s + b * c}, 4).flatten(3);
          return torch::cat({x.slice(3, 0, 4), turned}, 3).flatten(2);
        });
  }
}

TEST_F(Gradients, GroupedLinear) {
  CompareWithTwin(
      {Random({2, 3, 12}), Random({10, 6})},
      [](const auto& in) { return GroupedLinear(in[0], in[1], 2); },
      [](const auto& in) {
        return torch::einsum("btgi,goi->btgo", {in[0].view({2, 3, 2, 6}), in[1].view({2, 5, 6})})
            .flatten(2);
      });
}

TEST_F(Gradients, PoolGroups) {
  CompareWithTwin(
      {Random({2, 7, 5}), Random({2, 7, 5})},
      [](const auto& in) { return PoolGroups(in[0], in[1], 2); },
      [](const auto& in) {
        const auto groups = [](const Tensor& x) { return x.slice(1, 0, 6).reshape({2, 3, 2, 5}); };
        return (groups(in[1]).softmax(2) * groups(in[0])).sum(2);
      });
}

// Large, or the gradient of a single stream's weight, which a norm cancels, would be all rounding.
constexpr double kReadEps = 0.5;

// Twin of ReadStreams: all outputs side by side.
Tensor ReadTwin(const std::vector<Tensor>& in, int64_t n, int64_t iterations) {
  const Tensor& x = in[0];
  const int64_t tokens = x.size(0);
  const double eps = 1e-6;
  const Tensor m = torch::matmul(x, in[2].t()) * torch::rsqrt(x.square().mean(1, true) + kReadEps);
  const auto part = [&](int64_t first, int64_t count, int64_t kind) {
    return m.slice(1, first, first + count) * in[4][kind] + in[3].slice(0, first, first + count);
  };
  const Tensor pre = part(0, n, 0).sigmoid() + eps;
  const Tensor post = 2 * part(n, n, 1).sigmoid();
  Tensor comb = part(2 * n, n * n, 2).view({tokens, n, n}).softmax(2) + eps;
  for (int64_t i = 0; i < iterations; ++i) {
    if (i > 0) comb = comb / (comb.sum(2, true) + eps);
    comb = comb / (comb.sum(1, true) + eps);
  }
  const Tensor u = (in[1].unsqueeze(2) * x.view({tokens, n, -1})).sum(1);
  return torch::cat({NormTwin(u, in[5], kReadEps), pre, post, comb.flatten(1)}, 1);
}

TEST_F(Gradients, HyperConnectionRead) {
  for (const int64_t n : {1, 2, 3, 4}) {
    const int64_t count = (2 + n) * n;
    CompareWithTwin(
        {Random({19, n * 24}), Random({19, n}).sigmoid(), Random({count, n * 24}, 0.3),
         Random({count}), Random({3}), Random({24})},
        [n](const auto& in) {
          const HyperConnectionRead read =
              ReadStreams(in[0], in[1], {in[2], in[3], in[4]}, in[5], {n, 6, kReadEps, 1e-6});
          return torch::cat({read.input, read.pre, read.post, read.comb}, 1);
        },
        [n](const auto& in) { return ReadTwin(in, n, 6); });
  }
}

TEST_F(Gradients, HyperConnectionWrite) {
  for (const int64_t n : {1, 2, 3, 4}) {
    CompareWithTwin(
        {Random({9, n * 24}), Random({9, 24}), Random({9, n}), Random({9, n * n})},
        [](const auto& in) { return WriteStreams(in[0], in[1], in[2], in[3]); },
        [n](const auto& in) {
          const Tensor x = in[0].view({9, n, 24});
          const Tensor mixed = torch::einsum("tjk,tjd->tkd", {in[3].view({9, n, n}), x});
          return (in[2].unsqueeze(2) * in[1].unsqueeze(1) + mixed).flatten(1);
        });
  }
}

TEST_F(Gradients, CollapseAndNorm) {
  CompareWithTwin(
      {Random({9, 96}), Random({9, 4}).sigmoid(), Random({24})},
      [](const auto& in) { return CollapseAndNorm(in[0], in[1], in[2], 1e-5); },
      [](const auto& in) {
        return NormTwin((in[1].unsqueeze(2) * in[0].view({9, 4, 24})).sum(1), in[2], 1e-5);
      });
}

TEST_F(Gradients, Moe) {
  for (const double limit : {0.0, 0.4}) {
    const MoeOptions options{
        .selected_count = 3, .routed_scaling_factor = 1.5, .gate_temp = 0.7, .swiglu_limit = limit};
    const Tensor bias = Random({5}, 0.3);
    const auto expert = [limit](const Tensor& x, const Tensor& w1, const Tensor& w2,
                                const Tensor& w3, const Tensor& weight) {
      Tensor a = torch::matmul(x, w1.t());
      Tensor b = torch::matmul(x, w3.t());
      if (limit > 0) {
        a = a.clamp_max(limit);
        b = b.clamp(-limit, limit);
      }
      return torch::matmul(weight * torch::silu(a) * b, w2.t());
    };
    CompareWithTwin(
        {Random({21, 8}), Random({5, 8}), Random({5, 6, 8}), Random({5, 8, 6}), Random({5, 6, 8}),
         Random({6, 8}), Random({8, 6}), Random({6, 8})},
        [&](const auto& in) {
          return Moe(in[0], {in[1], bias, in[2], in[3], in[4], in[5], in[6], in[7]}, options,
                     Tensor());
        },
        [&](const auto& in) {
          const Tensor scores = torch::softplus(torch::matmul(in[0], in[1].t()) / 0.7).sqrt();
          const Tensor taken = std::get<1>((scores + bias).topk(3, 1));
          const Tensor kept = scores * torch::zeros_like(scores).scatter(1, taken, 1.0);
          const Tensor weights = 1.5 * kept / kept.sum(1, true);
          Tensor y = expert(in[0], in[5], in[6], in[7], torch::ones({21, 1}, torch::kFloat64));
          for (int64_t e = 0; e < 5; ++e) {
            y = y + expert(in[0], in[2][e], in[3][e], in[4][e], weights.slice(1, e, e + 1));
          }
          return y;
        });
  }
}

TEST_F(Gradients, MoeCountsLoads) {
  const Tensor loads = torch::zeros({5}, torch::kFloat64);
  Moe(Random({21, 32}),
      {Random({5, 32}), torch::zeros({5}), Random({5, 32, 32}), Random({5, 32, 32}),
       Random({5, 32, 32}), Random({32, 32}), Random({32, 32}), Random({32, 32})},
      {.selected_count = 2}, loads);
  EXPECT_EQ(loads.sum().item<double>(), 42);
}

TEST_F(Gradients, EngramLookUp) {
  const Tensor rows = torch::tensor({{0, 3}, {3, 3}, {1, 5}}, torch::kInt64);
  CompareWithTwin(
      {Random({6, 32})}, [&](const auto& in) { return LookUpEngram(in[0], rows, false); },
      [&](const auto& in) { return in[0].index({rows}).flatten(1); });
}

TEST_F(Gradients, EngramWrite) {
  CompareWithTwin(
      {Random({11, 48}), Random({11, 64}), Random({3, 16}), Random({3, 16})},
      [](const auto& in) { return WriteEngram(in[0], in[1], in[2], in[3], 1e-5); },
      [](const auto& in) {
        const Tensor x = in[0].view({11, 3, 16});
        const Tensor key = in[1].slice(1, 0, 48).view({11, 3, 16});
        const auto root = [](const Tensor& v) { return torch::rsqrt(v.square().mean(2) + 1e-5); };
        const Tensor s = (x * in[2] * in[3] * key).sum(2) * root(x) * root(key) / 4.0;
        const Tensor gate = (s.sign() * s.abs().clamp_min(1e-6).sqrt()).sigmoid();
        return (x + gate.unsqueeze(2) * in[1].slice(1, 48).unsqueeze(1)).flatten(1);
      });
}

struct AttentionCase {
  int64_t tokens = 0;
  int64_t window = 0;
  int64_t ratio = 0;
  int64_t listed = 0;  // rows a query; 0: dense
  int64_t window_from = -1;
};

// mask [T, T + Tc]: what query t sees.
Tensor VisibleMask(const AttentionCase& shape, const Tensor& selected) {
  const int64_t rows = shape.ratio == 0 ? 0 : shape.tokens / shape.ratio;
  Tensor mask = torch::zeros({shape.tokens, shape.tokens + rows}, torch::kBool);
  for (int64_t t = 0; t < shape.tokens; ++t) {
    for (int64_t s = std::max<int64_t>(0, t - shape.window + 1); s <= t; ++s) {
      mask[t][s] = shape.window_from < 0 || t < shape.window_from || s >= shape.window_from;
    }
    for (int64_t row = 0; row < rows && row < (t + 1) / shape.ratio; ++row) {
      if (shape.listed == 0) mask[t][shape.tokens + row] = true;
    }
    for (int64_t i = 0; i < shape.listed; ++i) {
      const int32_t row = selected[0][t][i].item<int32_t>();
      if (row >= 0) mask[t][shape.tokens + row] = true;
    }
  }
  return mask;
}

Tensor ListRows(const AttentionCase& shape) {
  if (shape.listed == 0) return {};
  Tensor selected = torch::full({1, shape.tokens, shape.listed}, -1, torch::kInt32);
  for (int64_t t = 0; t < shape.tokens; ++t) {
    const int64_t visible = (t + 1) / shape.ratio;
    // Every third row, the latest first: a list that is not the identity.
    int64_t slot = 0;
    for (int64_t row = t % 3; row < visible && slot < shape.listed; row += 3) {
      selected[0][t][slot++] = static_cast<int32_t>(row);
    }
  }
  return selected;
}

void CompareAttention(const AttentionCase& shape) {
  const int64_t rows = shape.ratio == 0 ? 0 : shape.tokens / shape.ratio;
  const Tensor selected = ListRows(shape);
  const Tensor mask = VisibleMask(shape, selected);
  std::vector<Tensor> inputs = {Random({1, shape.tokens, 3 * 8}, 2.0), Random({1, shape.tokens, 8}),
                                Random({3})};
  if (rows > 0) inputs.push_back(Random({1, rows, 8}));
  CompareWithTwin(
      inputs,
      [&](const auto& in) {
        AttentionMask attention;
        attention.window = shape.window;
        attention.ratio = shape.ratio;
        attention.selected = selected;
        if (shape.window_from >= 0) attention.window_from = {shape.window_from};
        return Attend(in[0], in[1], rows > 0 ? in[3] : Tensor(), in[2], attention, nullptr);
      },
      [&](const auto& in) {
        const Tensor keys = rows > 0 ? torch::cat({in[1], in[3]}, 1) : in[1];
        const Tensor scores =
            torch::einsum("bthc,bsc->bhts", {in[0].view({1, shape.tokens, 3, 8}), keys}) /
            std::sqrt(8.0);
        const Tensor seen = scores.masked_fill(mask.logical_not(), -1e30);
        const Tensor sink = in[2].view({1, 3, 1, 1}).expand({1, 3, shape.tokens, 1});
        const Tensor p = torch::cat({seen, sink}, 3).softmax(3).slice(3, 0, keys.size(1));
        return torch::einsum("bhts,bsc->bthc", {p, keys}).flatten(2);
      });
}

TEST_F(Gradients, Attention) {
  CompareAttention({.tokens = 21, .window = 4});
  CompareAttention({.tokens = 21, .window = 4, .ratio = 1});
  CompareAttention({.tokens = 21, .window = 4, .ratio = 2});
  CompareAttention({.tokens = 21, .window = 4, .ratio = 1, .listed = 3});
  CompareAttention({.tokens = 21, .window = 4, .ratio = 2, .listed = 3});
  CompareAttention({.tokens = 21, .window = 4, .ratio = 1, .window_from = 10});
  CompareAttention({.tokens = 3, .window = 8, .ratio = 2});
}

// Scores of every query, in double precision.
Tensor ScoresTwin(const std::vector<Tensor>& in, int64_t heads) {
  const int64_t tokens = in[0].size(1);
  const Tensor q = in[0].view({in[0].size(0), tokens, heads, -1});
  const Tensor dots = torch::einsum("bthc,bsc->bths", {q, in[2]});
  return (dots.relu() * in[1].unsqueeze(3)).sum(2);
}

void CompareIndexLoss(int64_t ratio, bool listed) {
  const int64_t tokens = 18;
  const int64_t rows = tokens / ratio;
  Tensor mask = torch::zeros({2, tokens, rows}, torch::kBool);
  Tensor selected = torch::full({2, tokens, 3}, -1, torch::kInt32);
  for (int64_t t = 0; t < tokens; ++t) {
    int64_t slot = 0;
    for (int64_t row = 0; row < (t + 1) / ratio; ++row) {
      if (listed && (row % 2 == 1 || slot == 3)) continue;
      mask.index_put_({torch::indexing::Slice(), t, row}, true);
      if (listed) {
        selected.index_put_({torch::indexing::Slice(), t, slot++}, static_cast<int32_t>(row));
      }
    }
  }
  const Tensor mass = Random({2, tokens, rows}).sigmoid().masked_fill(mask.logical_not(), 0.0);
  const Tensor slots = mass.gather(2, selected.clamp_min(0).to(torch::kInt64));
  CompareWithTwin(
      {Random({2, tokens, 3 * 8}), Random({2, tokens, 3}), Random({2, rows, 8})},
      [&](const auto& in) {
        const IndexVectors vectors{in[0], in[1], in[2], ratio};
        const Tensor given = slots.masked_fill(selected < 0, 0.0).contiguous();
        return IndexLoss(vectors, listed ? given : mass, listed ? selected : Tensor(), 6);
      },
      [&](const auto& in) {
        const Tensor scores = ScoresTwin(in, 3).masked_fill(mask.logical_not(), -1e30);
        const Tensor m = mass.sum(2).to(torch::kFloat64);
        const Tensor p = mass / m.unsqueeze(2).clamp_min(1e-30);
        const Tensor kl = (p * (p.clamp_min(1e-30).log() - scores.log_softmax(2))).sum(2);
        return (m * kl).slice(1, 6).sum() / m.slice(1, 6).sum();
      });
}

TEST_F(Gradients, IndexLoss) {
  CompareIndexLoss(1, false);
  CompareIndexLoss(2, false);
  CompareIndexLoss(1, true);
  CompareIndexLoss(2, true);
}

TEST_F(Gradients, RoundingPassesThemStraight) {
  const Tensor x = Random({3, 64}, 100.0).set_requires_grad(true);
  const Tensor gradient = Random({3, 64});
  const Tensor y = FakeQuantizeRows(x, RowRounding::kFp4Group16);
  EXPECT_FALSE(torch::equal(x, y));
  y.backward(gradient);
  EXPECT_TRUE(torch::equal(x.grad(), gradient));
  const Tensor weight = Random({40, 64}).set_requires_grad(true);
  const Tensor weight_gradient = Random({40, 64});
  FakeQuantizeWeight(weight, WeightGrid::kFp8Tiles).backward(weight_gradient);
  EXPECT_TRUE(torch::equal(weight.grad(), weight_gradient));
}

}  // namespace
}  // namespace minke::train
