// Tensors of a checkpoint by reads instead of through the mapping: into memory that stays, or as
// pieces of a PieceCache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/direct_file.h"
#include "checkpoint/piece_cache.h"
#include "checkpoint/read_pool.h"
#include "checkpoint/safetensors.h"
#include "core/page_memory.h"
#include "core/result.h"

namespace minke {

// Tensors that are read together, and where they lie in memory afterwards.
struct TensorLayout {
  std::vector<PieceExtent> extents;
  std::vector<size_t> offsets;  // of the tensors, in the order in which they were given
  size_t bytes = 0;             // of the memory that the extents fill
};

// Thread safety: all const methods may be called from any thread.
class CheckpointReader {
 public:
  // `checkpoint` stays where it is as long as the reader lives. Errors: a shard that cannot be
  // opened, or that is no longer what was mapped.
  static Result<std::unique_ptr<CheckpointReader>> Open(const Checkpoint& checkpoint);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  // Whether reads pass the page cache by, for all shards.
  bool direct() const;
  // The shard of a tensor. Errors of its reads name the file, and the tensor that they are about.
  const ByteSource& Source(const TensorView& tensor) const;
  // Neighbours in a file are read as one; every tensor keeps its place within a page.
  TensorLayout LayOut(std::span<const TensorView* const> tensors) const;

 private:
  class Shard;
  CheckpointReader();
  std::vector<std::unique_ptr<Shard>> shards_;
};

inline constexpr size_t kLoadStepBytes = size_t{256} << 20;

struct LoadOptions {
  std::string_view what = "the dense weights";  // for errors about memory, as is the way out
  std::string_view way_out = "give --weights-ram less";
  size_t step_bytes = kLoadStepBytes;  // a multiple of kPageBytes
  // Called before anything is read into these bytes of the memory: its next step_bytes, which no
  // thread has used yet. `begin`: where they begin in it, a multiple of step_bytes.
  std::function<void(std::span<std::byte> bytes, size_t begin)> before_step;
  std::function<void(uint64_t done, uint64_t total)> progress;  // in bytes
};

// Reads tensors into memory, laid out as LayOut() says, and makes the checkpoint's views point
// there. The memory must stay as long as they are used.
Result<PageMemory> LoadTensors(const CheckpointReader& reader, ReadPool& pool,
                               std::span<const std::string_view> names, Checkpoint& checkpoint,
                               const LoadOptions& options = {});

}  // namespace minke
