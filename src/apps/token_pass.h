// Given tokens through the model, with the logits of every position.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/result.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "model/forward.h"

namespace minke {

// Scratch memory is kept from one Run() to the next.
class TokenPass {
 public:
  // Both outlive it.
  TokenPass(const Model& model, ThreadPool& pool) : model_(model), pool_(pool) {}
  void set_diagnostics(const Diagnostics* diagnostics) { diagnostics_ = diagnostics; }

  // A sequence of its own. `rows`: tokens of the next call when `done` have been read.
  // `use_logits`: [rows, vocab_size] of the positions from `done` on.
  Status Run(std::span<const int32_t> ids, const std::function<int64_t(int64_t done)>& rows,
             const std::function<void(int64_t done, View<const float> logits)>& use_logits);

 private:
  const Model& model_;
  ThreadPool& pool_;
  const Diagnostics* diagnostics_ = nullptr;
  Arena arena_;
  Matrix<float> logits_;
};

}  // namespace minke
