// From a directory to a model: config.json, tokenizer.json, the checkpoint, and the Engram class
// map that is derived from the tokenizer. Shared by the engine and `minke logits`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "engine/engine.h"
#include "model/forward.h"
#include "text/tokenizer.h"

namespace minke {

struct LoadedModel {
  Tokenizer tokenizer;
  std::unique_ptr<Model> model;
  bool random_weights = false;  // minke.json: {"random_weights": true}
};

// Reads options.model_dir, numerics, reference_artifacts, kernels and weights_ram_bytes.
Result<LoadedModel> LoadModel(const EngineOptions& options);

// options.threads, or one per processor that this process may use. An error if out of range.
Result<int> ThreadCount(const EngineOptions& options);

Pinning PinningOf(const EngineOptions& options);
// A sentence if threads were to be bound to processors and are not, otherwise nothing.
std::string PinningWarning(const ThreadPool& pool);

// What the model computes with: "reference", or the SIMD target, such as "AVX2".
const char* KernelsName(const Model& model);

// How reading weights as they are needed went so far.
WeightsUse WeightsUseOf(const Model& model);
// The same with totals since `before` was taken.
WeightsUse WeightsUseSince(const Model& model, const WeightsUse& before);

// Bytes of physical memory, 0 if the system does not say.
uint64_t PhysicalMemoryBytes();

// A sentence if a checkpoint of that size does not fit that memory, otherwise nothing.
std::string MemoryWarning(uint64_t checkpoint_bytes, uint64_t memory_bytes);

}  // namespace minke
