// safetensors files and sharded checkpoints, memory-mapped and bounds-checked (architecture.md
// 2.1). Knows no model: names, dtypes, shapes and byte ranges only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/result.h"

namespace minke {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = uint64_t{256} << 20;
inline constexpr uint64_t kTensorCountMax = 1u << 20;
inline constexpr size_t kTensorRankMax = 4;
inline constexpr size_t kShardCountMax = 4096;

enum class DType { kBf16, kF32, kF8E4M3, kF8E8M0, kI8 };
const char* DTypeName(DType dtype);  // the safetensors spelling: "BF16", "F32", "F8_E4M3", ...
int64_t DTypeBytes(DType dtype);

struct TensorView {
  std::string_view name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // into the mapping
  std::string_view file;             // path of the shard
};

// Parses one file's header: names the file, tensor, expected and found in every error. The
// returned views point into `file_bytes` and, for names, into storage owned by the result.
struct SafetensorsHeader {
  struct Entry {
    std::string name;
    DType dtype = DType::kBf16;
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // bytes from the start of the file
    uint64_t end = 0;
  };
  std::vector<Entry> entries;  // ascending by begin
};
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file_bytes,
                                                 std::string_view path);

class Checkpoint {
 public:
  // `directory` holds model.safetensors, or shards with model.safetensors.index.json.
  static Result<Checkpoint> Open(const std::string& directory);

  const TensorView* Find(std::string_view name) const;  // null if there is none
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  uint64_t tensor_bytes() const { return tensor_bytes_; }  // sum over tensors
  uint64_t file_bytes() const { return file_bytes_; }      // sum over shards
  size_t shard_count() const { return files_.size(); }
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  uint64_t tensor_bytes_ = 0;
  uint64_t file_bytes_ = 0;
};

// Writes one safetensors file. For tests and the trainer.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};
Status WriteSafetensors(const std::string& path, std::span<const TensorToWrite> tensors);

}  // namespace minke
