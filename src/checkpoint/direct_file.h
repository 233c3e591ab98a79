// A file that is read past the page cache: what is kept of it is decided here, by a budget, and not
// by the system, which would push out what runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/page_memory.h"
#include "core/result.h"

namespace minke {

// Bytes by position. Read() may be called from several threads.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `target` with the bytes from `begin` on. REQUIRES that begin, the size and the address
  // of the target are multiples of kPageBytes; of a page that the end of the bytes cuts, the rest
  // is left as it is.
  virtual Status Read(uint64_t begin, std::span<std::byte> target) const = 0;
};

// Thread safety: all const methods may be called from any thread.
class DirectFile {
 public:
  // `size_bytes` is what the file has to have. Where the file system does not take direct I/O, the
  // page cache is used and emptied behind every read.
  static Result<DirectFile> Open(const std::string& path, uint64_t size_bytes);
  DirectFile() = default;
  ~DirectFile();
  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&& other) noexcept;

  // As ByteSource::Read(). Errors: trouble of the disk, and a file that is no longer the one that
  // was opened: shorter, longer, or written to. `failed_at` is then where in the file.
  Status Read(uint64_t begin, std::span<std::byte> target, uint64_t* failed_at) const;
  bool direct() const { return direct_; }
  const std::string& path() const { return path_; }

 private:
  // Size and time of the last change.
  struct Version {
    uint64_t size_bytes = 0;
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    bool operator==(const Version&) const = default;
  };
  Result<Version> CurrentVersion() const;
  tl::unexpected<Error> Changed(const Version& now) const;

  std::string path_;
  int descriptor_ = -1;
  bool direct_ = false;
  Version version_;
};

}  // namespace minke
