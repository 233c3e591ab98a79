// Opening the disk tier. Whatever the last process left behind, a crash included: what the index
// lacks is found in the segments, what the index has and the segments lack is removed.
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/file.h"
#include "prefix_cache/record_format.h"
#include "prefix_cache/store_reader.h"
#include "prefix_cache/store_writer.h"

namespace minke {

namespace {

constexpr size_t kRowsPerTransaction = 64;  // so that the index's log stays short

tl::unexpected<Error> NewerVersion(const std::string& path, uint32_t version) {
  return Fail(ErrorCode::kLimit, "the cache segment " + path +
                                     " was written by a newer version (format " +
                                     std::to_string(version) + ", this one knows " +
                                     std::to_string(kStoreFormatVersion) +
                                     "); use that version, or choose another cache directory");
}

}  // namespace

Result<std::unique_ptr<StoreWriter>> StoreWriter::Open(const StoreOptions& options,
                                                       StorageSystem& system, SegmentFiles& files,
                                                       StoreCounters& counters, WriterHooks hooks) {
  auto writer = std::unique_ptr<StoreWriter>(
      new StoreWriter(options, system, files, counters, std::move(hooks)));
  // Before the lock is made: nothing of ours goes into a directory that is refused.
  TRY(ListStoreDirectory(system, writer->directory_));
  writer->lock_ = TRY(LockStoreDirectory(system, writer->directory_));
  StoreListing listing = TRY(ListStoreDirectory(system, writer->directory_));
  TRY_STATUS(writer->CheckVersions(listing));
  TRY_STATUS(writer->OpenIndex());
  // Without a log the index is measured as Gc() leaves it. A damaged one shows in what follows.
  const Status ignored = writer->index_->Checkpoint();
  writer->opened_bytes_ = TRY(writer->DiskBytes(listing));
  Status reconciled = writer->Reconcile(listing);
  if (!reconciled && reconciled.error().code == ErrorCode::kInvalidInput) {
    reconciled = writer->RebuildIndex();
  }
  TRY_STATUS(reconciled);
  TRY(writer->MakeRoom(0, 0, 0));  // the budget may be smaller than the last process's
  writer->PublishTotals();
  return writer;
}

// A newer version's directory is refused before anything in it changes.
Status StoreWriter::CheckVersions(const StoreListing& listing) {
  for (const auto& [number, status] : listing.segments) {
    SegmentHeader header;
    if (TRY(ReadSegmentHeader(number, &header)) && header.version > kStoreFormatVersion) {
      return NewerVersion(files_.Path(number), header.version);
    }
  }
  return {};
}

Result<bool> StoreWriter::ReadSegmentHeader(int64_t number, SegmentHeader* header) {
  const StorageFile file = TRY(system_.OpenFile(files_.Path(number), OpenMode::kRead));
  SegmentHeaderBytes bytes;
  const std::array<std::span<std::byte>, 1> parts = {std::span<std::byte>(bytes)};
  const int64_t count = TRY(system_.ReadAt(file, 0, parts));
  return ParseSegmentHeader(std::span(bytes).first(static_cast<size_t>(count)), header);
}

// SQLite would make it with the rights of the umask. One that exists is left to SQLite: closing any
// descriptor of it would take the process's locks away.
Status StoreWriter::CreateIndexFile(const std::string& path) {
  if (!TRY(system_.Inspect(path))) TRY(system_.OpenFile(path, OpenMode::kCreate));
  return {};
}

Status StoreWriter::OpenIndex() {
  const std::string path = JoinPath(directory_, kIndexName);
  TRY_STATUS(CreateIndexFile(path));
  Result<StoreIndex> index = StoreIndex::Open(path, IndexMode::kCreateOrOpen);
  if (!index) {
    // Some damage looks to SQLite like a disk that refuses; a new index tells them apart.
    TRY_STATUS(DiscardIndex(system_, directory_));
    counters_.Add(&StoreStats::index_rebuilds, 1);
    TRY_STATUS(CreateIndexFile(path));
    index = StoreIndex::Open(path, IndexMode::kCreateOrOpen);
  }
  if (!index) return tl::unexpected(index.error());
  index_.emplace(std::move(*index));
  return {};
}

Status StoreWriter::RebuildIndex() {
  if (++rebuilds_ > kIndexRebuildsMax) {
    return Fail(ErrorCode::kIo, "the cache index in " + directory_ + " was damaged " +
                                    std::to_string(rebuilds_) +
                                    " times, so the disk or a program writes wrong bytes there");
  }
  hooks_.index_available(false);
  index_.reset();
  counters_.Add(&StoreStats::index_rebuilds, 1);
  TRY_STATUS(DiscardIndex(system_, directory_));
  TRY_STATUS(OpenIndex());
  TRY_STATUS(Reconcile(TRY(ListStoreDirectory(system_, directory_))));
  hooks_.index_available(true);
  return {};
}

Status StoreWriter::Reconcile(const StoreListing& listing) {
  const int64_t start_us = Now();
  blocks_ = snapshot_count_ = foreign_ = row_bytes_ = snapshot_payload_bytes_ = 0;
  leaves_.clear();
  snapshots_.clear();
  active_ = StorageFile();
  active_number_ = -1;
  other_bytes_ = listing.other_bytes;
  segment_bytes_.clear();
  for (const auto& [number, status] : listing.segments) {
    segment_bytes_[number] = status.disk_bytes;
    next_number_ = std::max(next_number_, number + 1);
  }
  TRY_STATUS(CheckRows(listing));
  const std::map<int64_t, int64_t> known = TRY(index_->Segments());
  for (const auto& [number, scanned_bytes] : known) {
    next_number_ = std::max(next_number_, number + 1);
    if (listing.segments.count(number) == 0) TRY_STATUS(ForgetSegment(number));
  }
  for (const auto& [number, status] : listing.segments) {
    if (segment_bytes_.count(number) == 0) continue;  // dropped with its last row
    if (!TRY(CheckSegment(number, status))) continue;
    const auto found = known.find(number);
    const int64_t scanned = found == known.end() ? 0 : found->second;
    TRY_STATUS(ScanTail(number, std::max(scanned, kSegmentHeaderBytes), status.size_bytes));
  }
  TRY_STATUS(Erase(TRY(index_->Erasures())));
  PublishTotals();
  counters_.Set(&StoreStats::scan_us, Now() - start_us);
  return {};
}

// Counts the rows, and removes those that point to where nothing is.
Status StoreWriter::CheckRows(const StoreListing& listing) {
  std::set<int64_t> vanished;
  std::vector<IndexRow> beyond;
  const Status counted = index_->ForEach([&](const IndexRow& row) -> Status {
    Count(row, 1);
    const auto segment = listing.segments.find(row.segment);
    if (segment == listing.segments.end()) {
      vanished.insert(row.segment);
    } else if (row.offset + RecordBytes(row.token_count, row.payload_bytes) >
               segment->second.size_bytes) {
      beyond.push_back(row);
    }
    return {};
  });
  TRY_STATUS(counted);
  for (const int64_t number : vanished) TRY_STATUS(ForgetSegment(number));
  if (beyond.empty()) return {};
  for (const IndexRow& row : beyond) hooks_.damaged(row);
  counters_.Add(&StoreStats::records_damaged, static_cast<int64_t>(beyond.size()));
  return RemoveRows(beyond);
}

// Whether the segment's file is worth a search. If not, it is gone afterwards.
Result<bool> StoreWriter::CheckSegment(int64_t number, const FileStatus& status) {
  SegmentHeader header;
  const bool good = TRY(ReadSegmentHeader(number, &header));
  const bool outdated = good && header.version < kStoreFormatVersion;
  const bool renamed = good && header.number != number;
  const bool empty = status.size_bytes <= kSegmentHeaderBytes;
  if (!outdated && !renamed && !empty) {
    if (!good) TRY_STATUS(RepairHeader(number));
    return true;
  }
  // An empty one is what a crash leaves of a new segment, and no loss.
  const std::vector<IndexRow> rows = TRY(index_->RowsOfSegment(number));
  TRY_STATUS(ForgetSegment(number));
  if (rows.empty() && !empty) counters_.Add(&StoreStats::records_damaged, 1);
  const Status removed = system_.Unlink(files_.Path(number));
  if (!removed && removed.error().code != ErrorCode::kNotFound) {
    return tl::unexpected(removed.error());
  }
  return false;
}

// Every record has a header of its own, so the file's is only worth its version.
Status StoreWriter::RepairHeader(int64_t number) {
  counters_.Add(&StoreStats::records_damaged, 1);
  const StorageFile file = TRY(system_.OpenFile(files_.Path(number), OpenMode::kReadWrite));
  const SegmentHeaderBytes bytes =
      EncodeSegmentHeader({.version = kStoreFormatVersion, .number = number, .created_us = Now()});
  const std::array<std::span<const std::byte>, 1> parts = {std::span<const std::byte>(bytes)};
  TRY_STATUS(system_.WriteAt(file, 0, parts));
  return system_.Sync(file);
}

// Publishes what lies in a segment behind the place that the index knows it to.
Status StoreWriter::ScanTail(int64_t number, int64_t begin, int64_t end) {
  bool torn = false;
  if (begin < end) {
    const StorageFile file = TRY(system_.OpenFile(files_.Path(number), OpenMode::kRead));
    std::vector<IndexRow> rows;
    std::vector<PendingErasure> litter;
    const auto found = [&](const FoundRecord& record) -> Status {
      const IndexRow row = RowFor(record.header.info, record.header.token_count, number,
                                  record.offset, record.header.created_us);
      if (!record.intact) {
        litter.push_back({.segment = number, .offset = record.offset});
        hooks_.damaged(row);
        return {};
      }
      rows.push_back(row);
      return rows.size() < kRowsPerTransaction ? Status() : PublishFound(&rows);
    };
    const ScanOutcome outcome =
        TRY(ScanRecords(system_, file, {.begin = begin, .end = end}, true, found));
    TRY_STATUS(PublishFound(&rows));
    counters_.Add(&StoreStats::records_damaged,
                  outcome.damaged + static_cast<int64_t>(litter.size()));
    for (const ScanRange& range : outcome.litter) {
      litter.push_back({.segment = number, .offset = range.begin});
    }
    const Status noted = index_->Transaction(false, [&]() -> Status {
      for (const PendingErasure& erasure : litter) TRY_STATUS(index_->AddErasure(erasure));
      return index_->SetSegment(number, end);
    });
    TRY_STATUS(noted);
    torn = outcome.torn_tail;
  }
  // The newest segment is continued, unless its last append was cut short.
  if (number + 1 != next_number_ || torn || end % kRecordAlignBytes != 0 ||
      end >= options_.segment_bytes) {
    return {};
  }
  active_ = TRY(system_.OpenFile(files_.Path(number), OpenMode::kReadWrite));
  active_number_ = number;
  active_end_ = end;
  return {};
}

Status StoreWriter::PublishFound(std::vector<IndexRow>* rows) {
  int64_t recovered = 0;
  Status done = index_->Transaction(false, [&]() -> Status {
    for (const IndexRow& row : *rows) {
      if (TRY(PublishRow(row))) ++recovered;
    }
    return {};
  });
  rows->clear();
  counters_.Add(&StoreStats::records_recovered, recovered);
  return done;
}

// False if the record is known: at this place, or at another, and then this copy is erased.
Result<bool> StoreWriter::PublishRow(const IndexRow& row) {
  const std::optional<IndexRow> known = TRY(index_->Find(row.key, row.fingerprint));
  if (known) {
    const bool same = known->segment == row.segment && known->offset == row.offset;
    if (!same) TRY_STATUS(index_->AddErasure({.segment = row.segment, .offset = row.offset}));
    return false;
  }
  if (!TRY(index_->Insert(row))) {
    return Fail("the cache index in " + directory_ + " names another record at a record's place");
  }
  Count(row, 1);
  return true;
}

}  // namespace minke
