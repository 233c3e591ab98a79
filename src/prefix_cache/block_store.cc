#include "prefix_cache/block_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "core/thread_start.h"
#include "prefix_cache/block_store_impl.h"
#include "prefix_cache/record_format.h"
#include "prefix_cache/store_reader.h"

namespace minke {

namespace {

constexpr int kReadAttempts = 3;    // of a record that is moved while it is read
constexpr size_t kRowsKept = 8192;  // in memory, about 2 MiB

int64_t WallClockUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

}  // namespace

Result<StoreIndex> BlockStore::Impl::OpenIndex() const {
  if (holds_nothing) return StoreIndex::Open(kNoIndexFile, IndexMode::kCreateOrOpen);
  return StoreIndex::Open(IndexPath(), looks_only ? IndexMode::kLookOnly : IndexMode::kReader);
}

Status BlockStore::Impl::OpenReader() {
  Result<StoreIndex> opened = OpenIndex();
  if (!opened) return tl::unexpected(opened.error());
  const std::lock_guard<std::mutex> lock(read_mutex);
  reader.emplace(std::move(*opened));
  condemned.clear();
  return {};
}

// Runs query(index) under the lock. An index that fails is let go: what it might know is a miss
// until the storage thread has made it again.
template <typename Query>
void BlockStore::Impl::Ask(const Query& query) {
  Error error;
  {
    const std::lock_guard<std::mutex> lock(read_mutex);
    if (!reader) return;
    const Status status = query(*reader);
    if (status) return;
    error = status.error();
    reader.reset();
  }
  counters.Add(&StoreStats::io_errors, 1);
  if (options.read_only) return;
  if (error.code == ErrorCode::kInvalidInput) {
    queue.AddJob([this]() { Handle(writer->RebuildIndex()); });
  } else {
    TurnOff(error);
  }
}

std::optional<IndexRow> BlockStore::Impl::FindRow(const CacheKey& key) {
  std::optional<IndexRow> row;
  Ask([&](StoreIndex& index) -> Status {
    row = TRY(index.Find(key, options.fingerprint));
    if (row && condemned.count({row->segment, row->offset}) != 0) row.reset();
    if (!row) {
      rows.erase(key);
      return {};
    }
    if (rows.size() >= kRowsKept) rows.clear();
    rows[key] = *row;
    return {};
  });
  return row;
}

std::optional<IndexRow> BlockStore::Impl::RecallRow(const CacheKey& key) {
  {
    const std::lock_guard<std::mutex> lock(read_mutex);
    const auto found = rows.find(key);
    if (found != rows.end()) return found->second;
  }
  return FindRow(key);
}

bool BlockStore::Impl::StillThere(const IndexRow& row) {
  const std::optional<IndexRow> now = FindRow(row.key);
  return now && now->segment == row.segment && now->offset == row.offset;
}

// A miss from now on; its bytes go when the storage thread comes to it.
void BlockStore::Impl::Condemn(const IndexRow& row) {
  {
    const std::lock_guard<std::mutex> lock(read_mutex);
    rows.erase(row.key);
    if (!condemned.emplace(row.segment, row.offset).second) return;  // another reader was faster
  }
  counters.Add(&StoreStats::records_damaged, 1);
  if (options.read_only) return;
  queue.AddJob([this, row]() {
    Handle(writer->RemoveDamaged(row));
    const std::lock_guard<std::mutex> lock(read_mutex);
    condemned.erase({row.segment, row.offset});
  });
}

void BlockStore::Impl::NoteDamage(const IndexRow& row) {
  if (row.fingerprint != options.fingerprint) return;
  damaged.Add(
      {.kind = row.kind, .key = row.key, .parent = row.parent, .end_position = row.end_position});
}

void BlockStore::Impl::HandleReadFailure(const IndexRow& row, const Error& error) {
  if (error.code == ErrorCode::kNotFound && !options.read_only) {
    {
      const std::lock_guard<std::mutex> lock(read_mutex);
      if (!condemned.emplace(row.segment, row.offset).second) return;
    }
    queue.AddJob([this, row]() {
      Handle(writer->ForgetSegment(row.segment));
      const std::lock_guard<std::mutex> lock(read_mutex);
      condemned.erase({row.segment, row.offset});
    });
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(read_mutex);
    condemned.emplace(row.segment, row.offset);  // not asked for again by this process
  }
  counters.Add(&StoreStats::io_errors, 1);
  if (error.code != ErrorCode::kNotFound) TurnOff(error);
}

void BlockStore::Impl::TurnOff(const Error& error) {
  counters.TurnOff(fmt::format(
      "the disk cache in {} takes no more writes: {}; repair the disk or free space on it, or name "
      "another directory, and start again",
      options.directory, error.message));
  queue.TurnOff();
}

void BlockStore::Impl::Handle(const Status& status) {
  if (status) return;
  Error error = status.error();
  if (error.code == ErrorCode::kInvalidInput) {
    const Status rebuilt = writer->RebuildIndex();
    if (rebuilt) return;
    error = rebuilt.error();
  }
  counters.Add(&StoreStats::io_errors, 1);
  TurnOff(error);
}

void BlockStore::Impl::WriteTouches() {
  const auto touches = queue.TakeTouches();
  if (!touches.empty()) Handle(writer->Touch(touches));
}

void BlockStore::Impl::WriteBatch(const std::vector<std::unique_ptr<QueuedRecord>>& batch) {
  WriteTouches();
  std::vector<RecordToWrite> records;
  records.reserve(batch.size());
  for (const auto& queued : batch) {
    const auto bytes = static_cast<size_t>(queued->info.payload_bytes);
    records.push_back({.info = &queued->info,
                       .payload = bytes == 0
                                      ? std::span<const std::byte>()
                                      : std::span<const std::byte>(queued->payload.bytes(), bytes),
                       .created_us = queued->created_us});
  }
  if (!queue.off()) Handle(writer->Write(records));
}

void BlockStore::Impl::Run() {
  while (true) {
    StorageTask task = queue.Wait(writer->BatchBytes());
    if (!task.batch.empty()) {
      WriteBatch(task.batch);
      queue.Done(std::move(task.batch));
    } else if (task.job) {
      task.job();
    } else {
      if (!queue.off() && !task.rest) WriteTouches();
      if (!queue.off() && task.rest) Handle(writer->Rest());
      if (task.stop) return;
    }
  }
}

BlockStore::BlockStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

BlockStore::~BlockStore() {
  impl_->queue.Stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  // Before the writer: the last connection to close tidies the index's log away, if it may write.
  const std::lock_guard<std::mutex> lock(impl_->read_mutex);
  impl_->reader.reset();
}

Status BlockStore::Impl::OpenToLook() {
  const StoreListing listing = TRY(ListStoreDirectory(system, options.directory));
  queue.TurnOff();
  Status opened = OpenReader();
  if (!opened && opened.error().code == ErrorCode::kInvalidInput && listing.segments.empty()) {
    holds_nothing = true;  // no index can say anything else
    opened = OpenReader();
  }
  return opened;
}

Status BlockStore::Impl::OpenToWrite() {
  WriterHooks hooks;
  hooks.is_awaited = [this](const CacheKey& key) { return queue.IsAwaited(key); };
  hooks.damaged = [this](const IndexRow& row) { NoteDamage(row); };
  hooks.index_available = [this](bool available) {
    if (available) {
      // Without a reader everything is a miss, and the tier goes on writing.
      const Status ignored = OpenReader();
      return;
    }
    const std::lock_guard<std::mutex> lock(read_mutex);
    reader.reset();
  };
  writer = TRY(StoreWriter::Open(options, system, files, counters, std::move(hooks)));
  TRY_STATUS(OpenReader());
  thread = TRY(StartThread("writing the disk cache", [this](const std::stop_token&) { Run(); }));
  return {};
}

// Nothing is written and nothing is read: what the disk refused may be any part of the tier.
void BlockStore::Impl::GoWithout(const Error& error) {
  {
    const std::lock_guard<std::mutex> lock(read_mutex);
    reader.reset();
  }
  writer.reset();
  looks_only = true;
  counters.Add(&StoreStats::io_errors, 1);
  counters.TurnOff(fmt::format(
      "the disk cache in {} is not used: {}; make the directory and its files writable for this "
      "user, or name another directory, and start again",
      options.directory, error.message));
  queue.TurnOff();
}

Result<std::unique_ptr<BlockStore>> BlockStore::Open(const StoreOptions& options) {
  if (!options.read_only && options.budget_bytes < kStoreBudgetBytesMin) {
    return Fail(
        ErrorCode::kLimit,
        fmt::format("the cache directory {} cannot do with a budget of {} bytes; --kv-disk-budget "
                    "has to be at least {} bytes, for the index and some records",
                    options.directory, options.budget_bytes, kStoreBudgetBytesMin));
  }
  auto posix = MakePosixStorage();
  StorageSystem& system = options.system != nullptr ? *options.system : *posix;
  std::string directory = TRY(OpenStoreDirectory(system, options.directory, options.read_only));
  auto impl = std::make_unique<Impl>(options, std::move(directory), std::move(posix));
  if (!impl->options.now_us) impl->options.now_us = WallClockUs;
  const Status opened = options.read_only ? impl->OpenToLook() : impl->OpenToWrite();
  if (!opened && (options.read_only || opened.error().code != ErrorCode::kIo)) {
    return tl::unexpected(opened.error());
  }
  if (!opened) impl->GoWithout(opened.error());
  return std::unique_ptr<BlockStore>(new BlockStore(std::move(impl)));
}

bool BlockStore::Contains(const CacheKey& key) {
  return impl_->queue.Contains(key) || impl_->FindRow(key).has_value();
}

void BlockStore::Put(RecordInfo info, BlockRef payload) {
  Impl& store = *impl_;
  CHECK(info.fingerprint == store.options.fingerprint);
  CHECK(PlausibleRecord(info.kind, static_cast<int64_t>(info.tokens.size()), info.payload_bytes,
                        info.end_position));
  CHECK(payload || info.payload_bytes == 0);
  if (store.queue.off() || store.FindRow(info.key)) return;
  store.damaged.Forget(info.parent, info.key);
  if (!store.queue.Add(std::move(info), std::move(payload), store.options.now_us())) {
    store.counters.Add(&StoreStats::records_skipped, 1);
  }
}

ReadOutcome BlockStore::Read(const CacheKey& key, std::span<std::byte> out, RecordInfo* info) {
  Impl& store = *impl_;
  if (store.queue.Read(key, out, info)) {
    store.counters.Add(&StoreStats::reads_hit, 1);
    return ReadOutcome::kHit;
  }
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    const std::optional<IndexRow> row = attempt == 0 ? store.RecallRow(key) : store.FindRow(key);
    if (!row && store.queue.off() && !store.HasReader()) return ReadOutcome::kOff;
    if (!row) break;
    const bool fits = row->payload_bytes <= static_cast<int64_t>(out.size());
    RecordHeader header;
    Result<bool> intact = false;
    if (fits) intact = ReadRecord(store.files, *row, out, &header);
    if (intact && *intact) {
      store.counters.Add(&StoreStats::reads_hit, 1);
      store.counters.Add(&StoreStats::bytes_read, row->payload_bytes);
      *info = std::move(header.info);
      return ReadOutcome::kHit;
    }
    // It may have been evicted or moved while it was read: then nothing is wrong with it.
    if (!store.StillThere(*row)) continue;
    if (!intact) {
      store.HandleReadFailure(*row, intact.error());
      break;
    }
    store.Condemn(*row);
    return ReadOutcome::kDamaged;
  }
  store.counters.Add(&StoreStats::reads_missed, 1);
  return ReadOutcome::kMiss;
}

std::vector<RecordInfo> BlockStore::Children(const CacheKey& parent, RecordKind kind,
                                             size_t limit) {
  Impl& store = *impl_;
  std::vector<RecordInfo> children = store.queue.Children(parent, kind, limit);
  std::vector<IndexRow> rows;
  store.Ask([&](StoreIndex& index) -> Status {
    rows = TRY(index.Children(parent, store.options.fingerprint, kind, limit));
    const auto condemned = [&store](const IndexRow& row) {
      return store.condemned.count({row.segment, row.offset}) != 0;
    };
    rows.erase(std::remove_if(rows.begin(), rows.end(), condemned), rows.end());
    return {};
  });
  for (const IndexRow& row : rows) {
    if (children.size() >= limit) break;
    const auto known = [&row](const RecordInfo& info) { return info.key == row.key; };
    if (std::any_of(children.begin(), children.end(), known)) continue;
    RecordHeader header;
    const Result<bool> intact = ReadRecordInfo(store.files, row, &header);
    if (intact && *intact) {
      children.push_back(std::move(header.info));
    } else if (store.StillThere(row)) {
      if (intact) {
        store.Condemn(row);
        store.NoteDamage(row);
      } else {
        store.HandleReadFailure(row, intact.error());
      }
    }
  }
  return children;
}

std::vector<DamagedRecord> BlockStore::DamagedAfter(const CacheKey& parent) const {
  return impl_->damaged.After(parent);
}

void BlockStore::ForgetDamage(const DamagedRecord& record) {
  impl_->damaged.Forget(record.parent, record.key);
}

bool BlockStore::HasContent(const CacheKey& content, bool same_fingerprint) {
  bool has = same_fingerprint && impl_->queue.HasContent(content);
  if (has) return true;
  impl_->Ask([&](StoreIndex& index) -> Status {
    has = TRY(index.HasContent(content, impl_->options.fingerprint, same_fingerprint));
    return {};
  });
  return has;
}

void BlockStore::Touch(std::span<const CacheKey> keys) {
  impl_->queue.Touch(keys, impl_->options.now_us());
}

void BlockStore::Flush() {
  impl_->queue.Flush();
}

StoreStats BlockStore::Stats() {
  StoreStats stats = impl_->counters.Get();
  const auto listing = ListStoreDirectory(impl_->system, impl_->options.directory);
  if (!listing) return stats;
  stats.disk_bytes = listing->other_bytes + listing->index_bytes;
  for (const auto& [number, status] : listing->segments) stats.disk_bytes += status.disk_bytes;
  stats.segments = static_cast<int64_t>(listing->segments.size());
  return stats;
}

}  // namespace minke
