// The administration of the disk tier that changes it: gc, forget, import.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/file.h"
#include "prefix_cache/record_format.h"
#include "prefix_cache/store_reader.h"
#include "prefix_cache/store_writer.h"

namespace minke {

namespace {

constexpr int64_t kCopyBytes = int64_t{8} << 20;  // of records held in memory at once

// Records with their bytes, until they are written.
class RecordBuffer {
 public:
  void Add(RecordInfo info, std::span<const std::byte> payload, int64_t created_us) {
    bytes_ += static_cast<int64_t>(payload.size());
    infos_.push_back(std::move(info));
    payloads_.emplace_back(payload.begin(), payload.end());
    created_us_.push_back(created_us);
  }
  int64_t bytes() const { return bytes_; }
  int64_t size() const { return static_cast<int64_t>(infos_.size()); }
  std::vector<RecordToWrite> Records() const {
    std::vector<RecordToWrite> records(infos_.size());
    for (size_t i = 0; i < infos_.size(); ++i) {
      records[i] = {.info = &infos_[i], .payload = payloads_[i], .created_us = created_us_[i]};
    }
    return records;
  }
  void Clear() { *this = RecordBuffer(); }

 private:
  std::vector<RecordInfo> infos_;
  std::vector<std::vector<std::byte>> payloads_;
  std::vector<int64_t> created_us_;
  int64_t bytes_ = 0;
};

std::vector<int32_t> TokensOf(const FoundRecord& record) {
  std::vector<int32_t> tokens(static_cast<size_t>(record.header.token_count));
  const auto target = std::as_writable_bytes(std::span<int32_t>(tokens));
  std::copy_n(record.body.begin(), target.size(), target.begin());
  return tokens;
}

Status CheckExport(StorageSystem& system, const StorageFile& file) {
  SegmentHeaderBytes bytes;
  const std::array<std::span<std::byte>, 1> parts = {std::span<std::byte>(bytes)};
  const int64_t count = TRY(system.ReadAt(file, 0, parts));
  SegmentHeader header;
  if (!ParseSegmentHeader(std::span(bytes).first(static_cast<size_t>(count)), &header)) {
    return Fail(
        ErrorCode::kNotFound,
        file.path() + " does not begin like an exported cache; name a file of `cache export`");
  }
  if (header.version != kStoreFormatVersion) {
    return Fail(ErrorCode::kNotFound, file.path() + " has format " +
                                          std::to_string(header.version) + ", this version knows " +
                                          std::to_string(kStoreFormatVersion) +
                                          "; export it with this version");
  }
  return {};
}

}  // namespace

Status StoreWriter::RemoveDamaged(const std::vector<IndexRow>& rows) {
  TRY_STATUS(RemoveRows(rows));
  for (const IndexRow& row : rows) hooks_.damaged(row);
  counters_.Add(&StoreStats::records_damaged, static_cast<int64_t>(rows.size()));
  PublishTotals();
  return {};
}

Result<int64_t> StoreWriter::Gc() {
  TRY_STATUS(index_->Checkpoint());
  const int64_t before = opened_bytes_ ? *opened_bytes_ : TRY(DiskBytes());
  opened_bytes_.reset();
  TRY_STATUS(RemoveOrphans());
  TRY(MakeRoom(0, 0, 0));
  std::vector<int64_t> numbers;
  for (const auto& [number, bytes] : segment_bytes_) numbers.push_back(number);
  for (const int64_t number : numbers) {
    if (number != active_number_) TRY_STATUS(Compact(number));
  }
  TRY_STATUS(FreeGaps());
  TRY_STATUS(index_->Transaction(false, [&]() { return index_->DropUnusedNames(); }));
  TRY_STATUS(index_->Shrink());
  PublishTotals();
  return std::max<int64_t>(before - TRY(DiskBytes()), 0);
}

// A block whose block before is gone can never be reached again; nor can what hangs below it.
Status StoreWriter::RemoveOrphans() {
  while (true) {
    const std::vector<IndexRow> orphans = TRY(index_->Orphans());
    if (orphans.empty()) return {};
    counters_.Add(&StoreStats::records_evicted, static_cast<int64_t>(orphans.size()));
    TRY_STATUS(RemoveRows(orphans));
  }
}

// Moves the records of a segment that is mostly empty to the newest one.
Status StoreWriter::Compact(int64_t number) {
  const std::vector<IndexRow> rows = TRY(index_->RowsOfSegment(number));
  int64_t live_bytes = 0;
  for (const IndexRow& row : rows) {
    live_bytes += RecordBytes(row.token_count, row.payload_bytes);
  }
  if (live_bytes > options_.segment_bytes / 2) return {};
  // The copy comes before the original goes, and both together must fit.
  if (live_bytes > options_.budget_bytes - TRY(DiskBytes()) - LogReserve()) return {};
  std::vector<std::byte> payload;
  for (const IndexRow& row : rows) {
    RecordHeader header;
    payload.resize(static_cast<size_t>(row.payload_bytes));
    if (!TRY(ReadRecord(files_, row, payload, &header))) {
      TRY_STATUS(RemoveDamaged(std::vector<IndexRow>{row}));
      continue;
    }
    TRY_STATUS(OpenActive());
    const RecordToWrite record = {
        .info = &header.info, .payload = payload, .created_us = header.created_us};
    std::vector<IndexRow> moved;
    TRY_STATUS(AppendGroup(std::span(&record, 1), &moved));
    moved.front().last_used_us = row.last_used_us;
    // The old row goes and the new one comes in one step: the record is never missing.
    const Status done = index_->Transaction(false, [&]() -> Status {
      TRY(index_->Remove(row.segment, row.offset));
      TRY(index_->Insert(moved.front()));
      return index_->SetSegment(active_number_, active_end_);
    });
    TRY_STATUS(done);
  }
  leaves_.clear();
  snapshots_.clear();
  TRY_STATUS(Measure(active_number_));
  TRY(DropIfEmpty(number));
  return {};
}

// Frees what lies between live records, however it came there.
Status StoreWriter::FreeGaps() {
  std::vector<int64_t> numbers;
  for (const auto& [number, bytes] : segment_bytes_) numbers.push_back(number);
  for (const int64_t number : numbers) {
    if (TRY(DropIfEmpty(number))) continue;
    std::vector<PendingErasure> gaps;
    int64_t end = kSegmentHeaderBytes;
    for (const IndexRow& row : TRY(index_->RowsOfSegment(number))) {
      if (row.offset > end) gaps.push_back({.segment = number, .offset = end});
      end = row.offset + RecordBytes(row.token_count, row.payload_bytes);
    }
    const auto status = TRY(system_.Inspect(files_.Path(number)));
    if (status && status->size_bytes > end) gaps.push_back({.segment = number, .offset = end});
    TRY_STATUS(Erase(gaps));
  }
  return {};
}

Result<int64_t> StoreWriter::Forget(const CacheKey& tenant) {
  opened_bytes_.reset();
  std::vector<int64_t> numbers;
  for (const auto& [number, bytes] : segment_bytes_) numbers.push_back(number);
  int64_t forgotten = 0;
  for (const int64_t number : numbers) forgotten += TRY(ForgetInSegment(number, tenant));
  TRY_STATUS(index_->Transaction(true, [&]() { return index_->DropUnusedNames(); }));
  TRY_STATUS(index_->Shrink());
  PublishTotals();
  return forgotten;
}

// Where the tenant's records lie in a segment, and how long they are. Looks into the segment
// itself, because a record that the index does not know is to be forgotten too.
Result<std::map<int64_t, int64_t>> StoreWriter::PlacesOf(int64_t number, const CacheKey& tenant) {
  std::map<int64_t, int64_t> places;
  const StorageFile file = TRY(system_.OpenFile(files_.Path(number), OpenMode::kRead));
  const auto status = TRY(system_.Inspect(files_.Path(number)));
  const int64_t size = status ? status->size_bytes : 0;
  const auto found = [&](const FoundRecord& record) -> Status {
    if (record.header.info.tenant == tenant) places[record.offset] = record.bytes;
    return {};
  };
  TRY(ScanRecords(system_, file, {.begin = kSegmentHeaderBytes, .end = size}, false, found));
  for (const IndexRow& row : TRY(index_->RowsOfSegment(number))) {
    if (row.tenant != tenant) continue;
    const int64_t bytes = RecordBytes(row.token_count, row.payload_bytes);
    places[row.offset] = std::min(bytes, std::max<int64_t>(size - row.offset, 0));
  }
  return places;
}

Result<int64_t> StoreWriter::ForgetInSegment(int64_t number, const CacheKey& tenant) {
  const std::map<int64_t, int64_t> places = TRY(PlacesOf(number, tenant));
  if (places.empty()) return 0;
  std::vector<IndexRow> rows;
  for (const IndexRow& row : TRY(index_->RowsOfSegment(number))) {
    if (places.count(row.offset) != 0) rows.push_back(row);
  }
  // The index first: a crash in between leaves bytes to erase, and no row that points to zeros.
  TRY_STATUS(WithdrawRows(rows));
  std::vector<PendingErasure> erasures;
  {
    // Zeros before the space is freed: a freed block of the disk keeps its contents.
    const StorageFile file = TRY(system_.OpenFile(files_.Path(number), OpenMode::kReadWrite));
    for (const auto& [offset, bytes] : places) {
      TRY_STATUS(Overwrite(file, offset, bytes));
      erasures.push_back({.segment = number, .offset = offset});
    }
    TRY_STATUS(system_.Sync(file));
  }
  TRY_STATUS(Erase(erasures));
  return static_cast<int64_t>(places.size());
}

Status BlockStore::CheckExported(const std::string& path) {
  const auto system = MakePosixStorage();
  const StorageFile file = TRY(system->OpenFile(path, OpenMode::kRead));
  return CheckExport(*system, file);
}

Result<BlockStore::ImportReport> StoreWriter::Import(const std::string& path) {
  const StorageFile file = TRY(system_.OpenFile(path, OpenMode::kRead));
  TRY_STATUS(CheckExport(system_, file));
  const auto status = TRY(system_.Inspect(path));
  if (!status) return Fail(ErrorCode::kNotFound, path + " vanished while it was opened");
  BlockStore::ImportReport report;
  RecordBuffer buffer;
  const auto flush = [&]() -> Status {
    const int64_t before = counters_.Get().records_written;
    TRY_STATUS(Write(buffer.Records()));
    const int64_t written = counters_.Get().records_written - before;
    report.records += written;
    buffer.Clear();
    return {};
  };
  const auto found = [&](const FoundRecord& record) -> Status {
    if (!record.intact) {
      ++report.damaged;
      return {};
    }
    RecordInfo info = record.header.info;
    if (TRY(index_->Find(info.key, info.fingerprint))) {
      ++report.known;
      return {};
    }
    info.tokens = TokensOf(record);
    const auto payload = record.body.subspan(info.tokens.size() * sizeof(int32_t));
    buffer.Add(std::move(info), payload, record.header.created_us);
    return buffer.bytes() < kCopyBytes ? Status() : flush();
  };
  const ScanRange range = {.begin = kSegmentHeaderBytes, .end = status->size_bytes};
  const ScanOutcome outcome = TRY(ScanRecords(system_, file, range, true, found));
  TRY_STATUS(flush());
  report.damaged += outcome.damaged;
  return report;
}

}  // namespace minke
