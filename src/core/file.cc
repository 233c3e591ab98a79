#include "core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace minke {

namespace {

// Owns a descriptor, so that every early return closes it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int OpenForReading(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files.
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

Result<uint64_t> RegularFileSize(int fd, const std::string& path) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return IoFailure("inspect", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Fail(ErrorCode::kIo, fmt::format("{} is not a regular file", path));
  }
  return static_cast<uint64_t>(info.st_size);
}

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::write(fd, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoFailure("write", path, errno);
    written += static_cast<size_t>(count);
  }
  // Without this a crash after the rename could leave the new name with no contents.
  if (::fsync(fd) != 0) return IoFailure("flush", path, errno);
  return {};
}

}  // namespace

tl::unexpected<Error> IoFailure(std::string_view action, const std::string& path, int error) {
  const ErrorCode code =
      error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
  // strerror() shares a buffer between threads; this does not.
  return Fail(
      code, fmt::format("cannot {} {}: {}", action, path, std::generic_category().message(error)));
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const Descriptor fd(OpenForReading(path));
  if (fd.get() < 0) return IoFailure("open", path, errno);
  const uint64_t size = TRY(RegularFileSize(fd.get(), path));
  MappedFile file;
  file.path_ = path;
  if (size == 0) return file;  // an empty range cannot be mapped
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return IoFailure("map", path, errno);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::ReadAhead(size_t begin, size_t count) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = begin / page * page;
  const size_t end = std::min(begin + count, size_);
  if (first >= end) return;
  auto* data = const_cast<std::byte*>(data_) + first;
  // Kernels before 5.14 know the second only, which does not wait.
  if (::madvise(data, end - first, MADV_POPULATE_READ) != 0) {
    ::madvise(data, end - first, MADV_WILLNEED);
  }
}

void StartReadingPage(const void* address) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t offset = reinterpret_cast<uintptr_t>(address) % page;
  auto* begin = static_cast<std::byte*>(const_cast<void*>(address)) - offset;
  ::madvise(begin, page, MADV_WILLNEED);
}

Result<std::string> ReadFile(const std::string& path, uint64_t limit_bytes) {
  const Descriptor fd(OpenForReading(path));
  if (fd.get() < 0) return IoFailure("open", path, errno);
  const uint64_t size = TRY(RegularFileSize(fd.get(), path));
  if (size > limit_bytes) {
    return Fail(ErrorCode::kLimit, fmt::format("{} has {} bytes; at most {} bytes are accepted",
                                               path, size, limit_bytes));
  }
  std::string text(size, '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + filled, text.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoFailure("read", path, errno);
    if (count == 0) break;  // the file shrank; what is there is its content now
    filled += static_cast<size_t>(count);
  }
  text.resize(filled);
  return text;
}

Status WriteFile(const std::string& path, std::span<const std::byte> bytes, FileAccess access) {
  std::string temporary = path + ".XXXXXX";
  {
    const Descriptor fd(::mkstemp(temporary.data()));
    if (fd.get() < 0) return IoFailure("create a temporary file beside", path, errno);
    Status status = WriteAll(fd.get(), bytes, temporary);
    // mkstemp makes files private; a checkpoint or report is as readable as any other file.
    const bool shared = access == FileAccess::kEverybody;
    if (status && shared && ::fchmod(fd.get(), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) != 0) {
      status = IoFailure("set the mode of", temporary, errno);
    }
    if (!status) {
      ::unlink(temporary.c_str());
      return status;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return IoFailure("replace", path, error);
  }
  return {};
}

bool FileExists(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 || errno == EACCES;
}

std::string JoinPath(const std::string& directory, const std::string& name) {
  if (directory.empty()) return name;
  return directory.back() == '/' ? directory + name : directory + '/' + name;
}

}  // namespace minke
