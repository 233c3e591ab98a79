#include "checkpoint/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"

namespace minke {
namespace {

// Some file systems take the flag and refuse the reads.
bool TakesDirectReads(int descriptor) {
  alignas(kPageBytes) std::byte page[kPageBytes];
  return ::pread(descriptor, page, sizeof(page), 0) >= 0;
}

}  // namespace

Result<DirectFile> DirectFile::Open(const std::string& path, uint64_t size_bytes) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  DirectFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), kFlags | O_DIRECT);
  file.direct_ = file.descriptor_ >= 0 && TakesDirectReads(file.descriptor_);
  if (!file.direct_) {
    if (file.descriptor_ >= 0) ::close(file.descriptor_);
    file.descriptor_ = ::open(path.c_str(), kFlags);
  }
  if (file.descriptor_ < 0) return IoFailure("open", path, errno);
  file.version_ = TRY(file.CurrentVersion());
  if (file.version_.size_bytes != size_bytes) {
    file.version_.size_bytes = size_bytes;
    return file.Changed(TRY(file.CurrentVersion()));
  }
  return file;
}

DirectFile::~DirectFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      direct_(other.direct_),
      version_(other.version_) {}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(direct_, other.direct_);
  std::swap(version_, other.version_);
  return *this;
}

Result<DirectFile::Version> DirectFile::CurrentVersion() const {
  struct stat info = {};
  if (::fstat(descriptor_, &info) != 0) return IoFailure("inspect", path_, errno);
  return Version{static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

tl::unexpected<Error> DirectFile::Changed(const Version& now) const {
  const std::string what =
      now.size_bytes == version_.size_bytes
          ? std::string("it was written to")
          : fmt::format("it had {} bytes and has {}", version_.size_bytes, now.size_bytes);
  return Fail(ErrorCode::kIo,
              fmt::format("{} changed while the model was in use: {}; put the file back as it was "
                          "and start anew",
                          path_, what));
}

Status DirectFile::Read(uint64_t begin, std::span<std::byte> target, uint64_t* failed_at) const {
  const size_t wanted =
      begin >= version_.size_bytes
          ? 0
          : static_cast<size_t>(std::min<uint64_t>(target.size(), version_.size_bytes - begin));
  size_t done = 0;
  while (done < wanted) {
    *failed_at = begin + done;
    const ssize_t count = ::pread(descriptor_, target.data() + done, target.size() - done,
                                  static_cast<off_t>(begin + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoFailure("read", path_, errno);
    if (count == 0) break;
    done += static_cast<size_t>(count);
    // Direct reads begin at whole pages, so a page that came in part is read again.
    if (done < wanted) done = done / kPageBytes * kPageBytes;
    if (static_cast<size_t>(count) < kPageBytes && done < wanted) break;
  }
  // After the read: what was read before a change is good, what was read after it is told apart.
  const Version now = TRY(CurrentVersion());
  if (now != version_) {
    if (now.size_bytes < begin + wanted) *failed_at = std::max(begin, now.size_bytes);
    return Changed(now);
  }
  if (done < wanted) {
    return Fail(ErrorCode::kIo,
                fmt::format("cannot read {}: the disk gave {} of {} bytes from byte {} on", path_,
                            done, wanted, begin));
  }
  if (!direct_) {
    ::posix_fadvise(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(target.size()),
                    POSIX_FADV_DONTNEED);
  }
  return {};
}

}  // namespace minke
