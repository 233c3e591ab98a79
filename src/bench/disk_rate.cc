#include "bench/disk_rate.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "recall/random.h"

namespace minke {
namespace {

constexpr size_t kDirectAlignmentBytes = 4096;     // of direct I/O on every usual file system
constexpr int64_t kSpareBytes = int64_t{1} << 30;  // left free on the disk

// Waits for the disk; a file system may give back less than it was asked for.
int ReadBlock(int descriptor, std::byte* buffer, int64_t offset) {
  for (int64_t done = 0; done < kDiskReadBytes;) {
    const ssize_t count =
        pread(descriptor, buffer + done, static_cast<size_t>(kDiskReadBytes - done), offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    done += count;
  }
  return 0;
}

int WriteBlock(int descriptor, const std::byte* buffer) {
  for (int64_t done = 0; done < kDiskReadBytes;) {
    const ssize_t count =
        write(descriptor, buffer + done, static_cast<size_t>(kDiskReadBytes - done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    done += count;
  }
  return 0;
}

tl::unexpected<Error> NoDirectIo(const std::string& path) {
  return Fail(
      fmt::format("The file system of {} does not take direct I/O, so its disk cannot be told from "
                  "the page cache; name another folder with --dir.",
                  path));
}

}  // namespace

DiskFile::DiskFile(std::string path, int descriptor, int64_t bytes)
    : path_(std::move(path)),
      descriptor_(descriptor),
      bytes_(bytes),
      buffers_(AllocateAligned(kDiskReadersMax * kDiskReadBytes + kDirectAlignmentBytes)) {
  const auto address = reinterpret_cast<uintptr_t>(buffers_.get());
  first_buffer_ = buffers_.get() + (kDirectAlignmentBytes - address % kDirectAlignmentBytes);
}

DiskFile::~DiskFile() {
  close(descriptor_);
}

Result<std::unique_ptr<DiskFile>> DiskFile::Create(const std::string& directory) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error) return IoFailure("look at", directory, error.value());
  if (space.available < static_cast<uintmax_t>(kDiskFileBytes + kSpareBytes)) {
    return Fail(ErrorCode::kLimit,
                fmt::format("{} has {:.1f} GB free; measuring the disk needs {:.1f} GB for a file "
                            "and leaves {:.1f} GB. Name another folder with --dir.",
                            directory, static_cast<double>(space.available) / 1e9,
                            static_cast<double>(kDiskFileBytes) / 1e9,
                            static_cast<double>(kSpareBytes) / 1e9));
  }
  return Make(JoinPath(directory, fmt::format("minke-bench-{}.tmp", getpid())));
}

Result<std::unique_ptr<DiskFile>> DiskFile::Make(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0600);
  if (descriptor < 0 && errno == EINVAL) {
    // The name was made before the file system refused the flag.
    unlink(path.c_str());
    return NoDirectIo(path);
  }
  if (descriptor < 0) return IoFailure("create", path, errno);
  unlink(path.c_str());  // so that nothing is left of it, however the process ends
  auto file = std::unique_ptr<DiskFile>(new DiskFile(path, descriptor, kDiskFileBytes));
  Random random({kDiskFileBytes});
  for (int64_t at = 0; at < kDiskFileBytes; at += kDiskReadBytes) {
    for (int64_t word = 0; word < kDiskReadBytes; word += 8) {
      const uint64_t value = random.Next();
      std::memcpy(file->first_buffer_ + word, &value, sizeof(value));
    }
    const int problem = WriteBlock(descriptor, file->first_buffer_);
    if (problem != 0) return IoFailure("write", path, problem);
  }
  if (fdatasync(descriptor) != 0) return IoFailure("write", path, errno);
  return file;
}

Result<std::unique_ptr<DiskFile>> DiskFile::OpenLargest(const std::string& directory) {
  std::error_code error;
  std::string largest;
  int64_t bytes = kDiskFileBytesMin - 1;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (!entry.is_regular_file(error)) continue;
    const uintmax_t size = entry.file_size(error);
    if (error || static_cast<int64_t>(size) <= bytes) continue;
    bytes = static_cast<int64_t>(size);
    largest = entry.path().string();
  }
  if (largest.empty()) return std::unique_ptr<DiskFile>();
  const int descriptor = open(largest.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (descriptor < 0 && errno == EINVAL) return NoDirectIo(largest);
  if (descriptor < 0) return IoFailure("open", largest, errno);
  const int64_t pass = std::min(bytes, kDiskFileBytes) / kDiskReadBytes * kDiskReadBytes;
  return std::unique_ptr<DiskFile>(new DiskFile(largest, descriptor, pass));
}

Result<double> DiskFile::MeasureReadRate(int readers) {
  CHECK(readers >= 1 && readers <= kDiskReadersMax);
  std::atomic<int64_t> next{0};
  std::atomic<int> problem{0};
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(readers));
    for (int reader = 0; reader < readers; ++reader) {
      threads.emplace_back([this, reader, &next, &problem] {
        std::byte* buffer = first_buffer_ + reader * kDiskReadBytes;
        for (int64_t at = next.fetch_add(kDiskReadBytes); at < bytes_ && problem == 0;
             at = next.fetch_add(kDiskReadBytes)) {
          const int failed = ReadBlock(descriptor_, buffer, at);
          if (failed != 0) problem = failed;
        }
      });
    }
  }
  if (problem != 0) return IoFailure("read", path_, problem);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes_) / seconds.count();
}

}  // namespace minke
