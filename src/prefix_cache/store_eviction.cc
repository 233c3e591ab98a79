// Keeping the disk tier under its budget. The ends of chains go first, the least recently used of
// them before others; a snapshot hangs below its block, so of one chain it goes before the rows.
#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "prefix_cache/record_format.h"
#include "prefix_cache/store_writer.h"

namespace minke {

namespace {

constexpr int64_t kIndexBytesPerRecord = 512;            // more than it takes
constexpr int64_t kLogBytesReserved = int64_t{1} << 20;  // what the index's log may grow to
constexpr int64_t kLogShare = 16;                // or this part of the budget, if that is less
constexpr int64_t kVictimsPerTransaction = 256;  // so that the log stays short
constexpr size_t kCandidatesMin = 64;            // looked for at once
constexpr int64_t kCandidateShare = 64;          // or this part of all records
constexpr size_t kZeroBytes = size_t{64} << 10;  // written at once

}  // namespace

bool StoreWriter::OlderFirst::operator()(const IndexRow& a, const IndexRow& b) const {
  return std::tuple(a.last_used_us, -a.end_position, a.segment, a.offset) <
         std::tuple(b.last_used_us, -b.end_position, b.segment, b.offset);
}

int64_t StoreWriter::LogReserve() const {
  return std::min(kLogBytesReserved, options_.budget_bytes / kLogShare);
}

// Room for what is about to be written. False if nothing more may be evicted.
Result<bool> StoreWriter::MakeRoom(int64_t bytes, int64_t records, int64_t snapshot_bytes) {
  while (snapshot_payload_bytes_ + snapshot_bytes > options_.snapshot_budget_bytes) {
    const int64_t over = snapshot_payload_bytes_ + snapshot_bytes - options_.snapshot_budget_bytes;
    if (TRY(Evict(over, true)) == 0) break;
  }
  if (snapshot_bytes > 0 &&
      snapshot_payload_bytes_ + snapshot_bytes > options_.snapshot_budget_bytes) {
    return false;
  }
  bool emptied = false;  // the index's log, since records went last
  while (true) {
    const int64_t over = TRY(DiskBytes()) + LogReserve() + bytes + records * kIndexBytesPerRecord -
                         options_.budget_bytes;
    if (over <= 0) return true;
    // The log takes disk too, more of it with every eviction, and goes without loss of a record.
    const int64_t excess = emptied ? over : over - TRY(LogDiskBytes(system_, directory_));
    const bool evicted = excess > 0 && TRY(Evict(excess, false)) > 0;
    if (!evicted && emptied) return false;
    if (!evicted) TRY_STATUS(index_->Checkpoint());
    emptied = !evicted;
  }
}

// Removes records of at least so many bytes, or as many as may be removed. Returns their bytes.
Result<int64_t> StoreWriter::Evict(int64_t bytes, bool snapshots_only) {
  if (!punches_ && !snapshots_only) return EvictSegment();
  std::vector<IndexRow> victims;
  // Durable: after a loss of power no row may point to bytes that are gone.
  const Status done = index_->Transaction(
      true, [&]() { return EvictInTransaction(bytes, snapshots_only, &victims); });
  if (!done) {
    leaves_.clear();
    snapshots_.clear();
    return tl::unexpected(done.error());
  }
  int64_t evicted = 0;
  std::vector<PendingErasure> erasures;
  for (const IndexRow& row : victims) {
    Count(row, -1);
    evicted += RowBytes(row);
    erasures.push_back({.segment = row.segment, .offset = row.offset});
  }
  counters_.Add(&StoreStats::records_evicted, static_cast<int64_t>(victims.size()));
  TRY_STATUS(Erase(erasures));
  PublishTotals();
  return evicted;
}

Status StoreWriter::EvictInTransaction(int64_t bytes, bool snapshots_only,
                                       std::vector<IndexRow>* victims) {
  Candidates& candidates = snapshots_only ? snapshots_ : leaves_;
  int64_t& until_us = snapshots_only ? snapshots_until_us_ : leaves_until_us_;
  bool refilled = false;
  while (bytes > 0 && static_cast<int64_t>(victims->size()) < kVictimsPerTransaction) {
    if (candidates.empty()) {
      if (refilled) return {};  // all of them are needed
      refilled = true;
      const auto share = static_cast<size_t>((blocks_ + snapshot_count_) / kCandidateShare);
      const size_t limit = std::max(kCandidatesMin, share);
      auto rows =
          TRY(snapshots_only ? index_->OldestSnapshots(limit) : index_->OldestLeaves(limit));
      until_us =
          rows.size() < limit ? std::numeric_limits<int64_t>::max() : rows.back().last_used_us;
      candidates.insert(rows.begin(), rows.end());
      if (candidates.empty()) return {};
    }
    const IndexRow candidate = *candidates.begin();
    candidates.erase(candidates.begin());
    if (!TRY(MayEvict(candidate))) continue;
    TRY_STATUS(index_->Remove(candidate.segment, candidate.offset).map([](bool) {}));
    victims->push_back(candidate);
    refilled = false;
    bytes -= RowBytes(candidate);
    if (!snapshots_only) TRY_STATUS(OfferParent(candidate, until_us));
  }
  return {};
}

// Candidates were found some time ago: they may have been used, moved or continued since.
Result<bool> StoreWriter::MayEvict(const IndexRow& candidate) {
  if (hooks_.is_awaited(candidate.key)) return false;
  const std::optional<IndexRow> now = TRY(index_->Find(candidate.key, candidate.fingerprint));
  if (!now || now->segment != candidate.segment || now->offset != candidate.offset) return false;
  if (now->last_used_us != candidate.last_used_us) return false;
  return candidate.kind == RecordKind::kSnapshot || !TRY(index_->HasChildren(candidate.key));
}

// The block before a victim may have become the end of its chain.
Status StoreWriter::OfferParent(const IndexRow& victim, int64_t newest_us) {
  const std::optional<IndexRow> parent = TRY(index_->Find(victim.parent, victim.fingerprint));
  if (!parent || parent->last_used_us > newest_us) return {};
  if (!TRY(index_->HasChildren(parent->key))) leaves_.insert(*parent);
  return {};
}

// Where single records cannot be freed: the segment that was not used for the longest time goes.
Result<int64_t> StoreWriter::EvictSegment() {
  if (segment_bytes_.size() == 1 && active_) active_ = StorageFile();
  if (!active_) active_number_ = -1;
  int64_t oldest = -1;
  int64_t oldest_us = std::numeric_limits<int64_t>::max();
  std::vector<IndexRow> victims;
  for (const auto& [number, disk_bytes] : segment_bytes_) {
    if (number == active_number_) continue;
    std::vector<IndexRow> rows = TRY(index_->RowsOfSegment(number));
    int64_t used_us = 0;
    bool awaited = false;
    for (const IndexRow& row : rows) {
      used_us = std::max(used_us, row.last_used_us);
      awaited = awaited || hooks_.is_awaited(row.key);
    }
    if (awaited || used_us >= oldest_us) continue;
    oldest = number;
    oldest_us = used_us;
    victims = std::move(rows);
  }
  if (oldest < 0) return 0;
  const int64_t freed = segment_bytes_[oldest];
  counters_.Add(&StoreStats::records_evicted, static_cast<int64_t>(victims.size()));
  TRY_STATUS(RemoveRows(victims));
  if (victims.empty()) TRY_STATUS(DropIfEmpty(oldest).map([](bool) {}));
  PublishTotals();
  return std::max<int64_t>(freed, 1);
}

// Frees the bytes around places whose rows are gone, and whole segments that hold nothing more.
Status StoreWriter::Erase(const std::vector<PendingErasure>& erasures) {
  if (erasures.empty()) return {};
  std::map<int64_t, std::vector<int64_t>> offsets;
  for (const PendingErasure& erasure : erasures) {
    offsets[erasure.segment].push_back(erasure.offset);
  }
  for (const auto& [number, places] : offsets) {
    if (TRY(DropIfEmpty(number))) continue;
    Result<StorageFile> file = system_.OpenFile(files_.Path(number), OpenMode::kReadWrite);
    if (!file && file.error().code == ErrorCode::kNotFound) {
      TRY_STATUS(ForgetSegment(number));
      continue;
    }
    if (!file) return tl::unexpected(file.error());
    for (const int64_t offset : places) TRY_STATUS(EraseGap(*file, number, offset));
    TRY_STATUS(Measure(number));
  }
  return index_->Transaction(false, [&]() -> Status {
    for (const PendingErasure& erasure : erasures) TRY_STATUS(index_->DropErasure(erasure));
    return {};
  });
}

// Everything between the live records around `offset`: only whole pages of the disk come back, and
// a page may be shared with a neighbour that went before.
Status StoreWriter::EraseGap(const StorageFile& file, int64_t number, int64_t offset) {
  const LiveNeighbours live = TRY(index_->Neighbours(number, offset));
  const auto status = TRY(system_.Inspect(file.path()));
  const int64_t size = status ? status->size_bytes : 0;
  const int64_t begin = live.previous_end.value_or(kSegmentHeaderBytes);
  const int64_t end = std::min(live.next_begin.value_or(size), size);
  if (begin >= end) return {};
  if (TRY(system_.PunchHole(file, begin, end - begin))) return {};
  punches_ = false;
  return Overwrite(file, begin, end - begin);
}

Status StoreWriter::Overwrite(const StorageFile& file, int64_t offset, int64_t bytes) {
  const std::vector<std::byte> zeros(kZeroBytes);
  while (bytes > 0) {
    const auto part = std::span(zeros).first(
        static_cast<size_t>(std::min(bytes, static_cast<int64_t>(zeros.size()))));
    const std::array<std::span<const std::byte>, 1> parts = {part};
    TRY_STATUS(system_.WriteAt(file, offset, parts));
    offset += static_cast<int64_t>(part.size());
    bytes -= static_cast<int64_t>(part.size());
  }
  return {};
}

// Removes the file of a segment without live records, unless it is appended to.
Result<bool> StoreWriter::DropIfEmpty(int64_t number) {
  if (number == active_number_) return false;
  if (TRY(index_->Neighbours(number, 0)).next_begin) return false;
  files_.Retire(number);
  const Status removed = system_.Unlink(files_.Path(number));
  if (!removed && removed.error().code != ErrorCode::kNotFound) {
    return tl::unexpected(removed.error());
  }
  segment_bytes_.erase(number);
  TRY_STATUS(index_->Transaction(false, [&]() { return index_->DropSegment(number); }));
  return true;
}

}  // namespace minke
