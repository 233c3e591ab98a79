#include "prefix_cache/store_directory.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>

#include "core/file.h"
#include "prefix_cache/segment_file.h"

namespace minke {

namespace {

constexpr uint32_t kOthersMayWrite = 0022;
constexpr std::string_view kLogName = "index.sqlite-wal";
constexpr std::array<std::string_view, 5> kOwnFiles = {kIndexName, kLogName, "index.sqlite-shm",
                                                       "index.sqlite-journal", kLockName};

bool IsOwnFile(std::string_view name) {
  for (const std::string_view own : kOwnFiles) {
    if (name == own) return true;
  }
  return ParseSegmentName(name).has_value();
}

Status CheckDirectory(const std::string& directory, const FileStatus& status, uint32_t user) {
  if (status.link) {
    return Fail(fmt::format("the cache directory {} is a symbolic link; name the directory itself",
                            directory));
  }
  if (!status.directory) {
    return Fail(
        fmt::format("the cache directory {} is not a directory; name another one", directory));
  }
  if (status.owner != user) {
    return Fail(fmt::format(
        "the cache directory {} belongs to user {}, and this process runs as user {}; choose "
        "another directory, or run as its owner",
        directory, status.owner, user));
  }
  if ((status.mode & kOthersMayWrite) != 0) {
    return Fail(fmt::format(
        "other users may write to the cache directory {}; take that right away (chmod 700), or "
        "choose another directory",
        directory));
  }
  return {};
}

// As many files at once as SQLite holds open, so that a process without descriptors fails too.
Status CheckAccess(StorageSystem& system, const std::string& directory) {
  std::vector<StorageFile> open;
  for (const std::string_view name : kOwnFiles) {
    Result<StorageFile> file =
        system.OpenFile(JoinPath(directory, std::string(name)), OpenMode::kReadWrite);
    if (!file && file.error().code == ErrorCode::kNotFound) {
      file = system.OpenFile(JoinPath(directory, kLockName), OpenMode::kReadWrite);
    }
    open.push_back(TRY(std::move(file)));
  }
  return {};
}

}  // namespace

Result<std::string> OpenStoreDirectory(StorageSystem& system, const std::string& directory,
                                       bool read_only) {
  std::optional<FileStatus> status = TRY(system.Inspect(directory));
  if (!status && read_only) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("there is no cache directory {}; name the one that was written to", directory));
  }
  if (!status) {
    TRY_STATUS(system.MakeDirectory(directory));
    status = TRY(system.Inspect(directory));
    if (!status) {
      return Fail(ErrorCode::kIo,
                  fmt::format("the cache directory {} vanished while it was opened", directory));
    }
  }
  const uint32_t user = system.UserId();
  // Whoever may look at everything may look at this.
  if (!(read_only && user == 0)) TRY_STATUS(CheckDirectory(directory, *status, user));
  return system.RealPath(directory);
}

Result<StorageFile> LockStoreDirectory(StorageSystem& system, const std::string& directory) {
  StorageFile lock = TRY(system.OpenFile(JoinPath(directory, kLockName), OpenMode::kOpenOrCreate));
  if (!TRY(system.Lock(lock))) {
    return Fail(fmt::format(
        "the cache directory {} is in use by another process; stop that one, or give this one a "
        "directory of its own",
        directory));
  }
  return lock;
}

Result<StoreListing> ListStoreDirectory(StorageSystem& system, const std::string& directory) {
  StoreListing listing;
  const uint32_t user = system.UserId();
  for (const std::string& name : TRY(system.ListDirectory(directory))) {
    const std::string path = JoinPath(directory, name);
    const std::optional<FileStatus> status = TRY(system.Inspect(path));
    if (!status) continue;  // removed since
    if (status->link) {
      return Fail(fmt::format(
          "{} in the cache directory is a symbolic link, which the cache never makes; remove it "
          "after looking where it leads",
          path));
    }
    if (!IsOwnFile(name)) {
      listing.other_bytes += status->disk_bytes;
      continue;
    }
    if (!status->regular) {
      return Fail(
          fmt::format("{} is not a regular file; remove it from the cache directory", path));
    }
    if (status->owner != user && user != 0) {
      return Fail(fmt::format(
          "{} belongs to user {}, and this process runs as user {}; remove the file, or choose "
          "another cache directory",
          path, status->owner, user));
    }
    if (status->owner != user) {
      return Fail(fmt::format(
          "{} belongs to user {}, so that another user may change it; remove the file, or choose "
          "another cache directory",
          path, status->owner));
    }
    const std::optional<int64_t> number = ParseSegmentName(name);
    if (number) {
      listing.segments[*number] = *status;
    } else {
      listing.index_bytes += status->disk_bytes;
    }
  }
  return listing;
}

Status DiscardIndex(StorageSystem& system, const std::string& directory) {
  TRY_STATUS(CheckAccess(system, directory));
  for (const std::string_view suffix : {"", "-wal", "-shm", "-journal"}) {
    Status removed = system.Unlink(JoinPath(directory, kIndexName) + std::string(suffix));
    if (!removed && removed.error().code != ErrorCode::kNotFound) return removed;
  }
  return {};
}

Result<int64_t> IndexDiskBytes(StorageSystem& system, const std::string& directory) {
  int64_t bytes = 0;
  for (const std::string_view name : kOwnFiles) {
    const auto status = TRY(system.Inspect(JoinPath(directory, std::string(name))));
    if (status) bytes += status->disk_bytes;
  }
  return bytes;
}

Result<int64_t> LogDiskBytes(StorageSystem& system, const std::string& directory) {
  const auto status = TRY(system.Inspect(JoinPath(directory, std::string(kLogName))));
  return status ? status->disk_bytes : 0;
}

}  // namespace minke
