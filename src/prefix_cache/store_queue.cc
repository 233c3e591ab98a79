#include "prefix_cache/store_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "prefix_cache/record_format.h"

namespace minke {

namespace {

constexpr int64_t kMinuteUs = int64_t{60} * 1000 * 1000;
constexpr size_t kBatchRecordsMax = 256;  // so that the index's log stays short

}  // namespace

bool HourlyCap::Spend(int64_t bytes, int64_t now_us) {
  const int64_t now = std::max(now_us / kMinuteUs, minute_);  // the clock may be set back
  for (int64_t step = 1; step <= std::min(now - minute_, kMinutes); ++step) {
    spent_[static_cast<size_t>((minute_ + step) % kMinutes)] = 0;
  }
  minute_ = now;
  const int64_t spent = std::accumulate(spent_.begin(), spent_.end(), int64_t{0});
  if (bytes > bytes_per_hour_ - spent) return false;
  spent_[static_cast<size_t>(minute_ % kMinutes)] += bytes;
  return true;
}

StoreQueue::StoreQueue(int64_t bytes_max, int64_t bytes_per_hour)
    : bytes_max_(bytes_max), cap_(bytes_per_hour) {}

bool StoreQueue::Add(RecordInfo info, BlockRef payload, int64_t now_us) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (off_ || stopping_ || by_key_.count(info.key) != 0) return true;
  const int64_t bytes = RecordBytes(static_cast<int64_t>(info.tokens.size()), info.payload_bytes);
  if (bytes > bytes_max_ - bytes_ || !cap_.Spend(bytes, now_us)) return false;
  auto record = std::make_unique<QueuedRecord>();
  record->info = std::move(info);
  record->payload = std::move(payload);
  record->bytes = bytes;
  record->created_us = now_us;
  by_key_[record->info.key] = record.get();
  ++awaited_[record->info.parent];
  bytes_ += bytes;
  ++added_;
  records_.push_back(std::move(record));
  wake_.notify_one();
  return true;
}

bool StoreQueue::Contains(const CacheKey& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return by_key_.count(key) != 0;
}

bool StoreQueue::Read(const CacheKey& key, std::span<std::byte> out, RecordInfo* info) const {
  BlockRef payload;  // keeps the bytes while they are copied without the lock
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return false;
    if (found->second->info.payload_bytes > static_cast<int64_t>(out.size())) return false;
    *info = found->second->info;
    payload = found->second->payload;
  }
  if (info->payload_bytes > 0) {
    std::memcpy(out.data(), payload.bytes(), static_cast<size_t>(info->payload_bytes));
  }
  return true;
}

std::vector<RecordInfo> StoreQueue::Children(const CacheKey& parent, RecordKind kind,
                                             size_t limit) const {
  std::vector<RecordInfo> children;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (awaited_.count(parent) == 0) return children;
  for (const auto& [key, record] : by_key_) {
    if (record->info.parent == parent && record->info.kind == kind) {
      children.push_back(record->info);
    }
  }
  // The order of a hash table is nobody's business; what was queued last was used last.
  std::sort(children.begin(), children.end(), [this](const RecordInfo& a, const RecordInfo& b) {
    const int64_t created_a = by_key_.at(a.key)->created_us;
    const int64_t created_b = by_key_.at(b.key)->created_us;
    return created_a != created_b ? created_a > created_b : a.key < b.key;
  });
  if (children.size() > limit) children.resize(limit);
  return children;
}

bool StoreQueue::HasContent(const CacheKey& content) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(by_key_.begin(), by_key_.end(), [&content](const auto& entry) {
    const RecordInfo& info = entry.second->info;
    return info.kind == RecordKind::kBlock && info.end_position == kCacheBlockTokens &&
           info.content == content;
  });
}

bool StoreQueue::IsAwaited(const CacheKey& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return awaited_.count(key) != 0;
}

void StoreQueue::Touch(std::span<const CacheKey> keys, int64_t now_us) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (off_) return;
  for (const CacheKey& key : keys) touches_[key] = now_us;
  if (touches_.size() >= kTouchesMax) wake_.notify_one();
}

void StoreQueue::AddJob(std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.push_back({.work = std::move(job), .after = added_});
  wake_.notify_one();
}

void StoreQueue::Flush() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t target = added_;
  finished_.wait(lock, [this, target]() { return done_ >= target; });
}

void StoreQueue::TurnOff() {
  const std::lock_guard<std::mutex> lock(mutex_);
  off_ = true;
  for (const auto& record : records_) Forget(*record);
  records_.clear();
  touches_.clear();
  finished_.notify_all();
  wake_.notify_one();
}

bool StoreQueue::off() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return off_;
}

void StoreQueue::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  wake_.notify_one();
}

StorageTask StoreQueue::Wait(int64_t batch_bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto patience = rested_ ? std::chrono::milliseconds(kTouchSeconds * 1000)
                                : std::chrono::milliseconds(kRestMilliseconds);
  const bool work = wake_.wait_for(lock, patience, [this]() {
    return stopping_ || !records_.empty() || JobReady() || touches_.size() >= kTouchesMax;
  });
  StorageTask task;
  task.rest = !work && !rested_;
  rested_ = !work;
  // A job that is ready was asked for before the records that are still waiting.
  if (JobReady()) {
    task.job = std::move(jobs_.front().work);
    jobs_.pop_front();
    return task;
  }
  // A job waits for the records before it, and for no others.
  uint64_t left = jobs_.empty() ? added_ - done_ : jobs_.front().after - done_;
  int64_t bytes = 0;
  while (!records_.empty() && left > 0 && task.batch.size() < kBatchRecordsMax) {
    if (!task.batch.empty() && bytes + records_.front()->bytes > batch_bytes) break;
    bytes += records_.front()->bytes;
    task.batch.push_back(std::move(records_.front()));
    records_.pop_front();
    --left;
  }
  task.stop = stopping_ && task.batch.empty();
  return task;
}

void StoreQueue::Done(std::vector<std::unique_ptr<QueuedRecord>> batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& record : batch) Forget(*record);
  // Whoever waits may want the memory that the records held.
  batch.clear();
  finished_.notify_all();
}

void StoreQueue::Forget(const QueuedRecord& record) {
  by_key_.erase(record.info.key);
  const auto awaited = awaited_.find(record.info.parent);
  if (--awaited->second == 0) awaited_.erase(awaited);
  bytes_ -= record.bytes;
  ++done_;
}

std::unordered_map<CacheKey, int64_t, CacheKeyHash> StoreQueue::TakeTouches() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(touches_, {});
}

}  // namespace minke
