// How fast a disk delivers large blocks past the page cache: the bound of weights that are read as
// they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"

namespace minke {

inline constexpr int64_t kDiskFileBytes = int64_t{1} << 30;      // read in a pass, at most
inline constexpr int64_t kDiskFileBytesMin = int64_t{64} << 20;  // shorter passes tell little
inline constexpr int64_t kDiskReadBytes = int64_t{1} << 20;      // of one request
inline constexpr int kDiskReadersMax = 8;                        // requests in flight

// A file that is read to learn what its disk gives.
class DiskFile {
 public:
  // Writes kDiskFileBytes of random bytes to a new file in `directory`, which has no name once it
  // is open and ends with the process, and waits until they are on the disk. Errors: the directory
  // cannot be written, has no room, or does not take direct I/O (a file system in memory does not).
  static Result<std::unique_ptr<DiskFile>> Create(const std::string& directory);
  // The largest file of `directory` as it is: what a disk gives may depend on the file. Null if
  // none has kDiskFileBytesMin. Errors: as above.
  static Result<std::unique_ptr<DiskFile>> OpenLargest(const std::string& directory);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  // Bytes per second of one pass over the file with `readers` requests in flight, 1 to
  // kDiskReadersMax, each to the block after the last one that was asked for.
  Result<double> MeasureReadRate(int readers);

 private:
  DiskFile(std::string path, int descriptor, int64_t bytes);
  static Result<std::unique_ptr<DiskFile>> Make(const std::string& path);

  std::string path_;
  int descriptor_;
  int64_t bytes_;         // of a pass, whole blocks
  AlignedBytes buffers_;  // kDiskReadersMax blocks and room to align them
  std::byte* first_buffer_ = nullptr;
};

}  // namespace minke
