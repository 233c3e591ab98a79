// The file operations of the disk tier behind one interface, so that tests can make every one of
// them fail. Nothing here follows a symbolic link in the last part of a path, files are created
// for their owner alone (0600, directories 0700), and no descriptor survives an exec.
//
// Errors are whole sentences with the path; the code is kNotFound for what does not exist, kIo
// for everything else.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace minke {

// An open file. Closes it at the end of its life.
class StorageFile {
 public:
  StorageFile() = default;
  StorageFile(int descriptor, std::string path);
  ~StorageFile();
  StorageFile(StorageFile&& other) noexcept;
  StorageFile& operator=(StorageFile&& other) noexcept;

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }

 private:
  void Close();
  int descriptor_ = -1;
  std::string path_;
};

struct FileStatus {
  bool regular = false;
  bool directory = false;
  bool link = false;
  int64_t size_bytes = 0;
  int64_t disk_bytes = 0;  // st_blocks, in bytes
  uint32_t owner = 0;      // user id
  uint32_t mode = 0;       // permission bits
};

enum class OpenMode {
  kRead,          // must exist
  kReadWrite,     // must exist
  kCreate,        // must not exist
  kOpenOrCreate,  // for locks
};

class StorageSystem {
 public:
  virtual ~StorageSystem() = default;

  virtual Result<StorageFile> OpenFile(const std::string& path, OpenMode mode) = 0;
  // Fills the parts in order; returns the bytes read, fewer than asked only at the file's end.
  virtual Result<int64_t> ReadAt(const StorageFile& file, int64_t offset,
                                 std::span<const std::span<std::byte>> parts) = 0;
  // Writes all parts, one after another, or fails (and may have written some of them).
  virtual Status WriteAt(const StorageFile& file, int64_t offset,
                         std::span<const std::span<const std::byte>> parts) = 0;
  // Lets the disk begin with what was written, while more is prepared. A hint: cannot fail.
  virtual void StartSync(const StorageFile& file, int64_t offset, int64_t bytes) = 0;
  virtual Status Sync(const StorageFile& file) = 0;  // contents and length
  virtual Status SyncDirectory(const std::string& path) = 0;
  virtual Status Truncate(const StorageFile& file, int64_t bytes) = 0;
  // Gives the disk blocks of a range back; it reads as zeros. False: the file system cannot.
  virtual Result<bool> PunchHole(const StorageFile& file, int64_t offset, int64_t bytes) = 0;
  // The first offset from `offset` on that is not in a hole; the file's length if there is none.
  virtual Result<int64_t> NextData(const StorageFile& file, int64_t offset) = 0;
  virtual Status Unlink(const std::string& path) = 0;
  virtual Status MakeDirectory(const std::string& path) = 0;  // missing parents too
  virtual Result<std::vector<std::string>> ListDirectory(const std::string& path) = 0;
  // Of the path itself, not of what a link points to; nothing if it does not exist.
  virtual Result<std::optional<FileStatus>> Inspect(const std::string& path) = 0;
  // An exclusive lock for as long as the file is open. False: another process holds it.
  virtual Result<bool> Lock(const StorageFile& file) = 0;
  // The path without links or dots.
  virtual Result<std::string> RealPath(const std::string& path) = 0;
  virtual uint32_t UserId() = 0;
};

// The operating system's files. Has no state: as many as there are, they see the same.
std::unique_ptr<StorageSystem> MakePosixStorage();

}  // namespace minke
