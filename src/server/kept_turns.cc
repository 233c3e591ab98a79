#include "server/kept_turns.h"

#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"

namespace minke {

namespace {

// A map takes more memory than bytes in its file; a larger file is not one of ours.
constexpr uint64_t kKeptTurnsFileBytesMax = 2 * kReplayBytesDefault;

Result<ReplayMap> ReadMap(const std::string& file, std::string_view model, size_t bytes_max) {
  const std::string bytes = TRY(ReadFile(file, kKeptTurnsFileBytesMax));
  return ReplayMap::Load(bytes, model, bytes_max);
}

}  // namespace

std::string KeptTurns::Open(std::string file, std::string model, size_t bytes_max) {
  file_ = std::move(file);
  model_ = std::move(model);
  map_ = ReplayMap(bytes_max);
  if (file_.empty() || !FileExists(file_)) return {};
  Result<ReplayMap> map = ReadMap(file_, model_, bytes_max);
  if (!map) return fmt::format("{}: {}", file_, map.error().message);
  const std::scoped_lock lock(mutex_);
  map_ = std::move(*map);
  return {};
}

void KeptTurns::Put(std::string_view tenant, const ConversationDigest& conversation,
                    const std::vector<std::string>& answer_ids, WrittenTurn turn) {
  const std::scoped_lock lock(put_mutex_);
  put_.push_back({std::string(tenant), conversation, answer_ids, std::move(turn)});
}

void KeptTurns::TakePut() {
  std::vector<PutTurn> put;
  {
    const std::scoped_lock lock(put_mutex_);
    put.swap(put_);
  }
  for (PutTurn& one : put) {
    map_.Put(one.tenant, one.conversation, one.answer_ids, std::move(one.turn));
    changed_ = true;
  }
}

ReplayReport KeptTurns::Apply(std::string_view tenant, ChatRequest* request) {
  const std::scoped_lock lock(mutex_);
  TakePut();
  return map_.Apply(tenant, request);
}

Status KeptTurns::Save() {
  if (file_.empty()) return {};
  const std::scoped_lock saving(save_mutex_);
  std::string bytes;
  {
    const std::scoped_lock lock(mutex_);
    TakePut();
    if (!std::exchange(changed_, false)) return {};
    bytes = map_.Save(model_);
  }
  Status status =
      WriteFile(file_, std::as_bytes(std::span<const char>(bytes)), FileAccess::kOwnerOnly);
  if (!status) {
    const std::scoped_lock lock(mutex_);
    changed_ = true;
  }
  return status;
}

}  // namespace minke
