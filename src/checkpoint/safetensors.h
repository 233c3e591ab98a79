// safetensors files and sharded checkpoints, memory-mapped and bounds-checked (architecture.md
// 2.1). Knows no model: names, dtypes, shapes and byte ranges only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/result.h"

namespace minke {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;  // the format's own limit
inline constexpr uint64_t kIndexBytesMax = uint64_t{64} << 20;  // the released index has ~10 MB
inline constexpr uint64_t kTensorCountMax = 1u << 20;
inline constexpr size_t kTensorNameBytesMax = 512;
inline constexpr size_t kTensorRankMax = 4;
inline constexpr size_t kShardCountMax = 4096;
// Parsing a header allocates at most this many bytes per byte of header, whatever it claims: sizes
// in the header are compared and never allocated.
inline constexpr uint64_t kHeaderExpansionMax = 64;

enum class DType { kBf16, kF32, kF8E4M3, kF8E8M0, kI8 };
// The safetensors spelling: "BF16", "F32", "F8_E4M3" ...
const char* DTypeName(DType dtype);
int64_t DTypeBytes(DType dtype);

// Never owns: the checkpoint does.
struct TensorView {
  std::string_view name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // into the mapping, or where Relocate() said
  std::string_view file;             // path of the shard
  uint64_t begin = 0;                // of the bytes, from the start of the file
};

// One file's header. Its tensors cover the data without overlap, hole or rest, as the format
// demands: a hole hides bytes that nobody accounts for.
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
// Touches the header's bytes only, not the data. `path` names the file in errors, which also name
// the tensor, what was expected and what was found.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file_bytes,
                                                 std::string_view path);

// model.safetensors.index.json of a sharded checkpoint.
struct SafetensorsIndex {
  uint64_t total_size = 0;          // bytes of all tensors
  std::vector<std::string> shards;  // file names, ascending; each is named by some tensor
  std::map<std::string, size_t, std::less<>> weight_map;  // tensor -> position in shards
};
// Shard names must be plain *.safetensors file names: an index cannot reach another folder.
Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view text, std::string_view path);

inline constexpr size_t kPrewarmStepBytes = size_t{64} << 20;

// Immutable after Open(); may be read from any thread. Moving it keeps all views valid.
class Checkpoint {
 public:
  Checkpoint() = default;
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;
  // `directory` holds model.safetensors, or shards with model.safetensors.index.json. Only headers
  // are read, so what is resident afterwards does not grow with the size of the data.
  static Result<Checkpoint> Open(const std::string& directory);

  const TensorView* Find(std::string_view name) const;  // null if there is none
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  uint64_t tensor_bytes() const { return tensor_bytes_; }  // sum over tensors
  uint64_t file_bytes() const { return file_bytes_; }      // sum over shards
  size_t shard_count() const { return files_.size(); }
  std::span<const MappedFile> files() const { return files_; }
  const std::string& directory() const { return directory_; }

  // From now on the tensor's bytes are these, the same ones at another place, which the caller
  // keeps. REQUIRES that there is such a tensor of that size.
  void Relocate(std::string_view name, std::span<const std::byte> bytes);

  // Reads the shards into memory, a step of kPrewarmStepBytes at a time. progress(done, total), in
  // bytes, comes after each step and ends it by returning false.
  void Prewarm(const std::function<bool(uint64_t done, uint64_t total)>& progress) const;

 private:
  Status AddShard(const std::string& name, size_t shard, const SafetensorsIndex* index);

  std::string directory_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  uint64_t tensor_bytes_ = 0;
  uint64_t file_bytes_ = 0;
};

}  // namespace minke
