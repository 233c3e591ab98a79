// Files as the engine sees them: read-only mappings and whole small files. Everything that
// touches the file system for reading goes through here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace minke {

// A whole file mapped read-only. The mapping lives as long as the object. A file that shrinks
// while mapped raises SIGBUS in whoever reads it (as for any mmap reader).
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Reads bytes [begin, begin + count) into memory now instead of when they are first used. Only
  // speed depends on it: what cannot be read says so when it is used.
  void ReadAhead(size_t begin, size_t count) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Begins to read the page of a mapped file that holds this address, and does not wait for the disk.
// Only speed depends on it.
void StartReadingPage(const void* address);

// The error of a failed system call: "cannot open FILE: No such file or directory". `error` is
// errno; ENOENT and ENOTDIR make it kNotFound, all else kIo.
tl::unexpected<Error> IoFailure(std::string_view action, const std::string& path, int error);

// The whole of a regular file; larger than limit_bytes is an error that names both.
Result<std::string> ReadFile(const std::string& path, uint64_t limit_bytes);
// Who may read a new file besides its owner.
enum class FileAccess { kEverybody, kOwnerOnly };
// Writes a file whole (through a temporary name and rename, so that no half file is ever seen).
Status WriteFile(const std::string& path, std::span<const std::byte> bytes,
                 FileAccess access = FileAccess::kEverybody);
// Also where nobody may look, so that reading it tells that, instead of that nothing is there.
bool FileExists(const std::string& path);
std::string JoinPath(const std::string& directory, const std::string& name);

}  // namespace minke
