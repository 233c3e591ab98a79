// One step of Muon and AdamW over all parameters of a model, spread over threads; which thread does
// what has no influence on the result, because no sum crosses a parameter but the clipping norm,
// whose order is fixed.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "train/model.h"

namespace minke::train {

// Rates of one step, warm-up and decay included.
struct Rates {
  double muon = 0;
  double adam = 0;
  double embedding = 0;
  double engram = 0;
  double structured_factor = 1;  // multiplies the rate of parameters that hold structure
};

// What the optimizer remembers of one parameter. Undefined where a rule does not need it.
struct Moments {
  torch::Tensor first;   // Muon's momentum, AdamW's mean
  torch::Tensor second;  // AdamW's mean of squares
  int64_t steps = 0;     // in which it had a gradient
};

class Optimizer {
 public:
  // `parameters` outlives it and keeps its tensors.
  Optimizer(std::vector<Parameter>& parameters, int threads);

  // gradients[i] belongs to parameter i; undefined: untouched in this step. Returns the norm of
  // AdamW's gradients before clipping; not finite where a gradient is not, and then nothing has
  // changed. Any number of threads gives the same parameters.
  double Step(const std::vector<torch::Tensor>& gradients, const Rates& rates, ThreadPool& pool);

  std::vector<Moments>& moments() { return moments_; }

 private:
  // A share of work that one thread does: AdamW for one parameter, or Muon for matrices that are
  // shaped alike.
  struct Matrix {
    size_t parameter = 0;
    int64_t index = 0;  // in a stack
  };
  struct Item {
    std::vector<Matrix> matrices;  // Muon; empty: AdamW
    size_t parameter = 0;          // AdamW
    double cost = 0;               // relative
  };
  void AddMuonItems();
  void AssignItems(int threads);
  void RunMuon(const Item& item, const std::vector<torch::Tensor>& gradients, const Rates& rates);
  void RunAdamW(size_t parameter, const torch::Tensor& gradient, const Rates& rates,
                double gradient_factor);
  double RateOf(const Parameter& parameter, const Rates& rates) const;

  std::vector<Parameter>* parameters_;
  std::vector<Moments> moments_;
  std::vector<Item> items_;
  std::vector<std::vector<size_t>> shares_;  // items of each thread
};

}  // namespace minke::train
