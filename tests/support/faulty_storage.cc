#include "tests/support/faulty_storage.h"

namespace minke::testing {

Status FaultyStorage::Meet(Effect effect, const std::string& path) {
  const int64_t operation = operations_.fetch_add(1);
  const bool due = once_ ? operation == first_ : operation >= first_;
  if (!due) return {};
  const char* text = nullptr;
  switch (fault_) {
    case Fault::kNone:
    case Fault::kNoHoles:
      break;
    case Fault::kDiskFull:
    case Fault::kShortWrite:
      if (effect == Effect::kGrow) text = "No space left on device";
      break;
    case Fault::kReadOnly:
      if (effect != Effect::kLook) text = "Read-only file system";
      break;
    case Fault::kIoError:
      text = "Input/output error";
      break;
  }
  if (text == nullptr) return {};
  failures_.fetch_add(1);
  return Fail(ErrorCode::kIo, "cannot use " + path + ": " + text);
}

Result<StorageFile> FaultyStorage::OpenFile(const std::string& path, OpenMode mode) {
  Effect effect = Effect::kRemove;  // a read-only file system opens nothing for writing
  if (mode == OpenMode::kCreate) effect = Effect::kGrow;
  if (mode == OpenMode::kRead) effect = Effect::kLook;
  TRY_STATUS(Meet(effect, path));
  return real_->OpenFile(path, mode);
}

Result<int64_t> FaultyStorage::ReadAt(const StorageFile& file, int64_t offset,
                                      std::span<const std::span<std::byte>> parts) {
  TRY_STATUS(Meet(Effect::kLook, file.path()));
  return real_->ReadAt(file, offset, parts);
}

Status FaultyStorage::WriteAt(const StorageFile& file, int64_t offset,
                              std::span<const std::span<const std::byte>> parts) {
  const Status met = Meet(Effect::kGrow, file.path());
  if (met) return real_->WriteAt(file, offset, parts);
  if (fault_ == Fault::kShortWrite) {
    std::vector<std::byte> bytes;
    for (const auto& part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
    bytes.resize(bytes.size() / 2);
    const std::span<const std::byte> half(bytes);
    TRY_STATUS(real_->WriteAt(file, offset, std::span(&half, 1)));
  }
  return met;
}

void FaultyStorage::StartSync(const StorageFile& file, int64_t offset, int64_t bytes) {
  real_->StartSync(file, offset, bytes);
}

Status FaultyStorage::Sync(const StorageFile& file) {
  TRY_STATUS(Meet(Effect::kGrow, file.path()));
  return real_->Sync(file);
}

Status FaultyStorage::SyncDirectory(const std::string& path) {
  TRY_STATUS(Meet(Effect::kGrow, path));
  return real_->SyncDirectory(path);
}

Status FaultyStorage::Truncate(const StorageFile& file, int64_t bytes) {
  TRY_STATUS(Meet(Effect::kRemove, file.path()));
  return real_->Truncate(file, bytes);
}

Result<bool> FaultyStorage::PunchHole(const StorageFile& file, int64_t offset, int64_t bytes) {
  TRY_STATUS(Meet(Effect::kRemove, file.path()));
  if (fault_ == Fault::kNoHoles) return false;
  return real_->PunchHole(file, offset, bytes);
}

Result<int64_t> FaultyStorage::NextData(const StorageFile& file, int64_t offset) {
  TRY_STATUS(Meet(Effect::kLook, file.path()));
  return real_->NextData(file, offset);
}

Status FaultyStorage::Unlink(const std::string& path) {
  TRY_STATUS(Meet(Effect::kRemove, path));
  return real_->Unlink(path);
}

Status FaultyStorage::MakeDirectory(const std::string& path) {
  TRY_STATUS(Meet(Effect::kGrow, path));
  return real_->MakeDirectory(path);
}

Result<std::vector<std::string>> FaultyStorage::ListDirectory(const std::string& path) {
  TRY_STATUS(Meet(Effect::kLook, path));
  return real_->ListDirectory(path);
}

Result<std::optional<FileStatus>> FaultyStorage::Inspect(const std::string& path) {
  TRY_STATUS(Meet(Effect::kLook, path));
  return real_->Inspect(path);
}

Result<bool> FaultyStorage::Lock(const StorageFile& file) {
  TRY_STATUS(Meet(Effect::kLook, file.path()));
  return real_->Lock(file);
}

Result<std::string> FaultyStorage::RealPath(const std::string& path) {
  TRY_STATUS(Meet(Effect::kLook, path));
  return real_->RealPath(path);
}

}  // namespace minke::testing
