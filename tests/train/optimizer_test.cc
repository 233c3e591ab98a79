// Muon and AdamW against their formulas written down once more, step by step.
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/thread_pool.h"
#include "train/adamw.h"
#include "train/muon.h"

namespace minke::train {
namespace {

using torch::Tensor;

Parameter Named(const char* name, Tensor value, ParameterGroup group) {
  return {name, std::move(value), group, false, false};
}

// Numbers that do not repeat; no generator of libtorch's, whose state is global.
Tensor Numbers(std::vector<int64_t> shape, double seed) {
  Tensor tensor = torch::zeros(shape);
  float* const data = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    data[i] = static_cast<float>(std::sin(seed * 12.9898 + static_cast<double>(i) * 78.233));
  }
  return tensor;
}

// One Muon update of one matrix in double precision.
Tensor OrthogonalTwin(Tensor matrix) {
  Tensor x = matrix.to(torch::kFloat64);
  const bool tall = x.size(0) > x.size(1);
  if (tall) x = x.t();
  x = x / (x.norm() + 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Tensor a = x.mm(x.t());
    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a.mm(a)).mm(x);
  }
  return tall ? x.t() : x;
}

TEST(Orthogonalized, HasSingularValuesNearOne) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 8, 5}, {2, 5, 8}, {1, 6, 6}}) {
    const Tensor matrices = Numbers(shape, 1);
    const Tensor result = Orthogonalized(matrices);
    for (int64_t i = 0; i < shape[0]; ++i) {
      EXPECT_TRUE(
          torch::allclose(result[i].to(torch::kFloat64), OrthogonalTwin(matrices[i]), 1e-3, 1e-4));
    }
  }
  EXPECT_EQ(Orthogonalized(torch::zeros({1, 4, 4})).abs().max().item<float>(), 0);
}

TEST(Optimizer, MuonFollowsItsFormula) {
  std::vector<Parameter> parameters = {Named("tall", Numbers({8, 4}, 1), ParameterGroup::kMuon),
                                       Named("stack", Numbers({3, 4, 8}, 2), ParameterGroup::kMuon),
                                       Named("slow", Numbers({4, 8}, 3), ParameterGroup::kMuon)};
  parameters[2].structured = true;
  std::vector<Tensor> twins;
  std::vector<Tensor> momenta;
  for (const Parameter& parameter : parameters) {
    twins.push_back(parameter.value.to(torch::kFloat64));
    momenta.push_back(torch::zeros_like(twins.back()));
  }
  ThreadPool pool(2, 0);
  Optimizer optimizer(parameters, 2);
  const Rates rates{0.02, 0.1, 0.1, 0.1, 0.25};
  for (int step = 0; step < 3; ++step) {
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < parameters.size(); ++i) {
      gradients.push_back(Numbers(parameters[i].value.sizes().vec(), 10.0 * step + i));
      const Tensor gradient = gradients[i].to(torch::kFloat64);
      momenta[i] = 0.95 * momenta[i] + gradient;
      const Tensor ahead = gradient + 0.95 * momenta[i];
      const double rate = 0.02 * (i == 2 ? 0.25 : 1);
      if (i == 0) twins[i] -= rate * std::sqrt(2.0) * OrthogonalTwin(ahead);
      if (i == 2) twins[i] -= rate * OrthogonalTwin(ahead);
      for (int64_t expert = 0; i == 1 && expert < 3; ++expert) {
        twins[i][expert] -= rate * OrthogonalTwin(ahead[expert]);
      }
    }
    optimizer.Step(gradients, rates, pool);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor difference = parameters[i].value.to(torch::kFloat64) - twins[i];
    EXPECT_LT(difference.abs().max().item<double>(), 1e-4) << parameters[i].name;
  }
}

TEST(Optimizer, AdamWFollowsItsFormulaWithClipping) {
  std::vector<Parameter> parameters = {
      Named("vector", Numbers({7}, 1), ParameterGroup::kAdam),
      Named("embed", Numbers({5, 3}, 2), ParameterGroup::kEmbedding),
      Named("table", Numbers({4, 6}, 3), ParameterGroup::kEngramTable)};
  const double rate_of[] = {0.01, 0.02, 0.03};
  std::vector<Tensor> values, first, second;
  for (const Parameter& parameter : parameters) {
    values.push_back(parameter.value.to(torch::kFloat64));
    first.push_back(torch::zeros_like(values.back()));
    second.push_back(torch::zeros_like(values.back()));
  }
  ThreadPool pool(1, 0);
  Optimizer optimizer(parameters, 1);
  for (int step = 1; step <= 4; ++step) {
    std::vector<Tensor> gradients;
    double squares = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      gradients.push_back(Numbers(parameters[i].value.sizes().vec(), 10.0 * step + i));
      squares += gradients[i].to(torch::kFloat64).square().sum().item<double>();
    }
    const double norm = std::sqrt(squares);
    ASSERT_GT(norm, 1);  // or clipping would not be tested
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor gradient = gradients[i].to(torch::kFloat64) / norm;
      first[i] = 0.9 * first[i] + 0.1 * gradient;
      second[i] = 0.95 * second[i] + 0.05 * gradient.square();
      const Tensor mean = first[i] / (1 - std::pow(0.9, step));
      const Tensor square = second[i] / (1 - std::pow(0.95, step));
      values[i] = values[i] * (1 - rate_of[i] * 0.01) - rate_of[i] * mean / (square.sqrt() + 1e-8);
    }
    EXPECT_NEAR(optimizer.Step(gradients, {0, 0.01, 0.02, 0.03, 1}, pool), norm, 1e-4 * norm);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor difference = parameters[i].value.to(torch::kFloat64) - values[i];
    EXPECT_LT(difference.abs().max().item<double>(), 1e-5) << parameters[i].name;
  }
}

TEST(Optimizer, LeavesWhatHasNoGradient) {
  std::vector<Parameter> parameters = {Named("used", Numbers({4}, 1), ParameterGroup::kAdam),
                                       Named("unused", Numbers({4}, 2), ParameterGroup::kAdam),
                                       Named("matrix", Numbers({4, 4}, 3), ParameterGroup::kMuon),
                                       Named("bias", Numbers({4}, 4), ParameterGroup::kBias)};
  std::vector<Tensor> before;
  for (const Parameter& parameter : parameters) before.push_back(parameter.value.clone());
  ThreadPool pool(2, 0);
  Optimizer optimizer(parameters, 2);
  optimizer.Step({Numbers({4}, 5), Tensor(), Tensor(), Tensor()}, {1, 1, 1, 1, 1}, pool);
  EXPECT_FALSE(parameters[0].value.equal(before[0]));
  for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(parameters[i].value.equal(before[i])) << i;
}

TEST(Optimizer, RefusesGradientsThatAreNoNumbers) {
  std::vector<Parameter> parameters = {Named("a", Numbers({4}, 1), ParameterGroup::kAdam),
                                       Named("b", Numbers({4, 4}, 2), ParameterGroup::kMuon)};
  const Tensor a = parameters[0].value.clone();
  ThreadPool pool(1, 0);
  Optimizer optimizer(parameters, 1);
  Tensor bad = Numbers({4, 4}, 3);
  bad[1][2] = NAN;
  EXPECT_FALSE(std::isfinite(optimizer.Step({Numbers({4}, 4), bad}, {1, 1, 1, 1, 1}, pool)));
  EXPECT_TRUE(parameters[0].value.equal(a));
  EXPECT_EQ(optimizer.moments()[0].steps, 0);
}

TEST(Optimizer, DoesNotDependOnThreads) {
  std::vector<Tensor> results;
  for (const int threads : {1, 2, 3}) {
    std::vector<Parameter> parameters;
    std::vector<Tensor> gradients;
    for (int i = 0; i < 20; ++i) {
      parameters.push_back(Named("m", Numbers({8, 4 + i % 3}, i), ParameterGroup::kMuon));
      parameters.push_back(Named("v", Numbers({5 + i}, i), ParameterGroup::kAdam));
    }
    for (const Parameter& parameter : parameters) {
      gradients.push_back(Numbers(parameter.value.sizes().vec(), 99));
    }
    ThreadPool pool(threads, 0);
    Optimizer optimizer(parameters, threads);
    optimizer.Step(gradients, {0.02, 0.01, 0.01, 0.01, 1}, pool);
    std::vector<Tensor> flat;
    for (const Parameter& parameter : parameters) flat.push_back(parameter.value.flatten());
    results.push_back(torch::cat(flat));
  }
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_TRUE(results[0].equal(results[2]));
}

}  // namespace
}  // namespace minke::train
