// The real files, with faults on order: from the k-th operation on, or at it alone, the disk is
// full, broken or read-only, or writes only a part of what it was given.
// Thread safety: as StorageSystem; faults are set before the store is opened.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/storage_system.h"

namespace minke::testing {

enum class Fault {
  kNone,
  kDiskFull,    // writes and new files fail
  kReadOnly,    // everything that changes something fails
  kIoError,     // everything fails, reads too
  kShortWrite,  // as kDiskFull, but half of the bytes arrive first
  kNoHoles,     // parts of files cannot be freed; nothing fails
};

class FaultyStorage : public StorageSystem {
 public:
  FaultyStorage() = default;
  // Operations are counted from 0.
  FaultyStorage(Fault fault, int64_t first, bool once)
      : fault_(fault), first_(first), once_(once) {}

  int64_t operations() const { return operations_.load(); }
  int64_t failures() const { return failures_.load(); }

  Result<StorageFile> OpenFile(const std::string& path, OpenMode mode) override;
  Result<int64_t> ReadAt(const StorageFile& file, int64_t offset,
                         std::span<const std::span<std::byte>> parts) override;
  Status WriteAt(const StorageFile& file, int64_t offset,
                 std::span<const std::span<const std::byte>> parts) override;
  void StartSync(const StorageFile& file, int64_t offset, int64_t bytes) override;
  Status Sync(const StorageFile& file) override;
  Status SyncDirectory(const std::string& path) override;
  Status Truncate(const StorageFile& file, int64_t bytes) override;
  Result<bool> PunchHole(const StorageFile& file, int64_t offset, int64_t bytes) override;
  Result<int64_t> NextData(const StorageFile& file, int64_t offset) override;
  Status Unlink(const std::string& path) override;
  Status MakeDirectory(const std::string& path) override;
  Result<std::vector<std::string>> ListDirectory(const std::string& path) override;
  Result<std::optional<FileStatus>> Inspect(const std::string& path) override;
  Result<bool> Lock(const StorageFile& file) override;
  Result<std::string> RealPath(const std::string& path) override;
  uint32_t UserId() override { return real_->UserId(); }

 private:
  // What an operation does to the disk, from harmless to demanding.
  enum class Effect { kLook, kRemove, kGrow };
  // The failure that this operation meets, if any.
  Status Meet(Effect effect, const std::string& path);

  const std::unique_ptr<StorageSystem> real_ = MakePosixStorage();
  const Fault fault_ = Fault::kNone;
  const int64_t first_ = 0;
  const bool once_ = false;
  std::atomic<int64_t> operations_ = 0;
  std::atomic<int64_t> failures_ = 0;
};

}  // namespace minke::testing
