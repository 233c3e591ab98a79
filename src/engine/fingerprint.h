// What cached bytes depend on besides tokens and tenant, as one key (serving.md 7.7): a cache of
// another model, version or mode is never read.
#pragma once

#include <string>

#include "core/result.h"
#include "engine/engine.h"
#include "model/forward.h"
#include "prefix_cache/block_key.h"

namespace minke {

// Weights are sampled, not read whole: of so many tensors, evenly chosen by name, this many bytes
// at a quarter, half and three quarters. A checkpoint with fewer bytes than the last is read whole.
inline constexpr size_t kFingerprintTensors = 1024;
inline constexpr size_t kFingerprintSampleBytes = 256;
inline constexpr uint64_t kFingerprintWholeBytes = uint64_t{64} << 20;

// Hashes config.json and tokenizer.json of options.model_dir, the catalogue and samples of the
// weights, numeric and prefill mode, and the version of the cached formats.
Result<CacheKey> ModelFingerprint(const EngineOptions& options, const Model& model);

}  // namespace minke
