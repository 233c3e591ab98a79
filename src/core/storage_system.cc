#include "core/storage_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "core/file.h"

namespace minke {

namespace {

constexpr int64_t kStatBlockBytes = 512;  // the unit of st_blocks, whatever the file system's is
constexpr size_t kPartsPerCall = 256;     // of one preadv() or pwritev(); IOV_MAX is 1024

// Skips `done` bytes of the parts and gathers what is left, as much as one call may take.
template <typename Part>
size_t Gather(std::span<const Part> parts, int64_t done, std::span<iovec> vectors) {
  size_t count = 0;
  for (const Part& part : parts) {
    const auto bytes = static_cast<int64_t>(part.size());
    if (done >= bytes) {
      done -= bytes;
      continue;
    }
    if (count == vectors.size()) break;
    // iovec has no const form; pwritev() only reads.
    auto* begin = const_cast<std::byte*>(part.data()) + done;
    vectors[count++] = {.iov_base = begin, .iov_len = static_cast<size_t>(bytes - done)};
    done = 0;
  }
  return count;
}

FileStatus ToStatus(const struct stat& info) {
  return {.regular = S_ISREG(info.st_mode),
          .directory = S_ISDIR(info.st_mode),
          .link = S_ISLNK(info.st_mode),
          .size_bytes = static_cast<int64_t>(info.st_size),
          .disk_bytes = static_cast<int64_t>(info.st_blocks) * kStatBlockBytes,
          .owner = info.st_uid,
          .mode = info.st_mode & 07777U};
}

int OpenFlags(OpenMode mode) {
  // O_NONBLOCK: opening a planted FIFO must not wait for its other end.
  constexpr int kAlways = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  switch (mode) {
    case OpenMode::kRead:
      return O_RDONLY | kAlways;
    case OpenMode::kReadWrite:
      return O_RDWR | kAlways;
    case OpenMode::kCreate:
      return O_RDWR | O_CREAT | O_EXCL | kAlways;
    case OpenMode::kOpenOrCreate:
      return O_RDWR | O_CREAT | kAlways;
  }
  return O_RDONLY | kAlways;
}

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

class PosixStorageSystem : public StorageSystem {
 public:
  Result<StorageFile> OpenFile(const std::string& path, OpenMode mode) override {
    StorageFile file(::open(path.c_str(), OpenFlags(mode), 0600), path);
    if (!file) return IoFailure("open", path, errno);
    struct stat info = {};
    if (::fstat(file.descriptor(), &info) != 0) return IoFailure("inspect", path, errno);
    if (!S_ISREG(info.st_mode)) {
      return Fail(ErrorCode::kIo, fmt::format("{} is not a regular file", path));
    }
    return file;
  }

  Result<int64_t> ReadAt(const StorageFile& file, int64_t offset,
                         std::span<const std::span<std::byte>> parts) override {
    std::array<iovec, kPartsPerCall> vectors;
    int64_t done = 0;
    while (true) {
      const size_t count = Gather(parts, done, vectors);
      if (count == 0) return done;
      const ssize_t bytes = ::preadv(file.descriptor(), vectors.data(), static_cast<int>(count),
                                     static_cast<off_t>(offset + done));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) return IoFailure("read", file.path(), errno);
      if (bytes == 0) return done;
      done += bytes;
    }
  }

  Status WriteAt(const StorageFile& file, int64_t offset,
                 std::span<const std::span<const std::byte>> parts) override {
    std::array<iovec, kPartsPerCall> vectors;
    while (!parts.empty()) {
      // Whole groups of parts, so that gathering stays linear in their number.
      const auto group = parts.first(std::min(parts.size(), kPartsPerCall));
      int64_t done = 0;
      for (size_t count = Gather(group, done, vectors); count != 0;
           count = Gather(group, done, vectors)) {
        const ssize_t bytes = ::pwritev(file.descriptor(), vectors.data(), static_cast<int>(count),
                                        static_cast<off_t>(offset + done));
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) return IoFailure("write", file.path(), errno);
        done += bytes;
      }
      offset += done;
      parts = parts.subspan(group.size());
    }
    return {};
  }

  void StartSync(const StorageFile& file, int64_t offset, int64_t bytes) override {
    // What goes wrong here is reported by Sync().
    ::sync_file_range(file.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                      SYNC_FILE_RANGE_WRITE);
  }

  Status Sync(const StorageFile& file) override {
    if (::fdatasync(file.descriptor()) != 0) return IoFailure("flush", file.path(), errno);
    return {};
  }

  Status SyncDirectory(const std::string& path) override {
    const StorageFile directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path);
    if (!directory) return IoFailure("open", path, errno);
    if (::fsync(directory.descriptor()) != 0) return IoFailure("flush", path, errno);
    return {};
  }

  Status Truncate(const StorageFile& file, int64_t bytes) override {
    if (::ftruncate(file.descriptor(), static_cast<off_t>(bytes)) != 0) {
      return IoFailure("shorten", file.path(), errno);
    }
    return {};
  }

  Result<bool> PunchHole(const StorageFile& file, int64_t offset, int64_t bytes) override {
    if (::fallocate(file.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) {
      return true;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS) return false;
    return IoFailure("free a part of", file.path(), errno);
  }

  Result<int64_t> NextData(const StorageFile& file, int64_t offset) override {
    const off_t found = ::lseek(file.descriptor(), static_cast<off_t>(offset), SEEK_DATA);
    if (found >= 0) return static_cast<int64_t>(found);
    if (errno == EINVAL) return offset;  // no holes on this file system
    if (errno != ENXIO) return IoFailure("read", file.path(), errno);
    struct stat info = {};
    if (::fstat(file.descriptor(), &info) != 0) return IoFailure("inspect", file.path(), errno);
    return static_cast<int64_t>(info.st_size);
  }

  Status Unlink(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return IoFailure("remove", path, errno);
    return {};
  }

  Status MakeDirectory(const std::string& path) override {
    for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
      const std::string parent = path.substr(0, end);
      if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST) {
        return IoFailure("create the directory", parent, errno);
      }
    }
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return IoFailure("create the directory", path, errno);
    }
    return {};
  }

  Result<std::vector<std::string>> ListDirectory(const std::string& path) override {
    const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(path.c_str()));
    if (directory == nullptr) return IoFailure("list the directory", path, errno);
    std::vector<std::string> names;
    while (true) {
      errno = 0;
      const dirent* entry = ::readdir(directory.get());
      if (entry == nullptr && errno != 0) return IoFailure("list the directory", path, errno);
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<std::optional<FileStatus>> Inspect(const std::string& path) override {
    struct stat info = {};
    if (::lstat(path.c_str(), &info) == 0) return ToStatus(info);
    if (errno == ENOENT) return std::nullopt;
    return IoFailure("inspect", path, errno);
  }

  Result<bool> Lock(const StorageFile& file) override {
    if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    return IoFailure("lock", file.path(), errno);
  }

  Result<std::string> RealPath(const std::string& path) override {
    std::array<char, PATH_MAX + 1> buffer = {};
    if (::realpath(path.c_str(), buffer.data()) == nullptr) {
      return IoFailure("resolve", path, errno);
    }
    return std::string(buffer.data());
  }

  uint32_t UserId() override { return ::geteuid(); }
};

}  // namespace

StorageFile::StorageFile(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)) {}

StorageFile::~StorageFile() {
  Close();
}

StorageFile::StorageFile(StorageFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

StorageFile& StorageFile::operator=(StorageFile&& other) noexcept {
  if (this == &other) return *this;
  Close();
  descriptor_ = std::exchange(other.descriptor_, -1);
  path_ = std::move(other.path_);
  return *this;
}

void StorageFile::Close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

std::unique_ptr<StorageSystem> MakePosixStorage() {
  return std::make_unique<PosixStorageSystem>();
}

}  // namespace minke
