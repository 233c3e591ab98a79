// Weights in anonymous memory of huge pages, each where the thread is that reads it: for machines
// whose memory has several nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/page_memory.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "model/config.h"

namespace minke {

// Where a tensor lies in memory.
struct TensorPlace {
  size_t begin = 0;
  size_t bytes = 0;
};

// For each huge page of [begin, end) the worker to whose share of the outputs (core/thread_pool.h)
// its middle belongs. Kernels differ in how they round shares to their blocks, by less than a page.
// places: ascending, not empty. REQUIRES begin to be a multiple of kLargePageBytes.
std::vector<int> PageOwners(std::span<const TensorPlace> places, size_t begin, size_t end,
                            int threads);

using CopyProgress = std::function<void(uint64_t done, uint64_t total)>;  // in bytes

// Reads the tensors of the text backbone but for the Engram tables, of which a token needs a few
// rows, into memory whose pages their owners have touched first, and makes the checkpoint's views
// point there. The memory must stay as long as they are used. available_bytes: see
// AvailableMemoryBytes(); 0: unknown. REQUIRES: CheckTensors() passed. Errors: less memory than it
// takes; trouble with files.
Result<PageMemory> CopyWeights(const ModelConfig& config, Checkpoint& checkpoint,
                               int64_t available_bytes, ThreadPool& pool,
                               const CopyProgress& progress);

}  // namespace minke
