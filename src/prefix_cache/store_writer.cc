#include "prefix_cache/store_writer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "core/file.h"
#include "prefix_cache/record_format.h"
#include "prefix_cache/store_reader.h"

namespace minke {

namespace {

// Appends between two syncs: long enough that the disk works, short enough that a batch is soon
// published and that eviction goes in small steps.
constexpr int64_t kBatchBytesMax = int64_t{16} << 20;
constexpr int64_t kPieceBytes = int64_t{1} << 20;  // handed to the disk at once
constexpr int64_t kBatchesPerBudget = 16;
constexpr int64_t kTouchesPerTransaction = 64;  // so that the index's log stays short

int64_t DiskLength(const RecordToWrite& record) {
  return RecordBytes(static_cast<int64_t>(record.info->tokens.size()), record.info->payload_bytes);
}

}  // namespace

void StoreCounters::Add(int64_t StoreStats::*field, int64_t amount) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.*field += amount;
}

void StoreCounters::Set(int64_t StoreStats::*field, int64_t value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.*field = value;
}

void StoreCounters::TurnOff(const std::string& warning) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stats_.enabled) stats_.warning = warning;
  stats_.enabled = false;
}

StoreStats StoreCounters::Get() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

StoreWriter::StoreWriter(const StoreOptions& options, StorageSystem& system, SegmentFiles& files,
                         StoreCounters& counters, WriterHooks hooks)
    : options_(options),
      system_(system),
      files_(files),
      counters_(counters),
      hooks_(std::move(hooks)),
      directory_(options.directory) {}

int64_t StoreWriter::Now() const {
  return options_.now_us();
}

int64_t StoreWriter::BatchBytes() const {
  return std::min(kBatchBytesMax, options_.budget_bytes / kBatchesPerBudget);
}

void StoreWriter::Count(const IndexRow& row, int64_t sign) {
  const bool block = row.kind == RecordKind::kBlock;
  (block ? blocks_ : snapshot_count_) += sign;
  (block ? row_bytes_ : snapshot_payload_bytes_) += sign * row.payload_bytes;
  if (row.fingerprint != options_.fingerprint) foreign_ += sign;
}

void StoreWriter::PublishTotals() {
  counters_.Set(&StoreStats::block_records, blocks_);
  counters_.Set(&StoreStats::snapshot_records, snapshot_count_);
  counters_.Set(&StoreStats::foreign_records, foreign_);
  counters_.Set(&StoreStats::row_bytes, row_bytes_);
  counters_.Set(&StoreStats::snapshot_bytes, snapshot_payload_bytes_);
  counters_.Set(&StoreStats::segments, static_cast<int64_t>(segment_bytes_.size()));
}

Result<int64_t> StoreWriter::DiskBytes() {
  int64_t bytes = other_bytes_ + TRY(IndexDiskBytes(system_, directory_));
  for (const auto& [number, disk_bytes] : segment_bytes_) bytes += disk_bytes;
  return bytes;
}

Result<int64_t> StoreWriter::DiskBytes(const StoreListing& listing) {
  int64_t bytes = listing.other_bytes + TRY(IndexDiskBytes(system_, directory_));
  for (const auto& [number, status] : listing.segments) bytes += status.disk_bytes;
  return bytes;
}

Status StoreWriter::Measure(int64_t number) {
  const auto status = TRY(system_.Inspect(files_.Path(number)));
  if (!status) return ForgetSegment(number);
  segment_bytes_[number] = status->disk_bytes;
  return {};
}

Status StoreWriter::OpenActive() {
  if (active_ && active_end_ < options_.segment_bytes) return {};
  const int64_t number = next_number_++;
  CHECK(number <= kSegmentNumberMax);
  StorageFile file = TRY(system_.OpenFile(files_.Path(number), OpenMode::kCreate));
  const SegmentHeaderBytes header =
      EncodeSegmentHeader({.version = kStoreFormatVersion, .number = number, .created_us = Now()});
  const std::array<std::span<const std::byte>, 1> parts = {std::span<const std::byte>(header)};
  TRY_STATUS(system_.WriteAt(file, 0, parts));
  // The name must be on the disk before a record in it is called written.
  TRY_STATUS(system_.SyncDirectory(directory_));
  active_ = std::move(file);
  active_number_ = number;
  active_end_ = kSegmentHeaderBytes;
  return Measure(number);
}

Status StoreWriter::Write(std::span<const RecordToWrite> records) {
  opened_bytes_.reset();
  while (!records.empty()) {
    TRY_STATUS(OpenActive());
    // As many as fit one batch; always one. A segment may grow a little too long for that.
    size_t count = 0;
    int64_t bytes = 0;
    while (count < records.size()) {
      const int64_t next = DiskLength(records[count]);
      const bool fits =
          active_end_ + bytes + next <= options_.segment_bytes && bytes + next <= BatchBytes();
      if (count > 0 && !fits) break;
      bytes += next;
      ++count;
    }
    TRY_STATUS(WriteGroup(records.first(count)));
    records = records.subspan(count);
  }
  PublishTotals();
  return {};
}

Status StoreWriter::WriteGroup(std::span<const RecordToWrite> records) {
  int64_t bytes = 0;
  int64_t snapshot_bytes = 0;
  for (const RecordToWrite& record : records) {
    bytes += DiskLength(record);
    if (record.info->kind == RecordKind::kSnapshot) snapshot_bytes += record.info->payload_bytes;
  }
  const auto count = static_cast<int64_t>(records.size());
  if (!TRY(MakeRoom(bytes, count, snapshot_bytes))) {
    counters_.Add(&StoreStats::records_skipped, count);
    return {};
  }
  std::vector<IndexRow> rows;
  TRY_STATUS(AppendGroup(records, &rows));
  const int64_t number = active_number_;
  TRY_STATUS(Measure(number));
  if (active_number_ != number) {  // somebody removed the file; what was written is lost with it
    counters_.Add(&StoreStats::records_skipped, count);
    return {};
  }
  return PublishGroup(rows);
}

Status StoreWriter::AppendGroup(std::span<const RecordToWrite> records,
                                std::vector<IndexRow>* rows) {
  int64_t offset = active_end_;
  while (!records.empty()) {
    // In pieces, so that the disk works on one while the checksums of the next are computed.
    size_t count = 0;
    int64_t bytes = 0;
    while (count < records.size() && bytes < kPieceBytes) bytes += DiskLength(records[count++]);
    TRY_STATUS(AppendPiece(records.first(count), offset, rows));
    system_.StartSync(active_, offset, bytes);
    offset += bytes;
    records = records.subspan(count);
  }
  TRY_STATUS(system_.Sync(active_));
  counters_.Add(&StoreStats::bytes_written, offset - active_end_);
  active_end_ = offset;
  return {};
}

Status StoreWriter::AppendPiece(std::span<const RecordToWrite> records, int64_t offset,
                                std::vector<IndexRow>* rows) {
  std::vector<RecordHeaderBytes> headers;
  headers.reserve(records.size());  // the parts point into it
  std::vector<std::span<const std::byte>> parts;
  parts.reserve(records.size() * 4);
  const int64_t begin = offset;
  for (const RecordToWrite& record : records) {
    const RecordInfo& info = *record.info;
    headers.push_back(EncodeRecordHeader(info, record.created_us, record.payload));
    const auto tokens = std::as_bytes(std::span<const int32_t>(info.tokens));
    parts.emplace_back(headers.back());
    parts.push_back(tokens);
    parts.push_back(record.payload);
    const int64_t length = DiskLength(record);
    const auto used =
        static_cast<int64_t>(headers.back().size() + tokens.size() + record.payload.size());
    parts.push_back(std::span(kRecordPadding).first(static_cast<size_t>(length - used)));
    rows->push_back(RowFor(info, static_cast<int64_t>(info.tokens.size()), active_number_, offset,
                           record.created_us));
    offset += length;
  }
  CHECK(offset <= kSegmentOffsetMax);
  return system_.WriteAt(active_, begin, parts);
}

Status StoreWriter::PublishGroup(const std::vector<IndexRow>& rows) {
  std::vector<PendingErasure> known;
  std::vector<const IndexRow*> published;
  const Status done = index_->Transaction(false, [&]() -> Status {
    for (const IndexRow& row : rows) {
      if (TRY(index_->Insert(row))) {
        published.push_back(&row);
        continue;
      }
      known.push_back({.segment = row.segment, .offset = row.offset});
      TRY_STATUS(index_->AddErasure(known.back()));
    }
    return index_->SetSegment(active_number_, active_end_);
  });
  TRY_STATUS(done);
  for (const IndexRow* row : published) Count(*row, 1);
  counters_.Add(&StoreStats::records_written, static_cast<int64_t>(published.size()));
  return Erase(known);
}

Status StoreWriter::Touch(const std::unordered_map<CacheKey, int64_t, CacheKeyHash>& used_us) {
  auto next = used_us.begin();
  while (next != used_us.end()) {
    const Status done = index_->Transaction(false, [&]() -> Status {
      for (int64_t i = 0; i < kTouchesPerTransaction && next != used_us.end(); ++i, ++next) {
        TRY_STATUS(index_->Touch(next->first, options_.fingerprint, next->second));
      }
      return {};
    });
    TRY_STATUS(done);
  }
  return {};
}

Status StoreWriter::Rest() {
  return index_->Checkpoint();
}

Status StoreWriter::RemoveDamaged(const IndexRow& row) {
  const std::optional<IndexRow> now = TRY(index_->Find(row.key, row.fingerprint));
  if (!now || now->segment != row.segment || now->offset != row.offset) return {};
  TRY_STATUS(RemoveRows({*now}));
  PublishTotals();
  return {};
}

Status StoreWriter::RemoveRows(const std::vector<IndexRow>& rows) {
  TRY_STATUS(WithdrawRows(rows));
  std::vector<PendingErasure> erasures;
  erasures.reserve(rows.size());
  for (const IndexRow& row : rows) {
    erasures.push_back({.segment = row.segment, .offset = row.offset});
  }
  return Erase(erasures);
}

// Takes records out of the index and leaves their bytes for Erase(). Durable: after a loss of power
// no row may point to bytes that are gone.
Status StoreWriter::WithdrawRows(const std::vector<IndexRow>& rows) {
  std::vector<const IndexRow*> removed;
  const Status done = index_->Transaction(true, [&]() -> Status {
    for (const IndexRow& row : rows) {
      if (TRY(index_->Remove(row.segment, row.offset))) removed.push_back(&row);
    }
    return {};
  });
  TRY_STATUS(done);
  for (const IndexRow* row : removed) Count(*row, -1);
  return {};
}

Status StoreWriter::ForgetSegment(int64_t segment) {
  const std::vector<IndexRow> rows = TRY(index_->RowsOfSegment(segment));
  TRY_STATUS(index_->Transaction(true, [&]() { return index_->DropSegment(segment); }));
  for (const IndexRow& row : rows) {
    Count(row, -1);
    hooks_.damaged(row);
  }
  counters_.Add(&StoreStats::records_damaged, static_cast<int64_t>(rows.size()));
  files_.Retire(segment);
  segment_bytes_.erase(segment);
  if (active_number_ == segment) {
    active_ = StorageFile();
    active_number_ = -1;
  }
  PublishTotals();
  return {};
}

}  // namespace minke
