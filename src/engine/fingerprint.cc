#include "engine/fingerprint.h"

#include <algorithm>

#include "core/file.h"
#include "model/config.h"

namespace minke {

namespace {

// Raised whenever the meaning of a cached byte changes: rows, blocks, snapshots, or the arithmetic
// that makes them. Part of the format.
constexpr int64_t kCachedFormatVersion = 2;
constexpr uint64_t kHashedFileBytesMax = uint64_t{256} << 20;

void AddWeights(KeyHasher& hasher, const Checkpoint& checkpoint) {
  const size_t count = checkpoint.tensors().size();
  const size_t stride = std::max<size_t>(1, count / kFingerprintTensors);
  const bool whole = checkpoint.tensor_bytes() <= kFingerprintWholeBytes;
  size_t index = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    hasher.Add("tensor", name);
    hasher.Add("dtype", std::string_view(DTypeName(tensor.dtype)));
    for (const int64_t size : tensor.shape) hasher.Add("size", size);
    if (whole) {
      hasher.Add("bytes", tensor.bytes);
    } else if (index % stride == 0) {
      for (const size_t quarter : {1, 2, 3}) {
        const size_t begin = tensor.bytes.size() / 4 * quarter;
        const size_t size = std::min(kFingerprintSampleBytes, tensor.bytes.size() - begin);
        hasher.Add("sample", tensor.bytes.subspan(begin, size));
      }
    }
    ++index;
  }
}

}  // namespace

Result<CacheKey> ModelFingerprint(const EngineOptions& options, const Model& model) {
  KeyHasher hasher("fingerprint");
  hasher.Add("format", kCachedFormatVersion);
  hasher.Add("block tokens", kCacheBlockTokens);
  for (const char* name : {"config.json", "tokenizer.json"}) {
    const std::string text = TRY(ReadFile(JoinPath(options.model_dir, name), kHashedFileBytesMax));
    hasher.Add(name, std::string_view(text));
  }
  AddWeights(hasher, model.checkpoint());
  hasher.Add("numerics", std::string_view(NumericModeName(options.numerics)));
  hasher.Add("prefill", std::string_view(PrefillModeName(options.prefill)));
  hasher.Add("reference artifacts", int64_t{options.reference_artifacts});
  if (options.forward) hasher.Add("not the model", int64_t{1});
  return hasher.Finish();
}

}  // namespace minke
