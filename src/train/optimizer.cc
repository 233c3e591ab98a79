#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "core/result.h"
#include "train/adamw.h"
#include "train/muon.h"

namespace minke::train {
namespace {

// Matrices that are made orthogonal in one go: enough to spread the calls' overhead, few enough to
// give every thread the same work.
constexpr size_t kMatricesPerItem = 16;

std::span<float> Values(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

bool IsAdam(ParameterGroup group) {
  return group == ParameterGroup::kAdam || group == ParameterGroup::kEmbedding ||
         group == ParameterGroup::kEngramTable;
}

}  // namespace

Optimizer::Optimizer(std::vector<Parameter>& parameters, int threads) : parameters_(&parameters) {
  moments_.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.group == ParameterGroup::kBias) continue;
    moments_[i].first = torch::zeros_like(parameter.value, torch::kFloat32).detach();
    if (!IsAdam(parameter.group)) continue;
    moments_[i].second = torch::zeros_like(moments_[i].first);
    constexpr double kCostPerValue = 10;  // memory traffic, in multiply-adds
    items_.push_back({{}, i, static_cast<double>(parameter.value.numel()) * kCostPerValue});
  }
  AddMuonItems();
  AssignItems(threads);
}

void Optimizer::AddMuonItems() {
  std::map<std::pair<int64_t, int64_t>, std::vector<Matrix>> by_shape;
  for (size_t i = 0; i < parameters_->size(); ++i) {
    const Parameter& parameter = (*parameters_)[i];
    if (parameter.group != ParameterGroup::kMuon) continue;
    const int64_t rank = parameter.value.dim();
    CHECK(rank == 2 || rank == 3, parameter.name);
    const int64_t count = rank == 3 ? parameter.value.size(0) : 1;
    for (int64_t index = 0; index < count; ++index) {
      by_shape[{parameter.value.size(rank - 2), parameter.value.size(rank - 1)}].push_back(
          {i, index});
    }
  }
  for (const auto& [shape, matrices] : by_shape) {
    const auto low = static_cast<double>(std::min(shape.first, shape.second));
    const auto high = static_cast<double>(std::max(shape.first, shape.second));
    const double cost = kNewtonSchulzSteps * low * low * (2 * high + low);
    for (size_t begin = 0; begin < matrices.size(); begin += kMatricesPerItem) {
      const size_t end = std::min(matrices.size(), begin + kMatricesPerItem);
      Item item;
      item.matrices.assign(matrices.begin() + static_cast<std::ptrdiff_t>(begin),
                           matrices.begin() + static_cast<std::ptrdiff_t>(end));
      item.cost = cost * static_cast<double>(end - begin);
      items_.push_back(std::move(item));
    }
  }
}

void Optimizer::AssignItems(int threads) {
  shares_.resize(static_cast<size_t>(threads));
  std::vector<double> costs(shares_.size(), 0);
  std::vector<size_t> order(items_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return items_[a].cost > items_[b].cost; });
  for (const size_t item : order) {
    const auto least = std::min_element(costs.begin(), costs.end()) - costs.begin();
    shares_[static_cast<size_t>(least)].push_back(item);
    costs[static_cast<size_t>(least)] += items_[item].cost;
  }
}

double Optimizer::RateOf(const Parameter& parameter, const Rates& rates) const {
  const double slow = parameter.structured ? rates.structured_factor : 1;
  switch (parameter.group) {
    case ParameterGroup::kMuon:
      return slow * rates.muon;
    case ParameterGroup::kAdam:
      return slow * rates.adam;
    case ParameterGroup::kEmbedding:
      return slow * rates.embedding;
    case ParameterGroup::kEngramTable:
      return slow * rates.engram;
    case ParameterGroup::kBias:
      return 0;
  }
  return 0;
}

double Optimizer::Step(const std::vector<torch::Tensor>& gradients, const Rates& rates,
                       ThreadPool& pool) {
  CHECK(gradients.size() == parameters_->size());
  std::vector<double> squares(gradients.size(), 0);
  const auto count = static_cast<int64_t>(shares_.size());
  pool.ParallelFor(count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t share = begin; share < end; ++share) {
      for (const size_t index : shares_[static_cast<size_t>(share)]) {
        const Item& item = items_[index];
        for (const Matrix& matrix : item.matrices) {
          const torch::Tensor& gradient = gradients[matrix.parameter];
          if (gradient.defined() && matrix.index == 0) {
            squares[matrix.parameter] = SumOfSquares(Values(gradient));
          }
        }
        if (item.matrices.empty() && gradients[item.parameter].defined()) {
          squares[item.parameter] = SumOfSquares(Values(gradients[item.parameter]));
        }
      }
    }
  });
  double adam = 0;
  double all = 0;
  for (size_t i = 0; i < squares.size(); ++i) {
    all += squares[i];
    if (IsAdam((*parameters_)[i].group)) adam += squares[i];
  }
  if (!std::isfinite(all)) return all;
  const double norm = std::sqrt(adam);
  const double factor = norm > kAdamClipNorm ? kAdamClipNorm / norm : 1;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) ++moments_[i].steps;
  }
  pool.ParallelFor(count, 1, [&](int64_t begin, int64_t end, int) {
    const torch::NoGradGuard no_grad;
    for (int64_t share = begin; share < end; ++share) {
      for (const size_t index : shares_[static_cast<size_t>(share)]) {
        const Item& item = items_[index];
        if (!item.matrices.empty()) {
          RunMuon(item, gradients, rates);
        } else if (gradients[item.parameter].defined()) {
          RunAdamW(item.parameter, gradients[item.parameter], rates, factor);
        }
      }
    }
  });
  return norm;
}

void Optimizer::RunAdamW(size_t parameter, const torch::Tensor& gradient, const Rates& rates,
                         double gradient_factor) {
  const Parameter& target = (*parameters_)[parameter];
  Moments& moments = moments_[parameter];
  AdamWStep({RateOf(target, rates), gradient_factor, moments.steps}, Values(gradient),
            Values(moments.first), Values(moments.second), Values(target.value.detach()));
}

void Optimizer::RunMuon(const Item& item, const std::vector<torch::Tensor>& gradients,
                        const Rates& rates) {
  std::vector<torch::Tensor> ahead;
  std::vector<torch::Tensor> values;
  std::vector<double> steps;
  for (const Matrix& matrix : item.matrices) {
    if (!gradients[matrix.parameter].defined()) continue;
    const Parameter& parameter = (*parameters_)[matrix.parameter];
    const bool stack = parameter.value.dim() == 3;
    const auto of = [&](const torch::Tensor& tensor) {
      return stack ? tensor.select(0, matrix.index) : tensor;
    };
    const torch::Tensor gradient = of(gradients[matrix.parameter]);
    torch::Tensor momentum = of(moments_[matrix.parameter].first);
    momentum.mul_(kMuonMomentum).add_(gradient);
    ahead.push_back(gradient.add(momentum, kMuonMomentum));
    values.push_back(of(parameter.value.detach()));
    steps.push_back(RateOf(parameter, rates));
  }
  if (ahead.empty()) return;
  const torch::Tensor updates = Orthogonalized(torch::stack(ahead));
  const double scale = MuonScale(updates.size(1), updates.size(2));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].sub_(updates.select(0, static_cast<int64_t>(i)), scale * steps[i]);
  }
}

}  // namespace minke::train
